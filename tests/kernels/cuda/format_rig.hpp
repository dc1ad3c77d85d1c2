// What the tests of the format kernels share: values and copies on the device, and each kernel beside its reference in
// kernels/format, byte for byte.
#pragma once

#include <doctest/doctest.h>

#include "device_data.hpp"
#include "kernels/cuda/format_kernels.hpp"
#include "kernels/format/mxfp8.hpp"
#include "kernels/format/nvfp4.hpp"

namespace format_rig {

using namespace device_data;
using namespace gtp;
using cuda::ScaleOrder;

inline constexpr ScaleOrder kOrders[] = {ScaleOrder::kCompact, ScaleOrder::kSwizzled};
inline constexpr std::int64_t kSizes[] = {32, 96, 128, 160, 256};
inline constexpr ElementType kTypes[] = {ElementType::kBFloat16, ElementType::kFloat32};

struct Shape {
  std::int64_t rows, cols;
  std::size_t elements() const { return static_cast<std::size_t>(rows * cols); }
};

/// Values as the kernel gets them and as the reference sees them.
struct Values {
  ElementType type;
  std::vector<float> fp32;
  std::vector<Bf16> bf16;

  Buffer upload(std::size_t offset_elements) const {
    const std::size_t offset = offset_elements * element_bytes(type);
    return type == ElementType::kFloat32 ? Buffer(fp32, offset) : Buffer(bf16, offset);
  }
};

/// What a float is to a kernel that reads `type`. NaNs that are BF16 values keep their sign and payload.
inline Values values_from(ElementType type, std::vector<float> fp32) {
  Values values{type, std::move(fp32), {}};
  values.bf16 = as_bf16(values.fp32);
  for (std::size_t i = 0; type == ElementType::kBFloat16 && i < values.fp32.size(); ++i) {
    const std::uint32_t bits = bits_of(values.fp32[i]);
    if (bits % 65536 == 0) values.bf16[i] = Bf16{static_cast<std::uint16_t>(bits >> 16U)};
  }
  return values;
}

inline std::size_t scale_bytes(const ScaleGrid& grid) { return static_cast<std::size_t>(grid.bytes()); }

inline ByteVector in_order(const ScaleGrid& grid, const ByteVector& compact, ScaleOrder order) {
  if (order == ScaleOrder::kCompact) return compact;
  ByteVector swizzled(compact.size());
  REQUIRE(swizzle_scales(grid, compact, swizzled));
  return swizzled;
}

/// One copy on the device.
struct Copy {
  Buffer data, scales;
  ScaleOrder order;
  cuda::QuantizedCopy view() const { return {data.data(), scales.data(), order}; }
  cuda::ConstQuantizedCopy const_view() const { return {data.data(), scales.data(), order}; }
};

inline Copy empty_copy(std::size_t data_bytes, const ScaleGrid& grid, ScaleOrder order, std::size_t offset,
                       std::uint8_t poison) {
  return {Buffer(data_bytes, offset, poison), Buffer(scale_bytes(grid), offset, poison), order};
}

struct Options {
  ScaleOrder order = ScaleOrder::kCompact;
  std::size_t offset = 0;  ///< In elements, of every buffer.
  bool captured = false;
  std::uint8_t poison = 0xA5;

