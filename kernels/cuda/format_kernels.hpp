// MXFP8 and NVFP4 on the GPU, byte for byte what kernels/format computes on the CPU: quantize, dequantize, transpose,
// and the order of block scales. Knows nothing of weights, shards or collectives.
//
// Every call enqueues at most one kernel on `stream` and returns: nothing is allocated, nothing waits, so every call
// can be captured in a graph. Pointers are device memory. Any alignment to the element type works; 16 bytes is fast.
// Shapes with zero rows or columns do nothing. Throws RuntimeError: kInvalidUse for shapes, types and null pointers
// that cannot be served, kCollectiveFailed if the launch is refused. What a kernel reads must not overlap what it
// writes.
//
// Arithmetic is IEEE single precision, one rounding per operation. Where a result is NaN it is the GPU's NaN
// (0x7FFFFFFF; 0x7FFF in BF16), whose bits a CPU need not share.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/element_type.hpp"
#include "kernels/format/scale_layout.hpp"

namespace gtp::cuda {

/// Row-major. BF16 or FP32; FP32 values (an optimizer's masters) are rounded to BF16 before anything else, as upstream
/// does (tensor/utils.py:286).
struct SourceMatrix {
  const void* values = nullptr;
  ElementType type = ElementType::kBFloat16;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

struct TargetMatrix {
  void* values = nullptr;
  ElementType type = ElementType::kBFloat16;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

/// How the scales of a copy are stored: padded rows as in a ShardLayout, or the 128 x 4 tiles that cuBLASLt reads. Both
/// have ScaleGrid::bytes() bytes, and kernels write all of them: padding is zero.
enum class ScaleOrder : std::uint8_t { kCompact, kSwizzled };

/// One copy of a quantized matrix. A quantizer skips a copy without data.
struct QuantizedCopy {
  std::uint8_t* data = nullptr;
  std::uint8_t* scales = nullptr;
  ScaleOrder order = ScaleOrder::kCompact;
};

struct ConstQuantizedCopy {
  const std::uint8_t* data = nullptr;
  const std::uint8_t* scales = nullptr;
  ScaleOrder order = ScaleOrder::kCompact;
};

/// Row copy, column copy or both from one read of the source. rows and cols are multiples of 32.
void quantize_mxfp8(const SourceMatrix& source, const QuantizedCopy& row, const QuantizedCopy& col,
                    cudaStream_t stream);

/// From the row or the column copy, whose data are both [rows, cols]. BF16 targets round the fp32 product once.
void dequantize_mxfp8(CopyDirection direction, const ConstQuantizedCopy& copy, const TargetMatrix& target,
                      cudaStream_t stream);

/// What nvfp4_amax() keeps between its blocks. Zero before the first use, and zero again after every call. Calls that
/// may run at the same time need one each.
struct AmaxWorkspace {
  std::uint32_t largest = 0;
  std::uint32_t blocks_done = 0;
};

/// *amax = the largest magnitude of `count` values, as nvfp4_amax() of kernels/format: a NaN does not count. The result
/// does not depend on the order of execution. Any count, 0 included (amax 0).
void nvfp4_amax(const void* values, ElementType type, std::int64_t count, float* amax, AmaxWorkspace* workspace,
                cudaStream_t stream);

/// Row copy with one scale per 16 x 16 tile. `amax` is that of the whole tensor and not negative; the kernel reads it.
/// rows and cols are multiples of 16.
void quantize_nvfp4(const SourceMatrix& source, const float* amax, const QuantizedCopy& row, cudaStream_t stream);

void dequantize_nvfp4(const ConstQuantizedCopy& row, const float* amax, const TargetMatrix& target,
                      cudaStream_t stream);

/// The column copy ([cols, rows / 2], scales as nvfp4_col_scales(rows, cols)) from the row copy of a [rows, cols]
/// matrix with tile scales. Lossless.
void transpose_nvfp4(std::int64_t rows, std::int64_t cols, const ConstQuantizedCopy& row, const QuantizedCopy& col,
                     cudaStream_t stream);

/// Compact scales to tiles, and back. Padding bytes of the result are zero whatever those of the source are.
void swizzle_scales(const ScaleGrid& grid, const std::uint8_t* compact, std::uint8_t* swizzled, cudaStream_t stream);
void unswizzle_scales(const ScaleGrid& grid, const std::uint8_t* swizzled, std::uint8_t* compact, cudaStream_t stream);

}  // namespace gtp::cuda
