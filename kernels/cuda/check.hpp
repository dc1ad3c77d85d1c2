// Driver errors as RuntimeErrors. Nothing here waits for the device.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "kernels/error.hpp"

namespace gtp::cuda {

/// Where a check stands. std::source_location is not in Clang 14.
struct CallSite {
  const char* file;
  int line;
  static CallSite here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) noexcept {
    return {file, line};
  }
};

/// What a RuntimeError of this driver error says: kOutOfMemory, kCaptureFailed for whatever concerns a stream capture,
/// kCollectiveFailed for the rest.
RuntimeStatus status_of(cudaError_t error) noexcept;
/// No later call on this device can succeed.
bool is_sticky(cudaError_t error) noexcept;

[[noreturn]] void raise(cudaError_t error, std::string_view context, CallSite where);

/// Throws unless `error` is cudaSuccess, and takes the error back from cudaGetLastError. `context`: what was tried.
inline void cuda_check(cudaError_t error, std::string_view context, CallSite where = CallSite::here()) {
  if (error != cudaSuccess) [[unlikely]] {
    raise(error, context, where);
  }
}

}  // namespace gtp::cuda
