#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/format/bf16.hpp"
#include "kernels/format/e2m1.hpp"
#include "kernels/format/e4m3.hpp"
#include "kernels/format/e8m0.hpp"

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kSmallestSubnormal = std::numeric_limits<float>::denorm_min();

static_assert(gtp::mxfp8_scale_of(1.7578125F) == 0x78);
static_assert(gtp::encode_e4m3(448.0F) == 0x7E);
static_assert(gtp::encode_e2m1(-6.0F) == 0xF);
static_assert(gtp::bits_of(gtp::to_bf16(1.0F)) == 0x3F80);

gtp::Bf16 bf16_at(std::uint32_t bits) { return static_cast<gtp::Bf16>(static_cast<std::uint16_t>(bits)); }

/// The code whose value is nearest to |value| among `codes`, the even one of two as near; found by trying all.
template <class Decode>
std::uint8_t nearest_code(double value, int codes, Decode decode) {
  const double magnitude = std::fabs(value);
  int best = 0;
  for (int code = 1; code < codes; ++code) {
    const double here = std::fabs(magnitude - static_cast<double>(decode(static_cast<std::uint8_t>(code))));
    const double there = std::fabs(magnitude - static_cast<double>(decode(static_cast<std::uint8_t>(best))));
    if (here < there || (here == there && code % 2 == 0)) best = code;
  }
  return static_cast<std::uint8_t>(best);
}

/// The smallest power of two not below `value`, by trying all.
std::uint8_t smallest_power_not_below(double value) {
  int code = 0;
  while (code < 0xFE && std::ldexp(1.0, code - 127) < value) ++code;
  return static_cast<std::uint8_t>(code);
}

}  // namespace

TEST_CASE("bfloat16 rounds ties to even, overflows to infinity and has one NaN") {
  CHECK(gtp::bits_of(gtp::to_bf16(gtp::float_of(0x3F808000U))) == 0x3F80);
  CHECK(gtp::bits_of(gtp::to_bf16(gtp::float_of(0x3F818000U))) == 0x3F82);
  CHECK(gtp::bits_of(gtp::to_bf16(gtp::float_of(0x3F808001U))) == 0x3F81);
  CHECK(gtp::bits_of(gtp::to_bf16(gtp::float_of(0x3F807FFFU))) == 0x3F80);
  CHECK(gtp::bits_of(gtp::to_bf16(gtp::float_of(0x7F7F8000U))) == 0x7F80);
  CHECK(gtp::bits_of(gtp::to_bf16(-kInf)) == 0xFF80);
  CHECK(gtp::bits_of(gtp::to_bf16(gtp::float_of(0x7F800001U))) == 0x7FFF);
  CHECK(gtp::bits_of(gtp::to_bf16(gtp::float_of(0xFFFFFFFFU))) == 0x7FFF);
  CHECK(gtp::bits_of(gtp::to_bf16(-0.0F)) == 0x8000);
  CHECK(gtp::bits_of(gtp::to_bf16(kSmallestSubnormal)) == 0);
}

TEST_CASE("every bfloat16 that is no NaN survives the way through single precision") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const float value = gtp::to_float(bf16_at(bits));
    const std::uint32_t expected = std::isnan(value) ? 0x7FFFU : bits;
    wrong += gtp::bits_of(gtp::to_bf16(value)) != expected ? 1 : 0;
  }
  CHECK(wrong == 0);
}

TEST_CASE("golden MXFP8 scales") {
  CHECK(gtp::mxfp8_scale_of(0.0F) == 0x00);
  CHECK(gtp::mxfp8_scale_of(1.0F) == 0x77);
  CHECK(gtp::mxfp8_scale_of(1.75F) == 0x77);
  CHECK(gtp::mxfp8_scale_of(1.7578125F) == 0x78);
  CHECK(gtp::mxfp8_scale_of(3.5F) == 0x78);
  CHECK(gtp::mxfp8_scale_of(448.0F) == 0x7F);
  CHECK(gtp::mxfp8_scale_of(450.0F) == 0x80);
  CHECK(gtp::mxfp8_scale_of(0x1p-126F) == 0x00);
}

