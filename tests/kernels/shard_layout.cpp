#include "kernels/shard_layout.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace {

using gtp::Component;
using gtp::CopyDirection;
using gtp::LayoutProblem;
using gtp::ShardLayout;
using gtp::WeightFormat;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

static_assert(gtp::make_shard_layout({64, 64, WeightFormat::kBf16, 16, 4}));

ShardLayout layout_of(std::int64_t rows, std::int64_t cols, WeightFormat format, std::int64_t alignment,
                      std::int64_t size) {
  const auto layout = gtp::make_shard_layout({rows, cols, format, alignment, size});
  REQUIRE(layout);
  return *layout;
}

gtp::LayoutRefusal refusal_of(const gtp::LayoutRequest& request) {
  gtp::LayoutRefusal refusal;
  CHECK_FALSE(gtp::make_shard_layout(request, refusal));
  CHECK_FALSE(gtp::describe(refusal.problem).empty());
  return refusal;
}

std::vector<std::int64_t> local_pads(const ShardLayout& layout) {
  std::vector<std::int64_t> pads;
  for (std::int64_t rank = 0; rank < layout.group_size(); ++rank) pads.push_back(layout.local_pad(rank));
  return pads;
}

}  // namespace

TEST_CASE("T1 100 rows over 4 ranks become shards of 32 rows with 28 pad rows") {
  const ShardLayout layout = layout_of(100, 64, WeightFormat::kBf16, 16, 4);
  CHECK(layout.pad_length() == 28);
  CHECK(layout.shard_rows() == 32);
  CHECK(layout.padded_rows() == 128);
  CHECK(local_pads(layout) == std::vector<std::int64_t>{0, 0, 0, 28});
}

TEST_CASE("T1 padding may span ranks and fill a whole shard") {
  const ShardLayout small = layout_of(3, 1, WeightFormat::kBf16, 2, 4);
  CHECK(small.shard_rows() == 2);
  CHECK(small.pad_length() == 5);
  CHECK(local_pads(small) == std::vector<std::int64_t>{0, 1, 2, 2});
  const ShardLayout one_row = layout_of(1, 32, WeightFormat::kMxfp8, 32, 4);
  CHECK(local_pads(one_row) == std::vector<std::int64_t>{31, 32, 32, 32});
  CHECK(one_row.local_rows(3) == 0);
}

TEST_CASE("T1 shards concatenate to the source followed by zero rows") {
  const ShardLayout layout = layout_of(100, 3, WeightFormat::kBf16, 16, 4);
  std::vector<std::uint16_t> source(300), whole;
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::uint16_t>(i + 1);
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    std::vector<std::uint16_t> shard(static_cast<std::size_t>(layout.shard_elements()));
    const auto begin = source.begin() + layout.row_begin(rank) * layout.cols();
    std::copy(begin, begin + layout.local_rows(rank) * layout.cols(), shard.begin());
    whole.insert(whole.end(), shard.begin(), shard.end());
  }
  CHECK(static_cast<std::int64_t>(whole.size()) == layout.gathered_elements());
  CHECK(std::vector<std::uint16_t>(whole.end() - 28 * 3, whole.end()) == std::vector<std::uint16_t>(28 * 3, 0));
  whole.resize(whole.size() - 28 * 3);
  CHECK(whole == source);
}

TEST_CASE("rows and pads of all ranks add up for any size") {
  for (const std::int64_t size : {1, 2, 3, 4, 8, 64}) {
    for (std::int64_t rows = 1; rows < 300; rows += 7) {
      const ShardLayout layout = layout_of(rows, 5, WeightFormat::kBf16, 16, size);
      std::int64_t local_rows = 0, local_pad = 0;
      for (std::int64_t rank = 0; rank < size; ++rank) {
        local_rows += layout.local_rows(rank);
        local_pad += layout.local_pad(rank);
      }
      CHECK(local_rows == rows);
      CHECK(local_pad == layout.pad_length());
      CHECK(layout.shard_rows() * size == layout.padded_rows());
      CHECK(layout.pad_length() < 16 * size);
    }
  }
}

