// FP4 E2M1, {0, 0.5, 1, 1.5, 2, 3, 4, 6} with a sign in bit 3: data of NVFP4, two values a byte.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/format/minifloat.hpp"

namespace gtp {

inline constexpr float kE2m1Max = 6.0F;

/// Rounds to nearest, ties to the even code, and saturates; NaN becomes +6 (`cvt.rn.satfinite.e2m1x2.f32`).
constexpr std::uint8_t encode_e2m1(float value) noexcept {
  if (value != value) return 0x7;
  return static_cast<std::uint8_t>(detail::round_to_code(value, 1, 1, 0x7) | detail::sign_at(value, 3));
}

/// Of the low four bits.
constexpr float decode_e2m1(std::uint8_t code) noexcept {
  constexpr std::array<float, 16> kValues = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                             -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
  return kValues[code & 0xFU];
}

/// The value with the lower index goes into the low nibble.
constexpr std::uint8_t pack_e2m1(std::uint8_t even, std::uint8_t odd) noexcept {
  return static_cast<std::uint8_t>((even & 0xFU) | ((odd & 0xFU) << 4U));
}

constexpr std::uint8_t unpack_e2m1(std::uint8_t packed, std::int64_t index) noexcept {
  return static_cast<std::uint8_t>(index % 2 == 0 ? packed & 0xFU : packed >> 4U);
}

}  // namespace gtp
