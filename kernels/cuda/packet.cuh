// Up to 16 bytes that a thread loads or stores at once: one access where the address allows it, otherwise one per
// element. Widths and element sizes are compile-time.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace gtp::cuda {

template <int kBytes>
struct Packet {
  static_assert(kBytes == 2 || kBytes == 4 || kBytes == 8 || kBytes == 16);
  static constexpr int kWords = kBytes < 4 ? 1 : kBytes / 4;
  std::uint32_t words[kWords];
};

template <int kBytes>
__device__ inline Packet<kBytes> zero_packet() {
  Packet<kBytes> packet;
#pragma unroll
  for (std::uint32_t& word : packet.words) word = 0;
  return packet;
}

/// `kGrain`: bytes that may be accessed at once, a power of two up to `kBytes` that divides the address.
template <int kBytes, int kGrain>
__device__ inline Packet<kBytes> load_packet(const void* address) {
  static_assert(kGrain <= kBytes);
  Packet<kBytes> packet;
  if constexpr (kGrain == 16) {
    const uint4 value = *static_cast<const uint4*>(address);
    packet.words[0] = value.x, packet.words[1] = value.y, packet.words[2] = value.z, packet.words[3] = value.w;
  } else if constexpr (kGrain == 8) {
#pragma unroll
    for (int i = 0; i < kBytes / 8; ++i) {
      const uint2 value = static_cast<const uint2*>(address)[i];
      packet.words[2 * i] = value.x, packet.words[2 * i + 1] = value.y;
    }
  } else if constexpr (kGrain == 4) {
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i) packet.words[i] = static_cast<const std::uint32_t*>(address)[i];
  } else if constexpr (kGrain == 2) {
    packet = zero_packet<kBytes>();
#pragma unroll
    for (int i = 0; i < kBytes / 2; ++i) {
      packet.words[i / 2] |= static_cast<std::uint32_t>(static_cast<const std::uint16_t*>(address)[i]) << i % 2 * 16;
    }
  } else {
    packet = zero_packet<kBytes>();
#pragma unroll
    for (int i = 0; i < kBytes; ++i) {
      packet.words[i / 4] |= static_cast<std::uint32_t>(static_cast<const std::uint8_t*>(address)[i]) << i % 4 * 8;
    }
  }
  return packet;
}

/// One store each, to global memory. Spelled out: written as an assignment, nvcc takes such a store apart where the
/// words come from conversions.
__device__ inline void store_words(void* address, std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(address)), "r"(a), "r"(b) : "memory");
#else
  *static_cast<uint2*>(address) = make_uint2(a, b);
#endif
}
__device__ inline void store_words(void* address, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
#ifdef __CUDA_ARCH__
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(address)), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
#else
  *static_cast<uint4*>(address) = make_uint4(a, b, c, d);
#endif
}

/// To global memory if `kGrain` is above 4.
template <int kGrain, int kBytes>
__device__ inline void store_packet(void* address, const Packet<kBytes>& packet) {
  static_assert(kGrain <= kBytes);
  if constexpr (kGrain == 16) {
    store_words(address, packet.words[0], packet.words[1], packet.words[2], packet.words[3]);
  } else if constexpr (kGrain == 8) {
#pragma unroll
    for (int i = 0; i < kBytes / 8; ++i) {
      store_words(static_cast<uint2*>(address) + i, packet.words[2 * i], packet.words[2 * i + 1]);
    }
  } else if constexpr (kGrain == 4) {
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i) static_cast<std::uint32_t*>(address)[i] = packet.words[i];
  } else if constexpr (kGrain == 2) {
#pragma unroll
    for (int i = 0; i < kBytes / 2; ++i) {
      static_cast<std::uint16_t*>(address)[i] = static_cast<std::uint16_t>(packet.words[i / 2] >> i % 2 * 16);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kBytes; ++i) {
      static_cast<std::uint8_t*>(address)[i] = static_cast<std::uint8_t>(packet.words[i / 4] >> i % 4 * 8);
    }
  }
}

/// A word whose address is a multiple of 4 only if `kAligned`.
template <bool kAligned>
__device__ inline std::uint32_t load_word(const std::uint8_t* address) {
  constexpr int kGrain = kAligned ? 4 : 1;
  return load_packet<4, kGrain>(address).words[0];
}
template <bool kAligned>
__device__ inline void store_word(std::uint8_t* address, std::uint32_t word) {
  store_packet<kAligned ? 4 : 1>(address, Packet<4>{{word}});
}

}  // namespace gtp::cuda
