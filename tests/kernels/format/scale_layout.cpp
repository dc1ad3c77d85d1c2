#include "kernels/format/scale_layout.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <vector>

namespace {

using Buffer = std::vector<std::uint8_t>;
using gtp::ScaleGrid;

constexpr std::int64_t kSizes[] = {32, 96, 128, 160, 256};

std::size_t size_of(const ScaleGrid& grid) { return static_cast<std::size_t>(grid.bytes()); }

/// A byte that tells most places of a grid apart and is never zero.
std::uint8_t mark(std::int64_t i, std::int64_t j) { return static_cast<std::uint8_t>(1 + (i * 37 + j * 101) % 255); }

/// Scales of the whole, or of a shard that begins at (i_begin, j_begin) of it; padding filled with `padding`.
Buffer compact_scales(const ScaleGrid& grid, std::int64_t i_begin = 0, std::int64_t j_begin = 0,
                      std::uint8_t padding = 0) {
  Buffer scales(size_of(grid), padding);
  for (std::int64_t i = 0; i < grid.outer; ++i) {
    for (std::int64_t j = 0; j < grid.inner; ++j) scales[grid.compact_offset(i, j)] = mark(i_begin + i, j_begin + j);
  }
  return scales;
}

Buffer swizzled(const ScaleGrid& grid, const Buffer& compact) {
  Buffer result(size_of(grid), 0xCD);
  REQUIRE(gtp::swizzle_scales(grid, compact, result));
  return result;
}

void check_round_trip(const ScaleGrid& grid) {
  const Buffer tiles = swizzled(grid, compact_scales(grid, 0, 0, 0xEE));
  Buffer back(size_of(grid), 0xCD);
  REQUIRE(gtp::unswizzle_scales(grid, tiles, back));
  CHECK(back == compact_scales(grid));
  std::int64_t not_zero = 0;
  for (const std::uint8_t byte : tiles) not_zero += byte != 0 ? 1 : 0;
  CHECK(not_zero == grid.outer * grid.inner);
}

/// Shards of swizzled scales side by side, each cut from a matrix whose marks begin where the shard does.
Buffer side_by_side(const ScaleGrid& shard, std::int64_t shards, bool cut_along_outer) {
  Buffer gathered;
  for (std::int64_t rank = 0; rank < shards; ++rank) {
    const Buffer part = swizzled(shard, compact_scales(shard, cut_along_outer ? rank * shard.outer : 0,
                                                       cut_along_outer ? 0 : rank * shard.inner));
    gathered.insert(gathered.end(), part.begin(), part.end());
  }
  return gathered;
}

}  // namespace

TEST_CASE("swizzling and back keeps every scale and zeroes every padding byte") {
  for (const std::int64_t rows : kSizes) {
    for (const std::int64_t cols : kSizes) {
      CAPTURE(rows);
      CAPTURE(cols);
      check_round_trip(gtp::mxfp8_row_scales(rows, cols));
      check_round_trip(gtp::mxfp8_col_scales(rows, cols));
      check_round_trip(gtp::nvfp4_row_scales(rows, cols));
      check_round_trip(gtp::nvfp4_col_scales(rows, cols));
    }
  }
}

TEST_CASE("a tile holds 32 lines of four groups of four scales") {
  const ScaleGrid grid{256, 8, false};
  CHECK(grid.swizzled_offset(0, 0) == 0);
  CHECK(grid.swizzled_offset(0, 3) == 3);
  CHECK(grid.swizzled_offset(1, 0) == 16);
  CHECK(grid.swizzled_offset(32, 0) == 4);
  CHECK(grid.swizzled_offset(127, 3) == 511);
  CHECK(grid.swizzled_offset(0, 4) == 512);
  CHECK(grid.swizzled_offset(128, 0) == 1024);
  CHECK(grid.swizzled_offset(191, 6) == 1024 + 512 + 31 * 16 + 1 * 4 + 2);
  std::set<std::size_t> offsets;
  for (std::int64_t i = 0; i < grid.outer; ++i) {
    for (std::int64_t j = 0; j < grid.inner; ++j) offsets.insert(grid.swizzled_offset(i, j));
  }
  CHECK(offsets.size() == 2048);
  CHECK(*offsets.rbegin() == 2047);
}

TEST_CASE("compact scales have the padded shapes of TransformerEngine") {
  CHECK(gtp::mxfp8_row_scales(100, 96).bytes() == 128 * 4);
  CHECK(gtp::mxfp8_row_scales(132, 160).bytes() == 256 * 8);
  CHECK(gtp::mxfp8_col_scales(132, 96).bytes() == 8 * 128);
  CHECK(gtp::mxfp8_col_scales(128, 96).compact_offset(5, 2) == 2 * 128 + 5);
  CHECK(gtp::nvfp4_row_scales(96, 96).bytes() == 128 * 8);
  CHECK(gtp::nvfp4_col_scales(96, 160).bytes() == 256 * 8);
  CHECK(gtp::nvfp4_col_scales(96, 160).compact_offset(5, 2) == 5 * 8 + 2);
}

