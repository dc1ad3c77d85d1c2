#include "kernels/cuda/device_checks.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string_view>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/nccl_api.hpp"
#include "kernels/cuda/store_wait.hpp"

namespace gtp::cuda {

namespace {

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name[0] != '\0' ? name.data() : "localhost";
}

std::string hex(const cudaUUID_t& uuid) {
  std::string text;
  for (const char byte : uuid.bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

}  // namespace

void require_device(int device) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) cudaGetLastError();
  if (error == cudaSuccess && device >= 0 && device < count) return;
  throw RuntimeError(RuntimeStatus::kInvalidPlan,
                     fmt::format("there is no CUDA device {}: this host shows {}{}", device, count,
                                 error == cudaSuccess ? "" : fmt::format(" ({})", cudaGetErrorString(error))));
}

std::string RankDevice::encode() const {
  return fmt::format("{} {} {} {} {}", host, uuid, pci_bus_id, nccl_version, may_share ? 1 : 0);
}

RankDevice RankDevice::decode(const std::string& text) {
  RankDevice device;
  std::istringstream in(text);
  in >> device.host >> device.uuid >> device.pci_bus_id >> device.nccl_version >> device.may_share;
  return device;
}

RankDevice rank_device(int device) {
  cudaDeviceProp properties{};
  cuda_check(cudaGetDeviceProperties(&properties, device), "asking for the device's properties");
  std::array<char, 64> bus{};
  cuda_check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device), "asking for the PCI bus id");
  const char* shared = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return {host_name(), hex(properties.uuid), bus.data(), nccl_version(), shared != nullptr && *shared == '1'};
}

std::string problem_of(const std::vector<RankDevice>& devices) {
  std::map<std::string, std::vector<std::size_t>> users;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const RankDevice& one = devices[rank];
    users[fmt::format("{} {}", one.host, one.uuid)].push_back(rank);
    if (one.nccl_version == devices[0].nccl_version) continue;
    return fmt::format("rank 0 has NCCL {} and rank {} has NCCL {}: all ranks need the same",
                       nccl_version_text(devices[0].nccl_version), rank, nccl_version_text(one.nccl_version));
  }
  for (const auto& [gpu, ranks] : users) {
    if (ranks.size() == 1) continue;
    const RankDevice& one = devices[ranks[0]];
    bool allowed = one.nccl_version >= kMultiRankNcclVersion;
    for (const std::size_t rank : ranks) allowed = allowed && devices[rank].may_share;
    if (allowed) continue;
    return fmt::format(
        "ranks {} are all on GPU {} of host {}, which this NCCL ({}) refuses: give each rank its own GPU (LOCAL_RANK "
        "selects it), or use NCCL 2.30 or later with NCCL_MULTI_RANK_GPU_ENABLE=1",
        fmt::join(ranks, ","), one.pci_bus_id, one.host, nccl_version_text(one.nccl_version));
  }
  return "";
}

void require_distinct_devices(TcpStore& store, std::int64_t rank, std::int64_t world_size, int device,
                              std::chrono::milliseconds limit, const FailureCell& failure) {
  store.set(fmt::format("device/{}", rank), rank_device(device).encode());
  if (rank == 0) {
    std::vector<RankDevice> devices;
    for (std::int64_t peer = 0; peer < world_size; ++peer) {
      devices.push_back(RankDevice::decode(get_unless_failed(store, fmt::format("device/{}", peer), limit, failure)));
    }
    store.set("device/verdict", problem_of(devices));
  }
  const std::string problem = get_unless_failed(store, "device/verdict", limit, failure);
  if (!problem.empty()) throw RuntimeError(RuntimeStatus::kInvalidPlan, problem);
}

}  // namespace gtp::cuda
