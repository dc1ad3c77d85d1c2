#include "kernels/cuda/nccl_creation.hpp"

#include <fmt/format.h>

#include "kernels/cuda/bounded.hpp"
#include "kernels/cuda/nccl_api.hpp"

namespace gtp::cuda {

namespace {

constexpr std::size_t kProbeBytes = 256;

ncclConfig_t config_for(const CommunicatorSpec& spec) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  config.commName = spec.group.c_str();
  return config;
}

ncclComm_t split(NcclState& state, const NcclCommunicator& parent, const CommunicatorSpec& spec) {
  const NcclCall call(state, false);
  ncclConfig_t config = config_for(spec);
  ncclComm_t made = nullptr;
  nccl_check(ncclCommSplit(parent.handle, 0, static_cast<int>(spec.position), &made, &config), "ncclCommSplit",
             parent.handle);
  return made;
}

ncclComm_t init(const CommunicatorSpec& spec, const ncclUniqueId& id) {
  ncclConfig_t config = config_for(spec);
  ncclComm_t made = nullptr;
  nccl_check(
      ncclCommInitRankConfig(&made, static_cast<int>(spec.ranks.size()), id, static_cast<int>(spec.position), &config),
      "ncclCommInitRankConfig");
  return made;
}

/// Waits as long as it takes: the thread may be left behind.
void connect(ncclComm_t communicator, CommunicatorPurpose purpose, std::size_t ranks) {
  const UniqueStream stream = make_stream();
  const DeviceMemory whole(kProbeBytes * ranks);
  const DeviceMemory part(kProbeBytes);
  cuda_check(cudaMemsetAsync(whole.get(), 0, kProbeBytes * ranks, stream.get()), "cudaMemsetAsync");
  cuda_check(cudaMemsetAsync(part.get(), 0, kProbeBytes, stream.get()), "cudaMemsetAsync");
  const ncclResult_t result =
      purpose == CommunicatorPurpose::kGather
          ? ncclAllGather(part.get(), whole.get(), kProbeBytes, ncclUint8, communicator, stream.get())
          : ncclReduceScatter(whole.get(), part.get(), kProbeBytes / sizeof(float), ncclFloat32, ncclSum, communicator,
                              stream.get());
  nccl_check(result, "the first collective", communicator);
  cuda_check(cudaStreamSynchronize(stream.get()), "the first collective");
}

}  // namespace

void create(NcclCreation& creation) {
  NcclState& state = *creation.state;
  cuda_check(cudaSetDevice(state.device), "selecting the device");
  if (creation.parent != nullptr) {
    creation.made->handle = split(state, *creation.parent, creation.spec);
  } else {
    creation.made->handle = init(creation.spec, creation.exchange->share(creation.spec, creation.key));
  }
  connect(creation.made->handle, creation.spec.purpose, creation.spec.ranks.size());
}

}  // namespace gtp::cuda
