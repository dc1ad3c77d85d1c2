#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "../format/format_data.hpp"
#include "kernels/bookkeeping/nvfp4_amax.hpp"
#include "kernels/bookkeeping/orthogonalize.hpp"
#include "kernels/bookkeeping/padding_strip.hpp"
#include "kernels/bookkeeping/quantized_copies.hpp"
#include "kernels/bookkeeping/weight_shape.hpp"

namespace {

using namespace format_data;
using gtp::Bf16;
using gtp::Component;
using gtp::CopyDirection;
using gtp::ShardLayout;
using gtp::WeightFormat;

ShardLayout layout_of(const gtp::LayoutRequest& request) {
  const auto layout = gtp::make_shard_layout(request);
  REQUIRE(layout);
  return *layout;
}

std::vector<float> decoded(std::int64_t rows, std::int64_t cols, const Nvfp4Weight& weight, float amax) {
  std::vector<float> values(static_cast<std::size_t>(rows * cols));
  REQUIRE(gtp::dequantize_nvfp4_rows(rows, cols, amax, weight.row_data, weight.row_scales, values));
  return values;
}

/// The amax that each rank of a world ends up with, every rank starting with its own.
std::vector<float> reduced_amaxes(const gtp::Topology& topology, const gtp::ParamTags& tags,
                                  const std::vector<float>& of_ranks) {
  std::vector<float> result(of_ranks.size());
  const gtp::GroupFamilyRow* row = gtp::find_group_family(gtp::amax_group_family(tags));
  REQUIRE(row != nullptr);
  for (const gtp::GroupView group : gtp::make_group_family(topology, *row)) {
    std::vector<float> members;
    for (const std::int64_t rank : group) members.push_back(of_ranks[static_cast<std::size_t>(rank)]);
    for (const std::int64_t rank : group) result[static_cast<std::size_t>(rank)] = gtp::reduce_amax(members);
  }
  return result;
}

/// 32 rows of which the first 16 reach 1 and the others 8.
Weight uneven_weight() {
  Weight values = random_weight(32, 32, 21);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float limit = i < 512 ? 1.0F : 8.0F;
    values[i] = gtp::to_bf16(std::fmod(gtp::to_float(values[i]), limit));
  }
  values[5] = gtp::to_bf16(1.0F);
  values[600] = gtp::to_bf16(-8.0F);
  return values;
}

Buffer stripped(const ShardLayout& layout, Component component, const Buffer& gathered) {
  Buffer result(static_cast<std::size_t>(gtp::kept_without_padding(layout, component).total()), 0xCD);
  REQUIRE(gtp::strip_padding(layout, component, gathered, result));
  return result;
}

Weight with_zero_rows(Weight values, std::int64_t cols, std::int64_t rows) {
  values.resize(values.size() + static_cast<std::size_t>(rows * cols), gtp::to_bf16(0.0F));
  return values;
}

}  // namespace

TEST_CASE("T24 shards quantized under the amax of all ranks decode as the whole, bit for bit") {
  const auto topology = gtp::make_topology({.world_size = 2, .tensor_parallel_num_weight_shards = 2});
  REQUIRE(topology);
  const Weight values = uneven_weight();
  const Weight upper = row_shard(values, 32, 0, 16), lower = row_shard(values, 32, 16, 16);
  REQUIRE(gtp::nvfp4_amax(upper) == 1.0F);
  REQUIRE(gtp::nvfp4_amax(lower) == 8.0F);
  const auto amaxes = reduced_amaxes(*topology, {.gtp_sharded = true}, {1.0F, 8.0F});
  CHECK(amaxes == std::vector<float>{8.0F, 8.0F});
  const std::vector<float> whole = decoded(32, 32, quantize_weight(32, 32, values, 8.0F), 8.0F);
  std::vector<float> gathered = decoded(16, 32, quantize_weight(16, 32, upper, amaxes[0]), 8.0F);
  const std::vector<float> rest = decoded(16, 32, quantize_weight(16, 32, lower, amaxes[1]), 8.0F);
  gathered.insert(gathered.end(), rest.begin(), rest.end());
  CHECK(gathered == whole);
}

TEST_CASE("T24 a shard quantized under its own amax decodes eight times too large under that of the whole") {
  const Weight upper = row_shard(uneven_weight(), 32, 0, 16);
  const Nvfp4Weight alone = quantize_weight(16, 32, upper, 1.0F);
  const std::vector<float> right = decoded(16, 32, alone, 1.0F), wrong = decoded(16, 32, alone, 8.0F);
  for (std::size_t i = 0; i < right.size(); ++i) CHECK(wrong[i] == 8 * right[i]);
}

