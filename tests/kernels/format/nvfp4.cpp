#include "kernels/format/nvfp4.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "format_data.hpp"

namespace {

using namespace format_data;
using gtp::Bf16;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMost = std::numeric_limits<float>::max();

}  // namespace

TEST_CASE("the global encode scale is 2688 over amax, limited, and one for nothing") {
  CHECK(gtp::nvfp4_global_encode_scale(1.0F) == 2688.0F);
  CHECK(gtp::nvfp4_global_encode_scale(2688.0F) == 1.0F);
  CHECK(gtp::nvfp4_global_encode_scale(3.0F) == 896.0F);
  CHECK(gtp::nvfp4_global_encode_scale(0.0F) == 1.0F);
  CHECK(gtp::nvfp4_global_encode_scale(std::numeric_limits<float>::denorm_min()) == kMost);
  CHECK(gtp::nvfp4_global_encode_scale(kInf) == 1.0F);
}

TEST_CASE("the tile with the largest magnitude has scale 448 and codes of 6") {
  std::vector<Bf16> values(32 * 32, gtp::to_bf16(0.5F));
  values[3 * 32 + 4] = gtp::to_bf16(-8.0F);
  const Nvfp4Weight weight = quantize_weight(32, 32, values, 8.0F);
  const gtp::ScaleGrid grid = gtp::nvfp4_row_scales(32, 32);
  for (std::int64_t row = 0; row < 16; ++row) CHECK(weight.row_scales[grid.compact_offset(row, 0)] == 0x7E);
  CHECK(gtp::decode_e4m3(weight.row_scales[grid.compact_offset(0, 1)]) == 28.0F);
  CHECK(weight.row_data[(3 * 32 + 4) / 2] == 0x1F);  // -6 below 0.5 * 6 / 8, which rounds to 0.5.
  CHECK(weight.row_data[16 / 2] == 0x77);
}

TEST_CASE("golden NVFP4 decode multiplies scale by amax first") {
  CHECK(gtp::nvfp4_block_decode_scale(0x7E, 8.0F) == (448.0F * 8.0F) * (1.0F / 2688.0F));
  CHECK(gtp::nvfp4_block_decode_scale(0x00, 8.0F) == 0.0F);
  int order_matters = 0;
  for (int code = 1; code < 0x7F; ++code) {
    const float scale = gtp::decode_e4m3(static_cast<std::uint8_t>(code));
    const float here = gtp::nvfp4_block_decode_scale(static_cast<std::uint8_t>(code), 3.140625F);
    CHECK(here == static_cast<float>(static_cast<double>(static_cast<float>(static_cast<double>(scale) * 3.140625)) *
                                     static_cast<double>(1.0F / 2688.0F)));
    order_matters += here != scale * (3.140625F * (1.0F / 2688.0F)) ? 1 : 0;
  }
  CHECK(order_matters > 0);
}

TEST_CASE("a block scale multiplies the global scale by a sixth before the magnitude") {
  int order_matters = 0;
  for (std::uint32_t bits = 0x3C00U; bits < 0x4100U; ++bits) {
    const float amax = gtp::to_float(static_cast<Bf16>(static_cast<std::uint16_t>(bits)));
    const float global = gtp::nvfp4_global_encode_scale(10.4375F);
    const auto sixth = static_cast<float>(static_cast<double>(global) * static_cast<double>(1.0F / 6.0F));
    const auto product = static_cast<float>(static_cast<double>(amax) * static_cast<double>(sixth));
    CHECK(gtp::nvfp4_block_scale(amax, global) == gtp::encode_e4m3(product));
    order_matters += product != (amax * global) * (1.0F / 6.0F) ? 1 : 0;
  }
  CHECK(order_matters > 0);
}