TEST_CASE("all 32768 bfloat16 magnitudes get the smallest power of two that keeps them within 448") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x8000U; ++bits) {
    const float amax = gtp::to_float(bf16_at(bits));
    std::uint8_t expected = 0;
    if (std::isnan(amax)) {
      expected = 0xFF;
    } else if (std::isinf(amax)) {
      expected = 0xFE;
    } else {  // The double product is exact, so its cast is the one rounding of a float multiplication.
      const double product = static_cast<double>(amax) * static_cast<double>(gtp::float_of(0x3B124925U));
      expected = smallest_power_not_below(static_cast<double>(static_cast<float>(product)));
    }
    wrong += gtp::mxfp8_scale_of(amax) != expected ? 1 : 0;
  }
  CHECK(wrong == 0);
}

TEST_CASE("a magnitude one ulp above 448 x 2^k takes the next scale, one at or below it does not") {
  int wrong = 0;
  for (int k = -118; k <= 119; ++k) {
    const float edge = std::ldexp(448.0F, k);
    const int code = 127 + k;
    wrong += gtp::mxfp8_scale_of(edge) != code ? 1 : 0;
    wrong += gtp::mxfp8_scale_of(std::nextafter(edge, 0.0F)) != code ? 1 : 0;
    wrong += gtp::mxfp8_scale_of(std::nextafter(edge, kInf)) != code + 1 ? 1 : 0;
  }
  CHECK(wrong == 0);
}

TEST_CASE("E8M0 rounds up everywhere, subnormals included, and saturates") {
  CHECK(gtp::encode_e8m0(kSmallestSubnormal) == 0x00);
  CHECK(gtp::encode_e8m0(gtp::float_of(0x00400000U)) == 0x00);
  CHECK(gtp::encode_e8m0(gtp::float_of(0x00400001U)) == 0x01);
  CHECK(gtp::encode_e8m0(gtp::float_of(0x00800000U)) == 0x01);
  CHECK(gtp::encode_e8m0(gtp::float_of(0x00800001U)) == 0x02);
  CHECK(gtp::encode_e8m0(0x1p127F) == 0xFE);
  CHECK(gtp::encode_e8m0(std::numeric_limits<float>::max()) == 0xFE);
  CHECK(gtp::encode_e8m0(kInf) == 0xFE);
  CHECK(gtp::encode_e8m0(kNan) == 0xFF);
  CHECK(gtp::encode_e8m0(1.0F) == 0x7F);
  CHECK(gtp::encode_e8m0(std::nextafter(1.0F, 2.0F)) == 0x80);
}

TEST_CASE("an E8M0 code and its reciprocal multiply to one") {
  CHECK(gtp::bits_of(gtp::decode_e8m0(0)) == 0x00400000U);
  CHECK(gtp::bits_of(gtp::reciprocal_e8m0(0xFE)) == 0x00400000U);
  CHECK(std::isnan(gtp::decode_e8m0(0xFF)));
  CHECK(std::isnan(gtp::reciprocal_e8m0(0xFF)));
  int wrong = 0;
  for (int code = 0; code < 0xFF; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    wrong += static_cast<double>(gtp::decode_e8m0(byte)) != std::ldexp(1.0, code - 127) ? 1 : 0;
    wrong += gtp::decode_e8m0(byte) * gtp::reciprocal_e8m0(byte) != 1.0F ? 1 : 0;
  }
  CHECK(wrong == 0);
}

