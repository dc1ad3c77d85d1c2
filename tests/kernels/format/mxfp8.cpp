#include "kernels/format/mxfp8.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "format_data.hpp"

namespace {

using namespace format_data;
using gtp::Bf16;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// One block of 32 values, quantized.
struct Block {
  std::uint8_t scale = 0;
  Buffer codes;
};

Block quantize_block(const std::vector<float>& first_values) {
  std::vector<Bf16> values(32 * 32);
  for (std::size_t i = 0; i < first_values.size(); ++i) values[i] = gtp::to_bf16(first_values[i]);
  Buffer data(32 * 32), scales(128 * 4);
  REQUIRE(gtp::quantize_mxfp8_rows({32, 32, values}, data, scales));
  return {scales[0], Buffer(data.begin(), data.begin() + 32)};
}

}  // namespace

TEST_CASE("golden MXFP8 block") {
  const Block block = quantize_block({1.75F, 1.0F});
  CHECK(block.scale == 0x77);
  CHECK(block.codes[0] == 0x7E);
  CHECK(block.codes[1] == 0x78);
  CHECK(block.codes[2] == 0x00);
}

TEST_CASE("a block of zeros has scale zero and keeps the signs of its zeros") {
  const Block block = quantize_block({0.0F, -0.0F});
  CHECK(block.scale == 0x00);
  CHECK(block.codes[0] == 0x00);
  CHECK(block.codes[1] == 0x80);
}

TEST_CASE("subnormal values keep what the smallest scale leaves of them") {
  const Block block = quantize_block({0x1p-126F, 0x1p-130F, -0x1p-133F});
  CHECK(block.scale == 0x00);
  CHECK(gtp::decode_e4m3(block.codes[0]) == 2.0F);
  CHECK(gtp::decode_e4m3(block.codes[1]) == 0.125F);
  CHECK(gtp::decode_e4m3(block.codes[2]) == -0.015625F);
}

TEST_CASE("a NaN does not count towards the scale of its block and infinity takes the largest one") {
  const Block with_nan = quantize_block({kNan, 1.75F});
  CHECK(with_nan.scale == 0x77);
  CHECK(with_nan.codes[0] == 0x7F);
  CHECK(with_nan.codes[1] == 0x7E);
  std::vector<float> nan_last(32, 1.75F);
  nan_last[31] = kNan;
  CHECK(quantize_block(nan_last).scale == 0x77);
  const Block only_nan = quantize_block({kNan});
  CHECK(only_nan.scale == 0x00);
  CHECK(only_nan.codes[0] == 0x7F);
  const Block with_inf = quantize_block({-kInf, 1.0F});
  CHECK(with_inf.scale == 0xFE);
  CHECK(with_inf.codes[0] == 0xFE);
  CHECK(with_inf.codes[1] == 0x00);
}

TEST_CASE("row and column copies scale the blocks of their own direction") {
  std::vector<Bf16> values(64 * 64, gtp::to_bf16(1.0F));
  values[5 * 64 + 40] = gtp::to_bf16(448.0F);
  const Mxfp8Weight weight = quantize_weight(64, 64, values);
  const gtp::ScaleGrid rows = gtp::mxfp8_row_scales(64, 64), cols = gtp::mxfp8_col_scales(64, 64);
  for (std::int64_t i = 0; i < 64; ++i) {
    for (std::int64_t j = 0; j < 2; ++j) {
      CHECK(weight.row_scales[rows.compact_offset(i, j)] == (i == 5 && j == 1 ? 0x7F : 0x77));
      CHECK(weight.col_scales[cols.compact_offset(i, j)] == (i == 40 && j == 0 ? 0x7F : 0x77));
    }
  }
  CHECK(weight.row_data[5 * 64 + 40] == 0x7E);
  CHECK(weight.row_data[5 * 64 + 41] == 0x38);
  CHECK(weight.row_data[6 * 64 + 40] == 0x78);
  CHECK(weight.col_data[5 * 64 + 41] == 0x78);
  CHECK(weight.col_data[6 * 64 + 40] == 0x38);
}

