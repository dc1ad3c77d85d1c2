// Conversions of the kernels against those of kernels/format, over all 2^32 floats.
#include <doctest/doctest.h>

#include "device_data.hpp"
#include "kernels/cuda/codes.cuh"

namespace {

using namespace device_data;
using namespace gtp;

struct Mismatches {
  unsigned long long count;
  unsigned long long an_input;
};

/// `Same`: bool(std::uint32_t bits), on the device.
template <class Same>
__global__ void compare_all(Mismatches* mismatches, Same same) {
  const unsigned long long threads = std::uint64_t{gridDim.x} * blockDim.x;
  for (unsigned long long i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < (1ULL << 32U); i += threads) {
    if (same(static_cast<std::uint32_t>(i))) continue;
    atomicAdd(&mismatches->count, 1ULL);
    atomicExch(&mismatches->an_input, i);
  }
}

template <class Same>
void check_all(const char* what, Same same) {
  Buffer buffer(std::vector<Mismatches>{{0, 0}}, 0);
  compare_all<<<4096, 256, 0, stream()>>>(reinterpret_cast<Mismatches*>(buffer.data()), same);
  must(cudaGetLastError());
  must(cudaStreamSynchronize(stream()));
  const ByteVector bytes = buffer.fetch(what);
  const auto found = *reinterpret_cast<const Mismatches*>(bytes.data());
  CHECK_MESSAGE(found.count == 0, what << ": " << found.count << " floats differ, one has bits " << found.an_input);
}

struct SameE4m3 {
  __device__ bool operator()(std::uint32_t bits) const {
    const std::uint32_t code = encode_e4m3(float_of(bits));
    return cuda::e4m3_pair(float_of(bits), 1.0F) == (code | 0x3800U) &&
           cuda::e4m3_pair(1.0F, float_of(bits)) == (code << 8U | 0x38U);
  }
};

struct SameBf16 {
  __device__ bool operator()(std::uint32_t bits) const {
    const std::uint32_t value = bits_of(to_bf16(float_of(bits)));
    return cuda::bf16_pair(float_of(bits), 1.0F) == (value | 0x3F800000U);
  }
};

struct SameE2m1Magnitude {
  __device__ bool operator()(std::uint32_t bits) const {
    const float magnitude = float_of(bits & ~kFloatSign);
    return !(magnitude < 7.0F) || cuda::biased_e2m1_code(magnitude) == cuda::kE2m1Units + encode_e2m1(magnitude);
  }
};

/// All pairs of BF16 values: halves must not disturb each other.
struct SameE2m1Word {
  float factor;
  __device__ bool operator()(std::uint32_t bits) const {
    const cuda::Bf16Pair pairs[4] = {bits, 0x40003F80U, bits ^ 0x80008000U, 0xC0003F00U};
    cuda::Bf16Pair limited[4];
    bool same = true, small = true;
    for (int i = 0; i < 4; ++i) {
      limited[i] = cuda::limit_for_e2m1(pairs[i], factor);
      small = small && cuda::larger_half(cuda::max_magnitude_pair(0, pairs[i])) * factor < 7.0F;
      small = small && !cuda::has_nan(pairs[i]);
    }
    const std::uint32_t word = cuda::encode_e2m1_word(limited, factor);
    if (small) same = cuda::encode_e2m1_word(pairs, factor) == word;
    for (int i = 0; i < 8; ++i) {
      const cuda::Bf16Pair pair = pairs[i / 2];
      const float value = i % 2 == 0 ? cuda::low_value(pair) : cuda::high_value(pair);
      same = same && (word >> 4 * i & 0xFU) == encode_e2m1(value * factor);
    }
    return same;
  }
};

struct SameMxfp8Scale {
  __device__ bool operator()(std::uint32_t bits) const {
    const float amax = float_of(bits & ~kFloatSign);
    if (amax != amax) return true;
    const std::uint32_t code = cuda::mxfp8_scale_code(amax);
    const cuda::Bf16Pair inverse = cuda::reciprocal_e8m0_pair(code);
    return code == mxfp8_scale_of(amax) &&
           cuda::low_value(inverse) == reciprocal_e8m0(static_cast<std::uint8_t>(code)) &&
           cuda::high_value(inverse) == cuda::low_value(inverse);
  }
};

/// All BF16 values with all scales that are numbers.
struct SameScaledE4m3 {
  __device__ bool operator()(std::uint32_t bits) const {
    const std::uint32_t value = bits & 0xFFFFU, scale = bits >> 16U & 0xFFU;
    if (scale == 0xFFU) return true;
    const cuda::Bf16Pair inverse = cuda::reciprocal_e8m0_pair(scale);
    const std::uint32_t code = encode_e4m3(float_of(value << 16U) * reciprocal_e8m0(static_cast<std::uint8_t>(scale)));
    return cuda::scaled_e4m3_pair(value | 0x3F800000U, inverse) ==
               (code | cuda::scaled_e4m3_pair(0x3F800000U, inverse)) &&
           cuda::scaled_e4m3_pair(value << 16U, inverse) == code << 8U;
  }
};

/// All words of eight codes.
struct SameE2m1Values {
  __device__ bool operator()(std::uint32_t word) const {
    bool same = true;
    for (int k = 0; k < 4; ++k) {
      const float2 values = cuda::decode_e2m1_nibbles(word, k);
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t code = word >> 4 * (k + 4 * half) & 0xFU;
        const float expected = float_of((code & 8U) << 28U | bits_of(e2m1_magnitude(code & 7U)));
        same = same && bits_of(half == 0 ? values.x : values.y) == bits_of(expected);
      }
    }
    return same;
  }
  static __device__ float e2m1_magnitude(std::uint32_t code) {
    return code < 4   ? 0.5F * static_cast<float>(code)
           : code < 6 ? static_cast<float>(code - 2)
                      : 2.0F * static_cast<float>(code - 4);
  }
};

