#include "kernels/cuda/mxfp8_quantize.cuh"

namespace gtp::cuda {

namespace {

template <class Value, int kBlocksPerSm, bool kAligned>
void pick_copies(const KernelCall& call, const Mxfp8QuantizeArguments& arguments, cudaStream_t stream) {
  using Tile = WarpTile<8, 8>;
  if (arguments.col.data == nullptr) {
    launch_mxfp8_quantize<Mxfp8Quantizer<Value, Tile, true, false, kAligned>, kBlocksPerSm>(call, arguments, stream);
  } else if (arguments.row.data == nullptr) {
    launch_mxfp8_quantize<Mxfp8Quantizer<Value, Tile, false, true, kAligned>, kBlocksPerSm>(call, arguments, stream);
  } else {
    launch_mxfp8_quantize<Mxfp8Quantizer<Value, Tile, true, true, kAligned>, kBlocksPerSm>(call, arguments, stream);
  }
}

template <class Value, int kBlocksPerSm>
void pick_alignment(const KernelCall& call, const Mxfp8QuantizeArguments& arguments, cudaStream_t stream) {
  const bool aligned = is_aligned(arguments.source, 16) && is_aligned(arguments.row.data, 8) &&
                       is_aligned(arguments.col.data, 8) && is_aligned(arguments.row.scales, 4) &&
                       is_aligned(arguments.col.scales, 4);
  if (aligned) {
    pick_copies<Value, kBlocksPerSm, true>(call, arguments, stream);
  } else {
    pick_copies<Value, 1, false>(call, arguments, stream);
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
    pick_alignment<__nv_bfloat16, 4>(call, arguments, stream);
  } else {
    pick_alignment<float, 2>(call, arguments, stream);
  }
}

}  // namespace gtp::cuda
