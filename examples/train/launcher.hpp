// How arithmetic on host memory gets onto a stream: any backend whose memory the host can touch will do, threads of one
// process or a process a rank.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <span>

#include "kernels/host_backend.hpp"

namespace gtp::train {

/// Runs arithmetic in stream order.
class Launcher {
 public:
  Launcher() = default;
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  virtual ~Launcher() = default;
  /// `accesses` are all memory that `body` touches on this device. The text of `label` must outlive the operation.
  virtual void launch(Stream stream, OpLabel label, std::span<const Access> accesses, std::function<void()> body) = 0;
};

/// For threads as ranks: accesses are checked for races.
class HostLauncher final : public Launcher {
 public:
  explicit HostLauncher(HostBackend& backend) : backend_(backend) {}
  void launch(Stream stream, OpLabel label, std::span<const Access> accesses, std::function<void()> body) override;

 private:
  HostBackend& backend_;
};

/// For any backend with host memory, by Backend::host_function; not in captures. Destroy it after the backend has been
/// drained.
class FunctionLauncher final : public Launcher {
 public:
  explicit FunctionLauncher(Backend& backend) : backend_(backend) {}
  void launch(Stream stream, OpLabel label, std::span<const Access> accesses, std::function<void()> body) override;

 private:
  struct Job {
    std::function<void()> body;
    std::atomic<bool> done{false};
  };
  Backend& backend_;
  std::deque<Job> jobs_;
};

}  // namespace gtp::train
