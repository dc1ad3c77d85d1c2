// NVFP4 codes back to values. Scales are read per row, so tensors whose tiles are not 16 rows high decode as well.
#pragma once

#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tile.cuh"

namespace gtp::cuda {

struct Nvfp4DequantizeArguments {
  ConstQuantizedCopy row;
  const float* amax;
  void* target;
  std::int64_t rows, cols;
  ScaleGrid grid;
  std::uint32_t tiles_across;
};

/// A warp has 64 columns, of which a row has one word of scales. `kAligned`: data and scales to 4, the target to 16.
template <class Value_, class Tile_, bool kAligned>
struct Nvfp4Dequantizer {
  using Value = Value_;
  using Tile = Tile_;
  static constexpr int kCols = Tile::kColsPerLane;
  static constexpr int kCodeBytes = kCols / 2;
  static constexpr int kCodeGrain = kAligned ? kCodeBytes : 1;
  static constexpr int kTargetGrain = kAligned ? 16 : static_cast<int>(sizeof(Value));
  static_assert(kCols * sizeof(Value) == 16 && Tile::kCols == 64);

  __device__ static Packet<16> decode(std::uint32_t codes, float factor) {
    Packet<16> packet;
    if constexpr (kCols == 8) {
      float values[8];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float2 pair = decode_e2m1_nibbles(codes, k);
        values[k] = factor * pair.x, values[k + 4] = factor * pair.y;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) packet.words[i] = bf16_pair(values[2 * i], values[2 * i + 1]);
    } else {
      const std::uint32_t apart = __byte_perm(codes, 0, 0x4140);  // nibbles 2 and 3 where 4 and 5 would be
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const float2 pair = decode_e2m1_nibbles(apart, k);
        packet.words[k] = bits_of(factor * pair.x), packet.words[k + 2] = bits_of(factor * pair.y);
      }
    }
    return packet;
  }

  __device__ static void run(const Nvfp4DequantizeArguments& arguments) {
    const Tile tile(arguments.tiles_across);
    const std::int64_t first_row = tile.tile_row * kTileRows + tile.first_row;
    const std::int64_t first_col = tile.matrix_col() / Tile::kCols * Tile::kCols;
    if (first_row >= arguments.rows || first_col >= arguments.cols) return;  // the whole warp
    const std::int64_t origin = tile.matrix_row(0) * arguments.cols + tile.matrix_col();
    const std::int64_t step_stride = Tile::kRowsPerStep * arguments.cols;
    Packet<kCodeBytes> codes[Tile::kSteps];
#pragma unroll
    for (int step = 0; step < Tile::kSteps; ++step) {
      if (tile.matrix_col() >= arguments.cols || tile.matrix_row(step) >= arguments.rows) continue;
      codes[step] = load_packet<kCodeBytes, kCodeGrain>(arguments.row.data + (origin + step * step_stride) / 2);
    }
    const std::uint32_t scale_word =
        load_word<kAligned>(arguments.row.scales + scale_offset(arguments.grid, arguments.row.order,
                                                                first_row + static_cast<int>(threadIdx.x) % 32,
                                                                first_col / kNvfp4BlockSize));
    const float amax = *arguments.amax;
#pragma unroll
    for (int step = 0; step < Tile::kSteps; ++step) {
      const std::uint32_t word = __shfl_sync(0xFFFFFFFFU, scale_word, tile.lane_row + step * Tile::kRowsPerStep);
      if (tile.matrix_col() >= arguments.cols || tile.matrix_row(step) >= arguments.rows) continue;
      const int block = tile.col % Tile::kCols / static_cast<int>(kNvfp4BlockSize);
      const float factor = nvfp4_decode_factor(static_cast<std::uint8_t>(word >> block * 8), amax);
      store_packet<kTargetGrain>(static_cast<Value*>(arguments.target) + origin + step * step_stride,
                                 decode(codes[step].words[0], factor));
    }
  }
};

template <class Dequantizer, int kBlocksPerSm>
__global__ void __launch_bounds__(Dequantizer::Tile::kThreads, kBlocksPerSm)
    nvfp4_dequantize_kernel(const __grid_constant__ Nvfp4DequantizeArguments arguments) {
  wait_for_predecessor();
  Dequantizer::run(arguments);
}

inline Nvfp4DequantizeArguments nvfp4_dequantize_arguments(const ConstQuantizedCopy& row, const float* amax,
                                                           const TargetMatrix& target) {
  return {row,
          amax,
          target.values,
          target.rows,
          target.cols,
          nvfp4_row_scales(target.rows, target.cols),
          static_cast<std::uint32_t>(detail::blocks_of(target.cols, kTileCols))};
}

template <class Dequantizer, int kBlocksPerSm>
void launch_nvfp4_dequantize(const KernelCall& call, const Nvfp4DequantizeArguments& arguments, cudaStream_t stream) {
  const std::int64_t blocks = detail::blocks_of(arguments.rows, kTileRows) * arguments.tiles_across;
  launch_overlapped(call, nvfp4_dequantize_kernel<Dequantizer, kBlocksPerSm>, blocks, Dequantizer::Tile::kThreads,
                    stream, arguments);
}

}  // namespace gtp::cuda