TEST_CASE("golden NVFP4 block scales that the other order of products gets wrong") {
  const float global = gtp::nvfp4_global_encode_scale(1.09375F);
  CHECK(gtp::nvfp4_block_scale(0.0152587890625F, global) == 0x4D);
  CHECK(gtp::nvfp4_block_scale(0.030517578125F, global) == 0x55);
  CHECK(gtp::encode_e4m3((0.0152587890625F * global) * (1.0F / 6.0F)) == 0x4C);
}

TEST_CASE("every E4M3 block scale of several tensors encodes by one correctly rounded division") {
  int wrong = 0;
  for (const float amax : {1.0F, 8.0F, 0.0123F, 3e-30F, 3e30F}) {
    const float global = gtp::nvfp4_global_encode_scale(amax);
    const auto inverse = static_cast<float>(1.0 / static_cast<double>(global));
    for (int code = 0; code < 0x7F; ++code) {
      const float scale = gtp::decode_e4m3(static_cast<std::uint8_t>(code));
      const auto product = static_cast<float>(static_cast<double>(scale) * static_cast<double>(inverse));
      const float expected = std::fmin(static_cast<float>(1.0 / static_cast<double>(product)), kMost);
      wrong += gtp::nvfp4_block_encode_scale(static_cast<std::uint8_t>(code), global) != expected ? 1 : 0;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("zeros stay zeros with their signs, in a zero tensor and beside large values") {
  std::vector<Bf16> values(16 * 32, gtp::to_bf16(0.0F));
  values[1] = gtp::to_bf16(-0.0F);
  const Nvfp4Weight zeros = quantize_weight(16, 32, values, 0.0F);
  CHECK(zeros.row_data[0] == 0x80);
  CHECK(zeros.row_data[1] == 0x00);
  CHECK(zeros.row_scales == Buffer(zeros.row_scales.size(), 0));
  values[20] = gtp::to_bf16(1e30F);
  const Nvfp4Weight mixed = quantize_weight(16, 32, values, 1e30F);
  CHECK(mixed.row_data[0] == 0x80);
  CHECK(mixed.row_scales[0] == 0);
  CHECK(mixed.row_scales[1] == 0x7E);
}

TEST_CASE("a tile far below amax has scale zero and decodes to zero") {
  std::vector<Bf16> values(16 * 32, gtp::to_bf16(1e-6F));
  values[16] = gtp::to_bf16(100.0F);
  const Nvfp4Weight weight = quantize_weight(16, 32, values, gtp::nvfp4_amax(values));
  CHECK(weight.row_scales[0] == 0);
  CHECK(weight.row_data[0] == 0x77);
  std::vector<float> decoded(values.size());
  REQUIRE(gtp::dequantize_nvfp4_rows(16, 32, weight.amax, weight.row_data, weight.row_scales, decoded));
  CHECK(decoded[0] == 0.0F);
  CHECK(decoded[16] == doctest::Approx(100.0F));
}

TEST_CASE("a NaN does not count towards amax or tile scale") {
  std::vector<Bf16> values(16 * 16, gtp::to_bf16(3.0F));
  values[0] = gtp::to_bf16(std::numeric_limits<float>::quiet_NaN());
  CHECK(gtp::nvfp4_amax(values) == 3.0F);
  const Nvfp4Weight weight = quantize_weight(16, 16, values, 3.0F);
  CHECK(weight.row_scales[0] == 0x7E);
  CHECK(weight.row_data[0] == 0x77);
}

TEST_CASE("the column copy is the transposed row copy, code for code") {
  for (const auto& shape : {std::pair{32, 96}, std::pair{96, 32}, std::pair{160, 144}, std::pair{16, 256}}) {
    const std::int64_t rows = shape.first, cols = shape.second;
    CAPTURE(rows);
    CAPTURE(cols);
    const auto values = random_weight(rows, cols, 3);
    const Nvfp4Weight weight = quantize_weight(rows, cols, values, gtp::nvfp4_amax(values));
    const Nvfp4Weight transposed =
        quantize_weight(cols, rows, transposed_weight(values, rows, cols), gtp::nvfp4_amax(values));
    Buffer col_data(weight.row_data.size());
    Buffer col_scales(static_cast<std::size_t>(gtp::nvfp4_col_scales(rows, cols).bytes()), 0xCD);
    REQUIRE(gtp::transpose_nvfp4(rows, cols, weight.row_data, weight.row_scales, col_data, col_scales));
    CHECK(col_data == transposed.row_data);
    CHECK(col_scales == transposed.row_scales);
  }
}

TEST_CASE("quantized NVFP4 shards of 16 rows concatenate to the quantized whole under one amax") {
  for (const std::int64_t shards : {2, 4, 8}) {
    const auto values = random_weight(16 * shards, 96, 5);
    const float amax = gtp::nvfp4_amax(values);
    const Nvfp4Weight whole = quantize_weight(16 * shards, 96, values, amax);
    Nvfp4Weight gathered;
    for (std::int64_t rank = 0; rank < shards; ++rank) {
      const Nvfp4Weight shard = quantize_weight(16, 96, row_shard(values, 96, 16 * rank, 16), amax);
      append(gathered.row_data, shard.row_data, 16 * 48);
      append(gathered.row_scales, shard.row_scales, 16 * 8);
    }
    gathered.row_scales.resize(whole.row_scales.size());
    CHECK(gathered.row_data == whole.row_data);
    CHECK(gathered.row_scales == whole.row_scales);
  }
}

TEST_CASE("decoding is within half an E2M1 step of the source") {
  const auto values = random_weight(64, 64, 13);
  const Nvfp4Weight weight = quantize_weight(64, 64, values, gtp::nvfp4_amax(values));
  std::vector<float> decoded(values.size());
  REQUIRE(gtp::dequantize_nvfp4_rows(64, 64, weight.amax, weight.row_data, weight.row_scales, decoded));
  const gtp::ScaleGrid grid = gtp::nvfp4_row_scales(64, 64);
  int far = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i / 64), col = static_cast<std::int64_t>(i % 64);
    const float scale =
        gtp::nvfp4_block_decode_scale(weight.row_scales[grid.compact_offset(row, col / 16)], weight.amax);
    // Half a step of at most 2, and a sixteenth for a scale that was rounded down and saturates.
    far += std::fabs(decoded[i] - gtp::to_float(values[i])) > 1.4F * scale ? 1 : 0;
  }
  CHECK(far == 0);
}

TEST_CASE("NVFP4 shapes that are no whole tiles and wrong spans are refused") {
  std::vector<Bf16> values(16 * 16);
  Buffer data(128), scales(512), small(127);
  std::vector<float> decoded(256);
  CHECK(gtp::quantize_nvfp4_rows({16, 16, values}, 1.0F, data, scales));
  CHECK_FALSE(gtp::quantize_nvfp4_rows({8, 32, values}, 1.0F, data, scales));
  CHECK_FALSE(gtp::quantize_nvfp4_rows({16, 16, values}, 1.0F, small, scales));
  CHECK_FALSE(gtp::quantize_nvfp4_rows({16, 16, values}, 1.0F, data, small));
  CHECK_FALSE(gtp::quantize_nvfp4_rows({INT64_MAX - 15, 16, values}, 1.0F, data, scales));
  CHECK_FALSE(gtp::transpose_nvfp4(16, 16, data, scales, data, small));
  CHECK_FALSE(gtp::transpose_nvfp4(16, 32, data, scales, data, scales));
  CHECK_FALSE(gtp::transpose_nvfp4(-16, -16, data, scales, data, scales));
  CHECK_FALSE(gtp::dequantize_nvfp4_rows(16, 16, 1.0F, data, small, decoded));
  CHECK_FALSE(gtp::dequantize_nvfp4_rows(INT64_MAX, INT64_MAX, 1.0F, data, scales, decoded));
}
