#include "kernels/cuda/nccl_watchdog.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <utility>

#include "kernels/cuda/nccl_api.hpp"

namespace gtp::cuda {

namespace {

constexpr std::chrono::milliseconds kGlance{100};
constexpr std::chrono::milliseconds kStoreGlance{300};
/// How long the store may take to notice that a peer's connection broke.
constexpr std::chrono::milliseconds kWhyLimit{1500};
/// For a call into NCCL that is under way to return by itself, and after it was asked to.
constexpr std::chrono::milliseconds kCallGrace{1000};
constexpr std::chrono::milliseconds kRevokeGrace{3000};
constexpr std::chrono::milliseconds kAbortLimit{10000};
constexpr std::chrono::milliseconds kPatience{16000};

using Communicators = std::vector<std::shared_ptr<NcclCommunicator>>;

Communicators list_of(NcclState& state) {
  const std::scoped_lock lock(state.list_mutex);
  return state.communicators;
}

std::string describe(const NcclState& state, const NcclCommunicator& over, const OperationTracker::Pending& pending) {
  if (over.ranks.empty()) return fmt::format("rank {}: replay of {}", state.rank, pending.weight);
  return fmt::format("rank {}: {} of `{}` over group {} (ranks {})", state.rank, pending.operation, pending.weight,
                     over.group, fmt::join(over.ranks, ","));
}

void fail(NcclState& state, RuntimeStatus status, std::string text, bool tell) {
  if (!state.failure->set(status, text)) return;
  if (tell && state.store != nullptr) state.store->report_failure(text);
}

using Found = std::optional<BackendFailure>;

Found look_at_errors(NcclState& state, const NcclCommunicator& each) {
  ncclResult_t result = ncclSuccess;
  if (ncclCommGetAsyncError(each.handle, &result) != ncclSuccess) return std::nullopt;
  if (result == ncclSuccess || result == ncclInProgress) return std::nullopt;
  const char* detail = ncclGetLastError(each.handle);
  return BackendFailure{
      RuntimeStatus::kCollectiveFailed,
      fmt::format("{}: {} ({})", describe_pending(state), ncclGetErrorString(result), detail != nullptr ? detail : "")};
}

Found look_at_progress(NcclState& state, NcclCommunicator& each) {
  const auto pending = each.tracker.oldest();
  if (!pending || pending->stalled < state.operation_limit) return std::nullopt;
  return BackendFailure{RuntimeStatus::kTimeout,
                        fmt::format("{}: no progress within {} ms: a peer may be gone, late, or in another collective",
                                    describe(state, each, *pending), state.operation_limit.count())};
}

/// A call that does not return: the driver holds it up, because the device's queue is full of what waits for a peer.
Found look_at_calls(NcclState& state) {
  const std::uint64_t call = state.calls.load(std::memory_order_relaxed);
  if (call % 2 == 0) return std::nullopt;
  if (call != state.seen_call) state.seen_since = Clock::now();
  state.seen_call = call;
  if (Clock::now() - state.seen_since < state.operation_limit) return std::nullopt;
  return BackendFailure{RuntimeStatus::kTimeout,
                        fmt::format("{}: NCCL did not return within {} ms: a peer may be gone, late, or in another "
                                    "collective",
                                    describe_pending(state), state.operation_limit.count())};
}

/// A communicator leaves the list before it is destroyed, so that those in it are alive while the list is locked.
Found look_at_device(NcclState& state) {
  const std::scoped_lock lock(state.list_mutex);
  for (const auto& each : state.communicators) {
    if (Found found = look_at_errors(state, *each)) return found;
  }
  if (state.operation_limit.count() == 0) return std::nullopt;
  for (const auto& each : state.communicators) {
    if (Found found = look_at_progress(state, *each)) return found;
  }
  if (Found found = look_at_progress(state, state.launches)) return found;
  return look_at_calls(state);
}

Found look_at_peers(NcclState& state) {
  if (state.store == nullptr) return std::nullopt;
  const std::optional<std::string> why = state.store->why(std::chrono::milliseconds(0));
  if (!why) return std::nullopt;
  const std::scoped_lock lock(state.list_mutex);
  return BackendFailure{RuntimeStatus::kAborted, fmt::format("{}: {}", describe_pending(state), *why)};
}

/// NCCL may notice a dead peer before the store does, but cannot tell who it was.
Found cause_of(NcclState& state, BackendFailure found) {
  if (state.store == nullptr) return found;
  const bool asks_long = found.status == RuntimeStatus::kCollectiveFailed;
  const std::optional<std::string> why = state.store->why(asks_long ? kWhyLimit : std::chrono::milliseconds(0));
  if (!why) return found;
  return BackendFailure{RuntimeStatus::kAborted, fmt::format("{}: {}", found.text, *why)};
}

void look(NcclState& state, bool peers) {
  try {
    if (Found found = look_at_device(state)) {
      found = cause_of(state, std::move(*found));
      return fail(state, found->status, found->text, true);
    }
    if (!peers) return;
    if (const Found found = look_at_peers(state)) fail(state, found->status, found->text, false);
  } catch (const std::exception& error) {
    fail(state, RuntimeStatus::kCollectiveFailed, fmt::format("rank {}: {}", state.rank, error.what()), true);
  }
}

/// True once nobody is inside NCCL, and nobody will be again.
bool close(NcclState& state, std::chrono::milliseconds grace) {
  std::unique_lock lock(state.in_call, std::defer_lock);
  if (!lock.try_lock_for(grace)) return false;
  state.closed = true;
  return true;
}

/// Each on a thread, all at once: one may only end after another's kernel has left the device.
template <class Call>
void for_each_at_once(const Communicators& list, std::chrono::milliseconds limit, Call call) {
  std::vector<std::thread> threads;
  for (const auto& each : list) {
    threads.emplace_back([each, limit, call] {
      try {
        run_bounded(limit, [each, call] { call(*each); });
      } catch (...) {  // it could not even be tried
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void revoke(const NcclCommunicator& each) {
  if (nccl_extras().revoke != nullptr && !each.taken) nccl_extras().revoke(each.handle, 0);
}

void abort_one(NcclCommunicator& each) {
  if (!each.taken.exchange(true)) ncclCommAbort(each.handle);
}

/// Communicators of the caller's stay valid, if this NCCL can stop them so.
void abort_all(NcclState& state) {
  Communicators owned;
  Communicators foreign;
  for (const auto& each : list_of(state)) (each->owned ? owned : foreign).push_back(each);
  if (!close(state, kCallGrace)) {
    for_each_at_once(owned, kRevokeGrace, revoke);
    close(state, kCallGrace);
  }
  for_each_at_once(foreign, kRevokeGrace, revoke);
  for_each_at_once(owned, kAbortLimit, abort_one);
}

void announce(NcclState& state, bool NcclState::*what) {
  const std::scoped_lock lock(state.mutex);
  state.*what = true;
  state.changed.notify_all();
}

void watch(const std::shared_ptr<NcclState>& state) {
  cudaSetDevice(state->device);
  // What this thread asks the driver must not spoil captures of others.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  auto next_peers = Clock::now();
  while (state->failure->get() == nullptr) {
    {
      std::unique_lock lock(state->mutex);
      state->changed.wait_for(lock, kGlance, [&] { return state->stop || state->wake; });
      if (state->stop && state->failure->get() == nullptr) return;
    }
    const bool peers = Clock::now() >= next_peers;
    if (peers) next_peers = Clock::now() + kStoreGlance;
    if (state->failure->get() == nullptr) look(*state, peers);
  }
  abort_all(*state);
  announce(*state, &NcclState::aborted);
}

}  // namespace

std::string describe_pending(NcclState& state) {
  for (const auto& each : state.communicators) {
    if (const auto pending = each->tracker.last_seen()) return describe(state, *each, *pending);
  }
  if (const auto pending = state.launches.tracker.last_seen()) return describe(state, state.launches, *pending);
  return fmt::format("rank {}", state.rank);
}

NcclWatchdog::NcclWatchdog(std::shared_ptr<NcclState> state) : state_(std::move(state)) {
  thread_ = std::thread([shared = state_] {
    watch(shared);
    announce(*shared, &NcclState::finished);
  });
}

NcclWatchdog::~NcclWatchdog() {
  std::unique_lock lock(state_->mutex);
  state_->stop = true;
  state_->changed.notify_all();
  const bool finished = state_->changed.wait_for(lock, kPatience, [&] { return state_->finished; });
  lock.unlock();
  if (finished) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void NcclWatchdog::abort_now() noexcept {
  std::unique_lock lock(state_->mutex);
  state_->wake = true;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, kPatience, [&] { return state_->aborted || state_->finished; });
}

}  // namespace gtp::cuda
