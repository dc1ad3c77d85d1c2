// What the number formats demand of the compiler: IEEE single precision, one rounding per operation.
// Build with -ffp-contract=off and without -ffast-math, -Ofast, flush-to-zero or x87 arithmetic. No formula in this
// folder adds to a product, so contraction could not change one today; the flag keeps that true of code to come.
#pragma once

#include <bit>
#include <cfloat>
#include <cstdint>
#include <limits>

#if defined(__FAST_MATH__)
#error "the bit-exact number formats cannot be built with fast-math"
#endif

#if defined(__clang__)  // GCC has no such pragma for a header.
#pragma clang fp contract(off)
#endif

namespace gtp {

static_assert(std::numeric_limits<float>::is_iec559 && sizeof(float) == 4, "float must be IEEE binary32");
static_assert(FLT_EVAL_METHOD == 0, "float arithmetic must not be carried out in a wider type");

constexpr std::uint32_t bits_of(float value) noexcept { return std::bit_cast<std::uint32_t>(value); }
constexpr float float_of(std::uint32_t bits) noexcept { return std::bit_cast<float>(bits); }

inline constexpr std::uint32_t kFloatSign = 0x80000000U;
inline constexpr std::uint32_t kFloatInf = 0x7F800000U;
/// The NaN that GPU arithmetic returns.
inline constexpr float kGpuNan = std::bit_cast<float>(0x7FFFFFFFU);

/// The larger of two magnitudes; a NaN loses against any number, as in the max instructions of a GPU.
constexpr float max_magnitude(float largest_so_far, float value) noexcept {
  const float magnitude = float_of(bits_of(value) & ~kFloatSign);
  return magnitude > largest_so_far ? magnitude : largest_so_far;
}

}  // namespace gtp
