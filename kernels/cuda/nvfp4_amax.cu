#include "kernels/cuda/nvfp4_amax.cuh"

namespace gtp::cuda {

namespace {

constexpr int kThreads = 512;
constexpr int kUnroll = 8;
constexpr int kBlocksPerSm = 2;

template <class Value>
void pick_alignment(const KernelCall& call, const void* values, std::int64_t count, AmaxWorkspace* workspace,
                    float* amax, cudaStream_t stream) {
  if (is_aligned(values, 16)) {
    launch_nvfp4_amax<Value, kThreads, kUnroll, kBlocksPerSm, true>(call, values, count, workspace, amax, stream);
  } else {
    launch_nvfp4_amax<Value, kThreads, kUnroll, kBlocksPerSm, false>(call, values, count, workspace, amax, stream);
  }
}

}  // namespace

void nvfp4_amax(const void* values, ElementType type, std::int64_t count, float* amax, AmaxWorkspace* workspace,
                cudaStream_t stream) {
  const KernelCall call{"nvfp4_amax", 1, count};
  if (count < 0) refuse(call, "the count is negative");
  if (amax == nullptr || !is_aligned(amax, alignof(float))) refuse(call, "no place for the amax");
  if (workspace == nullptr || !is_aligned(workspace, alignof(AmaxWorkspace))) refuse(call, "no workspace");
  if (count == 0) {
    check(call, cudaMemsetAsync(amax, 0, sizeof *amax, stream));
    return;
  }
  require_values(call, values, type);
  if (type == ElementType::kBFloat16) {
    pick_alignment<__nv_bfloat16>(call, values, count, workspace, amax, stream);
  } else {
    pick_alignment<float>(call, values, count, workspace, amax, stream);
  }
}

}  // namespace gtp::cuda
