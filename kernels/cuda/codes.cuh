// Values and codes as the kernels handle them: packed pairs of BF16, packed E4M3, eight E2M1 codes in a word. Each
// equals its counterpart in kernels/format bit for bit; single scale codes use those functions themselves.
//
// Never build with --use_fast_math, -ftz=true or -prec-div=false. Products that feed a sum say __fmul_rn and __fadd_rn,
// so that nvcc cannot fuse what the CPU rounds twice.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <limits>

#include "kernels/format/e2m1.hpp"
#include "kernels/format/e4m3.hpp"
#include "kernels/format/e8m0.hpp"

namespace gtp::cuda {

/// Two BF16 values in a word, the one with the lower index in the low half.
using Bf16Pair = std::uint32_t;

__host__ __device__ inline float low_value(Bf16Pair pair) { return float_of(pair << 16U); }
__host__ __device__ inline float high_value(Bf16Pair pair) { return float_of(pair & 0xFFFF0000U); }

/// Any NaN becomes 0x7FFF.
__host__ __device__ inline Bf16Pair bf16_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return static_cast<std::uint32_t>(__bfloat16_as_ushort(pair.x)) |
         static_cast<std::uint32_t>(__bfloat16_as_ushort(pair.y)) << 16U;
}

__device__ inline __nv_bfloat162 as_bf162(Bf16Pair pair) { return *reinterpret_cast<const __nv_bfloat162*>(&pair); }
__device__ inline Bf16Pair as_pair(__nv_bfloat162 value) { return *reinterpret_cast<const Bf16Pair*>(&value); }

/// max_magnitude() in both halves: a NaN loses against any number. Start from 0, so that the result is never NaN.
__device__ inline Bf16Pair max_magnitude_pair(Bf16Pair largest_so_far, Bf16Pair pair) {
  return as_pair(__hmax2(as_bf162(largest_so_far), __habs2(as_bf162(pair))));
}

/// The same, but a NaN wins.
__device__ inline Bf16Pair max_magnitude_or_nan_pair(Bf16Pair largest_so_far, Bf16Pair pair) {
  return as_pair(__hmax2_nan(as_bf162(largest_so_far), __habs2(as_bf162(pair))));
}
__device__ inline bool has_nan(Bf16Pair pair) { return !__hbeq2(as_bf162(pair), as_bf162(pair)); }

/// Of magnitudes that are not NaN.
__device__ inline float larger_half(Bf16Pair pair) { return fmaxf(low_value(pair), high_value(pair)); }

/// encode_e4m3() of two values; `low` in the low byte.
__host__ __device__ inline std::uint32_t e4m3_pair(float low, float high) {
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
}

/// mxfp8_scale_of() of a magnitude that is not NaN: 448ths of it have no exponent 0xFE.
__host__ __device__ inline std::uint32_t mxfp8_scale_code(float amax) {
  const std::uint32_t bits = bits_of(amax * kReciprocalE4m3Max);
  const std::uint32_t code = (bits + 0x7FFFFFU) >> 23U;
  return bits <= 0x400000U ? 0U : code < 0xFEU ? code : 0xFEU;
}

/// reciprocal_e8m0() of a code that is not NaN, in both halves: these powers of two are BF16 values.
__host__ __device__ inline Bf16Pair reciprocal_e8m0_pair(std::uint32_t code) {
  const std::uint32_t pair = (0xFEU - code) * 0x00800080U;
  return pair > 0x00400040U ? pair : 0x00400040U;
}

/// encode_e4m3() of two BF16 values, each times the power of two in the same half. Such a product is exact or so small
/// that its code is zero.
__device__ inline std::uint32_t scaled_e4m3_pair(Bf16Pair pair, Bf16Pair powers) {
  const Bf16Pair scaled = as_pair(__hmul2_rn(as_bf162(pair), as_bf162(powers)));
  return e4m3_pair(low_value(scaled), high_value(scaled));
}

/// decode_e4m3() of the two low bytes: exact in half precision.
__host__ __device__ inline float2 e4m3_values(std::uint32_t codes) {
  const auto two = static_cast<__nv_fp8x2_storage_t>(codes);
  return __half22float2(static_cast<__half2>(__nv_cvt_fp8x2_to_halfraw2(two, __NV_E4M3)));
}

/// nvfp4_global_encode_scale() of kernels/format.
__host__ __device__ inline float nvfp4_global_scale(float amax) {
  const float scale = fminf((kE4m3Max * kE2m1Max) / amax, std::numeric_limits<float>::max());
  return amax == 0.0F || scale == 0.0F ? 1.0F : scale;
}

