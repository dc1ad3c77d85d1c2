#include "kernels/cuda/nvfp4_quantize.cuh"

namespace gtp::cuda {

namespace {

/// Values above which there are so many tiles that their number per multiprocessor is what counts; below, the time from
/// the last load to the last store does, so that they are small.
constexpr std::int64_t kLargeMatrix = std::int64_t{1} << 24;

template <class Value, class Tile, int kBlocksPerSm, bool kEarly = false>
void pick_alignment(const KernelCall& call, const Nvfp4QuantizeArguments& arguments, cudaStream_t stream) {
  const bool aligned =
      is_aligned(arguments.source, 16) && is_aligned(arguments.row.data, 4) && is_aligned(arguments.row.scales, 4);
  if (aligned) {
    launch_nvfp4_quantize<Nvfp4Quantizer<Value, Tile, true, kEarly>, kBlocksPerSm>(call, arguments, stream);
  } else {
    launch_nvfp4_quantize<Nvfp4Quantizer<Value, Tile, false>, 1>(call, arguments, stream);
  }
}

}  // namespace

void quantize_nvfp4(const SourceMatrix& source, const float* amax, const QuantizedCopy& row, cudaStream_t stream) {
  const KernelCall call{"quantize_nvfp4", source.rows, source.cols};
  if (is_empty_matrix(call, kNvfp4BlockSize)) return;
  require_values(call, source.values, source.type);
  require_copy(call, row);
  if (amax == nullptr || !is_aligned(amax, alignof(float))) refuse(call, "there is no amax");
  const Nvfp4QuantizeArguments arguments = nvfp4_quantize_arguments(source, amax, row);
  using SmallTile = WarpTile<8, 8, 16, 32>;
  using LargeTile = WarpTile<8, 16, 16, 64>;
  if (source.type != ElementType::kBFloat16) {
    pick_alignment<float, SmallTile, 10>(call, arguments, stream);
  } else if (source.rows > kLargeMatrix / source.cols) {
    pick_alignment<__nv_bfloat16, LargeTile, 8>(call, arguments, stream);
  } else {
    pick_alignment<__nv_bfloat16, SmallTile, 10, true>(call, arguments, stream);
  }
}

}  // namespace gtp::cuda