TEST_CASE("every bfloat16 value times eight scales gets the nearest E4M3 code") {
  int wrong = 0;
  for (const int scale : {0, 1, 64, 119, 127, 135, 200, 254}) {
    const float inverse = gtp::reciprocal_e8m0(static_cast<std::uint8_t>(scale));
    for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
      const float value = gtp::to_float(bf16_at(bits)) * inverse;
      std::uint8_t expected = 0x7F;
      if (!std::isnan(value)) {
        const auto sign = static_cast<std::uint8_t>(std::signbit(value) ? 0x80 : 0);
        expected = static_cast<std::uint8_t>(
            sign | (std::fabs(value) >= 448.0F ? 0x7E : nearest_code(value, 0x7F, gtp::decode_e4m3)));
      }
      wrong += gtp::encode_e4m3(value) != expected ? 1 : 0;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("E4M3 values are those of the format and every code survives decoding and encoding") {
  CHECK(gtp::decode_e4m3(0x01) == 0x1p-9F);
  CHECK(gtp::decode_e4m3(0x07) == 0.013671875F);
  CHECK(gtp::decode_e4m3(0x08) == 0.015625F);
  CHECK(gtp::decode_e4m3(0x38) == 1.0F);
  CHECK(gtp::decode_e4m3(0x7E) == 448.0F);
  CHECK(gtp::decode_e4m3(0xFE) == -448.0F);
  CHECK(std::isnan(gtp::decode_e4m3(0x7F)));
  CHECK(std::isnan(gtp::decode_e4m3(0xFF)));
  CHECK(std::signbit(gtp::decode_e4m3(0x80)));
  int wrong = 0;
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    if ((code & 0x7F) == 0x7F) continue;
    wrong += gtp::encode_e4m3(gtp::decode_e4m3(byte)) != byte ? 1 : 0;
  }
  CHECK(wrong == 0);
}

TEST_CASE("E4M3 rounds each midpoint to the even code and its neighbours to the near one") {
  int wrong = 0;
  for (std::uint8_t code = 0; code < 0x7E; ++code) {
    const auto next = static_cast<std::uint8_t>(code + 1);
    const float middle = (gtp::decode_e4m3(code) + gtp::decode_e4m3(next)) / 2;
    wrong += gtp::encode_e4m3(middle) != (code % 2 == 0 ? code : next) ? 1 : 0;
    wrong += gtp::encode_e4m3(std::nextafter(middle, 0.0F)) != code ? 1 : 0;
    wrong += gtp::encode_e4m3(std::nextafter(middle, kInf)) != next ? 1 : 0;
    wrong += gtp::encode_e4m3(-middle) != (gtp::encode_e4m3(middle) | 0x80) ? 1 : 0;
  }
  CHECK(wrong == 0);
}

TEST_CASE("E4M3 saturates infinity and large values, and has a NaN without sign") {
  CHECK(gtp::encode_e4m3(kInf) == 0x7E);
  CHECK(gtp::encode_e4m3(-kInf) == 0xFE);
  CHECK(gtp::encode_e4m3(464.0F) == 0x7E);
  CHECK(gtp::encode_e4m3(std::numeric_limits<float>::max()) == 0x7E);
  CHECK(gtp::encode_e4m3(kNan) == 0x7F);
  CHECK(gtp::encode_e4m3(-kNan) == 0x7F);
  CHECK(gtp::encode_e4m3(kSmallestSubnormal) == 0x00);
  CHECK(gtp::encode_e4m3(-kSmallestSubnormal) == 0x80);
}

TEST_CASE("golden E2M1 ties") {
  CHECK(gtp::decode_e2m1(gtp::encode_e2m1(0.25F)) == 0.0F);
  CHECK(gtp::decode_e2m1(gtp::encode_e2m1(0.75F)) == 1.0F);
  CHECK(gtp::decode_e2m1(gtp::encode_e2m1(1.25F)) == 1.0F);
  CHECK(gtp::decode_e2m1(gtp::encode_e2m1(1.75F)) == 2.0F);
  CHECK(gtp::decode_e2m1(gtp::encode_e2m1(2.5F)) == 2.0F);
  CHECK(gtp::decode_e2m1(gtp::encode_e2m1(3.5F)) == 4.0F);
  CHECK(gtp::decode_e2m1(gtp::encode_e2m1(5.0F)) == 4.0F);
  CHECK(gtp::decode_e2m1(gtp::encode_e2m1(std::nextafter(5.0F, 6.0F))) == 6.0F);
  CHECK(gtp::encode_e2m1(1e30F) == 0x7);
  CHECK(gtp::encode_e2m1(-kInf) == 0xF);
  CHECK(gtp::encode_e2m1(kNan) == 0x7);
  CHECK(gtp::encode_e2m1(-0.0F) == 0x8);
}

TEST_CASE("every bfloat16 value gets the nearest E2M1 code") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const float value = gtp::to_float(bf16_at(bits));
    if (std::isnan(value)) continue;
    const float limited = std::fmin(std::fabs(value), 6.0F);
    const int expected = nearest_code(limited, 8, gtp::decode_e2m1) | (std::signbit(value) ? 8 : 0);
    wrong += gtp::encode_e2m1(value) != expected ? 1 : 0;
  }
  CHECK(wrong == 0);
}

TEST_CASE("the even index of an E2M1 pair is the low nibble") {
  CHECK(gtp::pack_e2m1(0x3, 0xA) == 0xA3);
  CHECK(gtp::unpack_e2m1(0xA3, 0) == 0x3);
  CHECK(gtp::unpack_e2m1(0xA3, 1) == 0xA);
  CHECK(gtp::unpack_e2m1(0xA3, 6) == 0x3);
}