/// nvfp4_block_scale().
__host__ __device__ inline std::uint8_t nvfp4_scale_code(float block_amax, float global_scale) {
  return static_cast<std::uint8_t>(
      __nv_cvt_float_to_fp8(block_amax * (global_scale * (1.0F / kE2m1Max)), __NV_SATFINITE, __NV_E4M3));
}

/// nvfp4_block_encode_scale().
__host__ __device__ inline float nvfp4_encode_factor(std::uint8_t scale_code, float global_scale) {
  return fminf(1.0F / (e4m3_values(scale_code).x * (1.0F / global_scale)), std::numeric_limits<float>::max());
}

/// nvfp4_block_decode_scale().
__host__ __device__ inline float nvfp4_decode_factor(std::uint8_t scale_code, float amax) {
  return (decode_e4m3(scale_code) * amax) * (1.0F / (kE4m3Max * kE2m1Max));
}

/// E2M1 codes rounded this way hold a number of units; the code is `kE2m1Units` less than the bits.
inline constexpr std::uint32_t kE2m1Units = 0x4B400000U;

/// kE2m1Units + encode_e2m1(value) of 0 <= value < 7.
///
/// As a function of the value, the code is round(min(2 * value, value + 2, value / 2 + 4)), ties to even. At 1.5 * 2^23
/// floats are the integers, so each line is rounded once, as it must be; then rounding and minimum change places.
__device__ inline std::uint32_t biased_e2m1_code(float value) {
  const float units = float_of(kE2m1Units);
  const std::uint32_t to_2 = bits_of(fmaf(value, 2.0F, units)), to_4 = bits_of(__fadd_rn(value, units + 2.0F));
  return min(min(to_2, to_4), bits_of(fmaf(value, 0.5F, units + 4.0F)));
}

/// What encode_e2m1_word() takes in place of any BF16 values: codes stay the same. Rarely needed.
__device__ inline Bf16Pair limit_for_e2m1(Bf16Pair pair, float factor) {
  const std::uint32_t limit = bits_of(kE2m1Max / factor) >> 16U;  // rounded down: times `factor` it is within (5, 7)
  const __nv_bfloat162 magnitude = __hmin2(__habs2(as_bf162(pair)), as_bf162(limit | limit << 16U));
  const std::uint32_t is_nan = __hneu2_mask(as_bf162(pair), as_bf162(pair));
  return as_pair(magnitude) | (pair & ~is_nan & 0x80008000U);
}

/// Codes of four BF16 pairs times `factor`, lowest index in the lowest nibble. `factor` is positive, the products are
/// numbers below 7.
__device__ inline std::uint32_t encode_e2m1_word(const Bf16Pair (&pairs)[4], float factor) {
  std::uint32_t bytes[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t even = biased_e2m1_code(__fmul_rn(fabsf(low_value(pairs[i])), factor));
    const std::uint32_t odd = biased_e2m1_code(__fmul_rn(fabsf(high_value(pairs[i])), factor));
    bytes[i] = even + odd * 16U;
  }
  const std::uint32_t codes =
      (bytes[0] + bytes[1] * 256U) + (bytes[2] + bytes[3] * 256U) * 65536U - kE2m1Units * 0x11111111U;
  const std::uint32_t first_half = __byte_perm(pairs[0], pairs[1], 0x7531);  // the bytes with the signs
  const std::uint32_t second_half = __byte_perm(pairs[2], pairs[3], 0x7531);
  const std::uint32_t even_signs = __byte_perm(first_half, second_half, 0x6420);
  const std::uint32_t odd_signs = __byte_perm(first_half, second_half, 0x7531);
  return codes | ((even_signs >> 4U) & 0x08080808U) | (odd_signs & 0x80808080U);
}

/// decode_e2m1() of the nibbles k and k + 4 of a word. A code in the top bits of a half is its value times 2^-14.
__device__ inline float2 decode_e2m1_nibbles(std::uint32_t word, int k) {
  const std::uint32_t codes = k < 3 ? word << (9 - 4 * k) : word >> 3U;
  const std::uint32_t halves = (codes & 0x0E000E00U) | ((codes << 3U) & 0x80008000U);
  const __half2 values = __hmul2_rn(*reinterpret_cast<const __half2*>(&halves), __float2half2_rn(0x1p14F));
  return __half22float2(values);
}

}  // namespace gtp::cuda
