// A small network whose forward, dgrad and wgrad are a few lines of fp32 arithmetic with a fixed order of additions,
// so that a run with the runtime and one without can be compared bit for bit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/format/bf16.hpp"

namespace gtp::test::toy {

inline constexpr std::size_t kWidth = 8;
using Activation = std::array<float, kWidth>;
using Weight = std::span<const std::uint16_t>;  ///< bf16 [rows, kWidth], row major; padding may follow.

inline float at(Weight weight, std::size_t row, std::size_t col) { return to_float(Bf16{weight[row * kWidth + col]}); }

/// Rows are folded onto the width, so that any shape maps width to width.
inline void forward(Weight weight, std::size_t rows, const Activation& in, Activation& out) {
  for (std::size_t i = 0; i < kWidth; ++i) out[i] = 0.5F * in[i];
  for (std::size_t row = 0; row < rows; ++row) {
    float sum = 0;
    for (std::size_t col = 0; col < kWidth; ++col) sum += at(weight, row, col) * in[col];
    out[row % kWidth] += sum / 64;
  }
}

/// d_in += the share of this weight.
inline void dgrad(Weight weight, std::size_t rows, const Activation& d_out, Activation& d_in) {
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t col = 0; col < kWidth; ++col) d_in[col] += at(weight, row, col) * d_out[row % kWidth] / 64;
  }
  for (std::size_t i = 0; i < kWidth; ++i) d_in[i] += 0.5F * d_out[i];
}

inline float wgrad(const Activation& d_out, const Activation& in, std::size_t row, std::size_t col) {
  return d_out[row % kWidth] * in[col] / 64;
}

/// Small, different for every (rank, microbatch, place).
inline Activation input(std::int64_t rank, std::uint64_t microbatch) {
  Activation in{};
  for (std::size_t i = 0; i < kWidth; ++i) {
    const auto mixed = static_cast<std::uint64_t>(rank) * 37 + microbatch * 11 + i * 5;
    in[i] = static_cast<float>(mixed % 17) / 8 - 1;
  }
  return in;
}

inline float initial(std::uint64_t weight, std::size_t index) {
  return static_cast<float>((weight * 29 + index * 7) % 33) / 16 - 1;
}

inline std::uint16_t step(std::uint16_t shard, float main_grad) {
  return bits_of(to_bf16(to_float(Bf16{shard}) - 0.125F * main_grad));
}

}  // namespace gtp::test::toy