TEST_CASE("a group of one pads nothing") {
  const ShardLayout layout = layout_of(100, 64, WeightFormat::kBf16, 16, 1);
  CHECK(layout.pad_length() == 0);
  CHECK(layout.extent(Component::kRowData) == gtp::ComponentExtent{12800, 12800, 12800});
}

TEST_CASE("BF16 weights are row data only, gathered in either direction") {
  const ShardLayout layout = layout_of(100, 64, WeightFormat::kBf16, 16, 4);
  CHECK(layout.extent(Component::kRowData) == gtp::ComponentExtent{4096, 16384, 4096});
  for (const Component component :
       {Component::kRowScale, Component::kColData, Component::kColScale, Component::kAmax}) {
    CHECK(layout.extent(component) == gtp::ComponentExtent{});
  }
  CHECK(layout.gathers(CopyDirection::kCol, Component::kRowData));
  CHECK(layout.wire_bytes(CopyDirection::kRow) == 4096);
  CHECK(layout.wire_bytes(CopyDirection::kCol) == 4096);
}

TEST_CASE("MXFP8 extents have TransformerEngine's scale padding and wire bytes only what a rank has") {
  const ShardLayout layout = layout_of(132, 96, WeightFormat::kMxfp8, 32, 2);
  CHECK(layout.shard_rows() == 96);
  CHECK(layout.extent(Component::kRowData) == gtp::ComponentExtent{96 * 96, 192 * 96, 96 * 96});
  CHECK(layout.extent(Component::kColData) == gtp::ComponentExtent{96 * 96, 192 * 96, 96 * 96});
  CHECK(layout.extent(Component::kRowScale) == gtp::ComponentExtent{128 * 4, 256 * 4, 96 * 4});
  CHECK(layout.extent(Component::kColScale) == gtp::ComponentExtent{4 * 128, 8 * 128, 3 * 128});
  CHECK(layout.gathers(CopyDirection::kRow, Component::kRowScale));
  CHECK_FALSE(layout.gathers(CopyDirection::kRow, Component::kColData));
  CHECK_FALSE(layout.gathers(CopyDirection::kCol, Component::kRowData));
  CHECK(layout.wire_bytes(CopyDirection::kRow) == 96 * 96 + 96 * 4);
  CHECK(layout.wire_bytes(CopyDirection::kCol) == 96 * 96 + 3 * 128);
}

TEST_CASE("NVFP4 gathers rows in either direction and makes the columns of the whole") {
  const ShardLayout layout = layout_of(96, 80, WeightFormat::kNvfp4, 16, 2);
  CHECK(layout.extent(Component::kRowData) == gtp::ComponentExtent{48 * 40, 96 * 40, 48 * 40});
  CHECK(layout.extent(Component::kRowScale) == gtp::ComponentExtent{128 * 8, 128 * 8, 48 * 8});
  CHECK(layout.extent(Component::kColData) == gtp::ComponentExtent{0, 80 * 48, 0});
  CHECK(layout.extent(Component::kColScale) == gtp::ComponentExtent{0, 128 * 8, 0});
  CHECK(layout.extent(Component::kAmax) == gtp::ComponentExtent{4, 4, 0});
  CHECK(layout.gathers(CopyDirection::kCol, Component::kRowData));
  CHECK(layout.wire_bytes(CopyDirection::kCol) == 48 * 40 + 48 * 8 + 4);
}

TEST_CASE("wire bytes per element are 2, 1.03125 and 0.5625") {
  const auto per_element = [](WeightFormat format) {
    const ShardLayout layout = layout_of(8192, 8192, format, gtp::default_pad_for_alignment(format), 8);
    return static_cast<double>(layout.wire_bytes(CopyDirection::kRow) - layout.amax_wire_bytes()) /
           static_cast<double>(layout.shard_elements());
  };
  CHECK(per_element(WeightFormat::kBf16) == 2.0);
  CHECK(per_element(WeightFormat::kMxfp8) == 1.03125);
  CHECK(per_element(WeightFormat::kNvfp4) == 0.5625);
}

