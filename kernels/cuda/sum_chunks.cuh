// destination += factor * (sum of chunks), the epilogue of a reduce-scatter whose wire is an all-to-all.
#pragma once

#include "kernels/cuda/values.cuh"

namespace gtp::cuda {

template <class Destination, class Source>
struct SumChunksArguments {
  Destination* destination;
  const Source* source;
  std::int64_t count, chunks;
  float factor;
};

/// A unit is as many neighbouring elements as 16 bytes of the wider type hold. A thread has `kUnits` of them and loads
/// everything it needs before it adds. `kChunks` 0: known at run time only. `kAligned`: every unit of every chunk lies
/// on its own size.
template <class Destination, class Source, int kChunks, int kUnits, bool kAligned>
struct ChunkSummer {
  using Arguments = SumChunksArguments<Destination, Source>;
  static constexpr int kWidth = unit_width<Destination, Source>();
  static constexpr int kBatch = kChunks != 0 ? kChunks : 4;

  __device__ static void add(float (&sum)[kWidth], const Values<Source, kWidth>& values) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum[i] = __fadd_rn(sum[i], values.at(i));
  }

  /// Chunk 0 starts the sum: 0 + x would lose the sign of a zero.
  __device__ static void sum_unit(const Arguments& arguments, std::int64_t first, float (&sum)[kWidth]) {
    using Unit = Values<Source, kWidth>;
    std::int64_t chunk = 0;
    do {
      Unit batch[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (kChunks != 0 || chunk + b < arguments.chunks) {
          batch[b] = Unit::template load<kAligned>(arguments.source + (chunk + b) * arguments.count + first);
        }
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (kChunks == 0 && chunk + b >= arguments.chunks) continue;
        if (b == 0 && chunk == 0) {
#pragma unroll
          for (int i = 0; i < kWidth; ++i) sum[i] = batch[0].at(i);
        } else {
          add(sum, batch[b]);
        }
      }
      chunk += kBatch;
    } while (kChunks == 0 && chunk < arguments.chunks);
  }

  __device__ static void finish(const Arguments& arguments, std::int64_t first,
                                const Values<Destination, kWidth>& before, const float (&sum)[kWidth]) {
    float after[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) after[i] = __fadd_rn(before.at(i), __fmul_rn(arguments.factor, sum[i]));
    Values<Destination, kWidth>::template store<kAligned>(arguments.destination + first, after);
  }

  __device__ static void sum_element(const Arguments& arguments, std::int64_t index) {
    float sum = to_fp32(arguments.source[index]);
    for (std::int64_t chunk = 1; chunk < arguments.chunks; ++chunk) {
      sum = __fadd_rn(sum, to_fp32(arguments.source[chunk * arguments.count + index]));
    }
    sum = __fadd_rn(to_fp32(arguments.destination[index]), __fmul_rn(arguments.factor, sum));
    from_fp32(arguments.destination + index, sum);
  }

  __device__ static void run(const Arguments& arguments) {
    const std::int64_t block = std::int64_t{blockIdx.x} * (kElementwiseThreads * kUnits * kWidth);
    float sums[kUnits][kWidth];
    Values<Destination, kWidth> before[kUnits];
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      const std::int64_t first = block + (unit * kElementwiseThreads + static_cast<int>(threadIdx.x)) * kWidth;
      if (first + kWidth > arguments.count) continue;
      before[unit] = Values<Destination, kWidth>::template load<kAligned>(arguments.destination + first);
      sum_unit(arguments, first, sums[unit]);
    }
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      const std::int64_t first = block + (unit * kElementwiseThreads + static_cast<int>(threadIdx.x)) * kWidth;
      if (first + kWidth <= arguments.count) finish(arguments, first, before[unit], sums[unit]);
    }
    const std::int64_t tail = arguments.count / kWidth * kWidth + threadIdx.x;
    if (blockIdx.x == gridDim.x - 1 && tail < arguments.count) sum_element(arguments, tail);
  }
};

template <class Summer>
__global__ void __launch_bounds__(kElementwiseThreads)
    sum_chunks_kernel(const __grid_constant__ typename Summer::Arguments arguments) {
  wait_for_predecessor();
  Summer::run(arguments);
}

template <class Destination, class Source, int kChunks, int kUnits, bool kAligned>
void launch_sum_chunks(const KernelCall& call, const SumChunksArguments<Destination, Source>& arguments,
                       cudaStream_t stream) {
  using Summer = ChunkSummer<Destination, Source, kChunks, kUnits, kAligned>;
  const std::int64_t blocks = detail::blocks_of(arguments.count, kElementwiseThreads * kUnits * Summer::kWidth);
  launch_overlapped(call, sum_chunks_kernel<Summer>, blocks, kElementwiseThreads, stream, arguments);
}

}  // namespace gtp::cuda
