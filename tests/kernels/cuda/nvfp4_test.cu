// The NVFP4 kernels against kernels/format, byte for byte.
#include <algorithm>
#include <cmath>
#include <limits>

#include "format_rig.hpp"

using namespace format_rig;

namespace {

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

}  // namespace

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

TEST_CASE("NVFP4 quantizes matrices large enough for the larger tiles, ragged at both ends") {
  const Shape shape{4112, 4112};
  const Values values = values_from(ElementType::kBFloat16, random_floats(shape.elements(), 37));
  for (const ScaleOrder order : kOrders) check_nvfp4(shape, values, 5.0F, {order});
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
  const Shape large{8208, 8208};  // larger tiles if the scales are compact
  check_nvfp4_transpose(large, random_bits<std::uint8_t>(large.elements() / 2, 41),
                        tile_scales(nvfp4_row_scales(large.rows, large.cols), 43), ScaleOrder::kCompact, {});
}
