#include "kernels/cuda/nccl_transport.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kernels/cuda/bounded.hpp"
#include "kernels/cuda/nccl_api.hpp"
#include "kernels/cuda/nccl_creation.hpp"

namespace gtp::cuda {

namespace {

constexpr std::chrono::milliseconds kDestroyLimit{20000};

NcclCommunicator& in(Communicator communicator) noexcept {
  return **static_cast<std::shared_ptr<NcclCommunicator>*>(communicator.handle);
}

Communicator to_handle(std::shared_ptr<NcclCommunicator> communicator) {
  return {new std::shared_ptr<NcclCommunicator>(std::move(communicator))};
}

[[noreturn]] void refuse(std::string text) { throw RuntimeError(RuntimeStatus::kInvalidPlan, std::move(text)); }

/// FNV-1a: the same on every rank, which std::hash need not be.
std::uint64_t hash_of(const std::vector<std::int64_t>& ranks) noexcept {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const std::int64_t rank : ranks) hash = (hash ^ static_cast<std::uint64_t>(rank)) * 0x100000001B3U;
  return hash;
}

void require_place(const CommunicatorSpec& spec, std::int64_t rank) {
  const auto place = static_cast<std::size_t>(spec.position);
  if (spec.position >= 0 && place < spec.ranks.size() && spec.ranks[place] == rank) return;
  refuse(fmt::format("rank {} is not at position {} of group {} (ranks {}): the plan and the job disagree about ranks",
                     rank, spec.position, spec.group, fmt::join(spec.ranks, ",")));
}

ncclResult_t all_to_all(const CollectivePart& part, ElementType type, std::size_t ranks, ncclComm_t communicator,
                        cudaStream_t stream) {
  if (nccl_extras().all_to_all != nullptr) {
    return nccl_extras().all_to_all(part.send, part.receive, part.count, nccl_type(type), communicator, stream);
  }
  const std::size_t bytes = part.count * element_bytes(type);
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    const ncclResult_t sent = ncclSend(static_cast<const char*>(part.send) + peer * bytes, bytes, ncclUint8,
                                       static_cast<int>(peer), communicator, stream);
    if (sent != ncclSuccess) return sent;
    const ncclResult_t received = ncclRecv(static_cast<char*>(part.receive) + peer * bytes, bytes, ncclUint8,
                                           static_cast<int>(peer), communicator, stream);
    if (received != ncclSuccess) return received;
  }
  return ncclSuccess;
}

ncclResult_t enqueue_part(const CollectiveCall& call, const CollectivePart& part, std::size_t ranks, ncclComm_t over) {
  const ncclDataType_t type = nccl_type(call.type);
  switch (call.kind) {
    case CollectiveKind::kAllGather:
      return ncclAllGather(part.send, part.receive, part.count, type, over, call.stream);
    case CollectiveKind::kReduceScatter:
      return ncclReduceScatter(part.send, part.receive, part.count, type, ncclSum, over, call.stream);
    case CollectiveKind::kAllToAll:
      return all_to_all(part, call.type, ranks, over, call.stream);
    case CollectiveKind::kAllReduce:
      return ncclAllReduce(part.send, part.receive, part.count, type, ncclSum, over, call.stream);
  }
  return ncclInvalidArgument;
}

}  // namespace

NcclTransport::NcclTransport(std::shared_ptr<NcclState> state, std::shared_ptr<IdExchange> exchange,
                             std::vector<SuppliedCommunicator> supplied, std::chrono::milliseconds start_limit)
    : state_(std::move(state)),
      exchange_(std::move(exchange)),
      supplied_(std::move(supplied)),
      start_limit_(start_limit),
      watchdog_(state_) {}

Communicator NcclTransport::create(const CommunicatorSpec& spec) {
  require_place(spec, state_->rank);
  markers_.prepare(OperationTracker::kCapacity / 2);
  const auto given = std::ranges::find_if(supplied_, [&](const SuppliedCommunicator& each) {
    return each.group == spec.group && each.purpose == spec.purpose;
  });
  const std::shared_ptr<NcclCommunicator> made = given != supplied_.end() ? adopt(*given, spec) : make(spec);
  const std::scoped_lock lock(state_->list_mutex);
  state_->communicators.push_back(made);
  return to_handle(made);
}

