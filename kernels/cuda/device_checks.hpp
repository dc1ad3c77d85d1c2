// What must be right about GPUs before NCCL is asked to use them: it would answer with a hang or a riddle.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/failure_cell.hpp"
#include "kernels/tcp_store.hpp"

namespace gtp::cuda {

/// Throws kInvalidPlan if the host has no such device.
void require_device(int device);

/// One rank's GPU and NCCL, as ranks show them to each other.
struct RankDevice {
  std::string host;
  std::string uuid;  ///< Of the GPU, or of the part of it (MIG) that is used.
  std::string pci_bus_id;
  int nccl_version = 0;
  bool may_share = false;  ///< NCCL_MULTI_RANK_GPU_ENABLE=1.

  std::string encode() const;
  static RankDevice decode(const std::string& text);
};
RankDevice rank_device(int device);

/// What is wrong with the devices of ranks 0, 1, ...; "" if nothing.
std::string problem_of(const std::vector<RankDevice>& devices);

/// Collective over the job: rank 0 compares all, everybody throws kInvalidPlan with its verdict. `limit`: of each wait.
void require_distinct_devices(TcpStore& store, std::int64_t rank, std::int64_t world_size, int device,
                              std::chrono::milliseconds limit, const FailureCell& failure);

}  // namespace gtp::cuda