TEST_CASE("T24 amax is taken over data parallel and GTP_remat ranks of the weight's own grid") {
  const auto topology = gtp::make_topology({.world_size = 8,
                                            .tensor_model_parallel_size = 2,
                                            .tensor_parallel_num_weight_shards = 4,
                                            .expert_model_parallel_size = 2,
                                            .expert_tensor_parallel_size = 1,
                                            .expert_tensor_parallel_num_weight_shards = 2});
  REQUIRE(topology);
  const std::vector<float> of_ranks{1, 2, 3, 4, 5, 6, 7, 8};
  CHECK(reduced_amaxes(*topology, {.gtp_sharded = true}, of_ranks) == std::vector<float>{7, 8, 7, 8, 7, 8, 7, 8});
  CHECK(reduced_amaxes(*topology, {.gtp_sharded = true, .expert = true}, of_ranks) ==
        std::vector<float>{7, 8, 7, 8, 7, 8, 7, 8});
}

TEST_CASE("T25 a bias has one value per logical output row, not per shard row") {
  const ShardLayout layout = layout_of({100, 64, WeightFormat::kBf16, 16, 4});
  CHECK(gtp::bias_length(layout) == 100);
  CHECK(gtp::bias_length(layout) == gtp::unsharded_shape(layout).rows);
  CHECK(gtp::bias_length(layout_of({4096, 64, WeightFormat::kMxfp8, 32, 8})) == 4096);
  // The output of a GEMM with the stripped weight is as wide as the bias that is added to it.
  CHECK(gtp::kept_without_padding(layout, Component::kRowData).lines == gtp::bias_length(layout));
}

TEST_CASE("T26 a tied weight is compared by its unsharded shape and a real mismatch is rejected") {
  const ShardLayout embedding = layout_of({50257, 768, WeightFormat::kBf16, 16, 4});
  CHECK(gtp::supplied_weight_fits(embedding, {50257, 768}));
  CHECK_FALSE(gtp::supplied_weight_fits(embedding, {embedding.shard_rows(), 768}));
  CHECK_FALSE(gtp::supplied_weight_fits(embedding, {embedding.padded_rows(), 768}));
  CHECK_FALSE(gtp::supplied_weight_fits(embedding, {50257, 1024}));
  const ShardLayout other = layout_of({50256, 768, WeightFormat::kBf16, 16, 4});
  REQUIRE(other.shard_rows() == embedding.shard_rows());
  CHECK_FALSE(gtp::supplied_weight_fits(other, {50257, 768}));
}

TEST_CASE("T27 stripped MXFP8 scales keep the last partial block of columns") {
  const ShardLayout layout = layout_of({132, 96, WeightFormat::kMxfp8, 32, 2});
  CHECK(layout.pad_length() == 60);
  CHECK(gtp::kept_without_padding(layout, Component::kRowScale) == gtp::KeptBytes{256, 4, 4});
  CHECK(gtp::kept_without_padding(layout, Component::kColScale) == gtp::KeptBytes{8, 128, 128});
  const Mxfp8Weight whole = quantize_weight(192, 96, with_zero_rows(random_weight(132, 96, 9), 96, 60));
  const Buffer scales = stripped(layout, Component::kColScale, whole.col_scales);
  const gtp::ScaleGrid grid = gtp::mxfp8_col_scales(132, 96);
  CHECK(grid.inner == 5);
  REQUIRE(grid.compact_offset(0, 4) < scales.size());
  CHECK(scales[grid.compact_offset(0, 4)] != 0);
  CHECK(stripped(layout, Component::kColData, whole.col_data) ==
        Buffer(whole.col_data.begin(), whole.col_data.begin() + 132 * 96));
}

TEST_CASE("T27 stripped NVFP4 columns are those of a weight that never had pad rows") {
  const Weight logical = random_weight(80, 48, 17);
  const ShardLayout layout = layout_of({80, 48, WeightFormat::kNvfp4, 32, 4});
  CHECK(layout.pad_length() == 48);
  const float amax = gtp::nvfp4_amax(logical);
  const auto columns = [&](std::int64_t rows, const Weight& values) {
    const Nvfp4Weight weight = quantize_weight(rows, 48, values, amax);
    std::array<Buffer, 2> copy{Buffer(weight.row_data.size()),
                               Buffer(static_cast<std::size_t>(gtp::nvfp4_col_scales(rows, 48).bytes()))};
    REQUIRE(gtp::transpose_nvfp4(rows, 48, weight.row_data, weight.row_scales, copy[0], copy[1]));
    return copy;
  };
  const auto padded = columns(128, with_zero_rows(logical, 48, 48));
  const auto plain = columns(80, logical);
  CHECK(stripped(layout, Component::kColData, padded[0]) == plain[0]);
  CHECK(stripped(layout, Component::kColScale, padded[1]) == plain[1]);
}

