// Events that two parties look at: the backend, which records one again and again, and whoever keeps the latest record
// as the sign that something is complete. One that somebody keeps is not recorded again.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/owners.hpp"

namespace gtp::cuda {

using MarkerEvent = std::shared_ptr<const UniqueEvent>;

inline MarkerEvent make_marker() { return std::make_shared<const UniqueEvent>(make_event()); }

/// One thread takes; any thread may drop what it keeps.
class MarkerEvents {
 public:
  /// So many more may be kept at a time before `take` allocates.
  void prepare(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) spare_.push_back(make_marker());
  }

  /// `used` itself, or, while somebody keeps that, another event in its place.
  MarkerEvent take(MarkerEvent used) {
    if (is_free(used)) return used;
    MarkerEvent& spare = next();
    std::swap(spare, used);
    return used;
  }
  /// An event that nobody keeps yet.
  MarkerEvent take() { return next(); }

 private:
  static bool is_free(const MarkerEvent& event) noexcept {
    if (event.use_count() != 1) return false;
    std::atomic_thread_fence(std::memory_order_acquire);  // after whatever the last keeper did with it
    return true;
  }

  /// The spare that was taken longest ago, which is the first to be free again; or a new one.
  MarkerEvent& next() {
    if (spare_.empty() || !is_free(spare_[next_])) {
      spare_.insert(spare_.begin() + static_cast<std::ptrdiff_t>(next_), make_marker());
    }
    MarkerEvent& spare = spare_[next_];
    next_ = (next_ + 1) % spare_.size();
    return spare;
  }

  std::vector<MarkerEvent> spare_;
  std::size_t next_ = 0;
};

}  // namespace gtp::cuda
