// How a matrix is spread over threads by the format kernels. A block of threads owns 128 x 128 values: exactly one
// 128 x 4 tile of MXFP8 scales in either direction, so padding of the scales belongs to the blocks that own it. A warp
// owns 32 rows of it, all held in registers; a lane owns the same few columns in several of those rows. Kernels without
// scales along columns may do with fewer rows, which helps small matrices: less is left to do once the last row is
// read.
#pragma once

#include <cstdint>

#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/format_kernels.hpp"
#include "kernels/cuda/packet.cuh"

namespace gtp::cuda {

inline constexpr int kTileRows = 128;
inline constexpr int kTileCols = 128;
inline constexpr int kWarpRows = 32;

/// `kColsPerLane` columns for each of `kLanes` lanes; the other lanes of the warp take further rows, `kRows` in all. A
/// block has `kBlockRows`.
template <int kColsPerLane_, int kLanes_, int kRows_ = kWarpRows, int kBlockRows_ = kTileRows>
struct WarpTile {
  static constexpr int kColsPerLane = kColsPerLane_;
  static constexpr int kLanes = kLanes_;
  static constexpr int kRows = kRows_;
  static constexpr int kBlockRows = kBlockRows_;
  static constexpr int kCols = kColsPerLane * kLanes;
  static constexpr int kRowsPerStep = 32 / kLanes;
  static constexpr int kSteps = kRows / kRowsPerStep;
  static constexpr int kWarpsAcross = kTileCols / kCols;
  static constexpr int kThreads = 32 * kWarpsAcross * (kBlockRows / kRows);
  static_assert(kTileCols % kCols == 0 && kTileRows % kBlockRows == 0);

  std::int64_t tile_row, tile_col;  ///< Of the block of threads, in tiles.
  int first_row;                    ///< Of this warp, in the tile.
  int lane_row;                     ///< Of this lane in its warp's rows, at step 0.
  int col;                          ///< First column of this lane, in the tile.

  __device__ explicit WarpTile(std::uint32_t tiles_across) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    tile_row = blockIdx.x / tiles_across;
    tile_col = blockIdx.x % tiles_across;
    first_row = warp / kWarpsAcross * kRows;
    lane_row = lane / kLanes;
    col = warp % kWarpsAcross * kCols + lane % kLanes * kColsPerLane;
  }

  __device__ std::int64_t matrix_row(int step) const {
    return tile_row * kBlockRows + first_row + lane_row + step * kRowsPerStep;
  }
  __device__ std::int64_t matrix_col() const { return tile_col * kTileCols + col; }
};

/// Eight neighbouring values, rounded to BF16. `kAligned`: the address to 16 bytes.
template <bool kAligned, class Value>
__device__ inline void load_pairs(const Value* address, Bf16Pair (&pairs)[4]) {
  constexpr int kGrain = kAligned ? 16 : static_cast<int>(sizeof(Value));
  const Packet<16> first = load_packet<16, kGrain>(address);
  if constexpr (sizeof(Value) == 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = first.words[i];
  } else {
    const Packet<16> second = load_packet<16, kGrain>(address + 4);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      pairs[i] = bf16_pair(float_of(first.words[2 * i]), float_of(first.words[2 * i + 1]));
      pairs[i + 2] = bf16_pair(float_of(second.words[2 * i]), float_of(second.words[2 * i + 1]));
    }
  }
}

/// grid.compact_offset() or grid.swizzled_offset() of a grid stored along `inner`, without what signs cost.
__device__ inline std::size_t scale_offset(const ScaleGrid& grid, ScaleOrder order, std::int64_t i, std::int64_t j) {
  const auto outer = static_cast<std::uint64_t>(i), inner = static_cast<std::uint64_t>(j);
  const std::uint64_t columns = (static_cast<std::uint64_t>(grid.inner) + 3) / 4;
  if (order == ScaleOrder::kCompact) return outer * columns * 4 + inner;
  return (outer / 128 * columns + inner / 4) * 512 + outer % 32 * 16 + outer % 128 / 32 * 4 + inner % 4;
}

}  // namespace gtp::cuda
