#include "kernels/gloo_group.hpp"

#include <fmt/format.h>
#include <gloo/allgather.h>
#include <gloo/alltoall.h>
#include <gloo/rendezvous/prefix_store.h>

#include <array>

#include "kernels/error.hpp"
#include "kernels/host_kernels.hpp"
#include "kernels/signal_guard.hpp"

namespace gtp::detail {

namespace {

/// FNV-1a: the same on every rank, which std::hash need not be.
std::uint64_t hash(std::string_view text, std::uint64_t seed = 0xCBF29CE484222325U) noexcept {
  for (const char letter : text) seed = (seed ^ static_cast<std::uint8_t>(letter)) * 0x100000001B3U;
  return seed;
}

/// The store as Gloo wants it.
class StoreForGloo final : public ::gloo::rendezvous::Store {
 public:
  StoreForGloo(TcpStore& store, std::string prefix, std::chrono::milliseconds limit)
      : store_(store), prefix_(std::move(prefix)), limit_(limit) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set(prefix_ + key, {data.data(), data.size()});
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = store_.get(prefix_ + key, limit_);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, limit_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& limit) override {
    for (const std::string& key : keys) store_.get(prefix_ + key, limit);
  }

 private:
  TcpStore& store_;
  std::string prefix_;
  std::chrono::milliseconds limit_;
};

/// What members compare before they move data; a mismatch would otherwise be a hang or a write past the end.
using Digest = std::array<std::uint64_t, 4>;

Digest digest_of(const host::CollectiveCall& call, std::string_view weight, std::uint64_t number) {
  std::uint64_t counts = hash("");
  for (const CollectivePart& part : call.parts) {
    counts = hash({reinterpret_cast<const char*>(&part.count), sizeof part.count}, counts);
  }
  const auto what = static_cast<std::uint64_t>(call.kind) * 16 + static_cast<std::uint64_t>(call.type);
  return {number, what, counts, hash(weight)};
}

}  // namespace

GlooGroup::GlooGroup(const CommunicatorSpec& spec, std::uint64_t instance, TcpStore& store,
                     std::shared_ptr<::gloo::transport::Device> device, std::chrono::milliseconds limit)
    : size_(spec.ranks.size()), ranks_(spec.ranks), limit_(limit) {
  std::uint64_t members = hash("");
  for (const std::int64_t rank : spec.ranks)
    members = hash({reinterpret_cast<const char*>(&rank), sizeof rank}, members);
  const std::string prefix =
      fmt::format("{:x}/{:x}/{}/{}/", hash(spec.group), members, static_cast<int>(spec.purpose), instance);
  const SigpipeGuard guard;
  StoreForGloo rendezvous(store, prefix, limit);
  context_ = std::make_shared<::gloo::rendezvous::Context>(static_cast<int>(spec.position), static_cast<int>(size_));
  context_->setTimeout(limit);
  context_->connectFullMesh(rendezvous, device);
}

GlooGroup::~GlooGroup() {
  const SigpipeGuard guard;
  context_.reset();
}

void GlooGroup::close() noexcept {
  const SigpipeGuard guard;
  try {
    context_->closeConnections();
  } catch (...) {  // closed already
  }
}

void GlooGroup::run(const host::CollectiveCall& call, std::string_view weight) {
  const SigpipeGuard guard;
  agree(call, weight);
  const std::size_t element = element_bytes(call.type);
  for (const CollectivePart& part : call.parts) {
    if (part.count == 0) continue;
    switch (call.kind) {
      case host::CollectiveKind::kAllGather:
        gather(part.send, part.receive, part.count * element);
        break;
      case host::CollectiveKind::kReduceScatter:
        reduce_scatter(part, call.type);
        break;
      case host::CollectiveKind::kAllToAll:
        exchange(part.send, part.receive, part.count * element);
        break;
      case host::CollectiveKind::kAllReduce:
        all_reduce(part, call.type);
        break;
    }
  }
}

void GlooGroup::agree(const host::CollectiveCall& call, std::string_view weight) {
  const Digest own = digest_of(call, weight, calls_++);
  std::vector<Digest> all(size_);
  gather(&own, all.data(), sizeof own);
  for (std::size_t member = 0; member < size_; ++member) {
    if (all[member] == own) continue;
    throw RuntimeError(RuntimeStatus::kCollectiveFailed,
                       fmt::format("rank {} has issued another operation here, or other sizes", ranks_[member]));
  }
}

void GlooGroup::gather(const void* send, void* receive, std::size_t bytes) {
  ::gloo::AllgatherOptions options(context_);
  options.setInput(static_cast<char*>(const_cast<void*>(send)), bytes);
  options.setOutput(static_cast<char*>(receive), bytes * size_);
  options.setTag(tag_++);
  options.setTimeout(limit_);
  ::gloo::allgather(options);
}

void GlooGroup::exchange(const void* send, void* receive, std::size_t bytes) {
  ::gloo::AlltoallOptions options(context_);
  options.setInput(static_cast<char*>(const_cast<void*>(send)), bytes * size_);
  options.setOutput(static_cast<char*>(receive), bytes * size_);
  options.setTag(tag_++);
  options.setTimeout(limit_);
  ::gloo::alltoall(options);
}

void GlooGroup::sum(void* receive, ElementType type, std::size_t count) {
  for (std::size_t index = 0; index < count; ++index) {
    float total = host::load(scratch_.data(), type, index);
    for (std::size_t member = 1; member < size_; ++member) {
      total += host::load(scratch_.data(), type, member * count + index);
    }
    host::store(receive, type, index, total);
  }
}

void GlooGroup::reduce_scatter(const CollectivePart& part, ElementType type) {
  const std::size_t bytes = part.count * element_bytes(type);
  scratch_.resize(bytes * size_);
  exchange(part.send, scratch_.data(), bytes);
  sum(part.receive, type, part.count);
}

/// For small tensors (norms, biases): each member gathers all of them, which keeps the order of the sum.
void GlooGroup::all_reduce(const CollectivePart& part, ElementType type) {
  const std::size_t bytes = part.count * element_bytes(type);
  scratch_.resize(bytes * size_);
  gather(part.send, scratch_.data(), bytes);
  sum(part.receive, type, part.count);
}

}  // namespace gtp::detail
