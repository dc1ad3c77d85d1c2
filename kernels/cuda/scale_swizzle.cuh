// Block scales between the compact layout and the 128 x 4 tiles of cuBLASLt. A tile is 32 chunks of 16 bytes; chunk c
// has the words of rows c, c + 32, c + 64 and c + 96, a word being the four scales of a row.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/packet.cuh"
#include "kernels/cuda/tile.cuh"

namespace gtp::cuda::swizzling {

inline constexpr int kThreads = 256;
inline constexpr int kChunks = static_cast<int>(kScaleTileBytes) / 16;
inline constexpr int kTilesPerBlock = kThreads / kChunks;
inline constexpr int kQuarters = static_cast<int>(kScaleTileOuter) / kChunks;  ///< Words of a chunk.

struct Arguments {
  ScaleGrid grid;
  const std::uint8_t* source;
  std::uint8_t* target;
  std::uint32_t blocks_across;  ///< Along the compact storage.
};

/// Bits of the word (i, j..j+3) that are scales of the grid.
__device__ inline std::uint32_t word_mask(const ScaleGrid& grid, std::int64_t i, std::int64_t j) {
  if (i >= grid.outer || j >= grid.inner) return 0;
  return grid.inner - j >= 4 ? 0xFFFFFFFFU : (1U << 8 * static_cast<int>(grid.inner - j)) - 1U;
}

/// Grids whose compact storage runs along `inner`: whole words change place. A thread has one chunk.
template <bool kSwizzle>
__global__ void __launch_bounds__(kThreads, 1) move_words(const __grid_constant__ Arguments arguments) {
  wait_for_predecessor();
  const ScaleGrid& grid = arguments.grid;
  const std::int64_t tile_row = blockIdx.x / arguments.blocks_across;
  const std::int64_t tile_col =
      std::int64_t{blockIdx.x % arguments.blocks_across} * kTilesPerBlock + threadIdx.x % kTilesPerBlock;
  if (tile_col >= grid.tile_columns()) return;
  const std::int64_t i = tile_row * kScaleTileOuter + threadIdx.x / kTilesPerBlock, j = tile_col * kScaleTileInner;
  const std::size_t chunk = grid.swizzled_offset(i, j);
  Packet<16> words;
  if constexpr (!kSwizzle) words = load_packet<16, 16>(arguments.source + chunk);
#pragma unroll
  for (int q = 0; q < kQuarters; ++q) {
    const std::size_t offset = grid.compact_offset(i + q * kChunks, j);
    const std::uint32_t mask = word_mask(grid, i + q * kChunks, j);
    if constexpr (kSwizzle) {
      words.words[q] = load_word<true>(arguments.source + offset) & mask;
    } else {
      store_word<true>(arguments.target + offset, words.words[q] & mask);
    }
  }
  if constexpr (kSwizzle) store_packet<16>(arguments.target + chunk, words);
}

/// words[j] has byte i of row j; afterwards words[i] has byte j. Its own inverse.
__device__ inline void transpose_bytes(std::uint32_t (&words)[4]) {
  const std::uint32_t low01 = __byte_perm(words[0], words[1], 0x5140), high01 = __byte_perm(words[0], words[1], 0x7362);
  const std::uint32_t low23 = __byte_perm(words[2], words[3], 0x5140), high23 = __byte_perm(words[2], words[3], 0x7362);
  words[0] = __byte_perm(low01, low23, 0x5410);
  words[1] = __byte_perm(low01, low23, 0x7632);
  words[2] = __byte_perm(high01, high23, 0x5410);
  words[3] = __byte_perm(high01, high23, 0x7632);
}

/// Grids whose compact storage runs along `outer`: a thread has an eighth of a tile, a warp four tiles below each
/// other. What is written are long pieces: swizzling, a block has eight tiles beside each other, otherwise 32 below.
template <bool kSwizzle>
struct ByteMover {
  static constexpr int kThreadsPerTile = kChunks / 4;
  static constexpr int kTiles = kThreads / kThreadsPerTile;
  static constexpr int kTilesAcross = kSwizzle ? 8 : 1, kTilesDown = kTiles / kTilesAcross;

  const Arguments& arguments;
  std::int64_t first_row, first_col;  ///< Of the block, in tiles.
  int down, across;                   ///< The tile of this thread, in the block.

  __device__ explicit ByteMover(const Arguments& all) : arguments(all) {
    first_row = std::int64_t{blockIdx.x % all.blocks_across} * kTilesDown;
    first_col = std::int64_t{blockIdx.x / all.blocks_across} * kTilesAcross;
    const int tile = static_cast<int>(threadIdx.x) / kThreadsPerTile;
    down = tile % kTilesDown, across = tile / kTilesDown;
  }

  __device__ bool is_inside(int tile_down, int tile_across) const {
    return first_row + tile_down < arguments.grid.tile_rows() &&
           first_col + tile_across < arguments.grid.tile_columns();
  }

