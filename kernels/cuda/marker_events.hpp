// Events that two parties look at: the backend, which records one again and again, and whoever takes a record of it as
// the sign that something is complete.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/owners.hpp"

namespace gtp::cuda {

/// An event and how often it was recorded: as long as that has not changed, the event tells about the record that
/// somebody took note of. Recording again costs nothing and asks nobody, and leaves that somebody none the wiser.
struct Marker {
  UniqueEvent event;
  std::atomic<std::uint64_t> records{0};

  /// One thread records. Counted first: whoever asks the event and then still finds the old count had the old answer.
  cudaError_t record(cudaStream_t stream, unsigned flags = cudaEventRecordDefault) noexcept {
    records.store(records.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    return cudaEventRecordWithFlags(event.get(), stream, flags);
  }
};

/// Whoever keeps one may ask it at any time.
using MarkerEvent = std::shared_ptr<Marker>;

inline MarkerEvent make_marker() {
  auto made = std::make_shared<Marker>();
  made->event = make_event();
  return made;
}

/// Markers to record in turns.
class MarkerRing {
 public:
  void prepare(std::size_t count) {
    while (markers_.size() < count) markers_.push_back(make_marker());
  }
  /// The one that was recorded longest ago.
  const MarkerEvent& next() {
    prepare(1);
    next_ = (next_ + 1) % markers_.size();
    return markers_[next_];
  }

 private:
  std::vector<MarkerEvent> markers_;
  std::size_t next_ = 0;
};

}  // namespace gtp::cuda
