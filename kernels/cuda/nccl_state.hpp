// What one rank's NCCL transport and its watchdog share. The watchdog may outlive the transport, if NCCL never returns
// to it. Private to nccl_*.cpp.
//
// Locks, in the order in which they may be taken: `in_call`, `list_mutex`, `mutex`, and the tracker's own. No thread
// waits for the device, a peer or the store with `list_mutex` or `mutex` held.
#pragma once

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/cuda/failure_cell.hpp"
#include "kernels/cuda/operation_tracker.hpp"
#include "kernels/tcp_store.hpp"

namespace gtp::cuda {

struct NcclCommunicator {
  NcclCommunicator(std::string name, bool tracked) : group(std::move(name)), tracker(tracked) {}

  ncclComm_t handle = nullptr;
  bool owned = true;  ///< False: the caller's, neither destroyed nor aborted here.
  /// Whoever sets it destroys or aborts the communicator, once.
  std::atomic<bool> taken{false};
  std::string group;
  std::vector<std::int64_t> ranks;
  OperationTracker tracker;
};

struct NcclState {
  NcclState(int at, std::int64_t self, std::shared_ptr<FailureCell> cell, std::shared_ptr<TcpStore> connection,
            std::chrono::milliseconds limit)
      : device(at),
        rank(self),
        failure(std::move(cell)),
        store(std::move(connection)),
        operation_limit(limit),
        launches("graphs", limit.count() > 0) {}

  const int device;
  const std::int64_t rank;
  const std::shared_ptr<FailureCell> failure;
  const std::shared_ptr<TcpStore> store;            ///< May be null.
  const std::chrono::milliseconds operation_limit;  ///< 0: none.

  /// Held by a thread that is inside NCCL with a communicator of the list: see NcclCall.
  std::timed_mutex in_call;
  std::atomic<std::uint64_t> calls{0};  ///< Begun and ended: odd while somebody is inside.
  bool closed = false;  ///< Guarded by `in_call`: no calls any more, the communicators are being aborted.

  std::mutex list_mutex;
  std::vector<std::shared_ptr<NcclCommunicator>> communicators;
  NcclCommunicator launches;  ///< Graphs that were launched. Has no handle.

  std::uint64_t seen_call = 0;  ///< The watchdog's: the call it last found under way, and since when.
  Clock::time_point seen_since{};

  std::mutex mutex;
  std::condition_variable changed;
  bool stop = false;
  bool wake = false;
  bool aborted = false;   ///< Every communicator is gone, or was given up.
  bool finished = false;  ///< The watchdog's thread makes no more calls.
};

/// A call into NCCL with communicators of the list, which nobody aborts meanwhile unless it hangs.
class NcclCall {
 public:
  /// Throws what failed if the communicators are being aborted. `limited`: by operation_limit; creation has another.
  explicit NcclCall(NcclState& state, bool limited = true) : state_(state), limited_(limited), lock_(state.in_call) {
    if (state.closed) state.failure->check();
    if (limited) count();
  }
  ~NcclCall() {
    if (limited_) count();
  }
  NcclCall(const NcclCall&) = delete;
  NcclCall& operator=(const NcclCall&) = delete;

 private:
  /// Nobody else writes while `in_call` is held. Without a clock: this is on the way of every collective.
  void count() noexcept {
    state_.calls.store(state_.calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  NcclState& state_;
  bool limited_;
  std::unique_lock<std::timed_mutex> lock_;
};

/// With `list_mutex` held: `rank 0: all-gather of `w1` over group gtp_remat (ranks 0,1)`, or only the rank if nothing
/// is pending.
std::string describe_pending(NcclState& state);

}  // namespace gtp::cuda
