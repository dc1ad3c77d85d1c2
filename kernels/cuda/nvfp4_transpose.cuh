// The column copy of an NVFP4 matrix from its row copy. A thread turns 8 x 8 codes around in registers; shared memory
// turns a tile of 1024 such blocks around, with rows rotated so that no two lanes meet in a bank.
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
  std::uint32_t tiles_across;
  bool wide_scales;  ///< Compact scales of columns can be written 16 at a time.
};

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

/// A tile has `kRows` x `kCols` codes.
/// `kAligned`: data to 8 bytes, scales of columns to 4, in swizzled order to 16.
template <int kRows_, int kCols_, bool kAligned_>
struct Nvfp4Transposer {
  static constexpr int kRows = kRows_, kCols = kCols_, kThreads = 256;
  static constexpr bool kAligned = kAligned_;
  static constexpr int kGrain = kAligned ? 8 : 1;
  static constexpr int kRowLanes = kCols / 16, kRowsAtOnce = kThreads / kRowLanes;  ///< Lanes with codes of one row.
  static constexpr int kColLanes = kRows / 16, kColsAtOnce = kThreads / kColLanes;
  static constexpr int kRounds = kRows / 8 / kRowsAtOnce;
  static constexpr int kScaleRows = kRows / static_cast<int>(kNvfp4BlockSize);
  static constexpr int kScaleCols = kCols / static_cast<int>(kNvfp4BlockSize);

  static constexpr int kScaleWords = kScaleRows / 4;  ///< Of one column.
  static constexpr int kScalesPerThread = (kScaleRows * kScaleCols + kThreads - 1) / kThreads;

  struct Shared {
    alignas(8) std::uint32_t codes[kCols][kRows / 8];
    alignas(4) std::uint8_t scales[kScaleWords][kScaleCols][4];
    __device__ std::uint32_t scale_word(int word, int col) const {
      return *reinterpret_cast<const std::uint32_t*>(scales[word][col / static_cast<int>(kNvfp4BlockSize)]);
    }
  };

  /// Where in its column the word of block row `row` is: pairs of words stay together, and neither the blocks of a row
  /// nor the pairs of a column meet in a bank.
  __device__ static int place(int row, int col) { return row ^ (col / 16 * (32 / kRowLanes)) ^ (col / 8 % 2); }

