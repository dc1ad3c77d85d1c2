// Ranks as threads of one process on one device: every stream, event and buffer of a job of W ranks, on one GPU and
// without NCCL. Collectives are copies on the device between the ranks' buffers, ordered by events; reductions copy all
// parts and add them in fp32, in order of rank, rounded once, so that results repeat bit for bit.
//
//   LoopbackWorld world({.ranks = 2});
//   for (const RankOutcome& end : world.run([&](std::int64_t rank, CudaBackend& backend) { ... })) REQUIRE(end.ok());
//
// A collective waits on the host, at most `time_limit`, until its peers have made the same call: it needs their
// addresses. It cannot be captured: graphs of two ranks would each have to be launched before the other, so that asking
// for one in a capture throws kCaptureFailed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/host_backend.hpp"

namespace gtp {

namespace cuda {
class LoopbackHub;
}

struct LoopbackOptions {
  std::int64_t ranks = 1;
  int device = 0;
  /// Of a host-side wait for peers.
  std::chrono::milliseconds time_limit{30000};
  bool annotate = false;
};

class LoopbackWorld {
 public:
  /// Throws kInvalidPlan if there is no such device, or no rank.
  explicit LoopbackWorld(LoopbackOptions options);
  ~LoopbackWorld();
  LoopbackWorld(const LoopbackWorld&) = delete;
  LoopbackWorld& operator=(const LoopbackWorld&) = delete;

  /// Runs `function` once per rank, each on a thread whose current device is the world's, until all have ended. A rank
  /// whose function throws takes the others down with a kAborted error; the world is then of no further use.
  std::vector<RankOutcome> run(const std::function<void(std::int64_t, CudaBackend&)>& function);
  CudaBackend& backend(std::int64_t rank);
  /// Waits until every rank has called it; throws what failed, or kTimeout.
  void barrier(std::int64_t rank);

 private:
  std::shared_ptr<cuda::LoopbackHub> hub_;
  std::vector<std::unique_ptr<CudaBackend>> backends_;
};

}  // namespace gtp
