#include "kernels/tcp_store.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "kernels/error.hpp"
#include "kernels/tcp_frame.hpp"

namespace gtp {

namespace {

using Clock = std::chrono::steady_clock;
using detail::FrameReader;
using detail::FrameWriter;
using detail::StoreOp;
using detail::StoreReply;

constexpr std::chrono::milliseconds kRetryPause{50};
/// What a reply may take beyond the time that the server itself waits.
constexpr std::chrono::milliseconds kAnswerSlack{5000};

FrameWriter message(StoreOp op) { return FrameWriter{}.byte(static_cast<std::uint8_t>(op)); }

/// Throws kAborted, because only the server can be at fault.
[[noreturn]] void lost(std::string_view what) {
  throw RuntimeError(RuntimeStatus::kAborted, fmt::format("rank 0, which holds the store, is gone: {}", what));
}

void wait_until_ready(int socket, short events, Clock::time_point deadline) {
  pollfd entry{socket, events, 0};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) throw RuntimeError(RuntimeStatus::kTimeout, "the store does not answer");
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 60000)));
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) lost(std::strerror(errno));
  }
}

void send_all(int socket, std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    wait_until_ready(socket, POLLOUT, deadline);
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (sent <= 0) lost(std::strerror(errno));
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

std::string receive(int socket, std::size_t size, Clock::time_point deadline) {
  std::string bytes(size, '\0');
  for (std::size_t got = 0; got < size;) {
    wait_until_ready(socket, POLLIN, deadline);
    const ssize_t count = ::recv(socket, bytes.data() + got, size - got, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count == 0) lost("it closed the connection");
    if (count < 0) lost(std::strerror(errno));
    got += static_cast<std::size_t>(count);
  }
  return bytes;
}

/// -1 if nobody listens there now.
int try_connect(const addrinfo& to) {
  const int made = ::socket(to.ai_family, to.ai_socktype | SOCK_CLOEXEC, to.ai_protocol);
  if (made < 0) return -1;
  if (::connect(made, to.ai_addr, to.ai_addrlen) == 0) {
    const int on = 1;
    ::setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return made;
  }
  ::close(made);
  return -1;
}

int connect_to(const TcpStoreAddress& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = fmt::format("{}", address.port);
  if (const int error = ::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found); error != 0) {
    if (error == EAI_AGAIN) return -1;
    throw RuntimeError(RuntimeStatus::kInvalidPlan, fmt::format("rank {}: the address `{}` of the store: {}",
                                                                address.rank, address.host, ::gai_strerror(error)));
  }
  int made = -1;
  for (const addrinfo* each = found; each != nullptr && made < 0; each = each->ai_next) made = try_connect(*each);
  ::freeaddrinfo(found);
  return made;
}

std::string numeric_address(int socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  char host[NI_MAXHOST] = "";
  auto* generic = reinterpret_cast<sockaddr*>(&storage);
  if (::getsockname(socket, generic, &size) != 0) return "";
  if (::getnameinfo(generic, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return host;
}

}  // namespace

TcpStore::TcpStore(TcpStoreAddress address, std::chrono::milliseconds limit) : address_(std::move(address)) {
  connect(limit);
  try {
    local_address_ = numeric_address(socket_);
    request(message(StoreOp::kHello)
                .number(detail::kStoreMagic)
                .number(static_cast<std::uint64_t>(address_.rank))
                .number(static_cast<std::uint64_t>(address_.world_size))
                .frame(),
            limit);
  } catch (...) {
    ::close(socket_);
    throw;
  }
}

TcpStore::~TcpStore() {
  try {
    if (!broken_) request(message(StoreOp::kBye).frame(), std::chrono::milliseconds(0));
  } catch (...) {  // the server is gone, so nobody misses the goodbye
  }
  ::close(socket_);
}

void TcpStore::connect(std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while ((socket_ = connect_to(address_)) < 0) {
    if (Clock::now() >= deadline) {
      throw RuntimeError(RuntimeStatus::kTimeout,
                         fmt::format("rank {}: nobody listens at {}:{} (MASTER_ADDR, MASTER_PORT) after {} ms: is rank "
                                     "0 running?",
                                     address_.rank, address_.host, address_.port, limit.count()));
    }
    std::this_thread::sleep_for(kRetryPause);
  }
}

std::string TcpStore::request(std::string_view message, std::chrono::milliseconds limit) {
  const std::scoped_lock lock(mutex_);
  if (broken_) lost("an earlier request failed");
  const auto deadline = Clock::now() + limit + kAnswerSlack;
  broken_ = true;  // until the exchange is complete
  send_all(socket_, message, deadline);
  const auto length = detail::frame_length(receive(socket_, detail::kFrameHeader, deadline));
  if (*length == 0 || *length > detail::kMaxFrame) lost("its reply is none of this protocol");
  const std::string reply = receive(socket_, *length, deadline);
  FrameReader reader(reply);
  const std::optional<std::uint8_t> status = reader.byte();
  const std::optional<std::string_view> text = reader.text();
  if (!status || !text || !reader.done()) lost("its reply is none of this protocol");
  broken_ = false;
  if (*status == static_cast<std::uint8_t>(StoreReply::kOk)) return std::string(*text);
  const bool timeout = *status == static_cast<std::uint8_t>(StoreReply::kTimeout);
  throw RuntimeError(timeout ? RuntimeStatus::kTimeout : RuntimeStatus::kInvalidPlan,
                     fmt::format("rank {}: {}", address_.rank, *text));
}

void TcpStore::wait_for_all(std::chrono::milliseconds limit) {
  request(message(StoreOp::kWaitAll).number(static_cast<std::uint64_t>(limit.count())).frame(), limit);
}

void TcpStore::set(std::string_view key, std::string_view value) {
  request(message(StoreOp::kSet).text(key).text(value).frame(), std::chrono::milliseconds(0));
}

std::string TcpStore::get(std::string_view key, std::chrono::milliseconds limit) {
  return request(message(StoreOp::kGet).text(key).number(static_cast<std::uint64_t>(limit.count())).frame(), limit);
}

std::optional<std::string> TcpStore::why(std::chrono::milliseconds limit) noexcept {
  try {
    return request(message(StoreOp::kWhy).number(static_cast<std::uint64_t>(limit.count())).frame(), limit);
  } catch (const RuntimeError& error) {
    if (error.status() == RuntimeStatus::kAborted) return error.text();
    return std::nullopt;
  } catch (...) {
    return std::nullopt;
  }
}

void TcpStore::report_failure(std::string_view text) noexcept {
  try {
    request(message(StoreOp::kFail).text(text.substr(0, kMaxStoreValue)).frame(), std::chrono::milliseconds(0));
  } catch (...) {  // peers then see the connection break
  }
}

}  // namespace gtp
