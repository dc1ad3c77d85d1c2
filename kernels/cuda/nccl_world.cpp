#include "kernels/cuda/nccl_world.hpp"

#include <fmt/format.h>

#include "kernels/cuda/bounded.hpp"
#include "kernels/cuda/device_checks.hpp"
#include "kernels/cuda/nccl_api.hpp"
#include "kernels/cuda/nccl_transport.hpp"
#include "kernels/cuda/store_wait.hpp"
#include "kernels/tcp_store.hpp"

namespace gtp {

namespace {

[[noreturn]] void refuse(std::string text) { throw RuntimeError(RuntimeStatus::kInvalidPlan, std::move(text)); }

}  // namespace

struct NcclWorld::Impl {
  Impl(std::int64_t of, std::int64_t ranks, NcclOptions given);
  ~Impl();

  void connect_store(const JobEnvironment& job);
  /// Collective over the world; for jobs without a store.
  void connect_world(const ncclUniqueId& id);
  void start(std::shared_ptr<cuda::IdExchange> exchange, std::vector<SuppliedCommunicator> supplied);

  std::int64_t rank;
  std::int64_t size;
  std::int64_t local_rank = 0;
  NcclOptions options;
  std::shared_ptr<cuda::FailureCell> failure = std::make_shared<cuda::FailureCell>();
  std::unique_ptr<TcpStoreServer> server;  ///< On rank 0.
  std::shared_ptr<TcpStore> store;
  ncclComm_t whole = nullptr;  ///< Jobs without a store agree on ids over it.
  std::uint64_t barriers = 0;
  std::unique_ptr<CudaBackend> backend;
};

NcclWorld::Impl::Impl(std::int64_t of, std::int64_t ranks, NcclOptions given) : rank(of), size(ranks), options(given) {
  if (ranks < 1 || of < 0 || of >= ranks) refuse(fmt::format("rank {} in a world of {} ranks", of, ranks));
  if (options.device < 0) {
    options.device = 0;
    if (cudaGetDevice(&options.device) != cudaSuccess) cudaGetLastError();
  }
  cuda::require_device(options.device);
  cuda::prepare_nccl_environment();
  cuda::nccl_version();
  cuda::cuda_check(cudaSetDevice(options.device), "selecting the device");
}

NcclWorld::Impl::~Impl() {
  backend.reset();
  if (whole != nullptr && failure->get() == nullptr) {
    try {
      cuda::run_bounded(options.start_limit, [over = whole] { ncclCommDestroy(over); });
    } catch (...) {  // it is left behind
    }
  }
  store.reset();
  if (server) server->wait_for_goodbyes(options.start_limit);
}

void NcclWorld::Impl::connect_store(const JobEnvironment& job) {
  local_rank = job.local_rank;
  if (rank == 0) server = std::make_unique<TcpStoreServer>(job.master_port, size);
  store =
      std::make_shared<TcpStore>(TcpStoreAddress{job.master_addr, job.master_port, rank, size}, options.start_limit);
  store->wait_for_all(options.start_limit);
  cuda::require_distinct_devices(*store, rank, size, options.device, options.start_limit, *failure);
}

void NcclWorld::Impl::connect_world(const ncclUniqueId& id) {
  const auto made = std::make_shared<ncclComm_t>(nullptr);
  const auto end = cuda::run_bounded(options.start_limit, [made, id, ranks = static_cast<int>(size),
                                                           self = static_cast<int>(rank), device = options.device] {
    cuda::cuda_check(cudaSetDevice(device), "selecting the device");
    cuda::nccl_check(ncclCommInitRank(made.get(), ranks, id, self), "ncclCommInitRank");
  });
  if (end != cuda::BoundedEnd::kDone) {
    throw RuntimeError(RuntimeStatus::kTimeout,
                       fmt::format("rank {}: not all {} ranks came with the same NCCL id within {} ms", rank, size,
                                   options.start_limit.count()));
  }
  whole = *made;
}

void NcclWorld::Impl::start(std::shared_ptr<cuda::IdExchange> exchange, std::vector<SuppliedCommunicator> supplied) {
  auto state = std::make_shared<cuda::NcclState>(options.device, rank, failure, store, options.operation_limit);
  auto transport = std::make_unique<cuda::NcclTransport>(std::move(state), std::move(exchange), std::move(supplied),
                                                         options.start_limit);
  backend = std::make_unique<CudaBackend>(CudaBackendOptions{options.device, rank, options.annotate}, failure,
                                          std::move(transport));
}

NcclWorld NcclWorld::from_environment(NcclOptions options) { return from_job(job_environment(), options); }

NcclWorld NcclWorld::from_job(const JobEnvironment& job, NcclOptions options) {
  if (options.device < 0) options.device = static_cast<int>(job.local_rank);
  auto impl = std::make_unique<Impl>(job.rank, job.world_size, options);
  impl->connect_store(job);
  impl->start(std::make_shared<cuda::StoreIdExchange>(impl->store, impl->failure, options.start_limit), {});
  return NcclWorld(std::move(impl));
}

NcclWorld NcclWorld::from_unique_id(std::int64_t rank, std::int64_t world_size, const ncclUniqueId& id,
                                    NcclOptions options) {
  auto impl = std::make_unique<Impl>(rank, world_size, options);
  impl->connect_world(id);
  impl->start(std::make_shared<cuda::CommunicatorIdExchange>(impl->whole, impl->failure, options.start_limit), {});
  return NcclWorld(std::move(impl));
}

NcclWorld NcclWorld::from_communicators(std::int64_t rank, std::int64_t world_size,
                                        std::vector<SuppliedCommunicator> supplied, NcclOptions options) {
  auto impl = std::make_unique<Impl>(rank, world_size, options);
  impl->start(nullptr, std::move(supplied));
  return NcclWorld(std::move(impl));
}

NcclWorld::NcclWorld(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NcclWorld::NcclWorld(NcclWorld&&) noexcept = default;
NcclWorld::~NcclWorld() = default;

std::int64_t NcclWorld::rank() const noexcept { return impl_->rank; }
std::int64_t NcclWorld::size() const noexcept { return impl_->size; }
std::int64_t NcclWorld::local_rank() const noexcept { return impl_->local_rank; }
int NcclWorld::device() const noexcept { return impl_->options.device; }
CudaBackend& NcclWorld::backend() noexcept { return *impl_->backend; }

void NcclWorld::require_plan(const Topology& topology) const {
  if (topology.world_size == impl_->size) return;
  refuse(fmt::format("the plan is for {} ranks, and the job has {} (WORLD_SIZE)", topology.world_size, impl_->size));
}

void NcclWorld::barrier() {
  if (impl_->store == nullptr) {
    throw RuntimeError(RuntimeStatus::kInvalidUse, "a world without a store has no barrier");
  }
  const std::string key = fmt::format("barrier/{}/", impl_->barriers++);
  impl_->store->set(key + std::to_string(impl_->rank), "");
  for (std::int64_t peer = 0; peer < impl_->size; ++peer) {
    cuda::get_unless_failed(*impl_->store, key + std::to_string(peer), impl_->options.start_limit, *impl_->failure);
  }
}

}  // namespace gtp
