#include "kernels/cuda/operation_tracker.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace gtp::cuda {

OperationTracker::OperationTracker(bool enabled) {
  if (enabled) entries_.resize(kCapacity);
}

void OperationTracker::add(std::string_view operation, std::string_view weight, MarkerEvent end) {
  if (!enabled()) return;
  const std::scoped_lock lock(mutex_);
  if (count_ == kCapacity) drop_complete();
  if (count_ == kCapacity) return;
  Entry& entry = entries_[(first_ + count_) % kCapacity];
  entry.operation = operation;
  entry.length = std::min(weight.size(), kMaxWeight);
  if (entry.length > 0) std::memcpy(entry.weight.data(), weight.data(), entry.length);
  entry.end = std::move(end);
  ++count_;
}

bool OperationTracker::is_complete(std::size_t index) const {
  const cudaError_t state = cudaEventQuery(entries_[(first_ + index) % kCapacity].end->get());
  if (state == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  cuda_check(state, "asking whether a collective is complete");
  return true;
}

/// The operations of a communicator end in the order in which they were enqueued, so few questions find the border.
void OperationTracker::drop_complete() {
  if (count_ == 0 || !is_complete(0)) return;
  std::size_t complete = 1;
  for (std::size_t pending = count_; complete < pending;) {
    const std::size_t middle = complete + (pending - complete) / 2;
    if (is_complete(middle)) {
      complete = middle + 1;
    } else {
      pending = middle;
    }
  }
  for (std::size_t i = 0; i < complete; ++i) entries_[(first_ + i) % kCapacity].end.reset();
  first_ = (first_ + complete) % kCapacity;
  count_ -= complete;
  dropped_ += complete;
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
