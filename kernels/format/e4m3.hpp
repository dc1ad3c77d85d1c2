// FP8 E4M3 (OCP "FN": no infinity, largest value 448, one NaN): data of MXFP8, block scales of NVFP4.
#pragma once

#include <cstdint>

#include "kernels/format/minifloat.hpp"

namespace gtp {

inline constexpr float kE4m3Max = 448.0F;
inline constexpr std::uint8_t kE4m3Nan = 0x7F;

/// Rounds to nearest, ties to even, and saturates, infinity included; any NaN becomes 0x7F without a sign
/// (`cvt.rn.satfinite.e4m3x2.f32`).
constexpr std::uint8_t encode_e4m3(float value) noexcept {
  if (value != value) return kE4m3Nan;
  return static_cast<std::uint8_t>(detail::round_to_code(value, 3, 7, 0x7E) | detail::sign_at(value, 7));
}

constexpr float decode_e4m3(std::uint8_t code) noexcept {
  const std::uint32_t sign = (code & 0x80U) << 24U;
  const std::uint32_t magnitude = code & 0x7FU;
  if (magnitude == kE4m3Nan) return kGpuNan;
  if (magnitude < 8) return float_of(sign | bits_of(static_cast<float>(magnitude) * 0x1p-9F));
  return float_of(sign | ((magnitude + (120U << 3U)) << 20U));
}

}  // namespace gtp
