// Device memory for intermediate results of one stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/check.hpp"

namespace gtp::train {

/// Grows on demand, outside of captures. What it held before stays allocated, because enqueued work and graphs may
/// still use it.
class DeviceMemory {
 public:
  /// Valid until the next call.
  template <class T>
  std::span<T> get(std::size_t count) {
    grow(count * sizeof(T));
    return {static_cast<T*>(blocks_.empty() ? nullptr : blocks_.back().get()), count};
  }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct Free {
    void operator()(void* data) const noexcept { cudaFree(data); }
  };

  void grow(std::size_t bytes) {
    if (bytes <= bytes_) return;
    void* data = nullptr;
    cuda::cuda_check(cudaMalloc(&data, bytes), "allocating memory for intermediate results");
    blocks_.emplace_back(data);
    bytes_ = bytes;
  }

  std::vector<std::unique_ptr<void, Free>> blocks_;
  std::size_t bytes_ = 0;
};

}  // namespace gtp::train