TEST_CASE("T27 an odd number of pad rows cannot be stripped from NVFP4 columns and is rejected") {
  gtp::LayoutRefusal refusal;
  CHECK_FALSE(gtp::make_shard_layout({99, 64, WeightFormat::kNvfp4, 16, 4}, refusal));
  CHECK(refusal == gtp::LayoutRefusal{gtp::LayoutProblem::kNvfp4OddPadding, 29, 2});
}

TEST_CASE("stripping keeps row data up to the last logical row and checks its spans") {
  const ShardLayout layout = layout_of({100, 3, WeightFormat::kBf16, 16, 4});
  CHECK(gtp::kept_without_padding(layout, Component::kRowData) == gtp::KeptBytes{100, 6, 6});
  CHECK(gtp::kept_without_padding(layout, Component::kColScale).total() == 0);
  Buffer gathered(128 * 6), kept(100 * 6), wrong(99 * 6);
  CHECK(gtp::strip_padding(layout, Component::kRowData, gathered, kept));
  CHECK_FALSE(gtp::strip_padding(layout, Component::kRowData, gathered, wrong));
  CHECK_FALSE(gtp::strip_padding(layout, Component::kRowData, kept, kept));
}

TEST_CASE("T31 the orthogonalizer sees six rows of eight and pad rows come back as exact zeros") {
  const ShardLayout layout = layout_of({6, 2, WeightFormat::kBf16, 4, 2});
  CHECK(layout.pad_length() == 2);
  std::vector<float> momentum(16, 5.0F), result(16, -1.0F);
  std::size_t seen = 0;
  const auto kernel = [&](std::span<const float> in, std::span<float> out) {
    seen = in.size() / 2;
    for (std::size_t i = 0; i < in.size(); ++i) out[i] = in[i] + 1;
  };
  const std::int64_t hidden = gtp::hidden_pad_rows(gtp::MuonMode::kDuplicated, layout, 0);
  REQUIRE(gtp::orthogonalize_without_padding(8, 2, hidden, momentum, result, kernel));
  CHECK(seen == 6);
  CHECK(std::vector<float>(result.begin(), result.begin() + 12) == std::vector<float>(12, 6.0F));
  CHECK(std::vector<float>(result.begin() + 12, result.end()) == std::vector<float>(4, 0.0F));
}

TEST_CASE("T31 a shard that is all padding never reaches the kernel") {
  const ShardLayout layout = layout_of({3, 2, WeightFormat::kBf16, 2, 4});
  std::vector<float> momentum(4, 5.0F), result(4, -1.0F);
  int calls = 0;
  const auto kernel = [&](std::span<const float>, std::span<float>) { ++calls; };
  const std::int64_t hidden = gtp::hidden_pad_rows(gtp::MuonMode::kBlockwise, layout, 3);
  REQUIRE(gtp::orthogonalize_without_padding(2, 2, hidden, momentum, result, kernel));
  CHECK(calls == 0);
  CHECK(result == std::vector<float>(4, 0.0F));
}

TEST_CASE("T31 each mode hides its own pad rows and distributed hides none") {
  const ShardLayout layout = layout_of({3, 2, WeightFormat::kBf16, 2, 4});
  std::vector<std::int64_t> hidden;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    hidden.push_back(gtp::hidden_pad_rows(gtp::MuonMode::kBlockwise, layout, rank));
    CHECK(gtp::hidden_pad_rows(gtp::MuonMode::kDuplicated, layout, rank) == 5);
    CHECK(gtp::hidden_pad_rows(gtp::MuonMode::kDistributed, layout, rank) == 0);
  }
  CHECK(hidden == std::vector<std::int64_t>{0, 1, 2, 2});
}

TEST_CASE("the orthogonalizer refuses spans and pads that do not fit the matrix") {
  std::vector<float> in(8), out(8);
  const auto kernel = [](std::span<const float>, std::span<float>) { FAIL("the kernel was called"); };
  CHECK_FALSE(gtp::orthogonalize_without_padding(4, 3, 0, in, out, kernel));
  CHECK_FALSE(gtp::orthogonalize_without_padding(4, 2, 5, in, out, kernel));
  CHECK_FALSE(gtp::orthogonalize_without_padding(4, 2, -1, in, out, kernel));
  CHECK_FALSE(gtp::orthogonalize_without_padding(-4, -2, 0, in, out, kernel));
  CHECK_FALSE(gtp::orthogonalize_without_padding(INT64_MAX, 2, 0, in, out, kernel));
}

