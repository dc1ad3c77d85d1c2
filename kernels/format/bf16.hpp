// bfloat16 as its bits: conversion from and to single precision. No arithmetic.
#pragma once

#include <cstdint>

#include "kernels/format/ieee.hpp"

namespace gtp {

/// The bits of a bfloat16 value; a type of its own so that a plain integer is not taken for one.
enum class Bf16 : std::uint16_t {};

constexpr std::uint16_t bits_of(Bf16 value) noexcept { return static_cast<std::uint16_t>(value); }

constexpr float to_float(Bf16 value) noexcept { return float_of(static_cast<std::uint32_t>(bits_of(value)) << 16U); }

/// Rounds to nearest, ties to even; overflow is infinity, and any NaN becomes 0x7FFF, as `cvt.rn.bf16.f32` has it.
constexpr Bf16 to_bf16(float value) noexcept {
  const std::uint32_t bits = bits_of(value);
  if ((bits & ~kFloatSign) > kFloatInf) return Bf16{0x7FFFU};
  const std::uint32_t round_up = 0x7FFFU + ((bits >> 16U) & 1U);
  return static_cast<Bf16>((bits + round_up) >> 16U);
}

}  // namespace gtp
