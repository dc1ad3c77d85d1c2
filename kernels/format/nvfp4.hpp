// NVFP4 weights on the CPU, byte for byte what TransformerEngine stores: E2M1 data, one E4M3 scale per 16 x 16 tile,
// one fp32 amax per tensor. Round to nearest only; no Hadamard transform, no "fast math" coefficients.
// core_nvfp4.cuh, quantize_transpose_nvfp4.cuh, nvfp4_tensor.py:273
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "kernels/format/bf16.hpp"
#include "kernels/format/e2m1.hpp"
#include "kernels/format/e4m3.hpp"
#include "kernels/format/mxfp8.hpp"
#include "kernels/format/scale_layout.hpp"

namespace gtp {

/// Largest magnitude of a tensor or of one shard of it; a NaN does not count.
inline float nvfp4_amax(std::span<const Bf16> values) noexcept {
  float amax = 0.0F;
  for (const Bf16 value : values) amax = max_magnitude(amax, to_float(value));
  return amax;
}

/// What values are multiplied by before block scaling. `amax` must be that of the whole tensor: every rank that holds
/// a shard needs the same one (a MAX over DP and GTP_remat). core_nvfp4.cuh:81
inline float nvfp4_global_encode_scale(float amax) noexcept {
  const float scale = std::fmin((kE4m3Max * kE2m1Max) / amax, std::numeric_limits<float>::max());
  return amax == 0.0F || scale == 0.0F ? 1.0F : scale;
}

/// The E4M3 code of a tile's scale. The order of the two products matters. core_nvfp4.cuh:40
inline std::uint8_t nvfp4_block_scale(float block_amax, float global_encode_scale) noexcept {
  return encode_e4m3(block_amax * (global_encode_scale * (1.0F / kE2m1Max)));
}

/// What the values of a tile are multiplied by. quantize_transpose_nvfp4.cuh:425
inline float nvfp4_block_encode_scale(std::uint8_t block_scale, float global_encode_scale) noexcept {
  const float decode_scale = decode_e4m3(block_scale) * (1.0F / global_encode_scale);
  return std::fmin(1.0F / decode_scale, std::numeric_limits<float>::max());
}

/// What a code of a tile is multiplied by. dequantize_nvfp4.cuh:66
inline float nvfp4_block_decode_scale(std::uint8_t block_scale, float amax) noexcept {
  return (decode_e4m3(block_scale) * amax) * (1.0F / (kE4m3Max * kE2m1Max));
}

namespace detail {

struct Tile {
  std::int64_t row, col;
};

inline std::size_t index_of(const Bf16Matrix& matrix, std::int64_t row, std::int64_t col) noexcept {
  return static_cast<std::size_t>(row * matrix.cols + col);
}

inline float nvfp4_tile_amax(const Bf16Matrix& source, Tile tile) noexcept {
  float amax = 0.0F;
  for (std::int64_t row = tile.row; row < tile.row + kNvfp4BlockSize; ++row) {
    for (std::int64_t col = tile.col; col < tile.col + kNvfp4BlockSize; ++col) {
      amax = max_magnitude(amax, to_float(source.values[index_of(source, row, col)]));
    }
  }
  return amax;
}

inline void nvfp4_encode_tile(const Bf16Matrix& source, Tile tile, float encode_scale, Bytes data) noexcept {
  const auto code = [&](std::int64_t row, std::int64_t col) {
    return encode_e2m1(to_float(source.values[index_of(source, row, col)]) * encode_scale);
  };
  for (std::int64_t row = tile.row; row < tile.row + kNvfp4BlockSize; ++row) {
    for (std::int64_t col = tile.col; col < tile.col + kNvfp4BlockSize; col += 2) {
      data[index_of(source, row, col) / 2] = pack_e2m1(code(row, col), code(row, col + 1));
    }
  }
}

inline bool nvfp4_sizes_fit(std::int64_t rows, std::int64_t cols, std::size_t data_bytes) noexcept {
  return data_bytes <= std::numeric_limits<std::size_t>::max() / 2 &&
         is_blocked(rows, cols, kNvfp4BlockSize, 2 * data_bytes);
}

}  // namespace detail

/// Row copy of a matrix, or of a row shard of it: data [rows, cols / 2], scales compact as nvfp4_row_scales(rows, cols)
/// with the tile's scale repeated on each of its 16 rows, padding zero. `amax` is the whole tensor's. False, with
/// nothing written, unless rows and cols are positive multiples of 16 and the spans have exactly those sizes.
inline bool quantize_nvfp4_rows(const Bf16Matrix& source, float amax, Bytes data, Bytes scales) {
  if (!detail::is_blocked(source, kNvfp4BlockSize) || data.size() != source.values.size() / 2) return false;
  const ScaleGrid grid = nvfp4_row_scales(source.rows, source.cols);
  if (!detail::holds(grid, scales.size())) return false;
  std::fill(scales.begin(), scales.end(), std::uint8_t{0});
  const float global = nvfp4_global_encode_scale(amax);
  for (std::int64_t row = 0; row < source.rows; row += kNvfp4BlockSize) {
    for (std::int64_t col = 0; col < source.cols; col += kNvfp4BlockSize) {
      const std::uint8_t scale = nvfp4_block_scale(detail::nvfp4_tile_amax(source, {row, col}), global);
      detail::nvfp4_encode_tile(source, {row, col}, nvfp4_block_encode_scale(scale, global), data);
      for (std::int64_t i = row; i < row + kNvfp4BlockSize; ++i) {
        scales[grid.compact_offset(i, col / kNvfp4BlockSize)] = scale;
      }
    }
  }
  return true;
}

/// The column copy from the row copy, without loss: data [cols, rows / 2], transposed; scales as
/// nvfp4_col_scales(rows, cols), padding zero. Same conditions.
inline bool transpose_nvfp4(std::int64_t rows, std::int64_t cols, ConstBytes row_data, ConstBytes row_scales,
                            Bytes col_data, Bytes col_scales) {
  if (!detail::nvfp4_sizes_fit(rows, cols, row_data.size()) || col_data.size() != row_data.size()) return false;
  const ScaleGrid row_grid = nvfp4_row_scales(rows, cols);
  const ScaleGrid col_grid = nvfp4_col_scales(rows, cols);
  if (!detail::holds(row_grid, row_scales.size()) || !detail::holds(col_grid, col_scales.size())) return false;
  std::fill(col_scales.begin(), col_scales.end(), std::uint8_t{0});
  for (std::int64_t col = 0; col < cols; ++col) {
    const auto code = [&](std::int64_t row) {
      return unpack_e2m1(row_data[static_cast<std::size_t>((row * cols + col) / 2)], col);
    };
    for (std::int64_t row = 0; row < rows; row += 2) {
      col_data[static_cast<std::size_t>((col * rows + row) / 2)] = pack_e2m1(code(row), code(row + 1));
    }
    for (std::int64_t block = 0; block < col_grid.inner; ++block) {
      col_scales[col_grid.compact_offset(col, block)] =
          row_scales[row_grid.compact_offset(block * kNvfp4BlockSize, col / kNvfp4BlockSize)];
    }
  }
  return true;
}

/// Values in fp32, before any cast to the model's type. Same conditions.
inline bool dequantize_nvfp4_rows(std::int64_t rows, std::int64_t cols, float amax, ConstBytes data, ConstBytes scales,
                                  std::span<float> values) {
  if (!detail::nvfp4_sizes_fit(rows, cols, data.size()) || values.size() != 2 * data.size()) return false;
  const ScaleGrid grid = nvfp4_row_scales(rows, cols);
  if (!detail::holds(grid, scales.size())) return false;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col = 0; col < cols; ++col) {
      const float scale = nvfp4_block_decode_scale(scales[grid.compact_offset(row, col / kNvfp4BlockSize)], amax);
      const auto at = static_cast<std::size_t>(row * cols + col);
      values[at] = scale * decode_e2m1(unpack_e2m1(data[at / 2], col));
    }
  }
  return true;
}

}  // namespace gtp
