// E8M0, a power of two as its biased exponent: the block scales of MXFP8. The rounding is TransformerEngine's
// (towards plus infinity), not that of the OCP v1.0 text (floor of the logarithm, which clips the top of a block).
#pragma once

#include <cstdint>

#include "kernels/format/ieee.hpp"

namespace gtp {

inline constexpr std::uint8_t kE8m0Nan = 0xFF;
/// 1 / 448 rounded to single precision; TransformerEngine multiplies by it. utils.cuh:1041
inline constexpr float kReciprocalE4m3Max = float_of(0x3B124925U);

/// The smallest code not below |value|: NaN is 0xFF, infinity 0xFE (`cvt.rp.satfinite.ue8m0x2`).
/// ptx_arch_spec.cuh:72
constexpr std::uint8_t encode_e8m0(float value) noexcept {
  const std::uint32_t magnitude = bits_of(value) & ~kFloatSign;
  if (magnitude > kFloatInf) return kE8m0Nan;
  if (magnitude == kFloatInf) return 0xFE;
  const std::uint32_t exponent = magnitude >> 23U;
  const std::uint32_t mantissa = magnitude & 0x7FFFFFU;
  const bool reaches_no_higher = exponent == 0xFE || (exponent == 0 && mantissa <= 0x400000U);
  return static_cast<std::uint8_t>(exponent + (mantissa > 0 && !reaches_no_higher ? 1U : 0U));
}

/// 2 ^ (code - 127); code 0 is a subnormal float. ptx.cuh:335
constexpr float decode_e8m0(std::uint8_t code) noexcept {
  if (code == kE8m0Nan) return kGpuNan;
  if (code == 0) return float_of(0x00400000U);
  return float_of(static_cast<std::uint32_t>(code) << 23U);
}

/// 2 ^ (127 - code), exactly. ptx.cuh:308
constexpr float reciprocal_e8m0(std::uint8_t code) noexcept {
  if (code == kE8m0Nan) return kGpuNan;
  if (code == 0xFE) return float_of(0x00400000U);
  return float_of((254U - code) << 23U);
}

/// The scale of an MXFP8 block whose largest magnitude is `amax`. quantize_mxfp8.cuh:270
constexpr std::uint8_t mxfp8_scale_of(float amax) noexcept { return encode_e8m0(amax * kReciprocalE4m3Max); }

}  // namespace gtp
