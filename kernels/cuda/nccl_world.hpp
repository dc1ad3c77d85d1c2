// One process per GPU over NCCL: a job as one of its processes sees it, and the backend that runs on it.
//
//   NcclWorld world = NcclWorld::from_environment();        // under torchrun
//   world.require_plan(topology);
//   Runtime gtp(world.backend(), topology, world.rank());
//
// Every wait has a limit. When a process dies, hangs or fails, its peers' backends fail within the limits below, with a
// text that names this rank, the pending operation, its group and weight, and the reason; their communicators are
// aborted, so that the device comes to rest. Runtimes must be gone before the world.
//
// Environment: NCCL_LAUNCH_ORDER_IMPLICIT=1 is set unless the variable exists (the gather and the reduce communicator
// of a group run at the same time, and must start in one order everywhere).
#pragma once

#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtp/topology.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/job_environment.hpp"

namespace gtp {

struct NcclOptions {
  /// Of CUDA's numbering; -1: the local rank.
  int device = -1;
  /// Of each step of starting up, the making of a communicator included.
  std::chrono::milliseconds start_limit{60000};
  /// A communicator that has work and makes no progress for as long has failed. 0: never, and operations cost a tenth
  /// of a microsecond less, but errors do not name them.
  std::chrono::milliseconds operation_limit{300000};
  bool annotate = false;  ///< See CudaBackendOptions.
};

/// A communicator of the caller's, for one group and purpose. It stays the caller's: it is not destroyed, and after a
/// failure it is revoked (NCCL 2.28) but not aborted. It must outlive the world.
struct SuppliedCommunicator {
  std::string group;  ///< `gtp_remat`, `expt_gtp_remat`...
  CommunicatorPurpose purpose = CommunicatorPurpose::kGather;
  ncclComm_t communicator = nullptr;
};

class NcclWorld {
 public:
  /// Finds its peers over a TCP store that rank 0 serves at the master address and port; the store also tells who has
  /// failed. Throws kInvalidPlan (environment, device, NCCL version, two ranks on one GPU) or kTimeout, naming the
  /// ranks that did not arrive.
  static NcclWorld from_environment(NcclOptions options = {});
  static NcclWorld from_job(const JobEnvironment& job, NcclOptions options = {});
  /// Without a store: `id` is the same on all ranks and of one use. A peer that is gone is noticed by `operation_limit`
  /// and by what NCCL notices only. `options.device` is the caller's choice: -1 means the current device.
  static NcclWorld from_unique_id(std::int64_t rank, std::int64_t world_size, const ncclUniqueId& id,
                                  NcclOptions options = {});
  /// Only groups for which both communicators are supplied, and groups of one, can be used.
  static NcclWorld from_communicators(std::int64_t rank, std::int64_t world_size,
                                      std::vector<SuppliedCommunicator> supplied, NcclOptions options = {});
  NcclWorld(NcclWorld&&) noexcept;
  /// With a store, rank 0 stays until its peers have left too, at most the start limit.
  ~NcclWorld();

  std::int64_t rank() const noexcept;
  std::int64_t size() const noexcept;
  std::int64_t local_rank() const noexcept;
  int device() const noexcept;
  CudaBackend& backend() noexcept;
  /// Throws kInvalidPlan unless the plan is for a world of this size.
  void require_plan(const Topology& topology) const;
  /// Waits until every rank has called it as often; kTimeout at the start limit. Needs a store: kInvalidUse.
  void barrier();

 private:
  struct Impl;
  explicit NcclWorld(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gtp
