// Notices that a job is lost, and ends it on this rank: errors that NCCL reports, operations that make no progress,
// peers that failed or are gone. It records the failure, tells the peers and aborts the communicators, so that what is
// on the device comes to an end. Private to nccl_*.cpp.
#pragma once

#include <chrono>
#include <memory>
#include <thread>

#include "kernels/cuda/nccl_state.hpp"

namespace gtp::cuda {

class NcclWatchdog {
 public:
  explicit NcclWatchdog(std::shared_ptr<NcclState> state);
  /// Ends the thread; if NCCL does not return to it, leaves it behind.
  ~NcclWatchdog();
  NcclWatchdog(const NcclWatchdog&) = delete;
  NcclWatchdog& operator=(const NcclWatchdog&) = delete;

  /// The failure was recorded elsewhere. Waits, for some seconds, until the communicators are aborted.
  void abort_now() noexcept;

 private:
  std::shared_ptr<NcclState> state_;
  std::thread thread_;
};

}  // namespace gtp::cuda
