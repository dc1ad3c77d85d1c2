#include "kernels/cuda/nvfp4_transpose.cuh"

namespace gtp::cuda {

void transpose_nvfp4(std::int64_t rows, std::int64_t cols, const ConstQuantizedCopy& row, const QuantizedCopy& col,
                     cudaStream_t stream) {
  const KernelCall call{"transpose_nvfp4", rows, cols};
  if (is_empty_matrix(call, kNvfp4BlockSize)) return;
  require_copy(call, row);
  require_copy(call, col);
  const Nvfp4TransposeArguments arguments = nvfp4_transpose_arguments(rows, cols, row, col);
  const bool aligned = is_aligned(row.data, 8) && is_aligned(col.data, 8) && is_aligned(col.scales, 4);
  if (aligned) {
    launch_nvfp4_transpose<256, 4, 16, 2, true>(call, arguments, stream);
  } else {
    launch_nvfp4_transpose<256, 1, 16, 2, false>(call, arguments, stream);
  }
}

}  // namespace gtp::cuda
