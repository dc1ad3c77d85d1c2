#include "kernels/cuda/check.hpp"

#include <fmt/format.h>

namespace gtp::cuda {

RuntimeStatus status_of(cudaError_t error) noexcept {
  if (error == cudaErrorMemoryAllocation) return RuntimeStatus::kOutOfMemory;
  if (error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorStreamCaptureWrongThread) {
    return RuntimeStatus::kCaptureFailed;
  }
  return RuntimeStatus::kCollectiveFailed;
}

bool is_sticky(cudaError_t error) noexcept {
  return error == cudaErrorIllegalAddress || error == cudaErrorLaunchFailure || error == cudaErrorLaunchTimeout ||
         error == cudaErrorHardwareStackError || error == cudaErrorIllegalInstruction ||
         error == cudaErrorMisalignedAddress || error == cudaErrorInvalidAddressSpace || error == cudaErrorInvalidPc ||
         error == cudaErrorAssert || error == cudaErrorECCUncorrectable || error == cudaErrorNvlinkUncorrectable ||
         error == cudaErrorContextIsDestroyed || error == cudaErrorUnknown;
}

void raise(cudaError_t error, std::string_view context, CallSite where) {
  cudaGetLastError();
  throw RuntimeError(status_of(error), fmt::format("{}: {} ({}) at {}:{}", context, cudaGetErrorName(error),
                                                   cudaGetErrorString(error), where.file, where.line));
}

}  // namespace gtp::cuda
