// The two shapes of kernel that all of the example's arithmetic has: a thread an element, or a block of threads a row.
// Sums over a block run in one order, so they repeat.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "examples/train/cuda/cuda_arithmetic.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/format/bf16.hpp"

namespace gtp::train {

inline constexpr int kThreads = 256;

template <class Body>
__global__ void element_kernel(std::size_t count, Body body) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) body(i);
}

/// body(i) for all i < count.
template <class Body>
void for_each(const Task& task, std::size_t count, const Body& body) {
  constexpr std::size_t kMostBlocks = 1U << 20U;
  if (count == 0) return;
  const std::size_t blocks = std::min((count + kThreads - 1) / kThreads, kMostBlocks);
  cuda::launch({task.label.weight, 1, static_cast<std::int64_t>(count)}, element_kernel<Body>,
               static_cast<std::int64_t>(blocks), kThreads, static_cast<cudaStream_t>(task.stream.handle), count, body);
}

template <class Body>
__global__ void row_kernel(Body body) {
  body(static_cast<std::size_t>(blockIdx.x));
}

/// body(row) for all rows, each by all threads of a block.
template <class Body>
void for_each_row(const Task& task, std::size_t rows, const Body& body) {
  if (rows == 0) return;
  cuda::launch({task.label.weight, static_cast<std::int64_t>(rows), 1}, row_kernel<Body>,
               static_cast<std::int64_t>(rows), kThreads, static_cast<cudaStream_t>(task.stream.handle), body);
}

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// Of one value a thread, for all threads.
template <class T, class Combine>
__device__ T reduce_block(T value, Combine combine) {
  __shared__ T of_warps[kThreads / 32];
  for (int distance = 16; distance > 0; distance /= 2) {
    value = combine(value, __shfl_xor_sync(0xFFFFFFFFU, value, distance));
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  T total = of_warps[0];
  for (int warp = 1; warp < kThreads / 32; ++warp) total = combine(total, of_warps[warp]);
  return total;
}

__device__ inline float value_at(Weights w, std::size_t index) { return to_float(Bf16{w[index]}); }

/// GradTarget::put().
__device__ inline void put(const GradTarget& target, std::size_t index, float value) {
  if (target.type == ElementType::kFloat32) {
    float& out = static_cast<float*>(target.data)[index];
    out = target.accumulate ? out + value : value;
    return;
  }
  std::uint16_t& out = static_cast<std::uint16_t*>(target.data)[index];
  out = bits_of(to_bf16(target.accumulate ? to_float(Bf16{out}) + value : value));
}

}  // namespace gtp::train
