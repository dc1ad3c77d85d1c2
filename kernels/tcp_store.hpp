// A key-value store over TCP by which the processes of a job find each other, and learn who of them is gone. Rank 0
// serves, all ranks are clients. It is for addresses and small texts, not for tensors; every wait has a limit.
//
// Frame: a 32-bit little-endian length, an opcode, fields. Nothing that arrives is trusted: lengths, keys, values, the
// number of keys and of connections are bounded, and whoever breaks the protocol is disconnected.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace gtp {

inline constexpr std::size_t kMaxStoreKey = 1024;
inline constexpr std::size_t kMaxStoreValue = 64 * 1024;
inline constexpr std::size_t kMaxStoreKeys = 1 << 20;

/// Serves from a thread of its own until destroyed.
class TcpStoreServer {
 public:
  /// Throws kInvalidPlan if the port cannot be had. Port 0: any; see `port`.
  TcpStoreServer(std::uint16_t port, std::int64_t world_size);
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  std::uint16_t port() const noexcept;
  /// Waits until every rank that arrived has said goodbye or is gone. False at `limit`.
  bool wait_for_goodbyes(std::chrono::milliseconds limit);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct TcpStoreAddress {
  std::string host;
  std::uint16_t port = 0;
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
};

/// One rank's connection. Calls may come from several threads, and wait for one another. Errors are RuntimeErrors:
/// kTimeout, kInvalidPlan if the server refuses this rank, kAborted if the server is gone.
class TcpStore {
 public:
  /// Tries again until somebody listens, up to `limit`.
  TcpStore(TcpStoreAddress address, std::chrono::milliseconds limit);
  /// Says goodbye.
  ~TcpStore();
  TcpStore(const TcpStore&) = delete;
  TcpStore& operator=(const TcpStore&) = delete;

  /// Waits until all ranks have arrived; kTimeout names those that are missing.
  void wait_for_all(std::chrono::milliseconds limit);
  void set(std::string_view key, std::string_view value);
  /// Waits until somebody has set it.
  std::string get(std::string_view key, std::chrono::milliseconds limit);
  /// The first failure of the job: what a rank reported, or which rank's connection broke. nullopt if there is none
  /// within `limit`; never throws.
  std::optional<std::string> why(std::chrono::milliseconds limit) noexcept;
  /// Peers will read it from `why`. Never throws.
  void report_failure(std::string_view text) noexcept;
  /// The numeric address by which this rank reaches the server, so the one by which others may reach this rank.
  const std::string& local_address() const noexcept { return local_address_; }

 private:
  std::string request(std::string_view message, std::chrono::milliseconds limit);
  void connect(std::chrono::milliseconds limit);

  TcpStoreAddress address_;
  std::string local_address_;
  std::mutex mutex_;
  int socket_ = -1;
  bool broken_ = false;
};

}  // namespace gtp