  /// Where in shared memory a chunk of the block is, such that neither words that lanes write at once nor chunks that
  /// they read at once meet in a bank.
  __device__ static int place(int chunk) { return chunk ^ (chunk >> 8 & 3) << 1 ^ (chunk >> 4 & 1); }

  /// A thread has 16 columns of `outer`: half of the chunks of a tile, one word of each.
  __device__ void swizzle() const {
    alignas(16) __shared__ std::uint32_t shared[kTiles * kChunks * kQuarters];
    const int part = static_cast<int>(threadIdx.x) % kThreadsPerTile, tile = down * kTilesAcross + across;
    const std::int64_t i = (first_row + down) * kScaleTileOuter + part * 16, j = (first_col + across) * kScaleTileInner;
    if (is_inside(down, across)) {
      const std::uint8_t* source = arguments.source + arguments.grid.compact_offset(i, j);
      Packet<16> rows[kScaleTileInner];
#pragma unroll
      for (Packet<16>& row : rows) {
        row = load_packet<16, 16>(source);
        source += arguments.grid.padded_outer();
      }
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        std::uint32_t words[4] = {rows[0].words[w], rows[1].words[w], rows[2].words[w], rows[3].words[w]};
        transpose_bytes(words);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int chunk = tile * kChunks + part % 2 * 16 + w * 4 + k;
          shared[place(chunk) * kQuarters + part / 2] = words[k] & word_mask(arguments.grid, i + w * 4 + k, j);
        }
      }
    }
    __syncthreads();
#pragma unroll
    for (int round = 0; round < 4; ++round) {
      const int chunk = round * kThreads + static_cast<int>(threadIdx.x), of = chunk / kChunks;
      if (!is_inside(of / kTilesAcross, of % kTilesAcross)) continue;
      const std::size_t target = arguments.grid.swizzled_offset((first_row + of / kTilesAcross) * kScaleTileOuter,
                                                                (first_col + of % kTilesAcross) * kScaleTileInner);
      store_packet<16>(arguments.target + target + chunk % kChunks * 16,
                       load_packet<16, 16>(&shared[place(chunk) * kQuarters]));
    }
  }

  __device__ void unswizzle() const {
    if (!is_inside(down, across)) return;
    const std::int64_t i = (first_row + down) * kScaleTileOuter + threadIdx.x % kThreadsPerTile * 4;
    const std::int64_t j = (first_col + across) * kScaleTileInner;
    const std::uint8_t* source = arguments.source + arguments.grid.swizzled_offset(i, j);
    Packet<16> chunks[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) chunks[c] = load_packet<16, 16>(source + 16 * c);
#pragma unroll
    for (int q = 0; q < kQuarters; ++q) {
      std::uint32_t words[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        words[k] = chunks[k].words[q] & word_mask(arguments.grid, i + q * kChunks + k, j);
      }
      transpose_bytes(words);
      std::uint8_t* target = arguments.target + arguments.grid.compact_offset(i + q * kChunks, j);
#pragma unroll
      for (int k = 0; k < 4; ++k) store_word<true>(target + k * arguments.grid.padded_outer(), words[k]);
    }
  }
};

/// As many registers as it likes: all loads under way at once are worth more than many threads.
template <bool kSwizzle>
__global__ void __launch_bounds__(kThreads, 1) move_bytes(const __grid_constant__ Arguments arguments) {
  wait_for_predecessor();
  const ByteMover<kSwizzle> mover(arguments);
  if constexpr (kSwizzle) {
    mover.swizzle();
  } else {
    mover.unswizzle();
  }
}

/// Any address: a thread per scale.
template <bool kSwizzle>
__global__ void __launch_bounds__(kThreads) move_any(const __grid_constant__ Arguments arguments) {
  wait_for_predecessor();
  const ScaleGrid& grid = arguments.grid;
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= grid.bytes()) return;
  const std::int64_t i = index / grid.padded_inner(), j = index % grid.padded_inner();
  const std::size_t compact = grid.compact_offset(i, j), swizzled = grid.swizzled_offset(i, j);
  const bool is_scale = i < grid.outer && j < grid.inner;
  arguments.target[kSwizzle ? swizzled : compact] =
      is_scale ? arguments.source[kSwizzle ? compact : swizzled] : std::uint8_t{0};
}

template <bool kSwizzle>
void launch_move_bytes(const KernelCall& call, Arguments arguments, cudaStream_t stream) {
  using Mover = ByteMover<kSwizzle>;
  const std::int64_t down = detail::blocks_of(arguments.grid.tile_rows(), Mover::kTilesDown);
  arguments.blocks_across = static_cast<std::uint32_t>(down);
  const std::int64_t blocks = down * detail::blocks_of(arguments.grid.tile_columns(), Mover::kTilesAcross);
  launch_overlapped(call, move_bytes<kSwizzle>, blocks, kThreads, stream, arguments);
}

}  // namespace gtp::cuda::swizzling
