// Names for profilers (NVTX): ranges around the backend's calls and names of its streams. Costs nothing that a profiler
// does not ask for; the caller decides whether to annotate at all.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "kernels/backend.hpp"

namespace gtp::cuda {

/// A range `operation weight` of the calling thread, from construction to destruction.
class ProfilerRange {
 public:
  ProfilerRange(std::string_view operation, OpLabel label) noexcept;
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace gtp::cuda
