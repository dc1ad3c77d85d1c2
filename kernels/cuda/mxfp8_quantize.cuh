// The MXFP8 quantizer: reads a tile once into registers and writes the row copy, the column copy or both from there.
#pragma once

#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tile.cuh"

namespace gtp::cuda {

struct Mxfp8QuantizeArguments {
  const void* source;
  std::int64_t rows, cols;
  QuantizedCopy row, col;
  ScaleGrid row_grid, col_grid;
  std::uint32_t tiles_across;
};

/// `Value`: float or __nv_bfloat16. `kAligned`: the source to 16 bytes, data to 8, scales to 4.
template <class Value_, class Tile_, bool kRow_, bool kCol_, bool kAligned_>
struct Mxfp8Quantizer {
  using Value = Value_;
  using Tile = Tile_;
  static constexpr bool kRow = kRow_, kCol = kCol_, kAligned = kAligned_;
  static constexpr int kPairs = Tile::kColsPerLane / 2;
  static constexpr int kDataGrain = kAligned ? Tile::kColsPerLane : 1;
  static constexpr int kLanesPerBlock = static_cast<int>(kMxfp8BlockSize) / Tile::kColsPerLane;
  static_assert(Tile::kColsPerLane == 8 && Tile::kSteps % 2 == 0);

  using Pairs = Bf16Pair[kPairs];
  using Codes = Packet<Tile::kColsPerLane>;
  struct Scales {
    alignas(4) std::uint8_t row[kTileRows][kScaleTileInner];
    alignas(4) std::uint8_t col[kScaleTileInner][kTileCols];
  };

  /// Largest magnitudes of the row blocks this lane has values of in two rows; of the first row in the low half.
  __device__ static Bf16Pair row_amaxes(const Pairs& first, const Pairs& second) {
    Bf16Pair a = 0, b = 0;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      a = max_magnitude_pair(a, first[i]);
      b = max_magnitude_pair(b, second[i]);
    }
    Bf16Pair amaxes = max_magnitude_pair(__byte_perm(a, b, 0x5410), __byte_perm(a, b, 0x7632));
#pragma unroll
    for (int distance = 1; distance < kLanesPerBlock; distance *= 2) {
      amaxes = max_magnitude_pair(amaxes, __shfl_xor_sync(0xFFFFFFFFU, amaxes, distance));
    }
    return amaxes;
  }

  /// `inverse(i)`: powers of two for columns 2 * i and 2 * i + 1.
  template <class Inverse>
  __device__ static Codes encode(const Pairs& pairs, const Inverse& inverse) {
    Codes codes;
#pragma unroll
    for (int i = 0; i < kPairs; i += 2) {
      codes.words[i / 2] = scaled_e4m3_pair(pairs[i], inverse(i)) | scaled_e4m3_pair(pairs[i + 1], inverse(i + 1))
                                                                        << 16U;
    }
    return codes;
  }

  __device__ static void quantize_rows(const Mxfp8QuantizeArguments& arguments, const Tile& tile, bool inside,
                                       const Pairs (&pairs)[Tile::kSteps], Scales& scales) {
    std::uint8_t* data = arguments.row.data + tile.matrix_row(0) * arguments.cols + tile.matrix_col();
    const std::int64_t step_stride = Tile::kRowsPerStep * arguments.cols;
    std::uint8_t* scale_of_step = &scales.row[tile.first_row + tile.lane_row][tile.col / kMxfp8BlockSize];
#pragma unroll
    for (int step = 0; step < Tile::kSteps; ++step) {
      if (step % 2 != 0) continue;
      const Bf16Pair amaxes = row_amaxes(pairs[step], pairs[step + 1]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t scale = mxfp8_scale_code(i == 0 ? low_value(amaxes) : high_value(amaxes));
        const Bf16Pair inverse = reciprocal_e8m0_pair(scale);
        const Codes codes = encode(pairs[step + i], [inverse](int) { return inverse; });
        if (inside) store_packet<kDataGrain>(data, codes);
        data += step_stride;
        scale_of_step[(step + i) * Tile::kRowsPerStep * kScaleTileInner] = static_cast<std::uint8_t>(scale);
      }
    }
  }

