// Launching a kernel so that a refusal says which kernel on which shape, and the checks all entry points share.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/cuda/format_kernels.hpp"
#include "kernels/error.hpp"

namespace gtp::cuda {

/// What an error names.
struct KernelCall {
  std::string_view name;
  std::int64_t rows = 0;
  std::int64_t cols = 0;

  std::string text(std::string_view problem) const {
    return std::string(name) + " of [" + std::to_string(rows) + ", " + std::to_string(cols) +
           "]: " + std::string(problem);
  }
};

[[noreturn]] inline void refuse(const KernelCall& call, std::string_view problem) {
  throw RuntimeError(RuntimeStatus::kInvalidUse, call.text(problem));
}

inline void check(const KernelCall& call, cudaError_t status) {
  if (status == cudaSuccess) return;
  throw RuntimeError(RuntimeStatus::kCollectiveFailed, call.text(cudaGetErrorString(status)));
}

inline bool is_aligned(const void* address, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

inline void require_values(const KernelCall& call, const void* values, ElementType type) {
  if (type == ElementType::kByte) refuse(call, "values must be BF16 or FP32");
  if (values == nullptr) refuse(call, "the values are a null pointer");
  if (!is_aligned(values, element_bytes(type))) refuse(call, "the values are not aligned to their type");
}

/// True if there is nothing to do. A matrix of at most 2^31 - 1 tiles of 128 x 128 fits every index the kernels use.
inline bool is_empty_matrix(const KernelCall& call, std::int64_t unit) {
  if (call.rows < 0 || call.cols < 0) refuse(call, "a size is negative");
  if (call.rows == 0 || call.cols == 0) return true;
  if (call.rows % unit != 0 || call.cols % unit != 0) {
    refuse(call, "both sizes must be multiples of " + std::to_string(unit));
  }
  const std::optional<std::int64_t> tiles =
      checked_multiply(detail::blocks_of(call.rows, 128), detail::blocks_of(call.cols, 128));
  if (!tiles || *tiles > std::numeric_limits<std::int32_t>::max()) refuse(call, "the matrix is too large");
  return false;
}

template <class Copy>
void require_copy(const KernelCall& call, const Copy& copy) {
  if (copy.data == nullptr || copy.scales == nullptr) refuse(call, "a copy has a null pointer");
}

/// Whether every device this is compiled for can start a kernel while its predecessor ends.
#if defined(__CUDA_ARCH_LIST__)
inline constexpr bool kCanOverlap = std::ranges::min({__CUDA_ARCH_LIST__}) >= 900;
#else
inline constexpr bool kCanOverlap = false;
#endif

/// The first statement of a kernel that launch_overlapped() launches: before it, nothing an earlier kernel wrote is
/// there to read, and nothing it may still read is there to overwrite.
__device__ inline void wait_for_predecessor() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Blocks of an overlapped successor may take the places that become free from now on; they wait there for the end of
/// this kernel all the same.
__device__ inline void let_successor_in() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

inline cudaLaunchConfig_t launch_config(const KernelCall& call, std::int64_t blocks, int threads, cudaStream_t stream) {
  if (blocks > std::numeric_limits<std::int32_t>::max()) refuse(call, "the matrix is too large");
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  return config;
}

/// Does not consume an error that an earlier call left behind.
template <class... Parameters, class... Arguments>
void launch(const KernelCall& call, void (*kernel)(Parameters...), std::int64_t blocks, int threads,
            cudaStream_t stream, const Arguments&... arguments) {
  const cudaLaunchConfig_t config = launch_config(call, blocks, threads, stream);
  check(call, cudaLaunchKernelEx(&config, kernel, arguments...));
}

/// launch() of a kernel that begins with wait_for_predecessor(): its blocks take their places once those of the kernel
/// before it on the stream have ended, before that kernel counts as complete; in a captured graph as well. Few kernels
/// let their successor in any earlier: it gets places where blocks happen to have ended, a multiprocessor with few
/// blocks left twice as many as another, which costs most small grids more than it saves.
template <class... Parameters, class... Arguments>
void launch_overlapped(const KernelCall& call, void (*kernel)(Parameters...), std::int64_t blocks, int threads,
                       cudaStream_t stream, const Arguments&... arguments) {
  cudaLaunchConfig_t config = launch_config(call, blocks, threads, stream);
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &overlap;
  config.numAttrs = kCanOverlap ? 1 : 0;
  check(call, cudaLaunchKernelEx(&config, kernel, arguments...));
}

}  // namespace gtp::cuda
