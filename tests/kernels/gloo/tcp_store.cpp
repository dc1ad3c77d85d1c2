// The store over the loopback: what it keeps, how long it waits, and that nothing sent to it can hurt it.
#include "kernels/tcp_store.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "kernels/error.hpp"

namespace gtp::test {

namespace {

constexpr std::chrono::milliseconds kLimit{10000};
constexpr std::chrono::milliseconds kMoment{50};

TcpStoreAddress address(const TcpStoreServer& server, std::int64_t rank, std::int64_t world_size) {
  return {"127.0.0.1", server.port(), rank, world_size};
}

template <class F>
std::string error_of(RuntimeStatus status, F&& body) {
  try {
    body();
    return "no error";
  } catch (const RuntimeError& error) {
    CHECK(error.status() == status);
    return error.text();
  }
}

/// A connection that follows no protocol.
int raw_connection(const TcpStoreServer& server) {
  const int made = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(server.port());
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(made, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  return made;
}

/// True if the server hangs up without a word.
bool is_dropped(const TcpStoreServer& server, std::string_view bytes) {
  const int made = raw_connection(server);
  CHECK(::send(made, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
  char answer = 0;
  const bool dropped = ::recv(made, &answer, 1, 0) <= 0;
  ::close(made);
  return dropped;
}

}  // namespace

TEST_CASE("what one rank sets another gets, also if it asks before") {
  TcpStoreServer server(0, 2);
  TcpStore first(address(server, 0, 2), kLimit);
  TcpStore second(address(server, 1, 2), kLimit);
  const std::string bytes("\0\xFF\n binary", 10);
  std::thread later([&] {
    std::this_thread::sleep_for(kMoment);
    first.set("key", bytes);
  });
  CHECK(second.get("key", kLimit) == bytes);
  later.join();
  CHECK(first.get("key", kLimit) == bytes);
  CHECK(first.local_address() == "127.0.0.1");
  CHECK(error_of(RuntimeStatus::kTimeout, [&] { first.get("none", kMoment); }) == "rank 0: nobody has set `none`");
}

TEST_CASE("waiting for all ranks names those that are missing") {
  TcpStoreServer server(0, 3);
  TcpStore first(address(server, 1, 3), kLimit);
  CHECK(error_of(RuntimeStatus::kTimeout, [&] { first.wait_for_all(kMoment); }) ==
        "rank 1: 1 of 3 ranks have arrived; missing: 0, 2");
  TcpStore second(address(server, 0, 3), kLimit);
  TcpStore third(address(server, 2, 3), kLimit);
  first.wait_for_all(kLimit);
}

TEST_CASE("a rank of another world, or one that is there already, is refused") {
  TcpStoreServer server(0, 2);
  TcpStore first(address(server, 0, 2), kLimit);
  CHECK(error_of(RuntimeStatus::kInvalidPlan, [&] { TcpStore(address(server, 1, 8), kLimit); }) ==
        "rank 1: its WORLD_SIZE is 8, but that of rank 0 is 2");
  CHECK(error_of(RuntimeStatus::kInvalidPlan, [&] { TcpStore(address(server, 0, 2), kLimit); }) ==
        "rank 0: another process has arrived with RANK 0");
}

TEST_CASE("a broken connection is a failure that peers can read, a goodbye is none") {
  TcpStoreServer server(0, 3);
  TcpStore watcher(address(server, 0, 3), kLimit);
  { TcpStore leaves(address(server, 1, 3), kLimit); }
  CHECK(watcher.why(kMoment) == std::nullopt);
  CHECK_FALSE(server.wait_for_goodbyes(kMoment));
  watcher.report_failure("rank 0 has had enough");
  watcher.report_failure("and again");
  CHECK(watcher.why(kLimit) == "rank 0 has had enough");
}

TEST_CASE("a key or a value that is too large is refused, and the connection lives") {
  TcpStoreServer server(0, 1);
  TcpStore store(address(server, 0, 1), kLimit);
  CHECK(error_of(RuntimeStatus::kInvalidPlan, [&] { store.set(std::string(kMaxStoreKey + 1, 'k'), ""); }) ==
        "rank 0: the store keeps no key or value of this size, or is full");
  CHECK(error_of(RuntimeStatus::kInvalidPlan, [&] { store.set("k", std::string(kMaxStoreValue + 1, 'v')); }) !=
        "no error");
  store.set("k", std::string(kMaxStoreValue, 'v'));
  CHECK(store.get("k", kLimit).size() == kMaxStoreValue);
}

TEST_CASE("bytes that are no message of the store end their connection and nothing else") {
  TcpStoreServer server(0, 1);
  TcpStore store(address(server, 0, 1), kLimit);
  using namespace std::string_view_literals;
  CHECK(is_dropped(server, "GET / HTTP/1.1\r\n\r\n"));
  CHECK(is_dropped(server, "\xFF\xFF\xFF\xFF"sv));
  CHECK(is_dropped(server, "\0\0\0\0"sv));
  CHECK(is_dropped(server, "\x01\0\0\0\x63"sv));                                // no such opcode
  CHECK(is_dropped(server, "\x01\0\0\0\x06"sv));                                // goodbye before hello
  CHECK(is_dropped(server, "\x09\0\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08"sv));  // hello with a wrong magic
  const int silent = raw_connection(server);
  store.set("still", "here");
  CHECK(store.get("still", kLimit) == "here");
  ::close(silent);
}

TEST_CASE("a port that is taken is reported with what to do") {
  TcpStoreServer server(0, 1);
  const std::string text = error_of(RuntimeStatus::kInvalidPlan, [&] { TcpStoreServer(server.port(), 1); });
  CHECK(text.find("set GTP_STORE_PORT") != std::string::npos);
}

TEST_CASE("a client whose server is gone says so") {
  auto server = std::make_unique<TcpStoreServer>(0, 1);
  TcpStore store(address(*server, 0, 1), kLimit);
  server.reset();
  CHECK(error_of(RuntimeStatus::kAborted, [&] {
          store.set("k", "v");
        }).find("rank 0, which holds the store, is gone") == 0);
  CHECK(store.why(kMoment).value_or("").find("is gone") != std::string::npos);
}

}  // namespace gtp::test