  __device__ static void quantize_cols(const Mxfp8QuantizeArguments& arguments, const Tile& tile, bool inside,
                                       const Pairs (&pairs)[Tile::kSteps], Scales& scales) {
    Bf16Pair inverse[kPairs];
    Codes scale_codes = zero_packet<Tile::kColsPerLane>();
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      Bf16Pair amax = 0;
#pragma unroll
      for (int step = 0; step < Tile::kSteps; ++step) amax = max_magnitude_pair(amax, pairs[step][i]);
#pragma unroll
      for (int distance = Tile::kLanes; distance < 32; distance *= 2) {
        amax = max_magnitude_pair(amax, __shfl_xor_sync(0xFFFFFFFFU, amax, distance));
      }
      const std::uint32_t low = mxfp8_scale_code(low_value(amax)), high = mxfp8_scale_code(high_value(amax));
      inverse[i] = __byte_perm(reciprocal_e8m0_pair(low), reciprocal_e8m0_pair(high), 0x5410);
      scale_codes.words[i / 2] |= (low | high << 8U) << i % 2 * 16;
    }
    if (tile.lane_row == 0) store_packet<4>(&scales.col[tile.first_row / kWarpRows][tile.col], scale_codes);
    if (!inside) return;
    std::uint8_t* data = arguments.col.data + tile.matrix_row(0) * arguments.cols + tile.matrix_col();
    const std::int64_t step_stride = Tile::kRowsPerStep * arguments.cols;
#pragma unroll
    for (int step = 0; step < Tile::kSteps; ++step, data += step_stride) {
      store_packet<kDataGrain>(data, encode(pairs[step], [&inverse](int i) { return inverse[i]; }));
    }
  }

  /// Keeps the compiler from carrying what it derived for the rows (magnitudes, fp32 values) over to the columns, three
  /// times the registers of the values themselves.
  __device__ static void forget_derived(Pairs (&pairs)[Tile::kSteps]) {
#pragma unroll
    for (Pairs& step : pairs) {
#pragma unroll
      for (Bf16Pair& pair : step) asm volatile("" : "+r"(pair));
    }
  }

  __device__ static void write_row_scales(const Mxfp8QuantizeArguments& arguments, const Tile& tile, int row,
                                          const Scales& scales) {
    const std::size_t offset = scale_offset(arguments.row_grid, arguments.row.order, tile.tile_row * kTileRows + row,
                                            tile.tile_col * kScaleTileInner);
    store_word<kAligned>(arguments.row.scales + offset, *reinterpret_cast<const std::uint32_t*>(scales.row[row]));
  }

  /// Words of either layout run along different directions: four blocks of a column, or a block of four columns.
  __device__ static void write_col_scales(const Mxfp8QuantizeArguments& arguments, const Tile& tile, int index,
                                          const Scales& scales) {
    const std::int64_t first_col = tile.tile_col * kTileCols, first_block = tile.tile_row * kScaleTileInner;
    if (arguments.col.order == ScaleOrder::kSwizzled) {
      std::uint32_t word = 0;
#pragma unroll
      for (int j = 0; j < kScaleTileInner; ++j) word |= static_cast<std::uint32_t>(scales.col[j][index]) << 8 * j;
      store_word<kAligned>(arguments.col.scales + arguments.col_grid.swizzled_offset(first_col + index, first_block),
                           word);
      return;
    }
    const int block = index / 32, col = index % 32 * 4;
    const std::size_t offset = arguments.col_grid.compact_offset(first_col + col, first_block + block);
    store_word<kAligned>(arguments.col.scales + offset,
                         *reinterpret_cast<const std::uint32_t*>(&scales.col[block][col]));
  }

  __device__ static void run(const Mxfp8QuantizeArguments& arguments) {
    __shared__ Scales scales;
    const Tile tile(arguments.tiles_across);
    const bool inside = tile.matrix_row(0) < arguments.rows && tile.matrix_col() < arguments.cols;
    Pairs pairs[Tile::kSteps] = {};
    if (inside) {
      const Value* source =
          static_cast<const Value*>(arguments.source) + tile.matrix_row(0) * arguments.cols + tile.matrix_col();
#pragma unroll
      for (int step = 0; step < Tile::kSteps; ++step) {
        load_pairs<kAligned>(source + step * Tile::kRowsPerStep * arguments.cols, pairs[step]);
      }
    }
    if constexpr (kRow) quantize_rows(arguments, tile, inside, pairs, scales);
    if constexpr (kRow && kCol) forget_derived(pairs);
    if constexpr (kCol) quantize_cols(arguments, tile, inside, pairs, scales);
    __syncthreads();
    for (int index = static_cast<int>(threadIdx.x); index < 2 * kTileRows; index += Tile::kThreads) {
      if (kRow && index < kTileRows) write_row_scales(arguments, tile, index, scales);
      if (kCol && index >= kTileRows) write_col_scales(arguments, tile, index - kTileRows, scales);
    }
  }
};

template <class Quantizer, int kBlocksPerSm>
__global__ void __launch_bounds__(Quantizer::Tile::kThreads, kBlocksPerSm)
    mxfp8_quantize_kernel(const __grid_constant__ Mxfp8QuantizeArguments arguments) {
  wait_for_predecessor();
  Quantizer::run(arguments);
}

inline Mxfp8QuantizeArguments mxfp8_quantize_arguments(const SourceMatrix& source, const QuantizedCopy& row,
                                                       const QuantizedCopy& col) {
  return {source.values,
          source.rows,
          source.cols,
          row,
          col,
          mxfp8_row_scales(source.rows, source.cols),
          mxfp8_col_scales(source.rows, source.cols),
          static_cast<std::uint32_t>(detail::blocks_of(source.cols, kTileCols))};
}

template <class Quantizer, int kBlocksPerSm>
void launch_mxfp8_quantize(const KernelCall& call, const Mxfp8QuantizeArguments& arguments, cudaStream_t stream) {
  const std::int64_t blocks = detail::blocks_of(arguments.rows, kTileRows) * arguments.tiles_across;
  launch_overlapped(call, mxfp8_quantize_kernel<Quantizer, kBlocksPerSm>, blocks, Quantizer::Tile::kThreads, stream,
                    arguments);
}

}  // namespace gtp::cuda
