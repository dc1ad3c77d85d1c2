#include "kernels/cuda/mxfp8_quantize.cuh"

namespace gtp::cuda {

namespace {

/// Both copies need more registers than one, so they may want another tile.
template <class Value, class OneTile, int kBlocksOfOne, class BothTile, int kBlocksOfBoth, bool kAligned>
void pick_copies(const KernelCall& call, const Mxfp8QuantizeArguments& arguments, cudaStream_t stream) {
  if (arguments.col.data == nullptr) {
    using Rows = Mxfp8Quantizer<Value, OneTile, true, false, kAligned>;
    launch_mxfp8_quantize<Rows, kBlocksOfOne>(call, arguments, stream);
  } else if (arguments.row.data == nullptr) {
    using Cols = Mxfp8Quantizer<Value, OneTile, false, true, kAligned>;
    launch_mxfp8_quantize<Cols, kBlocksOfOne>(call, arguments, stream);
  } else {
    using Both = Mxfp8Quantizer<Value, BothTile, true, true, kAligned>;
    launch_mxfp8_quantize<Both, kBlocksOfBoth>(call, arguments, stream);
  }
}

template <class Value, class OneTile, int kBlocksOfOne, class BothTile, int kBlocksOfBoth>
void pick_alignment(const KernelCall& call, const Mxfp8QuantizeArguments& arguments, cudaStream_t stream) {
  const bool aligned = is_aligned(arguments.source, 16) && is_aligned(arguments.row.data, 8) &&
                       is_aligned(arguments.col.data, 8) && is_aligned(arguments.row.scales, 4) &&
                       is_aligned(arguments.col.scales, 4);
  if (aligned) {
    pick_copies<Value, OneTile, kBlocksOfOne, BothTile, kBlocksOfBoth, true>(call, arguments, stream);
  } else {
    pick_copies<Value, OneTile, 1, OneTile, 1, false>(call, arguments, stream);
  }
}

}  // namespace

void quantize_mxfp8(const SourceMatrix& source, const QuantizedCopy& row, const QuantizedCopy& col,
                    cudaStream_t stream) {
  const KernelCall call{"quantize_mxfp8", source.rows, source.cols};
  if (is_empty_matrix(call, kMxfp8BlockSize)) return;
  require_values(call, source.values, source.type);
  if (row.data == nullptr && col.data == nullptr) return;
  if (row.data != nullptr) require_copy(call, row);
  if (col.data != nullptr) require_copy(call, col);
  const Mxfp8QuantizeArguments arguments = mxfp8_quantize_arguments(source, row, col);
  if (source.type == ElementType::kBFloat16) {
    pick_alignment<__nv_bfloat16, WarpTile<8, 8>, 4, WarpTile<8, 16>, 4>(call, arguments, stream);
  } else {
    pick_alignment<float, WarpTile<8, 8>, 2, WarpTile<8, 8>, 2>(call, arguments, stream);
  }
}

}  // namespace gtp::cuda
