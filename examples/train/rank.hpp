// One rank of a run: its backend, its process groups, its memory, and how its arithmetic gets onto a stream. Any
// backend whose memory the host can touch will do: threads of one process, or a process a rank.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "kernels/host_world.hpp"
#include "kernels/runtime.hpp"
#include "linear.hpp"

namespace gtp::train {

/// Runs arithmetic in stream order.
class Launcher {
 public:
  Launcher() = default;
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  virtual ~Launcher() = default;
  /// `accesses` are all memory that `body` touches on this device. The text of `label` must outlive the operation.
  virtual void launch(Stream stream, OpLabel label, std::span<const Access> accesses, std::function<void()> body) = 0;
};

/// For threads as ranks: accesses are checked for races.
class HostLauncher final : public Launcher {
 public:
  explicit HostLauncher(HostBackend& backend) : backend_(backend) {}
  void launch(Stream stream, OpLabel label, std::span<const Access> accesses, std::function<void()> body) override;

 private:
  HostBackend& backend_;
};

/// For any backend with host memory, by Backend::host_function. Destroy it after the backend has been drained.
class FunctionLauncher final : public Launcher {
 public:
  explicit FunctionLauncher(Backend& backend) : backend_(backend) {}
  void launch(Stream stream, OpLabel label, std::span<const Access> accesses, std::function<void()> body) override;

 private:
  struct Job {
    std::function<void()> body;
    std::atomic<bool> done{false};
  };
  Backend& backend_;
  std::deque<Job> jobs_;
};

/// What a transport brings along for one rank.
struct RankBackend {
  Backend& backend;
  Launcher& launcher;
  std::int64_t rank = 0;
};

/// Calls of collectives by this example, one for each group with more than one member. The runtime counts its own.
struct CollectiveCalls {
  std::int64_t tensor_parallel = 0;
  std::int64_t expert_exchange = 0;
  std::int64_t replicate = 0;
  std::int64_t norm_and_loss = 0;

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

  void run(OpLabel label, std::initializer_list<Access> accesses, std::function<void()> body);
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
  Launcher& launcher_;
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
