// Where the block scales of a matrix lie in memory: the padded compact layout of TransformerEngine and the 128 x 4 tile
// layout of cuBLASLt, the ways between them, and what gathering shards does to the tiles.
// cublaslt_gemm.cu:500, mxfp8/swizzle.cuh, nvfp4/swizzle.cuh
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/shard_layout.hpp"

namespace gtp {

/// A grid of scales: `outer` counts along the dimension that is not contracted, `inner` blocks along the contraction.
/// Compact storage runs along `inner`, except for MXFP8 columns, whose blocks lie one below the other.
struct ScaleGrid {
  std::int64_t outer = 0;
  std::int64_t inner = 0;
  bool compact_runs_along_outer = false;

  constexpr std::int64_t padded_outer() const noexcept { return detail::up(outer, kScaleTileOuter); }
  constexpr std::int64_t padded_inner() const noexcept { return detail::up(inner, kScaleTileInner); }
  /// Of either layout.
  constexpr std::int64_t bytes() const noexcept { return padded_outer() * padded_inner(); }
  constexpr std::int64_t tile_rows() const noexcept { return padded_outer() / kScaleTileOuter; }
  constexpr std::int64_t tile_columns() const noexcept { return padded_inner() / kScaleTileInner; }

  constexpr std::size_t compact_offset(std::int64_t i, std::int64_t j) const noexcept {
    return static_cast<std::size_t>(compact_runs_along_outer ? j * padded_outer() + i : i * padded_inner() + j);
  }
  constexpr std::size_t swizzled_offset(std::int64_t i, std::int64_t j) const noexcept {
    const std::int64_t tile = i / kScaleTileOuter * tile_columns() + j / kScaleTileInner;
    return static_cast<std::size_t>(tile * kScaleTileBytes + i % 32 * 16 + i % kScaleTileOuter / 32 * kScaleTileInner +
                                    j % kScaleTileInner);
  }
};

namespace detail {

/// Blocks of `size` that hold `values` values, the last perhaps in part. Cannot overflow.
constexpr std::int64_t blocks_of(std::int64_t values, std::int64_t size) noexcept {
  return values / size + (values % size != 0 ? 1 : 0);
}

}  // namespace detail

/// Grids of a [rows, cols] weight. `rows` and `cols` are not negative; a last partial block counts as one.
constexpr ScaleGrid mxfp8_row_scales(std::int64_t rows, std::int64_t cols) noexcept {
  return {rows, detail::blocks_of(cols, kMxfp8BlockSize), false};
}
constexpr ScaleGrid mxfp8_col_scales(std::int64_t rows, std::int64_t cols) noexcept {
  return {cols, detail::blocks_of(rows, kMxfp8BlockSize), true};
}
constexpr ScaleGrid nvfp4_row_scales(std::int64_t rows, std::int64_t cols) noexcept {
  return {rows, detail::blocks_of(cols, kNvfp4BlockSize), false};
}
constexpr ScaleGrid nvfp4_col_scales(std::int64_t rows, std::int64_t cols) noexcept {
  return {cols, detail::blocks_of(rows, kNvfp4BlockSize), false};
}

using ConstBytes = std::span<const std::uint8_t>;
using Bytes = std::span<std::uint8_t>;

namespace detail {

constexpr bool holds(const ScaleGrid& grid, std::size_t size, std::int64_t copies = 1) noexcept {
  if (grid.outer < 0 || grid.inner < 0 || copies <= 0) return false;
  const auto outer = round_up_to_multiple(grid.outer, kScaleTileOuter);
  const auto inner = round_up_to_multiple(grid.inner, kScaleTileInner);
  if (!outer || !inner) return false;
  const auto bytes = checked_product({*outer, *inner, copies});
  return bytes && size == static_cast<std::size_t>(*bytes);
}

}  // namespace detail

/// Compact to tiles. Padding bytes of the result are zero whatever those of the source are. False, with nothing
/// written, unless both spans have grid.bytes() bytes.
inline bool swizzle_scales(const ScaleGrid& grid, ConstBytes compact, Bytes swizzled) {
  if (!detail::holds(grid, compact.size()) || !detail::holds(grid, swizzled.size())) return false;
  std::fill(swizzled.begin(), swizzled.end(), std::uint8_t{0});
  for (std::int64_t i = 0; i < grid.outer; ++i) {
    for (std::int64_t j = 0; j < grid.inner; ++j) {
      swizzled[grid.swizzled_offset(i, j)] = compact[grid.compact_offset(i, j)];
    }
  }
  return true;
}

/// The inverse of swizzle_scales(), under the same conditions.
inline bool unswizzle_scales(const ScaleGrid& grid, ConstBytes swizzled, Bytes compact) {
  if (!detail::holds(grid, compact.size()) || !detail::holds(grid, swizzled.size())) return false;
  std::fill(compact.begin(), compact.end(), std::uint8_t{0});
  for (std::int64_t i = 0; i < grid.outer; ++i) {
    for (std::int64_t j = 0; j < grid.inner; ++j) {
      compact[grid.compact_offset(i, j)] = swizzled[grid.swizzled_offset(i, j)];
    }
  }
  return true;
}

/// Whether swizzled scales of equal shards, cut along `outer` (rows of row scales), are those of the whole when put
/// side by side.
constexpr bool outer_shards_concatenate(const ScaleGrid& shard) noexcept { return shard.outer % kScaleTileOuter == 0; }

/// Whether shards cut along `inner` (rows of MXFP8 column scales: shard_rows % 128 == 0) hold whole tiles, so that the
/// gathered bytes differ from the whole by an order of 512-byte tiles only.
constexpr bool inner_shards_keep_tiles(const ScaleGrid& shard) noexcept { return shard.inner % kScaleTileInner == 0; }

/// Which tile of the side-by-side shards is tile `tile` of the whole, shards being cut along `inner`.
constexpr std::int64_t gathered_tile_of(const ScaleGrid& shard, std::int64_t shards, std::int64_t tile) noexcept {
  const std::int64_t shard_columns = shard.tile_columns();
  const std::int64_t tile_row = tile / (shard_columns * shards);
  const std::int64_t tile_column = tile % (shard_columns * shards);
  const std::int64_t rank = tile_column / shard_columns;
  return (rank * shard.tile_rows() + tile_row) * shard_columns + tile_column % shard_columns;
}

/// Orders the tiles of gathered swizzled shards, cut along `inner`, as those of the whole. False, with nothing written,
/// unless the shards keep whole tiles and both spans have `shards` * shard.bytes() bytes.
inline bool reorder_gathered_tiles(const ScaleGrid& shard, std::int64_t shards, ConstBytes gathered, Bytes whole) {
  if (!inner_shards_keep_tiles(shard) || !detail::holds(shard, gathered.size(), shards)) return false;
  if (whole.size() != gathered.size()) return false;
  constexpr auto kTile = static_cast<std::size_t>(kScaleTileBytes);
  for (std::size_t tile = 0; tile * kTile < whole.size(); ++tile) {
    const auto source = static_cast<std::size_t>(gathered_tile_of(shard, shards, static_cast<std::int64_t>(tile)));
    std::copy_n(gathered.begin() + static_cast<std::ptrdiff_t>(source * kTile), kTile,
                whole.begin() + static_cast<std::ptrdiff_t>(tile * kTile));
  }
  return true;
}

}  // namespace gtp
