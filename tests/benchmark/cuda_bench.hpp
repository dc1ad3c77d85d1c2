// Timing device kernels: many launches in one graph, over enough separate buffers that the L2 cache holds none of them
// for the next launch, beside a device-to-device copy that moves as many bytes in the same way: cudaMemcpyAsync or a
// plain kernel, whichever is faster.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace cuda_bench {

/// Hands out parts of one buffer set.
class Slices {
 public:
  explicit Slices(std::uint8_t* begin) : next_(begin) {}
  std::uint8_t* take(std::int64_t bytes) {
    std::uint8_t* slice = next_;
    next_ += (bytes + 255) / 256 * 256;
    return slice;
  }

 private:
  std::uint8_t* next_;
};

/// Something to time. `enqueue` and `prepare` take the start of a buffer set of `set_bytes`, which holds random values;
/// `prepare` may be empty.
struct Case {
  std::string name;
  std::int64_t rows = 0, cols = 0;
  std::int64_t input_bytes = 0;  ///< Of the main input, the size that is asked for.
  std::int64_t moved_bytes = 0;  ///< Read once plus written once, what the kernel must move.
  std::int64_t set_bytes = 0;
  std::function<void(std::uint8_t*, cudaStream_t)> enqueue;
  std::function<void(std::uint8_t*, cudaStream_t)> prepare;
};

/// The kernels as the API launches them, for an input of about `input_bytes`.
std::vector<Case> product_cases(std::int64_t input_bytes);
/// Other tile shapes and launch parameters of the same kernels.
std::vector<Case> tuning_cases(std::int64_t input_bytes);

}  // namespace cuda_bench