  __device__ static void read_codes(const Nvfp4TransposeArguments& arguments, std::int64_t first_row,
                                    std::int64_t first_col, Shared& shared) {
    const int lane = static_cast<int>(threadIdx.x) % kRowLanes, part = static_cast<int>(threadIdx.x) / kRowLanes;
    const std::int64_t col = first_col + 16 * lane;
    Packet<8> packets[kRounds][8] = {};
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const std::int64_t row = first_row + 8 * (part + round * kRowsAtOnce);
      if (row >= arguments.rows || col >= arguments.cols) continue;
      const std::uint8_t* source = arguments.row.data + (row * arguments.cols + col) / 2;
#pragma unroll
      for (Packet<8>& packet : packets[round]) {
        packet = load_packet<8, kGrain>(source);
        source += arguments.cols / 2;
      }
    }
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t words[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) words[i] = packets[round][i].words[half];
        transpose_codes(words);
        const int tile_col = 16 * lane + 8 * half;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          shared.codes[tile_col + j][place(part + round * kRowsAtOnce, tile_col)] = words[j];
        }
      }
    }
  }

  __device__ static void write_codes(const Nvfp4TransposeArguments& arguments, std::int64_t first_row,
                                     std::int64_t first_col, const Shared& shared) {
    const int lane = static_cast<int>(threadIdx.x) % kColLanes, part = static_cast<int>(threadIdx.x) / kColLanes;
    const std::int64_t row = first_row + 16 * lane;
    if (row >= arguments.rows) return;
    std::uint8_t* target = arguments.col.data + ((first_col + part) * arguments.rows + row) / 2;
    const std::int64_t step_stride = kColsAtOnce * (arguments.rows / 2);
#pragma unroll 8
    for (int col = part; col < kCols; col += kColsAtOnce, target += step_stride) {
      if (first_col + col >= arguments.cols) return;
      const int first = place(2 * lane, col);
      const uint2 two = *reinterpret_cast<const uint2*>(&shared.codes[col][first / 2 * 2]);
      const bool turned = first % 2 != 0;
      store_packet<kGrain>(target, Packet<8>{{turned ? two.y : two.x, turned ? two.x : two.y}});
    }
  }

  /// One scale per tile of 16 x 16: that of the tile's first row. Zero outside the matrix. Kept in registers until the
  /// codes are on their way too: to wait for the scales first would double the latency that a small matrix sees.
  __device__ static void load_scales(const Nvfp4TransposeArguments& arguments, std::int64_t first_row,
                                     std::int64_t first_col, std::uint8_t (&scales)[kScalesPerThread]) {
#pragma unroll
    for (int k = 0; k < kScalesPerThread; ++k) {
      const int index = static_cast<int>(threadIdx.x) + k * kThreads;
      const std::int64_t row = first_row + index / kScaleCols * kNvfp4BlockSize;
      const std::int64_t block = first_col / kNvfp4BlockSize + index % kScaleCols;
      const bool inside = row < arguments.rows && block < arguments.row_grid.inner && index < kScaleRows * kScaleCols;
      scales[k] = inside ? arguments.row.scales[scale_offset(arguments.row_grid, arguments.row.order, row, block)]
                         : std::uint8_t{0};
    }
  }

  __device__ static void keep_scales(const std::uint8_t (&scales)[kScalesPerThread], Shared& shared) {
#pragma unroll
    for (int k = 0; k < kScalesPerThread; ++k) {
      const int index = static_cast<int>(threadIdx.x) + k * kThreads;
      if (index >= kScaleRows * kScaleCols) return;
      const int row = index / kScaleCols;
      shared.scales[row / 4][index % kScaleCols][row % 4] = scales[k];
    }
  }

  __device__ static void write_wide_scales(const Nvfp4TransposeArguments& arguments, std::int64_t first_row,
                                           std::int64_t first_col, const Shared& shared) {
    constexpr int kPackets = kScaleWords / 4;
#pragma unroll
    for (int index = static_cast<int>(threadIdx.x); index < kCols * kPackets; index += kThreads) {
      const int col = index / kPackets, word = index % kPackets * 4;
      const std::int64_t i = first_col + col, j = first_row / kNvfp4BlockSize + word * 4;
      if (i >= arguments.col_grid.padded_outer() || j >= arguments.col_grid.padded_inner()) continue;
      Packet<16> words;
#pragma unroll
      for (int k = 0; k < 4; ++k) words.words[k] = shared.scale_word(word + k, col);
      store_packet<16>(arguments.col.scales + scale_offset(arguments.col_grid, ScaleOrder::kCompact, i, j), words);
    }
  }

  __device__ static void write_compact_scales(const Nvfp4TransposeArguments& arguments, std::int64_t first_row,
                                              std::int64_t first_col, const Shared& shared) {
#pragma unroll 4
    for (int index = static_cast<int>(threadIdx.x); index < kCols * kScaleWords; index += kThreads) {
      const int col = index / kScaleWords, word = index % kScaleWords;
      const std::int64_t i = first_col + col, j = first_row / kNvfp4BlockSize + word * 4;
      if (i >= arguments.col_grid.padded_outer() || j >= arguments.col_grid.padded_inner()) continue;
      store_word<kAligned>(arguments.col.scales + scale_offset(arguments.col_grid, ScaleOrder::kCompact, i, j),
                           shared.scale_word(word, col));
    }
  }

  /// A thread has the words of four columns, 32 apart, which lie together; a warp has a tile of 128 columns.
  __device__ static void write_swizzled_scales(const Nvfp4TransposeArguments& arguments, std::int64_t first_row,
                                               std::int64_t first_col, const Shared& shared) {
#pragma unroll
    for (int index = static_cast<int>(threadIdx.x); index < kCols * kScaleWords / 4; index += kThreads) {
      const int word = index / 32 % kScaleWords, col = index / 32 / kScaleWords * 128 + index % 32;
      const std::int64_t i = first_col + col, j = first_row / kNvfp4BlockSize + word * 4;
      if (i >= arguments.col_grid.padded_outer() || j >= arguments.col_grid.padded_inner()) continue;
      Packet<16> words;
#pragma unroll
      for (int k = 0; k < 4; ++k) words.words[k] = shared.scale_word(word, col + 32 * k);
      store_packet<kAligned ? 16 : 1>(
          arguments.col.scales + scale_offset(arguments.col_grid, ScaleOrder::kSwizzled, i, j), words);
    }
  }

  __device__ static void run(const Nvfp4TransposeArguments& arguments) {
    __shared__ Shared shared;
    const std::int64_t first_row = std::int64_t{blockIdx.x / arguments.tiles_across} * kRows;
    const std::int64_t first_col = std::int64_t{blockIdx.x % arguments.tiles_across} * kCols;
    std::uint8_t scales[kScalesPerThread];
    load_scales(arguments, first_row, first_col, scales);
    read_codes(arguments, first_row, first_col, shared);
    keep_scales(scales, shared);
    __syncthreads();
    write_codes(arguments, first_row, first_col, shared);
    if (arguments.col.order == ScaleOrder::kCompact && arguments.wide_scales) {
      write_wide_scales(arguments, first_row, first_col, shared);
    } else if (arguments.col.order == ScaleOrder::kCompact) {
      write_compact_scales(arguments, first_row, first_col, shared);
    } else {
      write_swizzled_scales(arguments, first_row, first_col, shared);
    }
  }
};

template <class Transposer, int kBlocksPerSm>
__global__ void __launch_bounds__(Transposer::kThreads, kBlocksPerSm)
    nvfp4_transpose_kernel(const __grid_constant__ Nvfp4TransposeArguments arguments) {
  wait_for_predecessor();
  Transposer::run(arguments);
}

template <class Transposer, int kBlocksPerSm>
void launch_nvfp4_transpose(const KernelCall& call, std::int64_t rows, std::int64_t cols, const ConstQuantizedCopy& row,
                            const QuantizedCopy& col, cudaStream_t stream) {
  const std::int64_t down = detail::blocks_of(rows, Transposer::kRows);
  const std::int64_t across = detail::blocks_of(cols, Transposer::kCols);
  Nvfp4TransposeArguments arguments{row,
                                    col,
                                    rows,
                                    cols,
                                    nvfp4_row_scales(rows, cols),
                                    nvfp4_col_scales(rows, cols),
                                    static_cast<std::uint32_t>(across),
                                    false};
  arguments.wide_scales = is_aligned(col.scales, 16) && arguments.col_grid.padded_inner() % 16 == 0;
  launch_overlapped(call, nvfp4_transpose_kernel<Transposer, kBlocksPerSm>, down * across, Transposer::kThreads, stream,
                    arguments);
}

}  // namespace gtp::cuda
