#include "kernels/cuda/nvfp4_dequantize.cuh"

namespace gtp::cuda {

namespace {

template <class Value, class Tile, int kBlocksPerSm>
void pick_alignment(const KernelCall& call, const Nvfp4DequantizeArguments& arguments, cudaStream_t stream) {
  const bool aligned =
      is_aligned(arguments.target, 16) && is_aligned(arguments.row.data, 4) && is_aligned(arguments.row.scales, 4);
  if (aligned) {
    launch_nvfp4_dequantize<Nvfp4Dequantizer<Value, Tile, true>, kBlocksPerSm>(call, arguments, stream);
  } else {
    launch_nvfp4_dequantize<Nvfp4Dequantizer<Value, Tile, false>, 1>(call, arguments, stream);
  }
}

}  // namespace

void dequantize_nvfp4(const ConstQuantizedCopy& row, const float* amax, const TargetMatrix& target,
                      cudaStream_t stream) {
  const KernelCall call{"dequantize_nvfp4", target.rows, target.cols};
  if (is_empty_matrix(call, kNvfp4BlockSize)) return;
  require_values(call, target.values, target.type);
  require_copy(call, row);
  if (amax == nullptr || !is_aligned(amax, alignof(float))) refuse(call, "there is no amax");
  const Nvfp4DequantizeArguments arguments = nvfp4_dequantize_arguments(row, amax, target);
  if (target.type == ElementType::kBFloat16) {
    pick_alignment<__nv_bfloat16, WarpTile<8, 8>, 4>(call, arguments, stream);
  } else {
    pick_alignment<float, WarpTile<4, 16>, 3>(call, arguments, stream);
  }
}

}  // namespace gtp::cuda
