// The column copy of an NVFP4 matrix from its row copy. A thread turns 8 x 8 codes around in registers; shared memory
// turns a tile of 32 x 32 such blocks around, with rows rotated so that no two lanes meet in a bank.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/packet.cuh"
#include "kernels/cuda/tile.cuh"

namespace gtp::cuda {

struct Nvfp4TransposeArguments {
  ConstQuantizedCopy row;
  QuantizedCopy col;
  std::int64_t rows, cols;
  ScaleGrid row_grid, col_grid;
  std::uint32_t tiles_across, tiles_down;
};

inline constexpr int kTransposeTile = 256;
inline constexpr int kTransposeBlocks = kTransposeTile / 8;

/// words[i] has eight codes of row i; afterwards words[j] has those of column j.
__device__ inline void transpose_codes(std::uint32_t (&words)[8]) {
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const std::uint32_t a = words[i], b = words[i + 1];
    words[i] = (a & 0x0F0F0F0FU) | ((b << 4U) & 0xF0F0F0F0U);
    words[i + 1] = ((a >> 4U) & 0x0F0F0F0FU) | (b & 0xF0F0F0F0U);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i % 4 >= 2) continue;
    const std::uint32_t a = words[i], b = words[i + 2];
    words[i] = __byte_perm(a, b, 0x6240);
    words[i + 2] = __byte_perm(a, b, 0x7351);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t a = words[i], b = words[i + 4];
    words[i] = __byte_perm(a, b, 0x5410);
    words[i + 4] = __byte_perm(a, b, 0x7632);
  }
}

/// `kBand`: tile rows that blocks walk down before they step to the next column, so that what runs at the same time
/// writes long pieces of the columns and still reads long pieces of the rows.
template <int kThreads, int kBand, int kWords, bool kAligned>
struct Nvfp4Transposer {
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kLanes = kTransposeBlocks / kWords;  ///< That share a row; a lane has neighbouring words of it.
  static constexpr int kRowsAtOnce = kWarps * (32 / kLanes);
  static constexpr int kRounds = kTransposeBlocks / kRowsAtOnce;
  static constexpr int kGrain = kAligned ? 4 * kWords : 1;
  static constexpr int kScaleBlocks = kTransposeTile / static_cast<int>(kNvfp4BlockSize);

  struct Shared {
    alignas(8) std::uint32_t codes[kTransposeTile][kTransposeBlocks];
    std::uint8_t scales[kScaleBlocks][kScaleBlocks];
  };