  std::string text(ElementType type) const {
    return std::string(element_name(type)) + (order == ScaleOrder::kCompact ? " compact" : " swizzled") + " offset " +
           std::to_string(offset) + (captured ? " captured" : "");
  }
  template <class Enqueue>
  void execute(const Enqueue& enqueue) const {
    captured ? run_captured(enqueue) : run(enqueue);
  }
};

inline void check_mxfp8_quantize(Shape shape, const Values& values, const Options& options) {
  const auto [rows, cols] = shape;
  const ScaleGrid row_grid = mxfp8_row_scales(rows, cols), col_grid = mxfp8_col_scales(rows, cols);
  ByteVector row_data(shape.elements()), col_data(shape.elements()), row_scales(scale_bytes(row_grid)),
      col_scales(scale_bytes(col_grid));
  REQUIRE(quantize_mxfp8({rows, cols, values.bf16}, {row_data, row_scales, col_data, col_scales}));
  const Buffer source = values.upload(options.offset);
  for (const char* which : {"rows", "columns", "both"}) {
    const bool row = which[0] != 'c', col = which[0] != 'r';
    const Copy row_copy = empty_copy(shape.elements(), row_grid, options.order, options.offset, options.poison);
    const Copy col_copy = empty_copy(shape.elements(), col_grid, options.order, options.offset, options.poison);
    options.execute([&] {
      cuda::quantize_mxfp8({source.data(), values.type, rows, cols}, row ? row_copy.view() : cuda::QuantizedCopy{},
                           col ? col_copy.view() : cuda::QuantizedCopy{}, stream());
    });
    const std::string name = name_of("quantize_mxfp8", rows, cols, options.text(values.type) + " " + which);
    if (row) check_same(name + " row data", row_copy.data.fetch(name), row_data);
    if (row)
      check_same(name + " row scales", row_copy.scales.fetch(name), in_order(row_grid, row_scales, options.order));
    if (col) check_same(name + " col data", col_copy.data.fetch(name), col_data);
    if (col)
      check_same(name + " col scales", col_copy.scales.fetch(name), in_order(col_grid, col_scales, options.order));
  }
}

inline void check_mxfp8_dequantize(Shape shape, const ByteVector& data, CopyDirection direction,
                                   const ByteVector& scales, ElementType type, const Options& options) {
  const auto [rows, cols] = shape;
  const bool is_row = direction == CopyDirection::kRow;
  const ScaleGrid grid = is_row ? mxfp8_row_scales(rows, cols) : mxfp8_col_scales(rows, cols);
  std::vector<float> expected(shape.elements());
  REQUIRE((is_row ? dequantize_mxfp8_rows : dequantize_mxfp8_cols)(rows, cols, data, scales, expected));
  const Copy copy{Buffer(data, options.offset), Buffer(in_order(grid, scales, options.order), options.offset),
                  options.order};
  const Buffer target(shape.elements() * element_bytes(type), options.offset * element_bytes(type), options.poison);
  options.execute([&] {
    cuda::dequantize_mxfp8(direction, copy.const_view(), {target.data(), type, rows, cols}, stream());
  });
  const std::string name =
      name_of(is_row ? "dequantize_mxfp8 rows" : "dequantize_mxfp8 columns", rows, cols, options.text(type));
  check_values(name, type == ElementType::kBFloat16, target.fetch(name), expected);
}

inline void check_nvfp4(Shape shape, const Values& values, float amax, const Options& options) {
  const auto [rows, cols] = shape;
  const ScaleGrid grid = nvfp4_row_scales(rows, cols);
  ByteVector data(shape.elements() / 2), scales(scale_bytes(grid));
  REQUIRE(quantize_nvfp4_rows({rows, cols, values.bf16}, amax, data, scales));
  const Buffer source = values.upload(options.offset), amax_buffer(std::vector<float>{amax}, 0);
  const auto* device_amax = reinterpret_cast<const float*>(amax_buffer.data());
  const Copy copy = empty_copy(data.size(), grid, options.order, options.offset, options.poison);
  options.execute([&] {
    cuda::quantize_nvfp4({source.data(), values.type, rows, cols}, device_amax, copy.view(), stream());
  });
  const std::string name =
      name_of("quantize_nvfp4", rows, cols, options.text(values.type) + " amax " + std::to_string(amax));
  check_same(name + " data", copy.data.fetch(name), data);
  check_same(name + " scales", copy.scales.fetch(name), in_order(grid, scales, options.order));
}

inline void check_nvfp4_dequantize(Shape shape, const ByteVector& data, const ByteVector& scales, float amax,
                                   ElementType type, const Options& options) {
  const auto [rows, cols] = shape;
  const ScaleGrid grid = nvfp4_row_scales(rows, cols);
  std::vector<float> expected(shape.elements());
  REQUIRE(dequantize_nvfp4_rows(rows, cols, amax, data, scales, expected));
  const Buffer amax_buffer(std::vector<float>{amax}, 0);
  const Copy copy{Buffer(data, options.offset), Buffer(in_order(grid, scales, options.order), options.offset),
                  options.order};
  const Buffer target(shape.elements() * element_bytes(type), options.offset * element_bytes(type), options.poison);
  options.execute([&] {
    cuda::dequantize_nvfp4(copy.const_view(), reinterpret_cast<const float*>(amax_buffer.data()),
                           {target.data(), type, rows, cols}, stream());
  });
  const std::string name =
      name_of("dequantize_nvfp4", rows, cols, options.text(type) + " amax " + std::to_string(amax));
  check_values(name, type == ElementType::kBFloat16, target.fetch(name), expected);
}

inline void check_nvfp4_transpose(Shape shape, const ByteVector& data, const ByteVector& scales, ScaleOrder row_order,
                                  const Options& options) {
  const auto [rows, cols] = shape;
  const ScaleGrid row_grid = nvfp4_row_scales(rows, cols), col_grid = nvfp4_col_scales(rows, cols);
  ByteVector col_data(data.size()), col_scales(scale_bytes(col_grid));
  REQUIRE(transpose_nvfp4(rows, cols, data, scales, col_data, col_scales));
  const Copy row{Buffer(data, options.offset), Buffer(in_order(row_grid, scales, row_order), options.offset),
                 row_order};
  const Copy col = empty_copy(data.size(), col_grid, options.order, options.offset, options.poison);
  options.execute([&] { cuda::transpose_nvfp4(rows, cols, row.const_view(), col.view(), stream()); });
  const std::string name = name_of("transpose_nvfp4", rows, cols, options.text(ElementType::kByte));
  check_same(name + " data", col.data.fetch(name), col_data);
  check_same(name + " scales", col.scales.fetch(name), in_order(col_grid, col_scales, options.order));
}

/// Scales of a quantizer with tiles: equal on the 16 rows of a tile.
inline ByteVector tile_scales(const ScaleGrid& grid, std::uint64_t seed) {
  const ByteVector random = random_bits<std::uint8_t>(scale_bytes(grid), seed);
  ByteVector scales(random.size(), 0);
  for (std::int64_t i = 0; i < grid.outer; ++i) {
    for (std::int64_t j = 0; j < grid.inner; ++j)
      scales[grid.compact_offset(i, j)] = random[grid.compact_offset(i / 16, j)];
  }
  return scales;
}

/// All 65536 BF16 codes once, in an order in which neighbours are alike (`stride` 1) or not.
inline std::vector<float> every_bf16(std::uint32_t stride) {
  std::vector<float> values(65536);
  for (std::uint32_t i = 0; i < 65536; ++i) values[i] = to_float(Bf16{static_cast<std::uint16_t>(i * stride)});
  return values;
}

}  // namespace format_rig
