// Neighbouring BF16 or FP32 values that a thread loads, computes on in fp32 and stores at once.
#pragma once

#include <type_traits>

#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/packet.cuh"

namespace gtp::cuda {

inline constexpr int kElementwiseThreads = 256;

/// Elements of both types that 16 bytes of the wider one hold.
template <class First, class Second>
constexpr int unit_width() {
  return 16 / static_cast<int>(sizeof(First) > sizeof(Second) ? sizeof(First) : sizeof(Second));
}

__device__ inline float to_fp32(float value) { return value; }
__device__ inline float to_fp32(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ inline void from_fp32(float* target, float value) { *target = value; }
__device__ inline void from_fp32(__nv_bfloat16* target, float value) { *target = __float2bfloat16_rn(value); }

template <class Value, int kCount>
struct Values {
  static constexpr int kBytes = kCount * static_cast<int>(sizeof(Value));
  template <bool kAligned>
  static constexpr int kGrain = kAligned ? kBytes : static_cast<int>(sizeof(Value));

  Packet<kBytes> packet;

  template <bool kAligned>
  __device__ static Values load(const Value* address) {
    return {load_packet<kBytes, kGrain<kAligned>>(address)};
  }

  __device__ float at(int i) const {
    if constexpr (sizeof(Value) == 4) {
      return float_of(packet.words[i]);
    } else {
      return i % 2 == 0 ? low_value(packet.words[i / 2]) : high_value(packet.words[i / 2]);
    }
  }

  template <bool kAligned>
  __device__ static void store(Value* address, const float (&values)[kCount]) {
    Packet<kBytes> packet;
#pragma unroll
    for (int i = 0; i < Packet<kBytes>::kWords; ++i) {
      if constexpr (sizeof(Value) == 4) {
        packet.words[i] = bits_of(values[i]);
      } else {
        packet.words[i] = bf16_pair(values[2 * i], values[2 * i + 1]);
      }
    }
    store_packet<kGrain<kAligned>>(address, packet);
  }
};

/// Calls `function` with a null pointer of the C++ type.
template <class Function>
void with_type(ElementType type, const Function& function) {
  if (type == ElementType::kBFloat16) {
    function(static_cast<__nv_bfloat16*>(nullptr));
  } else {
    function(static_cast<float*>(nullptr));
  }
}

}  // namespace gtp::cuda