TEST_CASE("swizzled row scales of shards of 128 rows concatenate and those of 64 rows do not") {
  for (const std::int64_t shards : {2, 4, 8}) {
    for (const std::int64_t shard_rows : {64, 128, 256}) {
      for (const std::int64_t cols : {96, 256}) {
        CAPTURE(shards);
        CAPTURE(shard_rows);
        const ScaleGrid shard = gtp::mxfp8_row_scales(shard_rows, cols);
        const ScaleGrid whole = gtp::mxfp8_row_scales(shard_rows * shards, cols);
        const bool same = side_by_side(shard, shards, true) == swizzled(whole, compact_scales(whole));
        CHECK(same == (shard_rows % 128 == 0));
        CHECK(gtp::outer_shards_concatenate(shard) == same);
      }
    }
  }
}

TEST_CASE("swizzled column scales of shards of 128 rows are the whole in another order of tiles") {
  for (const std::int64_t shards : {2, 4, 8}) {
    for (const std::int64_t shard_rows : {128, 256}) {
      for (const std::int64_t cols : {96, 256}) {
        CAPTURE(shards);
        CAPTURE(shard_rows);
        const ScaleGrid shard = gtp::mxfp8_col_scales(shard_rows, cols);
        const ScaleGrid whole = gtp::mxfp8_col_scales(shard_rows * shards, cols);
        const Buffer gathered = side_by_side(shard, shards, false);
        Buffer ordered(gathered.size());
        REQUIRE(gtp::reorder_gathered_tiles(shard, shards, gathered, ordered));
        const Buffer expected = swizzled(whole, compact_scales(whole));
        CHECK(ordered == expected);
        CHECK((gathered == expected) == (cols <= 128));
      }
    }
  }
}

TEST_CASE("column scales of shards of 64 rows share tiles and are refused") {
  const ScaleGrid shard = gtp::mxfp8_col_scales(64, 96);
  CHECK_FALSE(gtp::inner_shards_keep_tiles(shard));
  Buffer gathered(2 * size_of(shard));
  Buffer ordered(gathered.size(), 7);
  CHECK_FALSE(gtp::reorder_gathered_tiles(shard, 2, gathered, ordered));
  CHECK(ordered == Buffer(gathered.size(), 7));
}

TEST_CASE("compact scales of shards, cut to the rows they have, concatenate in either direction") {
  for (const std::int64_t shards : {2, 4, 8}) {
    const ScaleGrid row_whole = gtp::mxfp8_row_scales(32 * shards, 160);
    const ScaleGrid col_whole = gtp::mxfp8_col_scales(32 * shards, 160);
    Buffer rows, cols;
    for (std::int64_t rank = 0; rank < shards; ++rank) {
      const Buffer row_part = compact_scales(gtp::mxfp8_row_scales(32, 160), 32 * rank, 0);
      const Buffer col_part = compact_scales(gtp::mxfp8_col_scales(32, 160), 0, rank);
      rows.insert(rows.end(), row_part.begin(), row_part.begin() + 32 * 8);
      cols.insert(cols.end(), col_part.begin(), col_part.begin() + 256);
    }
    rows.resize(size_of(row_whole));
    cols.resize(size_of(col_whole));
    CHECK(rows == compact_scales(row_whole));
    CHECK(cols == compact_scales(col_whole));
  }
}

TEST_CASE("spans of the wrong length and impossible grids are refused") {
  const ScaleGrid grid = gtp::mxfp8_row_scales(32, 32);
  Buffer right(512), wrong(511);
  CHECK_FALSE(gtp::swizzle_scales(grid, right, wrong));
  CHECK_FALSE(gtp::swizzle_scales(grid, wrong, right));
  CHECK_FALSE(gtp::unswizzle_scales(grid, right, wrong));
  const std::vector<ScaleGrid> impossible{
      {-1, 4, false}, {INT64_MAX, 4, false}, {4, INT64_MAX, true}, {INT64_MAX - 127, INT64_MAX - 3, false}};
  for (const ScaleGrid& huge : impossible) {
    CHECK_FALSE(gtp::swizzle_scales(huge, right, right));
    CHECK_FALSE(gtp::unswizzle_scales(huge, right, right));
  }
  CHECK_FALSE(gtp::reorder_gathered_tiles(gtp::mxfp8_col_scales(128, 32), 0, {}, {}));
  CHECK_FALSE(gtp::reorder_gathered_tiles(gtp::mxfp8_col_scales(128, 32), INT64_MAX, right, right));
}
