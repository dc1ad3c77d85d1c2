// The kernels with other tile shapes, units per thread and blocks per multiprocessor than the API chooses.
#include "cuda_cases.hpp"
#include "kernels/cuda/mxfp8_dequantize.cuh"
#include "kernels/cuda/mxfp8_quantize.cuh"
#include "kernels/cuda/nvfp4_amax.cuh"
#include "kernels/cuda/nvfp4_dequantize.cuh"
#include "kernels/cuda/nvfp4_quantize.cuh"
#include "kernels/cuda/nvfp4_transpose.cuh"

namespace cuda_bench {

namespace {

using gtp::CopyDirection;
using namespace gtp::cuda;

constexpr ElementType kBf16 = ElementType::kBFloat16, kFp32 = ElementType::kFloat32;
constexpr KernelCall kCall{"a variant", 0, 0};

template <class Value>
constexpr ElementType type_of() {
  return sizeof(Value) == 2 ? kBf16 : kFp32;
}

template <class Value>
std::string named(const char* kernel, const std::string& variant) {
  return std::string(kernel) + (sizeof(Value) == 2 ? " bf16 " : " fp32 ") + variant;
}

std::string tile_text(int cols, int lanes, int blocks) {
  return std::to_string(cols) + "x" + std::to_string(lanes) + " b" + std::to_string(blocks);
}

template <class Value, int kCols_, int kLanes, bool kRow, bool kCol, int kBlocks>
void quantize(std::vector<Case>& cases, std::int64_t input) {
  using Quantizer = Mxfp8Quantizer<Value, WarpTile<kCols_, kLanes>, kRow, kCol, true>;
  const char* kernel = kRow && kCol ? "mxfp8 quantize both" : kRow ? "mxfp8 quantize rows" : "mxfp8 quantize cols";
  cases.push_back(mxfp8_quantize_case(
      named<Value>(kernel, tile_text(kCols_, kLanes, kBlocks)), input, type_of<Value>(), kRow, kCol,
      ScaleOrder::kCompact,
      [](const SourceMatrix& source, const QuantizedCopy& row, const QuantizedCopy& col, cudaStream_t stream) {
        launch_mxfp8_quantize<Quantizer, kBlocks>(kCall, mxfp8_quantize_arguments(source, row, col), stream);
      }));
}

template <class Value, int kCols_, int kLanes, CopyDirection kDirection, int kBlocks>
void dequantize(std::vector<Case>& cases, std::int64_t input) {
  using Dequantizer = Mxfp8Dequantizer<Value, WarpTile<kCols_, kLanes>, kDirection, true>;
  const bool col = kDirection == CopyDirection::kCol;
  cases.push_back(dequantize_case(
      named<Value>(col ? "mxfp8 dequantize cols" : "mxfp8 dequantize rows", tile_text(kCols_, kLanes, kBlocks)), input,
      false, col, type_of<Value>(), ScaleOrder::kCompact,
      [](const ConstQuantizedCopy& copy, const float*, const TargetMatrix& target, cudaStream_t stream) {
        launch_mxfp8_dequantize<Dequantizer, kBlocks>(kCall, mxfp8_dequantize_arguments(kDirection, copy, target),
                                                      stream);
      }));
}

template <class Value, int kThreads, int kUnroll, int kBlocks>
void amax(std::vector<Case>& cases, std::int64_t input) {
  cases.push_back(amax_case(
      named<Value>("nvfp4 amax",
                   std::to_string(kThreads) + "x" + std::to_string(kUnroll) + " b" + std::to_string(kBlocks)),
      input, type_of<Value>(),
      [](const std::uint8_t* values, std::int64_t count, float* result, AmaxWorkspace* workspace, cudaStream_t stream) {
        launch_nvfp4_amax<Value, kThreads, kUnroll, kBlocks, true>(kCall, values, count, workspace, result, stream);
      }));
}

/// `kRows` of a warp, `kBlockRows` of a block of threads.
template <class Value, int kLanes, int kRows, int kBlockRows, int kBlocks, bool kEarly = false>
void fp4_quantize(std::vector<Case>& cases, std::int64_t input) {
  using Quantizer = Nvfp4Quantizer<Value, WarpTile<8, kLanes, kRows, kBlockRows>, true, kEarly>;
  const std::string rows =
      std::to_string(kRows) + "/" + std::to_string(kBlockRows) + " rows " + (kEarly ? "early " : "");
  cases.push_back(nvfp4_quantize_case(
      named<Value>("nvfp4 quantize", rows + tile_text(8, kLanes, kBlocks)), input, type_of<Value>(),
      ScaleOrder::kCompact,
      [](const SourceMatrix& source, const float* largest, const QuantizedCopy& row, cudaStream_t stream) {
        launch_nvfp4_quantize<Quantizer, kBlocks>(kCall, nvfp4_quantize_arguments(source, largest, row), stream);
      }));
}

template <class Value, int kCols_, int kLanes, int kBlocks>
void fp4_dequantize(std::vector<Case>& cases, std::int64_t input) {
  using Dequantizer = Nvfp4Dequantizer<Value, WarpTile<kCols_, kLanes>, true>;
  cases.push_back(dequantize_case(
      named<Value>("nvfp4 dequantize", tile_text(kCols_, kLanes, kBlocks)), input, true, false, type_of<Value>(),
      ScaleOrder::kCompact,
      [](const ConstQuantizedCopy& copy, const float* largest, const TargetMatrix& target, cudaStream_t stream) {
        launch_nvfp4_dequantize<Dequantizer, kBlocks>(kCall, nvfp4_dequantize_arguments(copy, largest, target), stream);
      }));
}

template <int kRows, int kTileCols, int kBlocks>
void transpose(std::vector<Case>& cases, std::int64_t input, ScaleOrder order) {
  const std::string kernel = order == ScaleOrder::kSwizzled ? "nvfp4 transpose swz " : "nvfp4 transpose ";
  cases.push_back(transpose_case(kernel + tile_text(kRows, kTileCols, kBlocks), input, order,
                                 [](std::int64_t rows, std::int64_t cols, const ConstQuantizedCopy& row,
                                    const QuantizedCopy& col, cudaStream_t stream) {
                                   launch_nvfp4_transpose<Nvfp4Transposer<kRows, kTileCols, true>, kBlocks>(
                                       kCall, rows, cols, row, col, stream);
                                 }));
}

void add_mxfp8(std::vector<Case>& cases, std::int64_t input) {
  using Bf16 = __nv_bfloat16;
  quantize<Bf16, 8, 16, true, true, 4>(cases, input);
  quantize<float, 8, 8, true, false, 3>(cases, input);
  dequantize<Bf16, 8, 8, CopyDirection::kRow, 4>(cases, input);
  dequantize<Bf16, 8, 8, CopyDirection::kCol, 3>(cases, input);
  dequantize<Bf16, 8, 16, CopyDirection::kCol, 6>(cases, input);
  dequantize<float, 4, 16, CopyDirection::kRow, 3>(cases, input);
  dequantize<float, 4, 32, CopyDirection::kCol, 6>(cases, input);
}

void add_nvfp4(std::vector<Case>& cases, std::int64_t input) {
  using Bf16 = __nv_bfloat16;
  amax<Bf16, 256, 8, 4>(cases, input);
  amax<Bf16, 512, 8, 2>(cases, input);
  amax<Bf16, 1024, 8, 1>(cases, input);
  fp4_quantize<Bf16, 8, 32, 128, 4>(cases, input);
  fp4_quantize<Bf16, 8, 16, 32, 10>(cases, input);
  fp4_quantize<Bf16, 8, 16, 32, 10, true>(cases, input);
  fp4_quantize<Bf16, 16, 16, 64, 8>(cases, input);
  fp4_quantize<float, 8, 32, 128, 3>(cases, input);
  fp4_quantize<float, 8, 16, 32, 10>(cases, input);
  fp4_quantize<float, 8, 16, 32, 10, true>(cases, input);
  fp4_quantize<float, 8, 16, 32, 12>(cases, input);
  for (const ScaleOrder order : {ScaleOrder::kCompact, ScaleOrder::kSwizzled}) {
    transpose<256, 256, 4>(cases, input, order);
    transpose<512, 128, 4>(cases, input, order);
  }
}

}  // namespace

std::vector<Case> tuning_cases(std::int64_t input_bytes) {
  std::vector<Case> cases;
  add_mxfp8(cases, input_bytes);
  add_nvfp4(cases, input_bytes);
  return cases;
}

}  // namespace cuda_bench
