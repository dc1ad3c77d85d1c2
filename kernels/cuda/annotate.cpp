#include "kernels/cuda/annotate.hpp"

#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace gtp::cuda {

namespace {

constexpr std::size_t kMaxName = 160;

nvtxDomainHandle_t domain() noexcept {
  static const nvtxDomainHandle_t made = nvtxDomainCreateA("gtp");
  return made;
}

}  // namespace

/// Texts of labels do not end in a zero, and this must not allocate.
ProfilerRange::ProfilerRange(std::string_view operation, OpLabel label) noexcept {
  std::array<char, kMaxName> name{};
  std::size_t used = 0;
  for (const std::string_view part : {operation, std::string_view(" "), label.weight}) {
    const std::size_t count = std::min(part.size(), name.size() - 1 - used);
    if (count > 0) std::memcpy(name.data() + used, part.data(), count);
    used += count;
  }
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name.data();
  nvtxDomainRangePushEx(domain(), &attributes);
}

ProfilerRange::~ProfilerRange() { nvtxDomainRangePop(domain()); }

}  // namespace gtp::cuda
