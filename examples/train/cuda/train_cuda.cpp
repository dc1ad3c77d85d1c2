// train_cuda PLAN.json [options] [--loopback]: as train, on GPUs. Under torchrun it is one rank of the job, over NCCL;
// ranks take the devices by local rank, in turn where they are more (NCCL 2.30 with NCCL_MULTI_RANK_GPU_ENABLE=1). With
// --loopback every rank is a thread of this process, all on device 0. For exit codes see program.hpp.
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include "examples/train/cuda/cuda_arithmetic.hpp"
#include "examples/train/program.hpp"
#include "kernels/cuda/loopback_world.hpp"
#include "kernels/cuda/nccl_world.hpp"

namespace {

using namespace gtp;
using namespace gtp::train;

std::string train_on_threads(Job& job) {
  std::string why;
  if (!job.prepare_threads(why)) return why;
  try {
    LoopbackWorld world({.ranks = job.plan.topology.world_size});
    if (job.traced()) world.backend(0).set_trace(&job.trace);
    std::string failure = first_failure(world.run([&](std::int64_t rank, CudaBackend& backend) {
      job.logs[static_cast<std::size_t>(rank)] =
          train::train(job.plan, job.shape, job.options(rank), {backend, std::make_shared<CudaArithmetic>(), rank});
    }));
    if (job.traced()) world.backend(0).set_trace(nullptr);
    return failure;
  } catch (const RuntimeError& error) {
    return error.text();
  }
}

/// Of a rank whose peers on this host may outnumber the devices.
int device_of(const JobEnvironment& environment) {
  int devices = 0;
  cuda::cuda_check(cudaGetDeviceCount(&devices), "counting the devices");
  return devices == 0 ? 0 : static_cast<int>(environment.local_rank % devices);
}

std::string train_as_process(Job& job) {
  try {
    const JobEnvironment environment = job_environment();
    const int device = device_of(environment);
    cuda::cuda_check(cudaSetDevice(device), "selecting the device");
    NcclWorld world = NcclWorld::from_job(environment, {.device = device});
    world.require_plan(job.plan.topology);
    const bool traced = world.rank() == 0 && job.traced();
    if (traced) world.backend().set_trace(&job.trace);
    job.logs.push_back(train::train(job.plan, job.shape, job.options(world.rank()),
                                    {world.backend(), std::make_shared<CudaArithmetic>(), world.rank()}));
    if (traced) world.backend().set_trace(nullptr);
  } catch (const RuntimeError& error) {
    return fmt::format("rank {}: {}", rank_of_process().value_or(0), error.text());
  }
  return {};
}

std::string train_job(Job& job) { return job.arguments.loopback ? train_on_threads(job) : train_as_process(job); }

}  // namespace

int main(int argc, char** argv) {
  return run_program({argv, static_cast<std::size_t>(argc)},
                     {.name = "train_cuda", .has_loopback = true, .train = train_job});
}