  __device__ static void read_codes(const Nvfp4TransposeArguments& arguments, std::int64_t first_row,
                                    std::int64_t first_col, Shared& shared) {
    const int lane = static_cast<int>(threadIdx.x) % kLanes, part = static_cast<int>(threadIdx.x) / kLanes;
    const std::int64_t col = first_col + 8 * kWords * lane;
    Packet<4 * kWords> packets[kRounds][8] = {};
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const std::int64_t row = first_row + 8 * (part + round * kRowsAtOnce);
      if (row >= arguments.rows || col >= arguments.cols) continue;
      const std::uint8_t* source = arguments.row.data + (row * arguments.cols + col) / 2;
#pragma unroll
      for (auto& packet : packets[round]) {
        packet = load_packet<4 * kWords, kGrain>(source);
        source += arguments.cols / 2;
      }
    }
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int block_row = part + round * kRowsAtOnce;
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        std::uint32_t words[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) words[i] = packets[round][i].words[w];
        transpose_codes(words);
        const int block_col = kWords * lane + w;
#pragma unroll
        for (int j = 0; j < 8; ++j) shared.codes[8 * block_col + j][block_row ^ block_col] = words[j];
      }
    }
  }

  __device__ static void write_codes(const Nvfp4TransposeArguments& arguments, std::int64_t first_row,
                                     std::int64_t first_col, const Shared& shared) {
    const int lane = static_cast<int>(threadIdx.x) % kLanes, part = static_cast<int>(threadIdx.x) / kLanes;
    const std::int64_t row = first_row + 8 * kWords * lane;
    if (row >= arguments.rows) return;
    std::uint8_t* target = arguments.col.data + ((first_col + part) * arguments.rows + row) / 2;
    const std::int64_t step_stride = kRowsAtOnce * (arguments.rows / 2);
#pragma unroll 8
    for (int col = part; col < kTransposeTile; col += kRowsAtOnce, target += step_stride) {
      if (first_col + col >= arguments.cols) return;
      const std::uint32_t* codes = &shared.codes[col][kWords * (lane ^ col / (8 * kWords))];
      Packet<4 * kWords> packet;
      if constexpr (kWords == 1) {
        packet.words[0] = *codes;
      } else {
        const uint2 two = *reinterpret_cast<const uint2*>(codes);
        const bool turned = col / 8 % 2 != 0;
        packet.words[0] = turned ? two.y : two.x;
        packet.words[1] = turned ? two.x : two.y;
      }
      store_packet<kGrain>(target, packet);
    }
  }

  /// One scale per tile of 16 x 16: that of the tile's first row. Zero outside the matrix.
  __device__ static void read_scales(const Nvfp4TransposeArguments& arguments, std::int64_t first_row,
                                     std::int64_t first_col, Shared& shared) {
    for (int index = static_cast<int>(threadIdx.x); index < kScaleBlocks * kScaleBlocks; index += kThreads) {
      const std::int64_t row = first_row + index / kScaleBlocks * kNvfp4BlockSize;
      const std::int64_t block = first_col / kNvfp4BlockSize + index % kScaleBlocks;
      const bool inside = row < arguments.rows && block < arguments.row_grid.inner;
      shared.scales[index / kScaleBlocks][index % kScaleBlocks] =
          inside ? arguments.row.scales[scale_offset(arguments.row_grid, arguments.row.order, row, block)]
                 : std::uint8_t{0};
    }
  }

  __device__ static void write_scales(const Nvfp4TransposeArguments& arguments, std::int64_t first_row,
                                      std::int64_t first_col, const Shared& shared) {
    constexpr int kScaleWords = kScaleBlocks / 4;
#pragma unroll 4
    for (int index = static_cast<int>(threadIdx.x); index < kTransposeTile * kScaleWords; index += kThreads) {
      const int col = index / kScaleWords, block = index % kScaleWords * 4;
      const std::int64_t i = first_col + col, j = first_row / kNvfp4BlockSize + block;
      if (i >= arguments.col_grid.padded_outer() || j >= arguments.col_grid.padded_inner()) continue;
      std::uint32_t word = 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        word |= static_cast<std::uint32_t>(shared.scales[block + k][col / kNvfp4BlockSize]) << 8 * k;
      }
      store_word<kAligned>(arguments.col.scales + scale_offset(arguments.col_grid, arguments.col.order, i, j), word);
    }
  }

  __device__ static void run(const Nvfp4TransposeArguments& arguments) {
    __shared__ Shared shared;
    const std::uint32_t first_of_band = blockIdx.x / (kBand * arguments.tiles_across) * kBand;
    const std::uint32_t band = min(static_cast<std::uint32_t>(kBand), arguments.tiles_down - first_of_band);
    const std::uint32_t in_band = blockIdx.x - first_of_band * arguments.tiles_across;
    const std::int64_t first_row = std::int64_t{first_of_band + in_band % band} * kTransposeTile;
    const std::int64_t first_col = std::int64_t{in_band / band} * kTransposeTile;
    read_scales(arguments, first_row, first_col, shared);
    read_codes(arguments, first_row, first_col, shared);
    __syncthreads();
    write_codes(arguments, first_row, first_col, shared);
    write_scales(arguments, first_row, first_col, shared);
  }
};

template <int kThreads, int kBlocksPerSm, int kBand, int kWords, bool kAligned>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    nvfp4_transpose_kernel(const __grid_constant__ Nvfp4TransposeArguments arguments) {
  wait_for_predecessor();
  Nvfp4Transposer<kThreads, kBand, kWords, kAligned>::run(arguments);
}

template <int kThreads, int kBlocksPerSm, int kBand, int kWords, bool kAligned>
void launch_nvfp4_transpose(const KernelCall& call, const Nvfp4TransposeArguments& arguments, cudaStream_t stream) {
  const std::int64_t blocks = std::int64_t{arguments.tiles_down} * arguments.tiles_across;
  launch_overlapped(call, nvfp4_transpose_kernel<kThreads, kBlocksPerSm, kBand, kWords, kAligned>, blocks, kThreads,
                    stream, arguments);
}

inline Nvfp4TransposeArguments nvfp4_transpose_arguments(std::int64_t rows, std::int64_t cols,
                                                         const ConstQuantizedCopy& row, const QuantizedCopy& col) {
  return {row,
          col,
          rows,
          cols,
          nvfp4_row_scales(rows, cols),
          nvfp4_col_scales(rows, cols),
          static_cast<std::uint32_t>(detail::blocks_of(cols, kTransposeTile)),
          static_cast<std::uint32_t>(detail::blocks_of(rows, kTransposeTile))};
}

}  // namespace gtp::cuda