std::shared_ptr<NcclCommunicator> NcclTransport::adopt(const SuppliedCommunicator& given,
                                                       const CommunicatorSpec& spec) {
  int count = 0;
  int rank = 0;
  int device = 0;
  nccl_check(ncclCommCount(given.communicator, &count), "ncclCommCount", given.communicator);
  nccl_check(ncclCommUserRank(given.communicator, &rank), "ncclCommUserRank", given.communicator);
  nccl_check(ncclCommCuDevice(given.communicator, &device), "ncclCommCuDevice", given.communicator);
  if (static_cast<std::size_t>(count) != spec.ranks.size() || rank != spec.position || device != state_->device) {
    refuse(
        fmt::format("the communicator for group {} has {} ranks, this one is {} on device {}; the plan has {}, this "
                    "one is {} on device {}",
                    spec.group, count, rank, device, spec.ranks.size(), spec.position, state_->device));
  }
  auto made = std::make_shared<NcclCommunicator>(spec.group, state_->operation_limit.count() > 0);
  made->handle = given.communicator;
  made->owned = false;
  made->ranks = spec.ranks;
  return made;
}

std::shared_ptr<NcclCommunicator> NcclTransport::parent_over(const std::vector<std::int64_t>& ranks) {
  const std::scoped_lock lock(state_->list_mutex);
  const auto known = std::ranges::find_if(state_->communicators,
                                          [&](const auto& each) { return each->owned && each->ranks == ranks; });
  return known != state_->communicators.end() ? *known : nullptr;
}

std::shared_ptr<NcclCommunicator> NcclTransport::make(const CommunicatorSpec& spec) {
  if (exchange_ == nullptr) {
    refuse(fmt::format("no communicator was supplied for group {} ({})", spec.group,
                       spec.purpose == CommunicatorPurpose::kGather ? "gather" : "reduce"));
  }
  const auto creation = std::make_shared<NcclCreation>();
  creation->state = state_;
  creation->exchange = exchange_;
  creation->parent = parent_over(spec.ranks);
  creation->spec = spec;
  creation->key = fmt::format("nccl/{}/{:x}/{}", spec.group, hash_of(spec.ranks), static_cast<int>(spec.purpose));
  creation->key += fmt::format("/{}", instances_[creation->key]++);
  creation->made = std::make_shared<NcclCommunicator>(spec.group, state_->operation_limit.count() > 0);
  creation->made->ranks = spec.ranks;
  const std::string what =
      fmt::format("rank {}: connecting group {} (ranks {})", state_->rank, spec.group, fmt::join(spec.ranks, ","));
  BoundedEnd end{};
  try {
    end = run_bounded(
        start_limit_, [creation] { cuda::create(*creation); }, [state = state_] { return state->failure->get(); });
  } catch (const RuntimeError& error) {
    throw RuntimeError(error.status(), fmt::format("{}: {}", what, error.text()));
  }
  if (end == BoundedEnd::kDone) return creation->made;
  state_->failure->check();
  std::string text = fmt::format("{}: a peer did not answer within {} ms", what, start_limit_.count());
  state_->failure->set(RuntimeStatus::kTimeout, text);
  give_up();
  throw RuntimeError(RuntimeStatus::kTimeout, std::move(text));
}

/// A failure has the watchdog abort it; the handle is dead either way.
void NcclTransport::destroy(Communicator communicator) noexcept {
  const std::unique_ptr<std::shared_ptr<NcclCommunicator>> handle(
      static_cast<std::shared_ptr<NcclCommunicator>*>(communicator.handle));
  const std::shared_ptr<NcclCommunicator> leaving = *handle;
  try {
    if (state_->failure->get() != nullptr) return;
    {
      const std::scoped_lock lock(state_->list_mutex);
      std::erase(state_->communicators, leaving);
    }
    if (!leaving->owned || leaving->taken.exchange(true)) return;
    const auto end = run_bounded(
        kDestroyLimit,
        [leaving, device = state_->device] {
          cuda_check(cudaSetDevice(device), "selecting the device");
          nccl_check(ncclCommDestroy(leaving->handle), "ncclCommDestroy");
        },
        [state = state_] { return state->failure->get() != nullptr; });
    if (end != BoundedEnd::kTimeout) return;
    state_->failure->set(RuntimeStatus::kTimeout,
                         fmt::format("rank {}: a communicator of group {} could not be destroyed within {} ms",
                                     state_->rank, leaving->group, kDestroyLimit.count()));
  } catch (...) {  // it is left behind
  }
}

std::string_view NcclTransport::group_of(Communicator communicator) const noexcept { return in(communicator).group; }

void* NcclTransport::allocate_window(std::size_t bytes) {
  void* data = nullptr;
  const ncclResult_t result = ncclMemAlloc(&data, bytes);
  if (result == ncclUnhandledCudaError || result == ncclSystemError) {  // what NCCL says when memory has run out
    cudaGetLastError();
    return nullptr;
  }
  nccl_check(result, "ncclMemAlloc");
  return data;
}

