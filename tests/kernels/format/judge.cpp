// An independent judge of the code tables: the host conversions of the CUDA Toolkit. Built where its headers are found.
#include <cuda_bf16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/format/bf16.hpp"
#include "kernels/format/e2m1.hpp"
#include "kernels/format/e4m3.hpp"
#include "kernels/format/e8m0.hpp"

namespace {

std::uint8_t judge_e4m3(float value) { return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3); }
std::uint8_t judge_e2m1(float value) { return __nv_cvt_float_to_fp4(value, __NV_E2M1, cudaRoundNearest); }
std::uint8_t judge_e8m0(float value) { return __nv_cvt_float_to_e8m0(value, __NV_SATFINITE, cudaRoundPosInf); }
std::uint16_t judge_bf16(float value) { return std::bit_cast<std::uint16_t>(__float2bfloat16_rn(value)); }
float judge_half(__half_raw raw) { return __half2float(__half(raw)); }

bool same_float(float one, float other) {
  return std::bit_cast<std::uint32_t>(one) == std::bit_cast<std::uint32_t>(other);
}

/// Every bfloat16, each with its neighbours a float ulp away and halfway to the next; then every 4099th float.
std::vector<float> probes() {
  std::vector<float> values;
  for (std::uint32_t high = 0; high < 0x10000U; ++high) {
    for (const std::uint32_t low : {0U, 1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      values.push_back(gtp::float_of(high << 16U | low));
    }
  }
  for (std::uint64_t bits = 0; bits <= 0xFFFFFFFFU; bits += 4099) {
    values.push_back(gtp::float_of(static_cast<std::uint32_t>(bits)));
  }
  return values;
}

/// Midpoints of neighbouring codes, with their neighbours, of both signs.
template <class Decode>
std::vector<float> ties(int codes, Decode decode) {
  std::vector<float> values;
  for (int code = 0; code + 1 < codes; ++code) {
    const float middle = (decode(static_cast<std::uint8_t>(code)) + decode(static_cast<std::uint8_t>(code + 1))) / 2.0F;
    for (const float value : {std::nextafter(middle, 0.0F), middle, std::nextafter(middle, 1e9F)}) {
      values.push_back(value);
      values.push_back(-value);
    }
  }
  return values;
}

template <class Ours, class Judge>
int disagreements(const std::vector<float>& values, Ours ours, Judge judge) {
  int count = 0;
  for (const float value : values) count += ours(value) != judge(value) ? 1 : 0;
  return count;
}

}  // namespace

TEST_CASE("the toolkit agrees on bfloat16, E4M3, E2M1 and E8M0 codes of a million floats") {
  const std::vector<float> values = probes();
  CHECK(values.size() > 1'000'000);
  CHECK(disagreements(
            values, [](float v) { return gtp::bits_of(gtp::to_bf16(v)); }, judge_bf16) == 0);
  CHECK(disagreements(values, gtp::encode_e4m3, judge_e4m3) == 0);
  CHECK(disagreements(values, gtp::encode_e2m1, judge_e2m1) == 0);
  CHECK(disagreements(values, gtp::encode_e8m0, judge_e8m0) == 0);
}

TEST_CASE("the toolkit agrees on every tie of E4M3 and E2M1") {
  CHECK(disagreements(ties(0x7F, gtp::decode_e4m3), gtp::encode_e4m3, judge_e4m3) == 0);
  CHECK(disagreements(ties(8, gtp::decode_e2m1), gtp::encode_e2m1, judge_e2m1) == 0);
}

TEST_CASE("the toolkit agrees on the value of every E4M3, E2M1 and E8M0 code") {
  int wrong = 0;
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    const float e4m3 = judge_half(__nv_cvt_fp8_to_halfraw(byte, __NV_E4M3));
    wrong += std::isnan(e4m3) ? !std::isnan(gtp::decode_e4m3(byte)) : !same_float(e4m3, gtp::decode_e4m3(byte));
    const float e8m0 = __bfloat162float(__nv_bfloat16(__nv_cvt_e8m0_to_bf16raw(byte)));
    wrong += std::isnan(e8m0) ? !std::isnan(gtp::decode_e8m0(byte)) : !same_float(e8m0, gtp::decode_e8m0(byte));
    if (code < 16) wrong += !same_float(judge_half(__nv_cvt_fp4_to_halfraw(byte, __NV_E2M1)), gtp::decode_e2m1(byte));
  }
  CHECK(wrong == 0);
}
