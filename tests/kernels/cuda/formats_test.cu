// The format kernels against kernels/format, byte for byte.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "device_data.hpp"
#include "kernels/cuda/format_kernels.hpp"
#include "kernels/error.hpp"
#include "kernels/format/mxfp8.hpp"
#include "kernels/format/nvfp4.hpp"

namespace {

using namespace device_data;
using namespace gtp;
using cuda::ScaleOrder;

constexpr ScaleOrder kOrders[] = {ScaleOrder::kCompact, ScaleOrder::kSwizzled};
constexpr std::int64_t kSizes[] = {32, 96, 128, 160, 256};
constexpr ElementType kTypes[] = {ElementType::kBFloat16, ElementType::kFloat32};

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
Values values_from(ElementType type, std::vector<float> fp32) {
  Values values{type, std::move(fp32), {}};
  values.bf16 = as_bf16(values.fp32);
  for (std::size_t i = 0; type == ElementType::kBFloat16 && i < values.fp32.size(); ++i) {
    const std::uint32_t bits = bits_of(values.fp32[i]);
    if (bits % 65536 == 0) values.bf16[i] = Bf16{static_cast<std::uint16_t>(bits >> 16U)};
  }
  return values;
}

std::size_t scale_bytes(const ScaleGrid& grid) { return static_cast<std::size_t>(grid.bytes()); }

ByteVector in_order(const ScaleGrid& grid, const ByteVector& compact, ScaleOrder order) {
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

Copy empty_copy(std::size_t data_bytes, const ScaleGrid& grid, ScaleOrder order, std::size_t offset,
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

void check_mxfp8_quantize(Shape shape, const Values& values, const Options& options) {
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

void check_mxfp8_dequantize(Shape shape, const ByteVector& data, CopyDirection direction, const ByteVector& scales,
                            ElementType type, const Options& options) {
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

void check_nvfp4(Shape shape, const Values& values, float amax, const Options& options) {
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

void check_nvfp4_dequantize(Shape shape, const ByteVector& data, const ByteVector& scales, float amax, ElementType type,
                            const Options& options) {
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

void check_nvfp4_transpose(Shape shape, const ByteVector& data, const ByteVector& scales, ScaleOrder row_order,
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

void check_swizzle(const ScaleGrid& grid, const Options& options) {
  const ByteVector compact = random_bits<std::uint8_t>(scale_bytes(grid), 7);  // padding is not zero
  ByteVector swizzled(compact.size()), back(compact.size());
  REQUIRE(swizzle_scales(grid, compact, swizzled));
  const Buffer source(compact, options.offset);
  const Buffer target(compact.size(), options.offset, options.poison);
  options.execute([&] { cuda::swizzle_scales(grid, source.data(), target.data(), stream()); });
  const std::string name = name_of("swizzle_scales", grid.outer, grid.inner,
                                   std::string(grid.compact_runs_along_outer ? "along outer" : "along inner") +
                                       " offset " + std::to_string(options.offset));
  check_same(name, target.fetch(name), swizzled);
  REQUIRE(unswizzle_scales(grid, compact, back));  // of bytes whose padding is not zero either
  const Buffer restored(compact.size(), options.offset, options.poison);
  options.execute([&] { cuda::unswizzle_scales(grid, source.data(), restored.data(), stream()); });
  check_same("un" + name, restored.fetch(name), back);
}

/// Scales of a quantizer with tiles: equal on the 16 rows of a tile.
ByteVector tile_scales(const ScaleGrid& grid, std::uint64_t seed) {
  const ByteVector random = random_bits<std::uint8_t>(scale_bytes(grid), seed);
  ByteVector scales(random.size(), 0);
  for (std::int64_t i = 0; i < grid.outer; ++i) {
    for (std::int64_t j = 0; j < grid.inner; ++j)
      scales[grid.compact_offset(i, j)] = random[grid.compact_offset(i / 16, j)];
  }
  return scales;
}

float amax_on_device(const Values& values, std::size_t offset, bool captured, const std::string& name) {
  const Buffer source = values.upload(offset), result(sizeof(float));
  const Buffer workspace(std::vector<cuda::AmaxWorkspace>(1), 0);
  const Options options{ScaleOrder::kCompact, offset, captured};
  options.execute([&] {
    cuda::nvfp4_amax(source.data(), values.type, static_cast<std::int64_t>(values.fp32.size()),
                     reinterpret_cast<float*>(result.data()), reinterpret_cast<cuda::AmaxWorkspace*>(workspace.data()),
                     stream());
  });
  check_same(name + " workspace", workspace.fetch(name), ByteVector(sizeof(cuda::AmaxWorkspace), 0));
  const ByteVector bytes = result.fetch(name);
  return *reinterpret_cast<const float*>(bytes.data());
}

void check_amax(const std::vector<float>& fp32, ElementType type, std::size_t offset, bool captured) {
  const Values values = values_from(type, fp32);
  const std::string name = name_of("nvfp4_amax", 1, static_cast<std::int64_t>(fp32.size()),
                                   std::string(element_name(type)) + " offset " + std::to_string(offset));
  CHECK_MESSAGE(amax_on_device(values, offset, captured, name) == nvfp4_amax(values.bf16), name);
}

/// All 65536 BF16 codes once, in an order in which neighbours are alike (`stride` 1) or not.
std::vector<float> every_bf16(std::uint32_t stride) {
  std::vector<float> values(65536);
  for (std::uint32_t i = 0; i < 65536; ++i) values[i] = to_float(Bf16{static_cast<std::uint16_t>(i * stride)});
  return values;
}

template <class Function>
void refuses(const Function& function) {
  RuntimeStatus status = RuntimeStatus::kAborted;
  try {
    function();
  } catch (const RuntimeError& error) {
    status = error.status();
  }
  CHECK(status == RuntimeStatus::kInvalidUse);
}

}  // namespace

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

TEST_CASE("NVFP4 finds the largest magnitude of any count at any alignment, NaNs ignored") {
  for (const ElementType type : kTypes) {
    for (const std::size_t count : {1UL, 7UL, 8UL, 255UL, 4096UL, 16384UL, 16391UL, 1000003UL, 20000000UL}) {
      check_amax(random_floats(count, count), type, count % 16, false);
    }
    for (std::size_t offset = 0; offset < 16; ++offset) check_amax(random_floats(40007, offset), type, offset, true);
    std::vector<float> wild = wild_floats(100000, 9);
    check_amax(wild, type, 0, false);
    for (float& value : wild) value = std::isfinite(value) ? value : std::numeric_limits<float>::quiet_NaN();
    check_amax(wild, type, 0, false);
    check_amax(std::vector<float>(5000, std::numeric_limits<float>::quiet_NaN()), type, 0, false);
    check_amax(std::vector<float>(5000, -0.0F), type, 0, false);
    std::vector<float> last(100003, 1.0F);
    last.back() = -3.0F;
    check_amax(last, type, 0, false);
    check_amax({}, type, 0, true);
  }
}

TEST_CASE("NVFP4 quantizes every small shape, type and scale order to the bytes of the reference") {
  for (const std::int64_t rows : {16, 32, 96, 128, 144, 160, 256}) {
    for (const std::int64_t cols : {16, 32, 80, 96, 128, 160, 256}) {
      for (const ElementType type : kTypes) {
        const Shape shape{rows, cols};
        const Values values =
            values_from(type, random_floats(shape.elements(), static_cast<std::uint64_t>(rows + cols)));
        for (const ScaleOrder order : kOrders) {
          check_nvfp4(shape, values, nvfp4_amax(values.bf16), {order});
          check_nvfp4(shape, values, nvfp4_amax(values.bf16), {order, 0, false, 0x5A});
        }
      }
    }
  }
}

TEST_CASE("NVFP4 quantizes every BF16 value under many global amaxes, hostile ones included") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> amaxes = {0.0F,    1.0F,
                               6.0F,    448.0F,
                               2688.0F, 1e-45F,
                               1e-38F,  3.4028234663852886e38F,
                               kInf,    std::numeric_limits<float>::quiet_NaN()};
  for (const float value : random_floats(24, 17)) amaxes.push_back(std::fabs(value) * 37.0F);
  for (const float amax : amaxes) {
    for (const std::uint32_t stride : {1U, 257U, 40503U}) {
      check_nvfp4({256, 256}, values_from(ElementType::kBFloat16, every_bf16(stride)), amax, {});
    }
  }
}

TEST_CASE("NVFP4 quantizes tiles of zeros, at every alignment, and large matrices") {
  for (const ElementType type : kTypes) {
    std::vector<float> values = random_floats(160 * 96, 23);
    std::fill_n(values.begin(), 96 * 32, -0.0F);
    for (std::size_t offset = 0; offset < 16; ++offset) {
      for (const ScaleOrder order : kOrders) check_nvfp4({160, 96}, values_from(type, values), 3.5F, {order, offset});
    }
    for (const Shape shape : {Shape{1024, 4096}, Shape{16, 16384}, Shape{4080, 1040}}) {
      check_nvfp4(shape, values_from(type, random_floats(shape.elements(), 29)), 5.0F, {});
    }
  }
}

TEST_CASE("NVFP4 decodes every scale code and every shape and alignment") {
  const auto check_shape = [](Shape shape, float amax, std::size_t offset, std::uint8_t poison) {
    const ByteVector data = random_bits<std::uint8_t>(shape.elements() / 2, 31);
    const ByteVector scales = random_bits<std::uint8_t>(scale_bytes(nvfp4_row_scales(shape.rows, shape.cols)), 33);
    for (const ElementType type : kTypes) {
      for (const ScaleOrder order : kOrders) {
        check_nvfp4_dequantize(shape, data, scales, amax, type, {order, offset, false, poison});
      }
    }
  };
  for (const std::int64_t rows : {16, 32, 96, 128, 144, 256}) {
    for (const std::int64_t cols : {16, 32, 80, 128, 160, 256}) {
      check_shape({rows, cols}, 4.75F, 0, 0xA5), check_shape({rows, cols}, 4.75F, 0, 0x5A);
    }
  }
  for (std::size_t offset = 1; offset < 16; ++offset) check_shape({96, 160}, 0.37F, offset, 0xA5);
  for (const float amax : {0.0F, 1e-45F, 3.4e38F, std::numeric_limits<float>::infinity()}) {
    check_shape({256, 256}, amax, 0, 0xA5);
  }
  check_shape({1024, 4096}, 11.0F, 0, 0xA5);
}

TEST_CASE("NVFP4 transposes every shape, scale order and alignment without loss") {
  const auto check_shape = [](Shape shape, std::size_t offset, std::uint8_t poison) {
    const ByteVector data = random_bits<std::uint8_t>(shape.elements() / 2, 41);
    const ByteVector scales = tile_scales(nvfp4_row_scales(shape.rows, shape.cols), 43);
    for (const ScaleOrder row_order : kOrders) {
      for (const ScaleOrder order : kOrders) {
        check_nvfp4_transpose(shape, data, scales, row_order, {order, offset, false, poison});
      }
    }
  };
  for (const std::int64_t rows : {16, 32, 96, 128, 256, 272, 400}) {
    for (const std::int64_t cols : {16, 32, 96, 128, 256, 272, 400}) {
      check_shape({rows, cols}, 0, 0xA5), check_shape({rows, cols}, 0, 0x5A);
    }
  }
  for (std::size_t offset = 1; offset < 16; ++offset) check_shape({144, 272}, offset, 0xA5);
  for (const Shape shape : {Shape{2048, 4096}, Shape{16, 8192}, Shape{8192, 16}}) check_shape(shape, 0, 0xA5);
}

TEST_CASE("scales swizzle and come back, padding zero, in both directions of storage") {
  for (const std::int64_t rows : {1, 32, 96, 128, 160, 256, 1000}) {
    for (const std::int64_t cols : {1, 3, 4, 7, 32, 33, 64, 130, 1000}) {
      for (const bool along_outer : {false, true}) {
        check_swizzle({rows, cols, along_outer}, {});
        check_swizzle({rows, cols, along_outer}, {ScaleOrder::kCompact, 0, false, 0x5A});
      }
    }
  }
  for (std::size_t offset = 1; offset < 16; ++offset) {
    for (const bool along_outer : {false, true}) check_swizzle({160, 7, along_outer}, {ScaleOrder::kCompact, offset});
  }
  for (const bool along_outer : {false, true}) check_swizzle({8192, 256, along_outer}, {});
}

TEST_CASE("every format kernel can be captured in a graph and replayed") {
  const Shape shape{160, 96};
  for (const ElementType type : kTypes) {
    const Values values = values_from(type, random_floats(shape.elements(), 47));
    const ByteVector data = random_bits<std::uint8_t>(shape.elements(), 53);
    const Options captured{ScaleOrder::kSwizzled, 0, true};
    check_mxfp8_quantize(shape, values, captured);
    check_nvfp4(shape, values, 4.0F, captured);
    check_mxfp8_dequantize(shape, data, CopyDirection::kRow, ByteVector(scale_bytes(mxfp8_row_scales(160, 96)), 120),
                           type, captured);
    check_mxfp8_dequantize(shape, data, CopyDirection::kCol, ByteVector(scale_bytes(mxfp8_col_scales(160, 96)), 120),
                           type, captured);
    const ByteVector codes(data.begin(), data.begin() + 160 * 48);
    check_nvfp4_dequantize(shape, codes, tile_scales(nvfp4_row_scales(160, 96), 3), 2.0F, type, captured);
    check_nvfp4_transpose(shape, codes, tile_scales(nvfp4_row_scales(160, 96), 3), ScaleOrder::kCompact, captured);
  }
  check_swizzle({160, 7, false}, {ScaleOrder::kCompact, 0, true});
  check_swizzle({160, 7, true}, {ScaleOrder::kCompact, 0, true});
}

TEST_CASE("more than 2^31 elements are quantized to their end") {
  const std::int64_t rows = 65664, cols = 32768;
  const std::size_t elements = static_cast<std::size_t>(rows * cols);
  const Shape last{128, cols};
  const std::vector<Bf16> values = as_bf16(random_floats(last.elements(), 59));
  const ScaleGrid grid = mxfp8_row_scales(rows, cols), last_grid = mxfp8_row_scales(last.rows, cols);
  ByteVector expected(last.elements()), expected_scales(scale_bytes(last_grid));
  REQUIRE(quantize_mxfp8_rows({last.rows, cols, values}, expected, expected_scales));
  std::uint8_t *source = nullptr, *data = nullptr, *scales = nullptr;
  must(cudaMalloc(&source, 2 * elements));
  must(cudaMalloc(&data, elements));
  must(cudaMalloc(&scales, scale_bytes(grid)));
  must(cudaMemset(source, 0x3C, 2 * elements));
  must(cudaMemcpy(source + 2 * (elements - last.elements()), values.data(), 2 * last.elements(),
                  cudaMemcpyHostToDevice));
  must(cudaDeviceSynchronize());
  run([&] {
    cuda::quantize_mxfp8({source, ElementType::kBFloat16, rows, cols}, {data, scales, ScaleOrder::kCompact}, {},
                         stream());
  });
  ByteVector actual(last.elements()), actual_scales(expected_scales.size());
  must(cudaMemcpy(actual.data(), data + elements - actual.size(), actual.size(), cudaMemcpyDeviceToHost));
  must(cudaMemcpy(actual_scales.data(), scales + scale_bytes(grid) - actual_scales.size(), actual_scales.size(),
                  cudaMemcpyDeviceToHost));
  check_same("quantize_mxfp8 beyond 2^31, data", actual, expected);
  check_same("quantize_mxfp8 beyond 2^31, scales", actual_scales, expected_scales);
  run([&] {
    cuda::dequantize_mxfp8(CopyDirection::kRow, {data, scales, ScaleOrder::kCompact},
                           {source, ElementType::kBFloat16, rows, cols}, stream());
  });
  std::vector<float> decoded(last.elements());
  REQUIRE(dequantize_mxfp8_rows(last.rows, cols, expected, expected_scales, decoded));
  ByteVector tail(2 * last.elements());
  must(cudaMemcpy(tail.data(), source + 2 * (elements - last.elements()), tail.size(), cudaMemcpyDeviceToHost));
  check_values("dequantize_mxfp8 beyond 2^31", true, tail, decoded);
  for (std::uint8_t* memory : {source, data, scales}) must(cudaFree(memory));
}

TEST_CASE("shapes and pointers that cannot be served are refused, and empty ones do nothing") {
  const Buffer buffer(1 << 16);
  std::uint8_t* memory = buffer.data();
  const cuda::QuantizedCopy copy{memory, memory, ScaleOrder::kCompact};
  const cuda::ConstQuantizedCopy const_copy{memory, memory, ScaleOrder::kCompact};
  const auto* amax = reinterpret_cast<const float*>(memory);
  const auto bf16 = ElementType::kBFloat16;
  refuses([&] { cuda::quantize_mxfp8({memory, bf16, 33, 32}, copy, {}, stream()); });
  refuses([&] { cuda::quantize_mxfp8({memory, bf16, 32, 48}, copy, {}, stream()); });
  refuses([&] { cuda::quantize_mxfp8({memory, bf16, -32, 32}, copy, {}, stream()); });
  refuses([&] { cuda::quantize_mxfp8({memory, ElementType::kByte, 32, 32}, copy, {}, stream()); });
  refuses([&] { cuda::quantize_mxfp8({nullptr, bf16, 32, 32}, copy, {}, stream()); });
  refuses([&] { cuda::quantize_mxfp8({memory + 1, bf16, 32, 32}, copy, {}, stream()); });
  refuses([&] { cuda::quantize_mxfp8({memory, bf16, 32, 32}, {memory, nullptr, ScaleOrder::kCompact}, {}, stream()); });
  refuses([&] {
    cuda::quantize_mxfp8({memory, bf16, std::int64_t{1} << 40, std::int64_t{1} << 40}, copy, {}, stream());
  });
  refuses([&] { cuda::quantize_nvfp4({memory, bf16, 24, 32}, amax, copy, stream()); });
  refuses([&] { cuda::quantize_nvfp4({memory, bf16, 32, 32}, nullptr, copy, stream()); });
  refuses([&] { cuda::transpose_nvfp4(32, 24, const_copy, copy, stream()); });
  refuses([&] { cuda::nvfp4_amax(memory, bf16, -1, reinterpret_cast<float*>(memory), nullptr, stream()); });
  refuses([&] { cuda::swizzle_scales({128, 4, false}, nullptr, memory, stream()); });
  run([&] {
    cuda::quantize_mxfp8({nullptr, bf16, 0, 32}, copy, {}, stream());
    cuda::dequantize_mxfp8(CopyDirection::kRow, const_copy, {nullptr, bf16, 32, 0}, stream());
    cuda::quantize_nvfp4({nullptr, bf16, 0, 0}, nullptr, copy, stream());
    cuda::transpose_nvfp4(0, 32, const_copy, copy, stream());
    cuda::swizzle_scales({0, 4, false}, nullptr, nullptr, stream());
  });
  check_same("empty calls", buffer.fetch("empty calls"), ByteVector(1 << 16, 0xA5));
}
