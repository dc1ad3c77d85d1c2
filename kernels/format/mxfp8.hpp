// MXFP8 on the CPU, byte for byte what TransformerEngine stores: E4M3 data in blocks of 32 with one E8M0 scale each,
// along rows (forward) and down columns (dgrad). A reference for GPU kernels and for the host backend, not a fast path.
// quantize_mxfp8.cuh, mxfp8_tensor.py:125
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/format/bf16.hpp"
#include "kernels/format/e4m3.hpp"
#include "kernels/format/e8m0.hpp"
#include "kernels/format/scale_layout.hpp"

namespace gtp {

/// A row-major matrix; `values` has rows * cols of them.
struct Bf16Matrix {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::span<const Bf16> values;
};

namespace detail {

/// True if rows and columns are whole blocks and the span is as long as the shape says.
inline bool is_blocked(std::int64_t rows, std::int64_t cols, std::int64_t block, std::size_t elements) noexcept {
  const std::optional<std::int64_t> product = checked_multiply(rows, cols);
  return rows > 0 && cols > 0 && rows % block == 0 && cols % block == 0 && product &&
         elements == static_cast<std::size_t>(*product);
}

inline bool is_blocked(const Bf16Matrix& source, std::int64_t block) noexcept {
  return is_blocked(source.rows, source.cols, block, source.values.size());
}

/// Quantizes 32 values that lie `stride` apart and returns their scale.
inline std::uint8_t quantize_mxfp8_block(const Bf16* source, std::uint8_t* data, std::ptrdiff_t stride) noexcept {
  float amax = 0.0F;
  for (std::ptrdiff_t i = 0; i < kMxfp8BlockSize; ++i) amax = max_magnitude(amax, to_float(source[i * stride]));
  const std::uint8_t scale = mxfp8_scale_of(amax);
  const float inverse = reciprocal_e8m0(scale);
  for (std::ptrdiff_t i = 0; i < kMxfp8BlockSize; ++i) {
    data[i * stride] = encode_e4m3(to_float(source[i * stride]) * inverse);
  }
  return scale;
}

/// The scales of one copy, and how its blocks follow each other: block (i, j) begins at i * outer + j * inner, and its
/// values lie `within` apart.
struct Mxfp8Blocks {
  ScaleGrid grid;
  std::int64_t outer, inner, within;
};

constexpr Mxfp8Blocks mxfp8_blocks(CopyDirection direction, std::int64_t rows, std::int64_t cols) noexcept {
  if (direction == CopyDirection::kRow) return {mxfp8_row_scales(rows, cols), cols, kMxfp8BlockSize, 1};
  return {mxfp8_col_scales(rows, cols), 1, kMxfp8BlockSize * cols, cols};
}

inline bool quantize_mxfp8(CopyDirection direction, const Bf16Matrix& source, Bytes data, Bytes scales) {
  if (!is_blocked(source, kMxfp8BlockSize) || data.size() != source.values.size()) return false;
  const Mxfp8Blocks blocks = mxfp8_blocks(direction, source.rows, source.cols);
  if (!holds(blocks.grid, scales.size())) return false;
  std::fill(scales.begin(), scales.end(), std::uint8_t{0});
  for (std::int64_t i = 0; i < blocks.grid.outer; ++i) {
    for (std::int64_t j = 0; j < blocks.grid.inner; ++j) {
      const std::int64_t begin = i * blocks.outer + j * blocks.inner;
      scales[blocks.grid.compact_offset(i, j)] =
          quantize_mxfp8_block(source.values.data() + begin, data.data() + begin, blocks.within);
    }
  }
  return true;
}

inline bool dequantize_mxfp8(CopyDirection direction, std::int64_t rows, std::int64_t cols, ConstBytes data,
                             ConstBytes scales, std::span<float> values) {
  if (!is_blocked(rows, cols, kMxfp8BlockSize, data.size()) || values.size() != data.size()) return false;
  const Mxfp8Blocks blocks = mxfp8_blocks(direction, rows, cols);
  if (!holds(blocks.grid, scales.size())) return false;
  for (std::int64_t i = 0; i < blocks.grid.outer; ++i) {
    for (std::int64_t j = 0; j < blocks.grid.inner; ++j) {
      const float scale = decode_e8m0(scales[blocks.grid.compact_offset(i, j)]);
      for (std::int64_t k = 0; k < kMxfp8BlockSize; ++k) {
        const auto at = static_cast<std::size_t>(i * blocks.outer + j * blocks.inner + k * blocks.within);
        values[at] = scale * decode_e4m3(data[at]);
      }
    }
  }
  return true;
}

}  // namespace detail

/// Row copy of a matrix: data [rows, cols], scales compact as mxfp8_row_scales(rows, cols), padding zero. A NaN does
/// not count towards the largest magnitude of its block and becomes the NaN code. False, with nothing written, unless
/// rows and cols are positive multiples of 32 and the spans have exactly those sizes.
///
/// Values are BF16 because the optimizer casts its fp32 master to the model's type before it looks for the largest
/// magnitude (tensor/utils.py:286): scales taken from the fp32 values would differ.
inline bool quantize_mxfp8_rows(const Bf16Matrix& source, Bytes data, Bytes scales) {
  return detail::quantize_mxfp8(CopyDirection::kRow, source, data, scales);
}

/// Column copy: data [rows, cols] too, not transposed; scales as mxfp8_col_scales(rows, cols). Not derivable from the
/// row copy.
inline bool quantize_mxfp8_cols(const Bf16Matrix& source, Bytes data, Bytes scales) {
  return detail::quantize_mxfp8(CopyDirection::kCol, source, data, scales);
}

/// The four spans of both copies.
struct Mxfp8Copies {
  Bytes row_data, row_scales, col_data, col_scales;
};

/// False if either copy cannot be made; the other may then have been written.
inline bool quantize_mxfp8(const Bf16Matrix& source, const Mxfp8Copies& copies) {
  return quantize_mxfp8_rows(source, copies.row_data, copies.row_scales) &&
         quantize_mxfp8_cols(source, copies.col_data, copies.col_scales);
}

/// Values in fp32, before any cast to the model's type: scale times data. dequantize_mxfp8.cuh:176
inline bool dequantize_mxfp8_rows(std::int64_t rows, std::int64_t cols, ConstBytes data, ConstBytes scales,
                                  std::span<float> values) {
  return detail::dequantize_mxfp8(CopyDirection::kRow, rows, cols, data, scales, values);
}

inline bool dequantize_mxfp8_cols(std::int64_t rows, std::int64_t cols, ConstBytes data, ConstBytes scales,
                                  std::span<float> values) {
  return detail::dequantize_mxfp8(CopyDirection::kCol, rows, cols, data, scales, values);
}

}  // namespace gtp
