// Rounding a float to a small sign-exponent-mantissa code, shared by E4M3 and E2M1. Knows no NaN or infinity: those
// codes differ from format to format.
#pragma once

#include <cstdint>

#include "kernels/format/ieee.hpp"

namespace gtp::detail {

/// The code of |value| (no sign bit), rounded to nearest with ties to even and limited to `largest_code`. The format
/// has `mantissa_bits`, subnormals, and exponent bias `bias`. `value` is not NaN.
constexpr std::uint32_t round_to_code(float value, unsigned mantissa_bits, std::uint32_t bias,
                                      std::uint32_t largest_code) noexcept {
  constexpr unsigned kFloatMantissaBits = 23;
  constexpr std::uint32_t kFloatBias = 127;
  const std::uint32_t magnitude = bits_of(value) & ~kFloatSign;
  const std::uint32_t exponent = magnitude >> kFloatMantissaBits;
  const std::uint32_t rebias = kFloatBias - bias;
  unsigned dropped_bits = kFloatMantissaBits - mantissa_bits;
  std::uint32_t significand = magnitude - (rebias << kFloatMantissaBits);
  if (exponent <= rebias) {  // Subnormal in the small format: the leading one becomes explicit and moves right.
    dropped_bits += rebias + 1 - exponent;
    if (dropped_bits > kFloatMantissaBits + 1) return 0;  // Below half of the smallest code.
    significand = (magnitude & 0x7FFFFFU) | 0x800000U;
  }
  const std::uint32_t half = 1U << (dropped_bits - 1U);
  const std::uint32_t odd = (significand >> dropped_bits) & 1U;
  const std::uint32_t code = (significand + half - 1U + odd) >> dropped_bits;
  return code < largest_code ? code : largest_code;
}

constexpr std::uint32_t sign_at(float value, unsigned position) noexcept { return (bits_of(value) >> 31U) << position; }

}  // namespace gtp::detail
