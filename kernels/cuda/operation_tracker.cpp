#include "kernels/cuda/operation_tracker.hpp"

#include <algorithm>
#include <cstring>

namespace gtp::cuda {

OperationTracker::OperationTracker(bool enabled) {
  if (enabled) entries_.resize(kCapacity);
}

void OperationTracker::add(std::string_view operation, std::string_view weight, const MarkerEvent& end) {
  if (!enabled()) return;
  const std::scoped_lock lock(mutex_);
  if (count_ == kCapacity) {  // one question for many operations
    if (ask(kCapacity / 2 - 1) == State::kPending) return;
    drop(kCapacity / 2);
  }
  Entry& entry = entries_[(first_ + count_) % kCapacity];
  entry.operation = operation;
  entry.length = std::min(weight.size(), kMaxWeight);
  if (entry.length > 0) std::memcpy(entry.weight.data(), weight.data(), entry.length);
  entry.end = end;
  entry.record = end->records.load(std::memory_order_relaxed);
  ++count_;
}

OperationTracker::State OperationTracker::ask(std::size_t index) const {
  const Entry& entry = at(index);
  if (!entry.is_known()) return State::kUnknown;
  const cudaError_t state = cudaEventQuery(entry.end->event.get());
  if (state != cudaSuccess) cudaGetLastError();
  if (!entry.is_known()) return State::kUnknown;
  if (state == cudaErrorNotReady) return State::kPending;
  cuda_check(state, "asking whether a collective is complete");
  return State::kComplete;
}

void OperationTracker::drop(std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) entries_[(first_ + i) % kCapacity].end.reset();
  first_ = (first_ + count) % kCapacity;
  count_ -= count;
  dropped_ += count;
}

/// The operations of a communicator end in the order in which they were enqueued, so few questions find the border.
/// What is unknown in front of it goes as well.
void OperationTracker::drop_complete() {
  std::size_t complete = 0;
  for (std::size_t pending = count_; complete < pending;) {
    const std::size_t middle = complete + (pending - complete) / 2;
    std::size_t asked = middle;
    State state = ask(asked);
    while (state == State::kUnknown && asked + 1 < pending) state = ask(++asked);
    if (state == State::kComplete) {
      complete = asked + 1;
    } else {
      pending = middle;
    }
  }
  while (complete < count_ && !at(complete).is_known()) ++complete;
  drop(complete);
}

OperationTracker::Pending OperationTracker::front() const {
  const Entry& entry = entries_[first_];
  const auto stalled = front_ == dropped_ ? Clock::now() - front_since_ : Clock::duration(0);
  return {entry.operation, std::string(entry.weight.data(), entry.length),
          std::chrono::duration_cast<std::chrono::milliseconds>(stalled)};
}

std::optional<OperationTracker::Pending> OperationTracker::oldest() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return std::nullopt;
  drop_complete();
  if (count_ == 0) return std::nullopt;
  if (front_ != dropped_) front_since_ = Clock::now();
  front_ = dropped_;
  return front();
}

std::optional<OperationTracker::Pending> OperationTracker::last_seen() const {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() && count_ > 0 ? std::optional(front()) : std::nullopt;
}

}  // namespace gtp::cuda