TEST_CASE("decoding is within half a code step of the source in either direction") {
  const auto values = random_weight(96, 160, 7);
  const Mxfp8Weight weight = quantize_weight(96, 160, values);
  std::vector<float> rows(values.size()), cols(values.size());
  REQUIRE(gtp::dequantize_mxfp8_rows(96, 160, weight.row_data, weight.row_scales, rows));
  REQUIRE(gtp::dequantize_mxfp8_cols(96, 160, weight.col_data, weight.col_scales, cols));
  int far = 0;
  const gtp::ScaleGrid grid = gtp::mxfp8_row_scales(96, 160);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = gtp::to_float(values[i]);
    const auto row = static_cast<std::int64_t>(i / 160), col = static_cast<std::int64_t>(i % 160);
    const float scale = gtp::decode_e8m0(weight.row_scales[grid.compact_offset(row, col / 32)]);
    const float tolerance = std::fmax(std::fabs(value) / 16, scale * 0x1p-10F);
    far += std::fabs(rows[i] - value) > tolerance ? 1 : 0;
    far += std::fabs(cols[i] - value) > tolerance ? 1 : 0;
  }
  CHECK(far == 0);
}

TEST_CASE("quantized shards of 32 rows concatenate to the quantized whole in both copies") {
  for (const std::int64_t shards : {2, 4, 8}) {
    const std::int64_t rows = 32 * shards, cols = 160;
    const auto values = random_weight(rows, cols, 11);
    const Mxfp8Weight whole = quantize_weight(rows, cols, values);
    Mxfp8Weight gathered;
    for (std::int64_t rank = 0; rank < shards; ++rank) {
      const Mxfp8Weight shard = quantize_weight(32, cols, row_shard(values, cols, rank * 32, 32));
      append(gathered.row_data, shard.row_data, 32 * 160);
      append(gathered.col_data, shard.col_data, 32 * 160);
      append(gathered.row_scales, shard.row_scales, 32 * 8);
      append(gathered.col_scales, shard.col_scales, 256);
    }
    gathered.row_scales.resize(whole.row_scales.size());
    gathered.col_scales.resize(whole.col_scales.size());
    CHECK(gathered.row_data == whole.row_data);
    CHECK(gathered.col_data == whole.col_data);
    CHECK(gathered.row_scales == whole.row_scales);
    CHECK(gathered.col_scales == whole.col_scales);
  }
}

TEST_CASE("scales come from the bfloat16 values and not from the fp32 master") {
  const float master = 1.7539F;  // Above 1.75 and above the last value that bfloat16 rounds down to it.
  const float below = 1.7530F;
  CHECK(gtp::mxfp8_scale_of(master) == 0x78);
  CHECK(gtp::mxfp8_scale_of(below) == 0x78);
  CHECK(quantize_block({below}).scale == 0x77);
}

TEST_CASE("MXFP8 shapes that are no whole blocks and wrong spans are refused") {
  std::vector<Bf16> values(32 * 32);
  Buffer data(32 * 32), scales(512), small(511);
  CHECK_FALSE(gtp::quantize_mxfp8_rows({16, 64, values}, data, scales));
  CHECK_FALSE(gtp::quantize_mxfp8_cols({64, 16, values}, data, scales));
  CHECK_FALSE(gtp::quantize_mxfp8_rows({32, 32, values}, small, scales));
  CHECK_FALSE(gtp::quantize_mxfp8_rows({32, 32, values}, data, small));
  CHECK_FALSE(gtp::quantize_mxfp8_rows({0, 32, {}}, {}, {}));
  CHECK_FALSE(gtp::quantize_mxfp8_rows({-32, -32, values}, data, scales));
  CHECK_FALSE(gtp::quantize_mxfp8_cols({INT64_MAX - 31, INT64_MAX - 31, values}, data, scales));
  std::vector<float> decoded(32 * 32);
  CHECK_FALSE(gtp::dequantize_mxfp8_rows(INT64_MAX, INT64_MAX, data, scales, decoded));
  CHECK_FALSE(gtp::dequantize_mxfp8_cols(32, 32, data, small, decoded));
}
