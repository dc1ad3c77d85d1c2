#include "kernels/cuda/loopback_hub.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/cuda/bounded.hpp"

namespace gtp::cuda {

namespace {

/// How often a waiting rank looks whether the job has failed.
constexpr std::chrono::milliseconds kGlance{20};

UniqueMemPool make_pool(int device) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  cudaMemPool_t pool = nullptr;
  cuda_check(cudaMemPoolCreate(&pool, &properties), "creating a memory pool");
  UniqueMemPool owner(pool);
  std::uint64_t keep = ~std::uint64_t{0};
  cuda_check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep), "setting up a memory pool");
  return owner;
}

std::shared_ptr<LoopbackGroup> make_group(std::string name, std::vector<std::int64_t> ranks) {
  auto made = std::make_shared<LoopbackGroup>();
  made->name = std::move(name);
  made->ranks = std::move(ranks);
  made->postings.resize(made->ranks.size());
  made->here.resize(made->ranks.size());
  return made;
}

std::vector<std::int64_t> all_ranks(std::int64_t count) {
  std::vector<std::int64_t> ranks;
  for (std::int64_t rank = 0; rank < count; ++rank) ranks.push_back(rank);
  return ranks;
}

}  // namespace

LoopbackHub::LoopbackHub(LoopbackOptions options)
    : options_(options), pool_(make_pool(options.device)), everybody_(make_group("world", all_ranks(options.ranks))) {
  for (std::int64_t rank = 0; rank < options.ranks; ++rank) failures_.push_back(std::make_shared<FailureCell>());
}

std::shared_ptr<LoopbackGroup> LoopbackHub::group(const std::string& key, const CommunicatorSpec& spec) {
  const std::scoped_lock lock(mutex_);
  std::shared_ptr<LoopbackGroup>& known = groups_[key];
  if (known == nullptr) known = make_group(spec.group, spec.ranks);
  return known;
}

void LoopbackHub::missing(const LoopbackGroup& group, std::int64_t rank) const {
  std::vector<std::int64_t> absent;
  for (std::size_t i = 0; i < group.ranks.size(); ++i) {
    if (!group.here[i]) absent.push_back(group.ranks[i]);
  }
  throw RuntimeError(RuntimeStatus::kTimeout,
                     fmt::format("rank {}: ranks {} of group {} did not make this call within {} ms", rank,
                                 fmt::join(absent, ","), group.name, options_.time_limit.count()));
}

void LoopbackHub::meet(LoopbackGroup& group, std::size_t position, std::int64_t rank) {
  const FailureCell& failure = *failures_[static_cast<std::size_t>(rank)];
  failure.check();
  std::unique_lock lock(group.mutex);
  const std::uint64_t meeting = group.meetings;
  group.here[position] = true;
  if (++group.arrived == group.ranks.size()) {
    group.arrived = 0;
    group.here.assign(group.ranks.size(), false);
    ++group.meetings;
    group.changed.notify_all();
    return;
  }
  const auto deadline = Clock::now() + options_.time_limit;
  while (group.meetings == meeting) {
    group.changed.wait_for(lock, kGlance);
    if (group.meetings != meeting) return;
    failure.check();
    if (Clock::now() >= deadline) missing(group, rank);
  }
}

void LoopbackHub::barrier(std::int64_t rank) { meet(*everybody_, static_cast<std::size_t>(rank), rank); }

void LoopbackHub::fail(std::int64_t rank, const std::string& text) noexcept {
  try {
    for (std::size_t other = 0; other < failures_.size(); ++other) {
      if (static_cast<std::int64_t>(other) != rank) failures_[other]->set(RuntimeStatus::kAborted, text);
    }
  } catch (...) {  // no memory: peers run into the time limit
  }
}

}  // namespace gtp::cuda
