#include "kernels/cuda/loopback_world.hpp"

#include <fmt/format.h>

#include <thread>

#include "kernels/cuda/loopback_transport.hpp"

namespace gtp {

namespace {

LoopbackOptions checked(LoopbackOptions options) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) cudaGetLastError();
  if (options.device < 0 || options.device >= devices) {
    throw RuntimeError(RuntimeStatus::kInvalidPlan,
                       fmt::format("there is no CUDA device {}: this host has {}", options.device, devices));
  }
  if (options.ranks < 1) {
    throw RuntimeError(RuntimeStatus::kInvalidPlan, fmt::format("a world of {} ranks", options.ranks));
  }
  return options;
}

void note(RankOutcome& outcome, const RuntimeError& error) {
  outcome.threw = true;
  outcome.status = error.status();
  outcome.text = error.text();
}

}  // namespace

LoopbackWorld::LoopbackWorld(LoopbackOptions options) {
  const LoopbackOptions given = checked(options);
  const cuda::DeviceScope scope(given.device);
  hub_ = std::make_shared<cuda::LoopbackHub>(given);
  for (std::int64_t rank = 0; rank < given.ranks; ++rank) {
    backends_.push_back(std::make_unique<CudaBackend>(CudaBackendOptions{given.device, rank, given.annotate},
                                                      hub_->failure_of(rank),
                                                      std::make_unique<cuda::LoopbackTransport>(hub_, rank)));
  }
}

LoopbackWorld::~LoopbackWorld() = default;

CudaBackend& LoopbackWorld::backend(std::int64_t rank) { return *backends_[static_cast<std::size_t>(rank)]; }
void LoopbackWorld::barrier(std::int64_t rank) { hub_->barrier(rank); }

std::vector<RankOutcome> LoopbackWorld::run(const std::function<void(std::int64_t, CudaBackend&)>& function) {
  std::vector<RankOutcome> outcomes(backends_.size());
  std::vector<std::thread> threads;
  for (std::size_t index = 0; index < backends_.size(); ++index) {
    threads.emplace_back([&, index] {
      const auto rank = static_cast<std::int64_t>(index);
      try {
        cuda::cuda_check(cudaSetDevice(hub_->options().device), "selecting the device");
        function(rank, *backends_[index]);
      } catch (const RuntimeError& error) {
        note(outcomes[index], error);
      } catch (const std::exception& error) {
        note(outcomes[index], RuntimeError(RuntimeStatus::kCollectiveFailed, error.what()));
      } catch (...) {
        note(outcomes[index], RuntimeError(RuntimeStatus::kCollectiveFailed, "an exception of an unknown type"));
      }
      if (outcomes[index].threw) hub_->fail(rank, fmt::format("rank {} failed: {}", rank, outcomes[index].text));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

}  // namespace gtp
