// MXFP8 codes back to values. The scales that a warp needs are loaded once: a word per row, or a byte per column.
#pragma once

#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tile.cuh"

namespace gtp::cuda {

struct Mxfp8DequantizeArguments {
  ConstQuantizedCopy copy;
  void* target;
  std::int64_t rows, cols;
  ScaleGrid grid;
  std::uint32_t tiles_across;
};

/// `kAligned`: data to 8 bytes, scales to 4, the target to 16.
template <class Value_, class Tile_, CopyDirection kDirection, bool kAligned>
struct Mxfp8Dequantizer {
  using Value = Value_;
  using Tile = Tile_;
  static constexpr int kCols = Tile::kColsPerLane;
  static constexpr int kDataGrain = kAligned ? kCols : 1;
  static constexpr int kTargetGrain = kAligned ? 16 : static_cast<int>(sizeof(Value));
  static_assert(kCols * sizeof(Value) == 16);

  /// The scales of this lane's columns, if those are scaled.
  __device__ static void load_col_scales(const Mxfp8DequantizeArguments& arguments, const Tile& tile,
                                         float (&factors)[kCols]) {
    const std::int64_t block = tile.tile_row * kScaleTileInner + tile.first_row / kWarpRows;
    const ScaleGrid& grid = arguments.grid;
    if (arguments.copy.order == ScaleOrder::kCompact) {
      const std::uint8_t* first = arguments.copy.scales + grid.compact_offset(tile.matrix_col(), block);
      const auto codes = load_packet<kCols, kDataGrain>(first);
#pragma unroll
      for (int i = 0; i < kCols; ++i) {
        factors[i] = decode_e8m0(static_cast<std::uint8_t>(codes.words[i / 4] >> i % 4 * 8));
      }
      return;
    }
    // Neighbouring columns are one chunk of 16 bytes apart: lanes own whole groups of them.
    const std::uint8_t* first = arguments.copy.scales + grid.swizzled_offset(tile.matrix_col(), block);
#pragma unroll
    for (int i = 0; i < kCols; ++i) factors[i] = decode_e8m0(first[16 * i]);
  }

  /// The four scales of row `lane` of this warp.
  __device__ static std::uint32_t load_row_scales(const Mxfp8DequantizeArguments& arguments, const Tile& tile) {
    const std::int64_t row = tile.tile_row * kTileRows + tile.first_row + static_cast<int>(threadIdx.x) % 32;
    return load_word<kAligned>(arguments.copy.scales + scale_offset(arguments.grid, arguments.copy.order, row,
                                                                    tile.tile_col * kScaleTileInner));
  }

  __device__ static Packet<16> pack(const float (&values)[kCols]) {
    Packet<16> packet;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (sizeof(Value) == 2) {
        packet.words[i] = bf16_pair(values[2 * i], values[2 * i + 1]);
      } else {
        packet.words[i] = bits_of(values[i]);
      }
    }
    return packet;
  }

  __device__ static void run(const Mxfp8DequantizeArguments& arguments) {
    const Tile tile(arguments.tiles_across);
    if (tile.tile_row * kTileRows + tile.first_row >= arguments.rows) return;  // the whole warp
    const bool inside = tile.matrix_col() < arguments.cols;
    const std::int64_t origin = tile.matrix_row(0) * arguments.cols + tile.matrix_col();
    const std::int64_t step_stride = Tile::kRowsPerStep * arguments.cols;
    Packet<kCols> codes[Tile::kSteps];
    float col_factors[kCols];
    std::uint32_t row_scales = 0;
    if (inside) {
#pragma unroll
      for (int step = 0; step < Tile::kSteps; ++step) {
        codes[step] = load_packet<kCols, kDataGrain>(arguments.copy.data + origin + step * step_stride);
      }
      if constexpr (kDirection == CopyDirection::kCol) load_col_scales(arguments, tile, col_factors);
    }
    if constexpr (kDirection == CopyDirection::kRow) row_scales = load_row_scales(arguments, tile);
#pragma unroll
    for (int step = 0; step < Tile::kSteps; ++step) {
      float row_factor = 0;
      if constexpr (kDirection == CopyDirection::kRow) {
        const std::uint32_t word = __shfl_sync(0xFFFFFFFFU, row_scales, tile.lane_row + step * Tile::kRowsPerStep);
        row_factor = decode_e8m0(static_cast<std::uint8_t>(word >> tile.col / static_cast<int>(kMxfp8BlockSize) * 8));
      }
      if (!inside) continue;
      float values[kCols];
#pragma unroll
      for (int i = 0; i < kCols; i += 2) {
        const float2 pair = e4m3_values(codes[step].words[i / 4] >> i % 4 * 8);
        values[i] = (kDirection == CopyDirection::kRow ? row_factor : col_factors[i]) * pair.x;
        values[i + 1] = (kDirection == CopyDirection::kRow ? row_factor : col_factors[i + 1]) * pair.y;
      }
      store_packet<kTargetGrain>(static_cast<Value*>(arguments.target) + origin + step * step_stride, pack(values));
    }
  }
};

template <class Dequantizer, int kBlocksPerSm>
__global__ void __launch_bounds__(Dequantizer::Tile::kThreads, kBlocksPerSm)
    mxfp8_dequantize_kernel(const __grid_constant__ Mxfp8DequantizeArguments arguments) {
  wait_for_predecessor();
  Dequantizer::run(arguments);
}

inline Mxfp8DequantizeArguments mxfp8_dequantize_arguments(CopyDirection direction, const ConstQuantizedCopy& copy,
                                                           const TargetMatrix& target) {
  const bool rows = direction == CopyDirection::kRow;
  return {copy,
          target.values,
          target.rows,
          target.cols,
          rows ? mxfp8_row_scales(target.rows, target.cols) : mxfp8_col_scales(target.rows, target.cols),
          static_cast<std::uint32_t>(detail::blocks_of(target.cols, kTileCols))};
}

template <class Dequantizer, int kBlocksPerSm>
void launch_mxfp8_dequantize(const KernelCall& call, const Mxfp8DequantizeArguments& arguments, cudaStream_t stream) {
  const std::int64_t blocks = detail::blocks_of(arguments.rows, kTileRows) * arguments.tiles_across;
  launch_overlapped(call, mxfp8_dequantize_kernel<Dequantizer, kBlocksPerSm>, blocks, Dequantizer::Tile::kThreads,
                    stream, arguments);
}

}  // namespace gtp::cuda