TEST_CASE("T32 a shard restored from its fp32 master has the bytes it had before the save") {
  std::vector<float> master(32 * 32);
  for (std::size_t i = 0; i < master.size(); ++i) master[i] = 0.37F * std::sin(static_cast<float>(i) * 1.7F);
  master[0] = 1.7578125F;  // 225 / 128, which E4M3 rounds to 224 / 128 = 1.75: the next scale is half of this one.
  Weight values(master.size());
  for (std::size_t i = 0; i < master.size(); ++i) values[i] = gtp::to_bf16(master[i]);
  const Mxfp8Weight before = quantize_weight(32, 32, values);
  std::vector<float> as_saved(master.size());
  REQUIRE(gtp::dequantize_mxfp8_rows(32, 32, before.row_data, before.row_scales, as_saved));
  Weight saved(master.size());
  for (std::size_t i = 0; i < master.size(); ++i) saved[i] = gtp::to_bf16(as_saved[i]);

  Mxfp8Weight after = quantize_weight(32, 32, saved);
  CHECK(after.row_scales[0] == before.row_scales[0] - 1);
  CHECK(after.row_data != before.row_data);
  REQUIRE(gtp::restore_mxfp8_shard({32, 32, master, saved},
                                   {after.row_data, after.row_scales, after.col_data, after.col_scales}));
  CHECK(after.row_data == before.row_data);
  CHECK(after.row_scales == before.row_scales);
  CHECK(after.col_data == before.col_data);
  CHECK(after.col_scales == before.col_scales);
}

TEST_CASE("T32 an NVFP4 shard is restored from its fp32 master under the amax of the whole") {
  std::vector<float> master(16 * 16);
  for (std::size_t i = 0; i < master.size(); ++i) master[i] = 0.61F * std::cos(static_cast<float>(i) * 0.9F);
  Weight values(master.size());
  for (std::size_t i = 0; i < master.size(); ++i) values[i] = gtp::to_bf16(master[i]);
  const Nvfp4Weight before = quantize_weight(16, 16, values, 3.0F);
  const std::vector<float> as_saved = decoded(16, 16, before, 3.0F);
  Weight saved(master.size());
  for (std::size_t i = 0; i < master.size(); ++i) saved[i] = gtp::to_bf16(as_saved[i]);
  Buffer data(before.row_data.size()), scales(before.row_scales.size());
  REQUIRE(gtp::restore_nvfp4_shard({16, 16, master, saved}, 3.0F, data, scales));
  CHECK(data == before.row_data);
  CHECK(scales == before.row_scales);
}

TEST_CASE("without optimizer state the saved values are quantized, and nothing is made from a partial master") {
  const Weight saved = random_weight(32, 32, 2);
  const Mxfp8Weight expected = quantize_weight(32, 32, saved);
  Mxfp8Weight restored = quantize_weight(32, 32, random_weight(32, 32, 3));
  const gtp::Mxfp8Copies copies{restored.row_data, restored.row_scales, restored.col_data, restored.col_scales};
  REQUIRE(gtp::restore_mxfp8_shard({32, 32, {}, saved}, copies));
  CHECK(restored.row_data == expected.row_data);
  const std::vector<float> partial(100);
  CHECK_FALSE(gtp::restore_mxfp8_shard({32, 32, partial, saved}, copies));
  CHECK_FALSE(gtp::restore_mxfp8_shard({-1, 32, {}, saved}, copies));
  CHECK_FALSE(gtp::restore_mxfp8_shard({INT64_MAX, 32, {}, saved}, copies));
}

TEST_CASE("T33 gathering columns never changes which copies the optimizer refreshes") {
  gtp::ShardCopies copies(layout_of({64, 64, WeightFormat::kMxfp8, 32, 2}));
  const gtp::ComponentSet at_first = copies.refreshed();
  Mxfp8Weight shard = quantize_weight(32, 64, random_weight(32, 64, 30));
  for (std::uint64_t step = 0; step < 3; ++step) {
    CHECK(copies.gathered(CopyDirection::kCol).contains(Component::kColData));
    CHECK_FALSE(copies.gathered(CopyDirection::kCol).contains(Component::kRowData));
    CHECK(copies.refreshed() == at_first);
    const Mxfp8Weight fresh = quantize_weight(32, 64, random_weight(32, 64, 40 + step));
    if (copies.refreshed().contains(Component::kRowData)) shard.row_data = fresh.row_data;
    if (copies.refreshed().contains(Component::kColData)) shard.col_data = fresh.col_data;
    CHECK(shard.row_data == fresh.row_data);
    CHECK(shard.col_data == fresh.col_data);
  }
}

TEST_CASE("T33 every stored component is refreshed") {
  const auto refreshed = [](WeightFormat format) {
    return gtp::ShardCopies(layout_of({64, 64, format, 32, 2})).refreshed();
  };
  for (const Component component : gtp::kComponents) {
    CHECK(refreshed(WeightFormat::kBf16).contains(component) == (component == Component::kRowData));
    CHECK(refreshed(WeightFormat::kMxfp8).contains(component) == (component != Component::kAmax));
    CHECK(refreshed(WeightFormat::kNvfp4).contains(component) ==
          (component != Component::kColData && component != Component::kColScale));
  }
}
