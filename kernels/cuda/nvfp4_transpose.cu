#include "kernels/cuda/nvfp4_transpose.cuh"

namespace gtp::cuda {

namespace {

/// Codes from which on tiles of 512 rows pay: those have 32 bytes of compact scales, all that memory moves at once.
constexpr std::int64_t kLargeMatrix = std::int64_t{1} << 26;

}  // namespace

void transpose_nvfp4(std::int64_t rows, std::int64_t cols, const ConstQuantizedCopy& row, const QuantizedCopy& col,
                     cudaStream_t stream) {
  const KernelCall call{"transpose_nvfp4", rows, cols};
  if (is_empty_matrix(call, kNvfp4BlockSize)) return;
  require_copy(call, row);
  require_copy(call, col);
  const std::size_t scale_alignment = col.order == ScaleOrder::kCompact ? 4 : 16;
  if (!is_aligned(row.data, 8) || !is_aligned(col.data, 8) || !is_aligned(col.scales, scale_alignment)) {
    launch_nvfp4_transpose<Nvfp4Transposer<256, 256, false>, 1>(call, rows, cols, row, col, stream);
  } else if (col.order == ScaleOrder::kCompact && rows > kLargeMatrix / cols) {
    launch_nvfp4_transpose<Nvfp4Transposer<512, 128, true>, 4>(call, rows, cols, row, col, stream);
  } else {
    launch_nvfp4_transpose<Nvfp4Transposer<256, 256, true>, 4>(call, rows, cols, row, col, stream);
  }
}

}  // namespace gtp::cuda
