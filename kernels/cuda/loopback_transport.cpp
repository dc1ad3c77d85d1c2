#include "kernels/cuda/loopback_transport.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/cuda/reduce_kernels.hpp"

namespace gtp::cuda {

namespace {

bool reduces(CollectiveKind kind) noexcept {
  return kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllReduce;
}

const char* bytes_at(const void* data, std::size_t offset) noexcept { return static_cast<const char*>(data) + offset; }
char* bytes_at(void* data, std::size_t offset) noexcept { return static_cast<char*>(data) + offset; }

/// The driver makes a kernel of it, up to about 1 GiB and also where it is asked to prefer a copy engine (measured on
/// an H200, CUDA 13.0): it needs a multiprocessor that is free.
void copy_bytes(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  if (bytes > 0) cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
}

}  // namespace

LoopbackTransport::LoopbackTransport(std::shared_ptr<LoopbackHub> hub, std::int64_t rank)
    : hub_(std::move(hub)), rank_(rank) {}

Communicator LoopbackTransport::create(const CommunicatorSpec& spec) {
  const std::string name =
      fmt::format("{}/{}/{}", spec.group, fmt::join(spec.ranks, ","), static_cast<int>(spec.purpose));
  auto member = std::make_unique<Member>();
  member->group = hub_->group(fmt::format("{}/{}", name, instances_[name]++), spec);
  member->position = static_cast<std::size_t>(spec.position);
  member->ready = make_event();
  member->done = make_event();
  {
    const std::scoped_lock lock(member->group->mutex);
    LoopbackPosting& own = member->group->postings[member->position];
    own.ready = member->ready.get();
    own.done = member->done.get();
  }
  hub_->meet(*member->group, member->position, rank_);
  return {member.release()};
}

void LoopbackTransport::destroy(Communicator communicator) noexcept {
  delete static_cast<Member*>(communicator.handle);
}

std::string_view LoopbackTransport::group_of(Communicator communicator) const noexcept {
  return static_cast<const Member*>(communicator.handle)->group->name;
}

void* LoopbackTransport::allocate_window(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  cuda_check(error, "cudaMalloc");
  return data;
}

void LoopbackTransport::free_window(void* data) noexcept {
  if (cudaFree(data) != cudaSuccess) cudaGetLastError();
}

void LoopbackTransport::run(const CollectiveCall& call) {
  if (call.capturing) {
    throw RuntimeError(RuntimeStatus::kCaptureFailed,
                       "collectives between threads of one process cannot be captured, because the graph of each rank "
                       "would have to be launched before the others': capture with NCCL");
  }
  if (reduces(call.kind) && call.type == ElementType::kByte) {
    throw RuntimeError(RuntimeStatus::kInvalidUse, "bytes cannot be added up");
  }
  Member& member = *static_cast<Member*>(call.communicator.handle);
  post(call, member);
  hub_->meet(*member.group, member.position, rank_);
  require_agreement(member);
  void* scratch = nullptr;
  const std::size_t bytes = scratch_bytes(call, member);
  if (bytes > 0) {
    cuda_check(cudaMallocFromPoolAsync(&scratch, bytes, hub_->pool(), call.stream), "allocating for a reduction");
  }
  for (const LoopbackPosting& peer : member.group->postings) {
    cuda_check(cudaStreamWaitEvent(call.stream, peer.ready, 0), "waiting for a peer");
  }
  read_peers(call, member, static_cast<char*>(scratch));
  cuda_check(cudaEventRecord(member.done.get(), call.stream), "recording an event");
  hub_->meet(*member.group, member.position, rank_);
  for (const LoopbackPosting& peer : member.group->postings) {
    cuda_check(cudaStreamWaitEvent(call.stream, peer.done, 0), "waiting for a peer");
  }
  if (bytes == 0) return;
  add_up(call, member, static_cast<const char*>(scratch));
  cuda_check(cudaFreeAsync(scratch, call.stream), "freeing after a reduction");
}

/// Peers may still be reading `done` for the previous collective, so that only the rest is overwritten.
void LoopbackTransport::post(const CollectiveCall& call, Member& member) {
  cuda_check(cudaEventRecord(member.ready.get(), call.stream), "recording an event");
  const std::scoped_lock lock(member.group->mutex);
  LoopbackPosting& own = member.group->postings[member.position];
  own.kind = call.kind;
  own.type = call.type;
  own.parts.assign(call.parts.begin(), call.parts.end());
}

void LoopbackTransport::require_agreement(const Member& member) const {
  const LoopbackPosting& own = member.group->postings[member.position];
  for (std::size_t peer = 0; peer < member.group->postings.size(); ++peer) {
    const LoopbackPosting& other = member.group->postings[peer];
    bool same = other.kind == own.kind && other.type == own.type && other.parts.size() == own.parts.size();
    for (std::size_t i = 0; same && i < own.parts.size(); ++i) same = other.parts[i].count == own.parts[i].count;
    if (same) continue;
    throw RuntimeError(
        RuntimeStatus::kCollectiveFailed,
        fmt::format("rank {} has issued {}, or other sizes", member.group->ranks[peer],
                    other.kind == own.kind ? "the same with another type" : collective_name(other.kind)));
  }
}

std::size_t LoopbackTransport::scratch_bytes(const CollectiveCall& call, const Member& member) const noexcept {
  if (!reduces(call.kind)) return 0;
  std::size_t elements = 0;
  for (const CollectivePart& part : call.parts) elements += part.count;
  return elements * member.group->ranks.size() * element_bytes(call.type);
}

void LoopbackTransport::read_peers(const CollectiveCall& call, const Member& member, char* scratch) {
  const std::size_t element = element_bytes(call.type);
  const std::vector<LoopbackPosting>& postings = member.group->postings;
  for (std::size_t index = 0; index < call.parts.size(); ++index) {
    const CollectivePart& part = call.parts[index];
    const std::size_t bytes = part.count * element;
    for (std::size_t peer = 0; peer < postings.size(); ++peer) {
      const void* theirs = postings[peer].parts[index].send;
      switch (call.kind) {
        case CollectiveKind::kAllGather:
          copy_bytes(bytes_at(part.receive, peer * bytes), theirs, bytes, call.stream);
          break;
        case CollectiveKind::kAllToAll:
          copy_bytes(bytes_at(part.receive, peer * bytes), bytes_at(theirs, member.position * bytes), bytes,
                     call.stream);
          break;
        case CollectiveKind::kReduceScatter:
          copy_bytes(scratch + peer * bytes, bytes_at(theirs, member.position * bytes), bytes, call.stream);
          break;
        case CollectiveKind::kAllReduce:
          copy_bytes(scratch + peer * bytes, theirs, bytes, call.stream);
          break;
      }
    }
    if (reduces(call.kind)) scratch += bytes * postings.size();
  }
}

void LoopbackTransport::add_up(const CollectiveCall& call, const Member& member, const char* scratch) {
  const std::size_t ranks = member.group->ranks.size();
  for (const CollectivePart& part : call.parts) {
    const std::size_t bytes = part.count * element_bytes(call.type);
    if (bytes == 0) continue;
    cuda_check(cudaMemsetAsync(part.receive, 0, bytes, call.stream), "cudaMemsetAsync");
    sum_chunks_into(part.receive, call.type, scratch, call.type, static_cast<std::int64_t>(part.count),
                    static_cast<std::int64_t>(ranks), 1.0F, call.stream);
    scratch += bytes * ranks;
  }
}

void LoopbackTransport::give_up() noexcept {
  if (const BackendFailure* failure = hub_->failure_of(rank_)->get()) hub_->fail(rank_, failure->text);
}

}  // namespace gtp::cuda