TEST_CASE("parts of a gather fit into the gathered component and never overlap its padding") {
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kMxfp8, WeightFormat::kNvfp4}) {
    for (const std::int64_t size : {1, 2, 4, 8}) {
      const ShardLayout layout = layout_of(size == 1 ? 96 : 100, 96, format, 32, size);
      for (const Component component : gtp::kComponents) {
        const gtp::ComponentExtent& extent = layout.extent(component);
        CHECK(extent.wire_bytes * size <= extent.gathered_bytes);
        CHECK(extent.wire_bytes <= extent.shard_bytes);
      }
      const gtp::ComponentExtent& data = layout.extent(Component::kRowData);
      CHECK(data.wire_bytes * size == data.gathered_bytes);
    }
  }
}

TEST_CASE("impossible shapes are refused with the reason, the value and its unit") {
  using Refusal = gtp::LayoutRefusal;
  CHECK(refusal_of({0, 64, WeightFormat::kBf16, 16, 4}) == Refusal{LayoutProblem::kRowsNotPositive, 0, 0});
  CHECK(refusal_of({64, -1, WeightFormat::kBf16, 16, 4}) == Refusal{LayoutProblem::kColsNotPositive, -1, 0});
  CHECK(refusal_of({64, 64, WeightFormat::kBf16, 16, 0}) == Refusal{LayoutProblem::kGroupSizeNotPositive, 0, 0});
  CHECK(refusal_of({64, 64, WeightFormat::kBf16, -1, 4}) == Refusal{LayoutProblem::kAlignmentNegative, -1, 0});
  CHECK(refusal_of({63, 64, WeightFormat::kBf16, 0, 4}) == Refusal{LayoutProblem::kRowsNotDivisible, 63, 4});
  CHECK(refusal_of({64, 64, WeightFormat::kMxfp8, 16, 4}) == Refusal{LayoutProblem::kMxfp8ShardRows, 16, 32});
  CHECK(refusal_of({64, 48, WeightFormat::kMxfp8, 32, 2}) == Refusal{LayoutProblem::kMxfp8Cols, 48, 32});
  CHECK(refusal_of({63, 64, WeightFormat::kNvfp4, 16, 4}) == Refusal{LayoutProblem::kNvfp4OddPadding, 1, 2});
  CHECK(refusal_of({48, 64, WeightFormat::kNvfp4, 8, 2}) == Refusal{LayoutProblem::kNvfp4ShardRows, 24, 16});
  CHECK(refusal_of({64, 40, WeightFormat::kNvfp4, 16, 2}) == Refusal{LayoutProblem::kNvfp4Cols, 40, 16});
}

TEST_CASE("huge sizes are refused and never overflow") {
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kMxfp8, WeightFormat::kNvfp4}) {
    CHECK(refusal_of({kMost / 64 * 32, 64, format, 32, 2}).problem == LayoutProblem::kTooLarge);
    CHECK(refusal_of({64, kMost / 32 * 32, format, 32, 2}).problem == LayoutProblem::kTooLarge);
    CHECK(refusal_of({kMost, 32, format, 32, 2}).problem == LayoutProblem::kTooLarge);
    CHECK(refusal_of({64, 32, format, kMost, 2}).problem == LayoutProblem::kTooLarge);
    CHECK(refusal_of({64, 32, format, 32, kMost}).problem == LayoutProblem::kTooLarge);
  }
  CHECK(gtp::make_shard_layout({std::int64_t{1} << 29, std::int64_t{1} << 29, WeightFormat::kMxfp8, 32, 64}));
}

TEST_CASE("only shards of whole 128-row tiles concatenate swizzled") {
  CHECK(layout_of(1024, 64, WeightFormat::kMxfp8, 32, 8).swizzled_row_scales_concatenate());
  CHECK_FALSE(layout_of(512, 64, WeightFormat::kMxfp8, 32, 8).swizzled_row_scales_concatenate());
}
