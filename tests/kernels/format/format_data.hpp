// Weights to quantize, and quantized weights with buffers of the right size.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/format/mxfp8.hpp"
#include "kernels/format/nvfp4.hpp"

namespace format_data {

using Buffer = std::vector<std::uint8_t>;
using Weight = std::vector<gtp::Bf16>;

/// Values of both signs over about twelve binades, the same for the same seed.
inline Weight random_weight(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  Weight values(static_cast<std::size_t>(rows * cols));
  std::uint64_t state = seed * 0x9E3779B97F4A7C15U + 1;
  for (gtp::Bf16& value : values) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const float mantissa = 1.0F + static_cast<float>((state >> 40U) & 0x7FU) / 128.0F;
    const float magnitude = std::ldexp(mantissa, static_cast<int>((state >> 50U) % 12U) - 8);
    value = gtp::to_bf16((state >> 63U) != 0 ? -magnitude : magnitude);
  }
  return values;
}

inline Weight row_shard(const Weight& values, std::int64_t cols, std::int64_t first_row, std::int64_t rows) {
  return {values.begin() + first_row * cols, values.begin() + (first_row + rows) * cols};
}

inline Weight transposed_weight(const Weight& values, std::int64_t rows, std::int64_t cols) {
  Weight result(values.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col = 0; col < cols; ++col) {
      result[static_cast<std::size_t>(col * rows + row)] = values[static_cast<std::size_t>(row * cols + col)];
    }
  }
  return result;
}

inline void append(Buffer& to, const Buffer& from, std::int64_t bytes) {
  to.insert(to.end(), from.begin(), from.begin() + bytes);
}

struct Mxfp8Weight {
  Buffer row_data, row_scales, col_data, col_scales;
};

inline Mxfp8Weight quantize_weight(std::int64_t rows, std::int64_t cols, const Weight& values) {
  const auto scale_bytes = [](const gtp::ScaleGrid& grid) { return static_cast<std::size_t>(grid.bytes()); };
  Mxfp8Weight result{Buffer(values.size()), Buffer(scale_bytes(gtp::mxfp8_row_scales(rows, cols)), 0xCD),
                     Buffer(values.size()), Buffer(scale_bytes(gtp::mxfp8_col_scales(rows, cols)), 0xCD)};
  REQUIRE(gtp::quantize_mxfp8({rows, cols, values},
                              {result.row_data, result.row_scales, result.col_data, result.col_scales}));
  return result;
}

struct Nvfp4Weight {
  Buffer row_data, row_scales;
  float amax = 0;
};

inline Nvfp4Weight quantize_weight(std::int64_t rows, std::int64_t cols, const Weight& values, float amax) {
  const auto scale_bytes = static_cast<std::size_t>(gtp::nvfp4_row_scales(rows, cols).bytes());
  Nvfp4Weight result{Buffer(values.size() / 2), Buffer(scale_bytes, 0xCD), amax};
  REQUIRE(gtp::quantize_nvfp4_rows({rows, cols, values}, amax, result.row_data, result.row_scales));
  return result;
}

}  // namespace format_data
