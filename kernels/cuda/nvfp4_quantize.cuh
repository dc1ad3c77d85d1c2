// The NVFP4 quantizer: 16 x 16 tiles, their amax from registers and two or three shuffles, codes eight at a time.
#pragma once

#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tile.cuh"

namespace gtp::cuda {

struct Nvfp4QuantizeArguments {
  const void* source;
  const float* amax;
  std::int64_t rows, cols;
  QuantizedCopy row;
  ScaleGrid grid;
  std::uint32_t tiles_across;
};

/// `kAligned`: the source to 16 bytes, data and scales to 4. `kEarly`: lets its successor in once everything is loaded.
template <class Value_, class Tile_, bool kAligned, bool kEarly = false>
struct Nvfp4Quantizer {
  using Value = Value_;
  using Tile = Tile_;
  static constexpr int kBlock = static_cast<int>(kNvfp4BlockSize);
  static constexpr int kGroups = Tile::kRows / kBlock;  ///< Rows of 16 x 16 tiles in a warp's rows.
  static constexpr int kGroupSteps = Tile::kSteps / kGroups;
  static constexpr int kBlocksAcross = kTileCols / kBlock;
  static_assert(Tile::kColsPerLane == 8 && Tile::kRowsPerStep <= kBlock);

  using Pairs = Bf16Pair[4];
  struct Scales {
    alignas(4) std::uint8_t codes[Tile::kBlockRows / kBlock][kBlocksAcross];
  };

  /// Largest magnitudes, by `larger`, in the 16 x 16 tile that this lane's values in steps [0, kGroupSteps) are in.
  template <class Larger>
  __device__ static Bf16Pair tile_amax(const Pairs* pairs, const Larger& larger) {
    Bf16Pair amax = 0;
#pragma unroll
    for (int step = 0; step < kGroupSteps; ++step) {
#pragma unroll
      for (const Bf16Pair pair : pairs[step]) amax = larger(amax, pair);
    }
    amax = larger(amax, __shfl_xor_sync(0xFFFFFFFFU, amax, 1));
#pragma unroll
    for (int distance = Tile::kLanes; distance < 32; distance *= 2) {
      amax = larger(amax, __shfl_xor_sync(0xFFFFFFFFU, amax, distance));
    }
    return amax;
  }

  struct TileScale {
    std::uint8_t code;
    float factor;
  };

  /// Afterwards the pairs can be encoded with the factor.
  __device__ static TileScale scale_tile(Pairs* pairs, float global_scale) {
    Bf16Pair amax = tile_amax(pairs, max_magnitude_or_nan_pair);
    bool any_value = has_nan(amax);  // rather than small numbers only
    if (__any_sync(0xFFFFFFFFU, any_value)) amax = tile_amax(pairs, max_magnitude_pair);
    const std::uint8_t code = nvfp4_scale_code(larger_half(amax), global_scale);
    const float factor = nvfp4_encode_factor(code, global_scale);
    any_value = any_value || larger_half(amax) * factor >= 7.0F;
    if (any_value) {
#pragma unroll
      for (int step = 0; step < kGroupSteps; ++step) {
#pragma unroll
        for (Bf16Pair& pair : pairs[step]) pair = limit_for_e2m1(pair, factor);
      }
    }
    return {code, factor};
  }

  __device__ static void write_scales(const Nvfp4QuantizeArguments& arguments, const Tile& tile, const Scales& scales) {
    constexpr int kWordsAcross = kBlocksAcross / 4;
    for (int index = static_cast<int>(threadIdx.x); index < Tile::kBlockRows * kWordsAcross; index += Tile::kThreads) {
      const int row = index / kWordsAcross, block = index % kWordsAcross * 4;
      const std::int64_t i = tile.tile_row * Tile::kBlockRows + row, j = tile.tile_col * kBlocksAcross + block;
      if (j >= arguments.grid.padded_inner()) continue;
      const auto word = *reinterpret_cast<const std::uint32_t*>(&scales.codes[row / kBlock][block]);
      store_word<kAligned>(arguments.row.scales + scale_offset(arguments.grid, arguments.row.order, i, j), word);
    }
  }

  __device__ static void run(const Nvfp4QuantizeArguments& arguments) {
    __shared__ Scales scales;
    const float amax = *arguments.amax;
    const Tile tile(arguments.tiles_across);
    const std::int64_t origin = tile.matrix_row(0) * arguments.cols + tile.matrix_col();
    const std::int64_t step_stride = Tile::kRowsPerStep * arguments.cols;
    bool inside[kGroups];
    Pairs pairs[Tile::kSteps] = {};
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const std::int64_t first_row = tile.tile_row * Tile::kBlockRows + tile.first_row + group * kBlock;
      inside[group] = tile.matrix_col() < arguments.cols && first_row < arguments.rows;
      if (!inside[group]) continue;
      const Value* source = static_cast<const Value*>(arguments.source) + origin + group * kGroupSteps * step_stride;
#pragma unroll
      for (int step = 0; step < kGroupSteps; ++step, source += step_stride) {
        load_pairs<kAligned>(source, pairs[group * kGroupSteps + step]);
      }
    }
    if constexpr (kEarly) let_successor_in();
    const float global_scale = nvfp4_global_scale(amax);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      Pairs* group_pairs = pairs + group * kGroupSteps;
      const TileScale scale = scale_tile(group_pairs, global_scale);
      scales.codes[tile.first_row / kBlock + group][tile.col / kBlock] = scale.code;  // equal on all lanes of the tile
      if (!inside[group]) continue;
      std::uint8_t* data = arguments.row.data + (origin + group * kGroupSteps * step_stride) / 2;
#pragma unroll
      for (int step = 0; step < kGroupSteps; ++step, data += step_stride / 2) {
        store_word<kAligned>(data, encode_e2m1_word(group_pairs[step], scale.factor));
      }
    }
    __syncthreads();
    write_scales(arguments, tile, scales);
  }
};

template <class Quantizer, int kBlocksPerSm>
__global__ void __launch_bounds__(Quantizer::Tile::kThreads, kBlocksPerSm)
    nvfp4_quantize_kernel(const __grid_constant__ Nvfp4QuantizeArguments arguments) {
  wait_for_predecessor();
  Quantizer::run(arguments);
}

inline Nvfp4QuantizeArguments nvfp4_quantize_arguments(const SourceMatrix& source, const float* amax,
                                                       const QuantizedCopy& row) {
  return {source.values,
          amax,
          source.rows,
          source.cols,
          row,
          nvfp4_row_scales(source.rows, source.cols),
          static_cast<std::uint32_t>(detail::blocks_of(source.cols, kTileCols))};
}

template <class Quantizer, int kBlocksPerSm>
void launch_nvfp4_quantize(const KernelCall& call, const Nvfp4QuantizeArguments& arguments, cudaStream_t stream) {
  const std::int64_t down = detail::blocks_of(arguments.rows, kTileRows) * (kTileRows / Quantizer::Tile::kBlockRows);
  launch_overlapped(call, nvfp4_quantize_kernel<Quantizer, kBlocksPerSm>, down * arguments.tiles_across,
                    Quantizer::Tile::kThreads, stream, arguments);
}

}  // namespace gtp::cuda
