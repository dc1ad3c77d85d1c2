// The job that a program started by launch.sh belongs to. Ranks share GPUs if there are more of them than GPUs.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include "kernels/cuda/nccl_api.hpp"
#include "kernels/cuda/nccl_world.hpp"

namespace gtp::test {

inline NcclOptions job_options(const JobEnvironment& job) {
  NcclOptions options;
  int devices = 1;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) devices = 1;
  options.device = static_cast<int>(job.local_rank) % devices;
  return options;
}

/// What a program with a launcher of its own would do: an id of NCCL's that all ranks of this host read from a file.
inline ncclUniqueId share_id(const JobEnvironment& job, const std::string& name) {
  const std::string path = "/tmp/gtp_" + std::to_string(job.master_port) + "_" + name + ".id";
  ncclUniqueId id{};
  if (job.rank == 0) {
    cuda::nccl_check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    std::ofstream(path + ".new", std::ios::binary).write(id.internal, sizeof id.internal);
    std::rename((path + ".new").c_str(), path.c_str());
  } else {
    while (!std::ifstream(path)) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::ifstream(path, std::ios::binary).read(id.internal, sizeof id.internal);
  }
  return id;
}

/// Collective over the job; the caller destroys it.
inline ncclComm_t raw_communicator(const JobEnvironment& job, const std::string& name) {
  ncclComm_t made = nullptr;
  const ncclUniqueId id = share_id(job, name);
  cuda::nccl_check(ncclCommInitRank(&made, static_cast<int>(job.world_size), id, static_cast<int>(job.rank)),
                   "ncclCommInitRank");
  return made;
}

}  // namespace gtp::test
