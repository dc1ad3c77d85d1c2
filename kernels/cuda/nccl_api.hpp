// NCCL as this library uses it: errors, the version that is loaded, and the functions that not every version has. Built
// against 2.27 or later headers, runs with any NCCL from 2.19 on.
#pragma once

#include <nccl.h>

#include <string>
#include <string_view>

#include "kernels/backend.hpp"
#include "kernels/cuda/check.hpp"

namespace gtp::cuda {

inline constexpr int kLeastNcclVersion = 21900;
/// From here on two ranks may share a GPU, with NCCL_MULTI_RANK_GPU_ENABLE=1.
inline constexpr int kMultiRankNcclVersion = 23000;

/// Of the loaded library: 22809 is 2.28.9. Throws kInvalidPlan if it is older than kLeastNcclVersion.
int nccl_version();
/// "2.28.9"
std::string nccl_version_text(int version);

/// Null where the loaded library has none.
struct NcclExtras {
  ncclResult_t (*all_to_all)(const void*, void*, std::size_t, ncclDataType_t, ncclComm_t,
                             cudaStream_t) = nullptr;               ///< 2.28
  decltype(&ncclCommWindowRegister) window_register = nullptr;      ///< 2.27
  decltype(&ncclCommWindowDeregister) window_deregister = nullptr;  ///< 2.27
  ncclResult_t (*revoke)(ncclComm_t, int flags) = nullptr;          ///< 2.29, which may be newer than the header.
};
const NcclExtras& nccl_extras();

[[noreturn]] void raise(ncclResult_t result, std::string_view context, ncclComm_t communicator, CallSite where);

/// Throws kCollectiveFailed unless the call succeeded or, with a communicator that does not block, is under way.
inline void nccl_check(ncclResult_t result, std::string_view context, ncclComm_t communicator = nullptr,
                       CallSite where = CallSite::here()) {
  if (result != ncclSuccess && result != ncclInProgress) [[unlikely]] {
    raise(result, context, communicator, where);
  }
}

ncclDataType_t nccl_type(ElementType type) noexcept;

/// Before NCCL is first used in this process: collectives of several communicators on one device must start in one
/// order on all ranks, and NCCL sees to it with NCCL_LAUNCH_ORDER_IMPLICIT=1 (2.26). Sets it where the environment does
/// not say anything. Changes the environment, so call it before other threads read that.
void prepare_nccl_environment();

}  // namespace gtp::cuda
