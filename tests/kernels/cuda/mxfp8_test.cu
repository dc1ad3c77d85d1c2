// The MXFP8 kernels against kernels/format, byte for byte.
#include <cmath>
#include <limits>

#include "format_rig.hpp"

using namespace format_rig;

TEST_CASE("MXFP8 quantizes every small shape, type and scale order to the bytes of the reference") {
  for (const std::int64_t rows : kSizes) {
    for (const std::int64_t cols : kSizes) {
      for (const ElementType type : kTypes) {
        const Shape shape{rows, cols};
        const Values values =
            values_from(type, random_floats(shape.elements(), static_cast<std::uint64_t>(rows * cols)));
        for (const ScaleOrder order : kOrders) {
          check_mxfp8_quantize(shape, values, {order});
          check_mxfp8_quantize(shape, values, {order, 0, false, 0x5A});
        }
      }
    }
  }
}

TEST_CASE("MXFP8 quantizes every BF16 value, in blocks of like and of unlike values") {
  for (const std::uint32_t stride : {1U, 4097U, 257U, 40503U}) {
    for (const ElementType type : kTypes) check_mxfp8_quantize({256, 256}, values_from(type, every_bf16(stride)), {});
  }
}

TEST_CASE("MXFP8 takes every BF16 value as the largest magnitude of a block") {
  const Shape shape{2048, 1024};
  std::vector<float> values(shape.elements(), 0.0F);
  const std::vector<float> codes = every_bf16(1);
  for (std::size_t row = 0; row < 2048; ++row) {  // 32 blocks a row, and one value of a column block every 32 rows
    for (std::size_t block = 0; block < 32; ++block)
      values[row * 1024 + block * 32 + row % 32] = codes[row * 32 + block];
  }
  check_mxfp8_quantize(shape, values_from(ElementType::kBFloat16, values), {});
}

TEST_CASE("MXFP8 rounds scales up next to every power of two times 448") {
  const Shape shape{512, 128};
  std::vector<float> values(shape.elements(), 0.0F);
  for (std::size_t i = 0; i < 512; ++i) {
    const float top = std::ldexp(448.0F, static_cast<int>(i % 256) - 135);
    for (std::size_t block = 0; block < 4; ++block) {
      const float towards = block % 2 == 0 ? 0.0F : std::numeric_limits<float>::infinity();
      const std::uint32_t ulp = block < 2 ? 1U : 0x8000U;  // of FP32, and half of one of BF16
      const float near =
          block < 2 ? std::nextafter(top, towards) : float_of(block % 2 == 0 ? bits_of(top) - ulp : bits_of(top) + ulp);
      values[i * 128 + block * 32 + i % 32] = std::isfinite(near) ? near : top;
    }
  }
  for (const ElementType type : kTypes) check_mxfp8_quantize(shape, values_from(type, values), {});
}

TEST_CASE("MXFP8 quantizes hostile values and works at every alignment") {
  for (const ElementType type : kTypes) {
    const Shape shape{160, 96};
    const Values wild = values_from(type, wild_floats(shape.elements(), 3));
    for (std::size_t offset = 0; offset < 16; ++offset) {
      for (const ScaleOrder order : kOrders) check_mxfp8_quantize(shape, wild, {order, offset});
    }
    std::vector<float> zeros(shape.elements(), 0.0F);
    for (std::size_t i = 0; i < zeros.size(); i += 3) zeros[i] = -0.0F;
    check_mxfp8_quantize(shape, values_from(type, zeros), {});
  }
}

TEST_CASE("MXFP8 quantizes large and lopsided matrices") {
  for (const Shape shape : {Shape{1024, 8192}, Shape{8192, 96}, Shape{32, 16384}, Shape{4064, 1056}}) {
    for (const ElementType type : kTypes) {
      const Values values = values_from(type, random_floats(shape.elements(), 11));
      for (const ScaleOrder order : kOrders) check_mxfp8_quantize(shape, values, {order});
    }
  }
}

TEST_CASE("MXFP8 decodes every code under every scale") {
  const Shape shape{256, 256};
  ByteVector data(shape.elements()), row_scales(scale_bytes(mxfp8_row_scales(256, 256))), col_data(shape.elements()),
      col_scales(scale_bytes(mxfp8_col_scales(256, 256)));
  for (std::int64_t i = 0; i < 256; ++i) {
    for (std::int64_t j = 0; j < 256; ++j) {
      data[static_cast<std::size_t>(i * 256 + j)] = static_cast<std::uint8_t>(j);
      col_data[static_cast<std::size_t>(i * 256 + j)] = static_cast<std::uint8_t>(i);
      row_scales[mxfp8_row_scales(256, 256).compact_offset(i, j / 32)] = static_cast<std::uint8_t>(i);
      col_scales[mxfp8_col_scales(256, 256).compact_offset(j, i / 32)] = static_cast<std::uint8_t>(j);
    }
  }
  for (const ElementType type : kTypes) {
    for (const ScaleOrder order : kOrders) {
      check_mxfp8_dequantize(shape, data, CopyDirection::kRow, row_scales, type, {order});
      check_mxfp8_dequantize(shape, col_data, CopyDirection::kCol, col_scales, type, {order});
    }
  }
}

TEST_CASE("MXFP8 decodes every shape and alignment") {
  const auto check_shape = [](Shape shape, std::size_t offset, std::uint8_t poison) {
    const ByteVector data = random_bits<std::uint8_t>(shape.elements(), 5);
    for (const CopyDirection direction : {CopyDirection::kRow, CopyDirection::kCol}) {
      const ScaleGrid grid = direction == CopyDirection::kRow ? mxfp8_row_scales(shape.rows, shape.cols)
                                                              : mxfp8_col_scales(shape.rows, shape.cols);
      const ByteVector scales = random_bits<std::uint8_t>(scale_bytes(grid), 6);
      for (const ElementType type : kTypes) {
        for (const ScaleOrder order : kOrders) {
          check_mxfp8_dequantize(shape, data, direction, scales, type, {order, offset, false, poison});
        }
      }
    }
  };
  for (const std::int64_t rows : kSizes) {
    for (const std::int64_t cols : kSizes) check_shape({rows, cols}, 0, 0xA5), check_shape({rows, cols}, 0, 0x5A);
  }
  for (std::size_t offset = 1; offset < 16; ++offset) check_shape({96, 160}, offset, 0xA5);
  check_shape({1024, 8192}, 0, 0xA5);
}
