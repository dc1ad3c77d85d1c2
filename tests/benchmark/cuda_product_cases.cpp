// The kernels as a caller gets them.
#include "cuda_cases.hpp"
#include "kernels/cuda/reduce_kernels.hpp"

namespace cuda_bench {

namespace {

using gtp::CopyDirection;
using gtp::cuda::ConstQuantizedCopy;
using gtp::cuda::SourceMatrix;
using gtp::cuda::TargetMatrix;

constexpr ElementType kBf16 = ElementType::kBFloat16, kFp32 = ElementType::kFloat32;
constexpr ScaleOrder kCompact = ScaleOrder::kCompact, kSwizzled = ScaleOrder::kSwizzled;

void add_mxfp8(std::vector<Case>& cases, std::int64_t input) {
  const auto quantize = [&](const char* name, ElementType type, bool row, bool col, ScaleOrder order) {
    cases.push_back(mxfp8_quantize_case(
        name, input, type, row, col, order,
        [](const SourceMatrix& source, const QuantizedCopy& row_copy, const QuantizedCopy& col_copy,
           cudaStream_t stream) { gtp::cuda::quantize_mxfp8(source, row_copy, col_copy, stream); }));
  };
  quantize("mxfp8 quantize rows bf16", kBf16, true, false, kCompact);
  quantize("mxfp8 quantize rows bf16 swz", kBf16, true, false, kSwizzled);
  quantize("mxfp8 quantize cols bf16", kBf16, false, true, kCompact);
  quantize("mxfp8 quantize cols bf16 swz", kBf16, false, true, kSwizzled);
  quantize("mxfp8 quantize both bf16", kBf16, true, true, kCompact);
  quantize("mxfp8 quantize both bf16 swz", kBf16, true, true, kSwizzled);
  quantize("mxfp8 quantize rows fp32", kFp32, true, false, kCompact);
  quantize("mxfp8 quantize both fp32", kFp32, true, true, kCompact);
  const auto dequantize = [&](const char* name, CopyDirection direction, ElementType type, ScaleOrder order) {
    cases.push_back(dequantize_case(
        name, input, false, direction == CopyDirection::kCol, type, order,
        [direction](const ConstQuantizedCopy& copy, const float*, const TargetMatrix& target, cudaStream_t stream) {
          gtp::cuda::dequantize_mxfp8(direction, copy, target, stream);
        }));
  };
  dequantize("mxfp8 dequantize rows bf16", CopyDirection::kRow, kBf16, kCompact);
  dequantize("mxfp8 dequantize rows bf16 swz", CopyDirection::kRow, kBf16, kSwizzled);
  dequantize("mxfp8 dequantize rows fp32", CopyDirection::kRow, kFp32, kCompact);
  dequantize("mxfp8 dequantize cols bf16", CopyDirection::kCol, kBf16, kCompact);
  dequantize("mxfp8 dequantize cols bf16 swz", CopyDirection::kCol, kBf16, kSwizzled);
  dequantize("mxfp8 dequantize cols fp32", CopyDirection::kCol, kFp32, kCompact);
}

void add_nvfp4(std::vector<Case>& cases, std::int64_t input) {
  for (const ElementType type : {kBf16, kFp32}) {
    cases.push_back(amax_case(
        type == kBf16 ? "nvfp4 amax bf16" : "nvfp4 amax fp32", input, type,
        [type](const std::uint8_t* values, std::int64_t count, float* amax, gtp::cuda::AmaxWorkspace* workspace,
               cudaStream_t stream) { gtp::cuda::nvfp4_amax(values, type, count, amax, workspace, stream); }));
  }
  const auto quantize = [](const SourceMatrix& source, const float* amax, const QuantizedCopy& row,
                           cudaStream_t stream) { gtp::cuda::quantize_nvfp4(source, amax, row, stream); };
  cases.push_back(nvfp4_quantize_case("nvfp4 quantize bf16", input, kBf16, kCompact, quantize));
  cases.push_back(nvfp4_quantize_case("nvfp4 quantize bf16 swz", input, kBf16, kSwizzled, quantize));
  cases.push_back(nvfp4_quantize_case("nvfp4 quantize fp32", input, kFp32, kCompact, quantize));
  const auto dequantize = [](const ConstQuantizedCopy& copy, const float* amax, const TargetMatrix& target,
                             cudaStream_t stream) { gtp::cuda::dequantize_nvfp4(copy, amax, target, stream); };
  cases.push_back(dequantize_case("nvfp4 dequantize bf16", input, true, false, kBf16, kCompact, dequantize));
  cases.push_back(dequantize_case("nvfp4 dequantize fp32", input, true, false, kFp32, kCompact, dequantize));
  const auto transpose = [](std::int64_t rows, std::int64_t cols, const ConstQuantizedCopy& row,
                            const QuantizedCopy& col,
                            cudaStream_t stream) { gtp::cuda::transpose_nvfp4(rows, cols, row, col, stream); };
  cases.push_back(transpose_case("nvfp4 transpose", input, kCompact, transpose));
  cases.push_back(transpose_case("nvfp4 transpose swz", input, kSwizzled, transpose));
}

/// `input` bytes of scales.
void add_swizzle(std::vector<Case>& cases, std::int64_t input) {
  for (const bool along_outer : {false, true}) {
    for (const bool back : {false, true}) {
      const gtp::ScaleGrid grid = along_outer ? gtp::ScaleGrid{kCols, input / kCols, true}
                                              : gtp::ScaleGrid{input / (kCols / 32), kCols / 32, false};
      cases.push_back(
          {std::string(back ? "unswizzle" : "swizzle") + (along_outer ? " mxfp8 col scales" : " row scales"),
           grid.outer,
           grid.inner,
           input,
           2 * input,
           2 * input + 4096,
           [=](std::uint8_t* set, cudaStream_t stream) {
             Slices slices(set);
             const std::uint8_t* source = slices.take(input);
             (back ? gtp::cuda::unswizzle_scales : gtp::cuda::swizzle_scales)(grid, source, slices.take(input), stream);
           },
           {}});
    }
  }
}

void add_reductions(std::vector<Case>& cases, std::int64_t input) {
  const auto sum = [&](const char* name, ElementType to, ElementType from, std::int64_t chunks) {
    cases.push_back(sum_case(name, input, to, from, chunks,
                             [to, from](std::uint8_t* destination, const std::uint8_t* source, std::int64_t count,
                                        std::int64_t parts, cudaStream_t stream) {
                               gtp::cuda::sum_chunks_into(destination, to, source, from, count, parts, 0.125F, stream);
                             }));
  };
  sum("add fp32 += bf16", kFp32, kBf16, 1);
  sum("add fp32 += fp32", kFp32, kFp32, 1);
  sum("add bf16 += bf16", kBf16, kBf16, 1);
  sum("sum 2 bf16 into fp32", kFp32, kBf16, 2);
  sum("sum 4 bf16 into fp32", kFp32, kBf16, 4);
  sum("sum 8 bf16 into fp32", kFp32, kBf16, 8);
  sum("sum 16 bf16 into fp32", kFp32, kBf16, 16);
  sum("sum 8 bf16 into bf16", kBf16, kBf16, 8);
  sum("sum 8 fp32 into fp32", kFp32, kFp32, 8);
  for (const ElementType from : {kBf16, kFp32}) {
    const ElementType to = from == kBf16 ? kFp32 : kBf16;
    const std::int64_t count = input / bytes_of(from), output = count * bytes_of(to);
    cases.push_back({from == kBf16 ? "copy bf16 to fp32" : "copy fp32 to bf16",
                     1,
                     count,
                     input,
                     input + output,
                     input + output + 4096,
                     [=](std::uint8_t* set, cudaStream_t stream) {
                       Slices slices(set);
                       const std::uint8_t* source = slices.take(input);
                       gtp::cuda::copy(slices.take(output), to, source, from, count, stream);
                     },
                     {}});
    cases.push_back(
        {from == kBf16 ? "scale bf16" : "scale fp32",
         1,
         count,
         input,
         2 * input,
         input + 4096,
         [=](std::uint8_t* set, cudaStream_t stream) { gtp::cuda::scale(set, from, count, 1.0000001F, stream); },
         {}});
  }
}

}  // namespace

std::vector<Case> product_cases(std::int64_t input_bytes) {
  std::vector<Case> cases;
  add_mxfp8(cases, input_bytes);
  add_nvfp4(cases, input_bytes);
  add_swizzle(cases, input_bytes);
  add_reductions(cases, input_bytes);
  return cases;
}

}  // namespace cuda_bench
