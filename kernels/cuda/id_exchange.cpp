#include "kernels/cuda/id_exchange.hpp"

#include <fmt/format.h>

#include <cstring>

#include "kernels/cuda/bounded.hpp"
#include "kernels/cuda/nccl_api.hpp"
#include "kernels/cuda/store_wait.hpp"

namespace gtp::cuda {

namespace {

ncclUniqueId make_id() {
  ncclUniqueId id{};
  nccl_check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  return id;
}

}  // namespace

StoreIdExchange::StoreIdExchange(std::shared_ptr<TcpStore> store, std::shared_ptr<FailureCell> failure,
                                 std::chrono::milliseconds limit)
    : store_(std::move(store)), failure_(std::move(failure)), limit_(limit) {}

ncclUniqueId StoreIdExchange::share(const CommunicatorSpec& spec, const std::string& key) {
  if (spec.position == 0) {
    const ncclUniqueId id = make_id();
    store_->set(key, {id.internal, sizeof id.internal});
    return id;
  }
  const std::string value = get_unless_failed(*store_, key, limit_, *failure_);
  ncclUniqueId id{};
  if (value.size() != sizeof id.internal) {
    throw RuntimeError(RuntimeStatus::kInvalidPlan, fmt::format("the store's `{}` is no NCCL id", key));
  }
  std::memcpy(id.internal, value.data(), value.size());
  return id;
}

CommunicatorIdExchange::CommunicatorIdExchange(ncclComm_t world, std::shared_ptr<FailureCell> failure,
                                               std::chrono::milliseconds limit)
    : world_(world),
      failure_(std::move(failure)),
      limit_(limit),
      stream_(make_stream()),
      memory_(sizeof(ncclUniqueId)) {}

ncclUniqueId CommunicatorIdExchange::share(const CommunicatorSpec& spec, const std::string& key) {
  ncclUniqueId id = spec.position == 0 ? make_id() : ncclUniqueId{};
  const cudaStream_t stream = stream_.get();
  cuda_check(cudaMemcpyAsync(memory_.get(), id.internal, sizeof id.internal, cudaMemcpyHostToDevice, stream),
             "sending an NCCL id");
  nccl_check(ncclGroupStart(), "ncclGroupStart");
  ncclResult_t result = ncclSuccess;
  if (spec.position == 0) {
    for (std::size_t peer = 1; peer < spec.ranks.size() && result == ncclSuccess; ++peer) {
      result =
          ncclSend(memory_.get(), sizeof id.internal, ncclUint8, static_cast<int>(spec.ranks[peer]), world_, stream);
    }
  } else {
    result = ncclRecv(memory_.get(), sizeof id.internal, ncclUint8, static_cast<int>(spec.ranks[0]), world_, stream);
  }
  const ncclResult_t ended = ncclGroupEnd();
  nccl_check(result, "exchanging an NCCL id", world_);
  nccl_check(ended, "exchanging an NCCL id", world_);
  const bool done = poll_until(Clock::now() + limit_, [&] {
    failure_->check();
    const cudaError_t state = cudaStreamQuery(stream);
    if (state != cudaErrorNotReady) cuda_check(state, "exchanging an NCCL id");
    return state == cudaSuccess;
  });
  if (!done) {
    throw RuntimeError(RuntimeStatus::kTimeout, fmt::format("the members of group {} did not all ask for communicator "
                                                            "{} within {} ms",
                                                            spec.group, key, limit_.count()));
  }
  // Into pageable memory: complete on return, and the stream is idle.
  cuda_check(cudaMemcpyAsync(id.internal, memory_.get(), sizeof id.internal, cudaMemcpyDeviceToHost, stream),
             "receiving an NCCL id");
  return id;
}

}  // namespace gtp::cuda
