#include "examples/train/cuda/cuda_arithmetic.hpp"

namespace gtp::train {

/// On a stream of its own: the null stream would wait for other ranks on this device.
CudaArithmetic::CudaArithmetic() {
  cuda::cuda_check(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), "creating a stream");
  const auto workspace = amax_workspace_.get<cuda::AmaxWorkspace>(1);
  cuda::cuda_check(cudaMemsetAsync(workspace.data(), 0, workspace.size_bytes(), copies_), "clearing a workspace");
  cuda::cuda_check(cudaStreamSynchronize(copies_), "clearing a workspace");
}

CudaArithmetic::~CudaArithmetic() { cudaStreamDestroy(copies_); }

void CudaArithmetic::read_back(void* to, const void* from, std::size_t bytes) {
  cuda::cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, copies_), "reading back");
  cuda::cuda_check(cudaStreamSynchronize(copies_), "reading back");
}

}  // namespace gtp::train
