// The serving side of the TCP store: one thread, one poll loop, requests that wait are parked with a deadline.
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <list>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "kernels/error.hpp"
#include "kernels/tcp_frame.hpp"
#include "kernels/tcp_store.hpp"

namespace gtp {

namespace {

using Clock = std::chrono::steady_clock;
using detail::FrameReader;
using detail::FrameWriter;
using detail::StoreOp;
using detail::StoreReply;

constexpr std::uint64_t kMaxWaitMilliseconds = 1'000'000'000;
constexpr std::chrono::milliseconds kHelloLimit{10000};
constexpr std::size_t kStrangers = 64;  ///< Connections beyond one per rank.

enum class Presence : std::uint8_t { kAbsent, kHere, kLeft };

struct Connection {
  int socket = -1;
  std::int64_t rank = -1;
  Clock::time_point since;
  std::string in;
  std::string out;
  bool waiting = false;
  StoreOp waits_for{};
  std::string key;
  Clock::time_point deadline;
  bool closing = false;
};

int listen_on(std::uint16_t port) {
  const int made = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  const int off = 0;
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(port);
  if (made >= 0) {
    ::setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    ::setsockopt(made, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (::bind(made, reinterpret_cast<const sockaddr*>(&any6), sizeof any6) == 0 && ::listen(made, 1024) == 0) {
      return made;
    }
    const int error = errno;
    ::close(made);
    if (error == EADDRINUSE) return -1;
  }
  const int made4 = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);  // hosts without IPv6
  if (made4 < 0) return -1;
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  any4.sin_port = htons(port);
  ::setsockopt(made4, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(made4, reinterpret_cast<const sockaddr*>(&any4), sizeof any4) == 0 && ::listen(made4, 1024) == 0) {
    return made4;
  }
  ::close(made4);
  return -1;
}

std::uint16_t port_of(int socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return 0;
  if (storage.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
}

void reply(Connection& to, StoreReply status, std::string_view text) {
  to.waiting = false;
  to.out += FrameWriter{}.byte(static_cast<std::uint8_t>(status)).text(text).frame();
}

}  // namespace

struct TcpStoreServer::Impl {
  Impl(int socket, std::int64_t world_size) : listener(socket), ranks(static_cast<std::size_t>(world_size)) {}

  void serve();
  int next_timeout() const;
  void drop_closing();
  void accept_all();
  void read_from(Connection& from);
  void handle_frames(Connection& from);
  bool handle(Connection& from, std::string_view message);
  bool hello(Connection& from, FrameReader& reader);
  bool park(Connection& from, StoreOp op, std::string_view key, std::optional<std::uint64_t> milliseconds);
  void answer_waiting(Connection& each);
  void write_to(Connection& to);
  void disconnect(Connection& from);
  std::string missing() const;