struct SameE4m3Values {
  __device__ bool operator()(std::uint32_t bits) const {
    const float2 values = cuda::e4m3_values(bits & 0xFFFFU);
    const auto same = [](float actual, std::uint32_t code) {
      const float expected = decode_e4m3(static_cast<std::uint8_t>(code));
      return bits_of(actual) == bits_of(expected) || (actual != actual && expected != expected);
    };
    return same(values.x, bits & 0xFFU) && same(values.y, bits >> 8U & 0xFFU);
  }
};

struct SameNvfp4Scale {
  float global_scale;
  __device__ bool operator()(std::uint32_t bits) const {
    const float amax = float_of(bits & ~kFloatSign);
    return cuda::nvfp4_scale_code(amax, global_scale) == encode_e4m3(amax * (global_scale * (1.0F / kE2m1Max)));
  }
};

}  // namespace

TEST_CASE("E4M3 rounds every float as the reference does") { check_all("e4m3_pair", SameE4m3{}); }
TEST_CASE("BF16 rounds every float as the reference does") { check_all("bf16_pair", SameBf16{}); }
TEST_CASE("E2M1 rounds every float as the reference does") { check_all("biased_e2m1_code", SameE2m1Magnitude{}); }

TEST_CASE("MXFP8 scales and their reciprocals agree for every amax of a block") {
  check_all("mxfp8_scale_code", SameMxfp8Scale{});
}
TEST_CASE("E4M3 codes of scaled BF16 values agree for every value and scale") {
  check_all("scaled_e4m3_pair", SameScaledE4m3{});
}

TEST_CASE("E2M1 words hold every pair of BF16 values in order") {
  for (const float factor : {1.0F, 0.3217F, 7.77e20F, 3.4028234663852886e38F, 1e-36F}) {
    check_all("encode_e2m1_word", SameE2m1Word{factor});
  }
}

TEST_CASE("every word of E2M1 codes and every pair of E4M3 codes decodes exactly") {
  check_all("decode_e2m1_nibbles", SameE2m1Values{});
  check_all("e4m3_values", SameE4m3Values{});
}

TEST_CASE("NVFP4 scale codes agree for every amax of a tile") {
  for (const float global : {1.0F, 2688.0F, 0.0133F, 3.4e38F, 7.9e-36F}) {
    check_all("nvfp4_scale_code", SameNvfp4Scale{global});
  }
}
