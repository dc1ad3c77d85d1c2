#include "kernels/cuda/mxfp8_dequantize.cuh"

namespace gtp::cuda {

namespace {

/// Columns want another tile than rows, as they hold a factor for each.
template <class Value, class RowTile, int kRowBlocks, class ColTile, int kColBlocks, bool kAligned>
void pick_direction(const KernelCall& call, CopyDirection direction, const Mxfp8DequantizeArguments& arguments,
                    cudaStream_t stream) {
  if (direction == CopyDirection::kRow) {
    using Rows = Mxfp8Dequantizer<Value, RowTile, CopyDirection::kRow, kAligned>;
    launch_mxfp8_dequantize<Rows, kRowBlocks>(call, arguments, stream);
  } else {
    using Cols = Mxfp8Dequantizer<Value, ColTile, CopyDirection::kCol, kAligned>;
    launch_mxfp8_dequantize<Cols, kColBlocks>(call, arguments, stream);
  }
}

template <class Value, class RowTile, int kRowBlocks, class ColTile, int kColBlocks>
void pick_alignment(const KernelCall& call, CopyDirection direction, const Mxfp8DequantizeArguments& arguments,
                    cudaStream_t stream) {
  const bool aligned =
      is_aligned(arguments.target, 16) && is_aligned(arguments.copy.data, 8) && is_aligned(arguments.copy.scales, 8);
  if (aligned) {
    pick_direction<Value, RowTile, kRowBlocks, ColTile, kColBlocks, true>(call, direction, arguments, stream);
  } else {
    pick_direction<Value, ColTile, 1, ColTile, 1, false>(call, direction, arguments, stream);
  }
}

}  // namespace

void dequantize_mxfp8(CopyDirection direction, const ConstQuantizedCopy& copy, const TargetMatrix& target,
                      cudaStream_t stream) {
  const KernelCall call{direction == CopyDirection::kRow ? "dequantize_mxfp8 (rows)" : "dequantize_mxfp8 (columns)",
                        target.rows, target.cols};
  if (is_empty_matrix(call, kMxfp8BlockSize)) return;
  require_values(call, target.values, target.type);
  require_copy(call, copy);
  const Mxfp8DequantizeArguments arguments = mxfp8_dequantize_arguments(direction, copy, target);
  if (target.type == ElementType::kBFloat16) {
    pick_alignment<__nv_bfloat16, WarpTile<8, 16>, 8, WarpTile<8, 8>, 3>(call, direction, arguments, stream);
  } else {
    pick_alignment<float, WarpTile<4, 32>, 6, WarpTile<4, 16>, 3>(call, direction, arguments, stream);
  }
}

}  // namespace gtp::cuda
