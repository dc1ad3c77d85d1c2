#include "kernels/cuda/nccl_api.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

namespace gtp::cuda {

namespace {

template <class Function>
void find(Function& function, const char* name) noexcept {
  function = reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
}

NcclExtras find_extras() noexcept {
  NcclExtras extras;
  find(extras.all_to_all, "ncclAlltoAll");
  find(extras.window_register, "ncclCommWindowRegister");
  find(extras.window_deregister, "ncclCommWindowDeregister");
  find(extras.revoke, "ncclCommRevoke");
  return extras;
}

}  // namespace

std::string nccl_version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

int nccl_version() {
  int version = 0;
  nccl_check(ncclGetVersion(&version), "ncclGetVersion");
  if (version < kLeastNcclVersion) {
    throw RuntimeError(RuntimeStatus::kInvalidPlan,
                       fmt::format("the NCCL that is loaded is {}: {} or later is needed", nccl_version_text(version),
                                   nccl_version_text(kLeastNcclVersion)));
  }
  return version;
}

const NcclExtras& nccl_extras() {
  static const NcclExtras extras = find_extras();
  return extras;
}

void raise(ncclResult_t result, std::string_view context, ncclComm_t communicator, CallSite where) {
  const char* detail = ncclGetLastError(communicator);
  throw RuntimeError(
      RuntimeStatus::kCollectiveFailed,
      fmt::format("{}: {} ({}) at {}:{}", context, ncclGetErrorString(result),
                  detail != nullptr && *detail != '\0' ? detail : "NCCL says no more: set NCCL_DEBUG=WARN", where.file,
                  where.line));
}

ncclDataType_t nccl_type(ElementType type) noexcept {
  switch (type) {
    case ElementType::kByte:
      return ncclUint8;
    case ElementType::kBFloat16:
      return ncclBfloat16;
    case ElementType::kFloat32:
      return ncclFloat32;
  }
  return ncclUint8;
}

void prepare_nccl_environment() { ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0); }

}  // namespace gtp::cuda
