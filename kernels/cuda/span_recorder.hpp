// Times of operations on the device, for traces: an event before and one after each. Only while a sink is attached.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/owners.hpp"
#include "kernels/trace.hpp"

namespace gtp::cuda {

class SpanRecorder {
 public:
  explicit SpanRecorder(std::int64_t rank) : rank_(rank) {}

  bool active() const noexcept { return sink_ != nullptr; }
  /// Times count from here; microseconds. nullptr: stops, after what is complete was reported.
  void attach(TraceSink* sink);

  /// Around the enqueuing of one operation outside captures. The texts are copied.
  void begin(std::string_view lane, std::string_view operation, std::string_view weight, std::string_view group,
             cudaStream_t stream);
  void end(cudaStream_t stream);
  /// Reports, in order, the operations that are complete; does not wait for others.
  void report();

 private:
  struct Span {
    UniqueEvent start;
    UniqueEvent stop;
    std::string lane, operation, weight, group;
    bool ended = false;
  };
  UniqueEvent event();
  std::int64_t microseconds(const UniqueEvent& event) const;

  std::int64_t rank_;
  TraceSink* sink_ = nullptr;
  UniqueEvent origin_;
  UniqueStream clock_;
  std::deque<Span> spans_;
  std::vector<UniqueEvent> spare_;
};

}  // namespace gtp::cuda
