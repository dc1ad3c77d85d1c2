// One rank of a run: its backend, its arithmetic, its process groups and its memory.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "host_arithmetic.hpp"
#include "kernels/runtime.hpp"

namespace gtp::train {

/// What a transport brings along for one rank. Backend, arithmetic and launcher are not owned.
struct RankBackend {
  /// On memory that the host can touch.
  RankBackend(Backend& host_backend, Launcher& launcher, std::int64_t world_rank)
      : backend(host_backend), arithmetic(std::make_shared<HostArithmetic>(launcher)), rank(world_rank) {}
  RankBackend(Backend& device, std::shared_ptr<Arithmetic> device_arithmetic, std::int64_t world_rank)
      : backend(device), arithmetic(std::move(device_arithmetic)), rank(world_rank) {}

  Backend& backend;
  std::shared_ptr<Arithmetic> arithmetic;
  std::int64_t rank;
};

/// Calls of collectives by this example, one for each group with more than one member. The runtime counts its own.
struct CollectiveCalls {
  std::int64_t tensor_parallel = 0;
  std::int64_t expert_exchange = 0;
  std::int64_t replicate = 0;
  std::int64_t norm_and_loss = 0;
  std::int64_t amax = 0;  ///< Of NVFP4 weights.

  friend bool operator==(const CollectiveCalls&, const CollectiveCalls&) = default;
};

/// Groups under the names of gtp/groups.hpp.
struct Groups {
  Group tp, dp_cp, ep_dp, ep, mp, tp_ep_gtp_remat_pp, gtp_remat_dp;
};

class Rank {
 public:
  /// Makes all groups: collective.
  Rank(const RankBackend& transport, const Topology& topology, RuntimeOptions options);
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  /// Drains first.
  ~Rank();

  Backend& backend() noexcept { return backend_; }
  Runtime& gtp() noexcept { return *gtp_; }
  const Topology& topology() const noexcept { return topology_; }
  std::int64_t index() const noexcept { return index_; }
  const Groups& groups() const noexcept { return groups_; }
  /// All arithmetic, and all collectives that are not the runtime's.
  Stream compute() const noexcept { return compute_; }
  CollectiveCalls& calls() noexcept { return calls_; }

  /// Memory until the rank ends; contents unspecified.
  template <class T>
  std::span<T> memory(std::size_t count) {
    return {static_cast<T*>(allocate(count * sizeof(T))), count};
  }
  Floats floats(std::size_t count) { return memory<float>(count); }
  /// Waits for the compute stream, then copies.
  template <class T>
  std::vector<std::remove_const_t<T>> read_back(std::span<T> values, std::chrono::milliseconds limit) {
    backend_.synchronize(compute_, limit);
    std::vector<std::remove_const_t<T>> out(values.size());
    arithmetic_->read_back(out.data(), values.data(), values.size_bytes());
    return out;
  }

  Arithmetic& arithmetic() noexcept { return *arithmetic_; }
  /// On the compute stream. The texts must outlive what is enqueued with it.
  Task task(std::string_view weight, std::string_view note) const noexcept { return {compute_, {weight, note}}; }
  /// All bytes become 0.
  template <class T>
  void clear(const Task& task, std::span<T> values) {
    if (!values.empty()) backend_.fill(values.data(), 0, values.size_bytes(), task.stream, task.label);
  }
  template <class T>
  void copy(const Task& task, std::span<T> to, std::span<const T> from) {
    backend_.copy(to.data(), ElementType::kByte, from.data(), ElementType::kByte, to.size_bytes(), task.stream,
                  task.label);
  }
  /// Waits for all work, or gives the device up.
  void drain() noexcept;
  /// In a group of one nothing happens; `calls` counts the others.
  void all_reduce(const Group& group, Floats values, OpLabel label, std::int64_t& calls);
  /// `gathered` has one `sent.size_bytes()` for each member.
  void all_gather(const Group& group, std::span<std::byte> gathered, std::span<const std::byte> sent, OpLabel label,
                  std::int64_t& calls);
  /// Equal parts, one for each member.
  void all_to_all(const Group& group, Floats received, ConstFloats sent, OpLabel label, std::int64_t& calls);

 private:
  struct Block {
    void* data;
    std::size_t bytes;
  };
  void* allocate(std::size_t bytes);

  Backend& backend_;
  std::shared_ptr<Arithmetic> arithmetic_;
  Topology topology_;
  std::int64_t index_;
  Stream compute_;
  Groups groups_;
  std::vector<Block> blocks_;
  CollectiveCalls calls_;
  std::unique_ptr<Runtime> gtp_;
};

/// The last member of what enqueued work refers to: that stays until the work is done, also when a constructor throws.
class DrainFirst {
 public:
  explicit DrainFirst(Rank& rank) : rank_(rank) {}
  DrainFirst(const DrainFirst&) = delete;
  DrainFirst& operator=(const DrainFirst&) = delete;
  ~DrainFirst() { rank_.drain(); }

 private:
  Rank& rank_;
};

}  // namespace gtp::train
