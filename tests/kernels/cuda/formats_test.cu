// Scale swizzles against kernels/format, byte for byte, and what all format kernels have in common.
#include "format_rig.hpp"
#include "kernels/error.hpp"

using namespace format_rig;

namespace {

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