  int listener;
  int wake[2] = {-1, -1};
  std::list<Connection> connections;
  std::unordered_map<std::string, std::string> values;
  std::optional<std::string> failure;
  std::mutex mutex;  ///< Of what follows, which `wait_for_goodbyes` reads.
  std::condition_variable changed;
  std::vector<Presence> ranks;
  std::size_t arrived = 0;
  std::thread thread;
};

TcpStoreServer::TcpStoreServer(std::uint16_t port, std::int64_t world_size) {
  const int listener = listen_on(port);
  if (listener < 0) {
    throw RuntimeError(RuntimeStatus::kInvalidPlan,
                       fmt::format("rank 0 cannot listen on port {}: {}. A launcher may keep a store of its own at "
                                   "MASTER_PORT: set GTP_STORE_PORT to another port on all ranks",
                                   port, std::strerror(errno)));
  }
  impl_ = std::make_unique<Impl>(listener, world_size);
  if (::pipe(impl_->wake) != 0) {
    ::close(listener);
    throw RuntimeError(RuntimeStatus::kOutOfMemory, "no pipe for the store");
  }
  impl_->thread = std::thread([impl = impl_.get()] { impl->serve(); });
}

TcpStoreServer::~TcpStoreServer() {
  ::close(impl_->wake[1]);
  impl_->thread.join();
  ::close(impl_->wake[0]);
  ::close(impl_->listener);
  for (const Connection& each : impl_->connections) ::close(each.socket);
}

std::uint16_t TcpStoreServer::port() const noexcept { return port_of(impl_->listener); }

bool TcpStoreServer::wait_for_goodbyes(std::chrono::milliseconds limit) {
  std::unique_lock lock(impl_->mutex);
  return impl_->changed.wait_for(lock, limit, [&] {
    return std::ranges::none_of(impl_->ranks, [](Presence each) { return each == Presence::kHere; });
  });
}

void TcpStoreServer::Impl::serve() {
  std::vector<pollfd> polled;
  for (;;) {
    polled.assign({{wake[0], POLLIN, 0}, {listener, POLLIN, 0}});
    for (const Connection& each : connections) {
      polled.push_back({each.socket, static_cast<short>(each.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
    }
    ::poll(polled.data(), polled.size(), next_timeout());
    if (polled[0].revents != 0) return;
    std::size_t index = 2;
    for (Connection& each : connections) {
      const short events = polled[index++].revents;
      if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) read_from(each);
    }
    if (polled[1].revents != 0) accept_all();
    drop_closing();
    for (Connection& each : connections) answer_waiting(each);
    for (Connection& each : connections) write_to(each);
  }
}

/// Before requests are answered: one of them may ask who is gone.
void TcpStoreServer::Impl::drop_closing() {
  for (Connection& each : connections) {
    if (each.rank < 0 && Clock::now() - each.since > kHelloLimit) each.closing = true;
    if (each.closing) disconnect(each);
  }
  connections.remove_if([](const Connection& each) { return each.closing; });
}

int TcpStoreServer::Impl::next_timeout() const {
  auto next = Clock::now() + kHelloLimit;
  for (const Connection& each : connections) {
    if (each.closing) return 0;
    if (each.waiting) next = std::min(next, each.deadline);
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
  return static_cast<int>(std::max<std::int64_t>(left.count(), 0));
}

void TcpStoreServer::Impl::accept_all() {
  for (;;) {
    const int made = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (made < 0) return;
    if (connections.size() >= ranks.size() + kStrangers) {
      ::close(made);
      continue;
    }
    const int on = 1;
    ::setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    Connection& added = connections.emplace_back();
    added.socket = made;
    added.since = Clock::now();
  }
}

void TcpStoreServer::Impl::read_from(Connection& from) {
  char chunk[4096];
  for (;;) {
    const ssize_t count = ::recv(from.socket, chunk, sizeof chunk, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (count <= 0) {
      from.closing = true;
      break;
    }
    from.in.append(chunk, static_cast<std::size_t>(count));
    if (from.in.size() > detail::kMaxFrame + detail::kFrameHeader) break;
  }
  handle_frames(from);
}

void TcpStoreServer::Impl::handle_frames(Connection& from) {
  for (;;) {
    const std::optional<std::size_t> length = detail::frame_length(from.in);
    if (!length) return;
    if (*length == 0 || *length > detail::kMaxFrame) {
      from.closing = true;
      return;
    }
    if (from.in.size() < *length + detail::kFrameHeader) return;
    const std::string message = from.in.substr(detail::kFrameHeader, *length);
    from.in.erase(0, *length + detail::kFrameHeader);
    // A client has one request at a time, so a second one while it waits is no client of ours.
    if (from.waiting || !handle(from, message)) {
      from.closing = true;
      return;
    }
  }
}

/// False if the message breaks the protocol.
bool TcpStoreServer::Impl::handle(Connection& from, std::string_view message) {
  FrameReader reader(message);
  const std::optional<std::uint8_t> code = reader.byte();
  if (!code || *code > static_cast<std::uint8_t>(StoreOp::kBye)) return false;
  const auto op = static_cast<StoreOp>(*code);
  if ((op == StoreOp::kHello) != (from.rank < 0)) return false;
  switch (op) {
    case StoreOp::kHello:
      return hello(from, reader);
    case StoreOp::kWaitAll:
    case StoreOp::kWhy:
      return park(from, op, "", reader.number()) && reader.done();
    case StoreOp::kGet: {
      const std::optional<std::string_view> key = reader.text();
      return key && park(from, op, *key, reader.number()) && reader.done();
    }
    case StoreOp::kSet: {
      const std::optional<std::string_view> key = reader.text();
      const std::optional<std::string_view> value = reader.text();
      if (!key || !value || !reader.done()) return false;
      if (key->size() > kMaxStoreKey || value->size() > kMaxStoreValue || values.size() >= kMaxStoreKeys) {
        reply(from, StoreReply::kRefused, "the store keeps no key or value of this size, or is full");
        return true;
      }
      values.insert_or_assign(std::string(*key), std::string(*value));
      reply(from, StoreReply::kOk, "");
      return true;
    }
    case StoreOp::kFail: {
      const std::optional<std::string_view> text = reader.text();
      if (!text || !reader.done()) return false;
      if (!failure) failure = std::string(*text);
      reply(from, StoreReply::kOk, "");
      return true;
    }
    case StoreOp::kBye: {
      const std::scoped_lock lock(mutex);
      ranks[static_cast<std::size_t>(from.rank)] = Presence::kLeft;
      changed.notify_all();
      reply(from, StoreReply::kOk, "");
      return reader.done();
    }
  }
  return false;
}

bool TcpStoreServer::Impl::hello(Connection& from, FrameReader& reader) {
  const auto magic = reader.number();
  const auto rank = reader.number();
  const auto world_size = reader.number();
  if (magic != detail::kStoreMagic || !rank || !world_size || !reader.done()) return false;
  if (*world_size != ranks.size()) {
    reply(from, StoreReply::kRefused,
          fmt::format("its WORLD_SIZE is {}, but that of rank 0 is {}", *world_size, ranks.size()));
    return true;
  }
  if (*rank >= ranks.size()) return false;
  const std::scoped_lock lock(mutex);
  Presence& presence = ranks[*rank];
  if (presence != Presence::kAbsent) {
    reply(from, StoreReply::kRefused, fmt::format("another process has arrived with RANK {}", *rank));
    return true;
  }
  presence = Presence::kHere;
  ++arrived;
  from.rank = static_cast<std::int64_t>(*rank);
  reply(from, StoreReply::kOk, "");
  return true;
}

bool TcpStoreServer::Impl::park(Connection& from, StoreOp op, std::string_view key,
                                std::optional<std::uint64_t> milliseconds) {
  if (!milliseconds || *milliseconds > kMaxWaitMilliseconds || key.size() > kMaxStoreKey) return false;
  from.waiting = true;
  from.waits_for = op;
  from.key = key;
  from.deadline = Clock::now() + std::chrono::milliseconds(*milliseconds);
  return true;
}

std::string TcpStoreServer::Impl::missing() const {
  constexpr std::size_t kNamed = 8;
  std::string text;
  std::size_t named = 0;
  for (std::size_t rank = 0; rank < ranks.size() && named < kNamed; ++rank) {
    if (ranks[rank] == Presence::kAbsent) text += fmt::format("{}{}", named++ == 0 ? "" : ", ", rank);
  }
  return fmt::format("{} of {} ranks have arrived; missing: {}{}", arrived, ranks.size(), text,
                     ranks.size() - arrived > named ? "..." : "");
}

void TcpStoreServer::Impl::answer_waiting(Connection& each) {
  if (!each.waiting) return;
  const bool expired = Clock::now() >= each.deadline;
  if (each.waits_for == StoreOp::kWhy) {
    if (failure) return reply(each, StoreReply::kOk, *failure);
    if (expired) reply(each, StoreReply::kTimeout, "nothing has failed");
  } else if (each.waits_for == StoreOp::kWaitAll) {
    if (arrived == ranks.size()) return reply(each, StoreReply::kOk, "");
    if (expired) reply(each, StoreReply::kTimeout, missing());
  } else {
    const auto value = values.find(each.key);
    if (value != values.end()) return reply(each, StoreReply::kOk, value->second);
    if (failure) return reply(each, StoreReply::kTimeout, *failure);  // whoever would set it may never do so
    if (expired) reply(each, StoreReply::kTimeout, fmt::format("nobody has set `{}`", each.key));
  }
}

void TcpStoreServer::Impl::write_to(Connection& to) {
  while (!to.out.empty()) {
    const ssize_t sent = ::send(to.socket, to.out.data(), to.out.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent <= 0) {
      to.closing = true;
      return;
    }
    to.out.erase(0, static_cast<std::size_t>(sent));
  }
}

/// A rank that breaks off without a goodbye has failed, and its peers may ask why.
void TcpStoreServer::Impl::disconnect(Connection& from) {
  ::close(from.socket);
  if (from.rank < 0) return;
  const std::scoped_lock lock(mutex);
  Presence& presence = ranks[static_cast<std::size_t>(from.rank)];
  if (presence == Presence::kHere && !failure) failure = fmt::format("rank {} is gone", from.rank);
  presence = Presence::kLeft;
  changed.notify_all();
}

}  // namespace gtp
