// The largest magnitude of a tensor in one launch: every block reduces its part, and the last one to finish publishes.
#pragma once

#include <algorithm>
#include <cuda/atomic>

#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/packet.cuh"

namespace gtp::cuda {

/// Of sixteen bytes of BF16, or of FP32 rounded to BF16.
template <class Value, bool kAligned>
__device__ inline Bf16Pair packet_amax(Bf16Pair amax, const Value* address) {
  constexpr int kGrain = kAligned ? 16 : static_cast<int>(sizeof(Value));
  const Packet<16> packet = load_packet<16, kGrain>(address);
  if constexpr (sizeof(Value) == 2) {
#pragma unroll
    for (const std::uint32_t word : packet.words) amax = max_magnitude_pair(amax, word);
  } else {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      amax = max_magnitude_pair(amax, bf16_pair(float_of(packet.words[i]), float_of(packet.words[i + 1])));
    }
  }
  return amax;
}

/// Magnitudes that are not NaN order as their bits do. All threads call; thread 0 gets the result.
template <int kThreads>
__device__ inline std::uint32_t block_max(std::uint32_t bits) {
  __shared__ std::uint32_t of_warp[kThreads / 32];
  bits = __reduce_max_sync(0xFFFFFFFFU, bits);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = bits;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (const std::uint32_t other : of_warp) bits = max(bits, other);
  }
  return bits;
}

/// Called by one thread of each block. Nothing else runs by then, so each wait here lengthens the kernel.
__device__ inline void publish_amax(std::uint32_t bits, AmaxWorkspace* workspace, float* amax) {
  using Word = ::cuda::atomic_ref<std::uint32_t, ::cuda::thread_scope_device>;
  Word largest(workspace->largest), blocks_done(workspace->blocks_done);
  largest.fetch_max(bits, ::cuda::memory_order_relaxed);
  if (blocks_done.fetch_add(1U, ::cuda::memory_order_acq_rel) != gridDim.x - 1) return;
  *amax = float_of(largest.exchange(0U, ::cuda::memory_order_relaxed));
  blocks_done.store(0U, ::cuda::memory_order_relaxed);
}

template <class Value, int kThreads, int kUnroll, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    nvfp4_amax_kernel(const Value* values, std::int64_t count, AmaxWorkspace* workspace, float* result) {
  constexpr int kWidth = 16 / static_cast<int>(sizeof(Value));
  constexpr std::int64_t kPart = std::int64_t{kThreads} * kWidth * kUnroll;
  wait_for_predecessor();
  Bf16Pair amax = 0;
  for (std::int64_t part = blockIdx.x * kPart; part < count; part += gridDim.x * kPart) {
    Bf16Pair of_packet[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const std::int64_t first = part + (i * kThreads + static_cast<int>(threadIdx.x)) * kWidth;
      of_packet[i] = first + kWidth <= count ? packet_amax<Value, kAligned>(0, values + first) : 0;
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) amax = max_magnitude_pair(amax, of_packet[i]);
  }
  const std::int64_t after_packets = count / kWidth * kWidth + threadIdx.x;
  if (blockIdx.x == 0 && after_packets < count) {
    amax = max_magnitude_pair(amax, bf16_pair(static_cast<float>(values[after_packets]), 0.0F));
  }
  const std::uint32_t bits = block_max<kThreads>(bits_of(larger_half(amax)));
  if (threadIdx.x == 0) publish_amax(bits, workspace, result);
}

/// As many blocks as run at once, or fewer if there is less to do.
template <class Value, int kThreads, int kUnroll, int kBlocksPerSm, bool kAligned>
void launch_nvfp4_amax(const KernelCall& call, const void* values, std::int64_t count, AmaxWorkspace* workspace,
                       float* amax, cudaStream_t stream) {
  constexpr std::int64_t kPart = std::int64_t{kThreads} * (16 / sizeof(Value)) * kUnroll;
  int device = 0, processors = 0;
  check(call, cudaGetDevice(&device));
  check(call, cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  const std::int64_t blocks =
      std::clamp<std::int64_t>(detail::blocks_of(count, kPart), 1, std::int64_t{processors} * kBlocksPerSm);
  launch_overlapped(call, nvfp4_amax_kernel<Value, kThreads, kUnroll, kAligned>, blocks, kThreads, stream,
                    static_cast<const Value*>(values), count, workspace, amax);
}

}  // namespace gtp::cuda