void NcclTransport::free_window(void* data) noexcept { ncclMemFree(data); }

void* NcclTransport::register_window(Communicator communicator, void* data, std::size_t bytes) {
  const NcclExtras& extras = nccl_extras();
  if (extras.window_register == nullptr || extras.window_deregister == nullptr) return nullptr;
  const NcclCommunicator& over = in(communicator);
  const NcclCall inside(*state_, false);
  ncclWindow_t window = nullptr;
  const ncclResult_t result = extras.window_register(over.handle, data, bytes, &window, NCCL_WIN_COLL_SYMMETRIC);
  // Memory or links that cannot be registered are no error to the runtime, which then does without.
  if (result == ncclInvalidArgument || result == ncclInvalidUsage) return nullptr;
  settle(result, over);
  return window;
}

void NcclTransport::deregister_window(Communicator communicator, void* window) noexcept {
  try {
    if (state_->failure->get() != nullptr) return;
    const NcclCall inside(*state_);
    nccl_extras().window_deregister(in(communicator).handle, static_cast<ncclWindow_t>(window));
  } catch (...) {  // the communicator is going anyway
  }
}

void NcclTransport::run(const CollectiveCall& call) {
  NcclCommunicator& over = in(call.communicator);
  const NcclCall inside(*state_);
  enqueue(call, over);
  if (!call.capturing) note(over.tracker, collective_name(call.kind), call.label.weight, call.stream);
}

void NcclTransport::enqueue(const CollectiveCall& call, const NcclCommunicator& over) {
  const std::size_t ranks = over.ranks.size();
  const bool grouped = call.parts.size() > 1 || call.kind == CollectiveKind::kAllToAll;
  if (!grouped) {
    for (const CollectivePart& part : call.parts) {
      if (part.count > 0) settle(enqueue_part(call, part, ranks, over.handle), over);
    }
    return;
  }
  nccl_check(ncclGroupStart(), "ncclGroupStart");
  ncclResult_t result = ncclSuccess;
  for (const CollectivePart& part : call.parts) {
    if (part.count > 0) result = enqueue_part(call, part, ranks, over.handle);
    if (result != ncclSuccess && result != ncclInProgress) break;
  }
  const ncclResult_t ended = ncclGroupEnd();
  nccl_check(result, collective_name(call.kind), over.handle);
  settle(ended, over);
}

/// Communicators of the caller's may be such that do not block.
void NcclTransport::settle(ncclResult_t result, const NcclCommunicator& over) {
  nccl_check(result, "NCCL", over.handle);
  if (result == ncclSuccess) [[likely]] {
    return;
  }
  const bool settled = poll_until(Clock::now() + start_limit_, [&] {
    state_->failure->check();
    nccl_check(ncclCommGetAsyncError(over.handle, &result), "ncclCommGetAsyncError", over.handle);
    return result != ncclInProgress;
  });
  if (!settled) {
    throw RuntimeError(RuntimeStatus::kTimeout,
                       fmt::format("NCCL did not enqueue it within {} ms", start_limit_.count()));
  }
  nccl_check(result, "NCCL", over.handle);
}

void NcclTransport::launched(std::string_view summary, cudaStream_t stream) {
  note(state_->launches.tracker, "replay", summary, stream);
}

void NcclTransport::note(OperationTracker& tracker, std::string_view operation, std::string_view weight,
                         cudaStream_t stream) {
  flush();
  if (tracker.enabled()) unmarked_ = {&tracker, operation, weight, stream};
}

void NcclTransport::recorded(const MarkerEvent& event, cudaStream_t stream) {
  if (unmarked_.tracker == nullptr || unmarked_.stream != stream) return;
  unmarked_.tracker->add(unmarked_.operation, unmarked_.weight, event);
  unmarked_.tracker = nullptr;
}

void NcclTransport::flush() noexcept {
  if (unmarked_.tracker == nullptr) return;
  try {
    const MarkerEvent& own = markers_.next();
    cuda_check(own->record(unmarked_.stream), "recording the end of a collective");
    recorded(own, unmarked_.stream);
  } catch (...) {  // the operation is not watched; what comes behind it will be
    unmarked_.tracker = nullptr;
  }
}

void NcclTransport::give_up() noexcept {
  const BackendFailure* failure = state_->failure->get();
  if (failure == nullptr) return;
  if (state_->store != nullptr) state_->store->report_failure(failure->text);
  watchdog_.abort_now();
}

}  // namespace gtp::cuda
