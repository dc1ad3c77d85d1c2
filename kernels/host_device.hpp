// One rank of the host backend as its thread sees it: turns calls into operations in streams, or into nodes of the
// graph that is being captured.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kernels/host_capture.hpp"
#include "kernels/host_world.hpp"

namespace gtp::host {

class Device {
 public:
  Device(World& world, std::int64_t rank) : world_(world), rank_(rank) {}
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  World& world() noexcept { return world_; }
  RankState& state() noexcept { return world_.rank(rank_); }
  std::int64_t rank() const noexcept { return rank_; }

  void push(VirtualStream& stream, Op op);
  void record(HostEvent& event, VirtualStream& stream);
  void wait(VirtualStream& stream, HostEvent& event);
  void collective(CollectiveCall call, Membership& membership, VirtualStream& stream, OpLabel label);

  void begin_capture(VirtualStream& stream);
  std::unique_ptr<HostGraph> end_capture(VirtualStream& stream);
  void abort_capture() noexcept { capture_.reset(); }
  bool is_capturing() const noexcept { return capture_ != nullptr; }
  void launch(HostGraph& graph, VirtualStream& stream);

  void* allocate(std::size_t bytes);
  void deallocate(void* data, std::size_t bytes) noexcept;
  /// After the host has waited for the device: what it enqueues from now on happens after what has run.
  void host_caught_up(const VirtualStream* only);
  void synchronize(Until until, std::chrono::milliseconds limit);

 private:
  bool captures(const VirtualStream& stream) const noexcept { return capture_ && capture_->has(stream); }
  void enqueue(VirtualStream& stream, Op op);
  const Op* pending_user(const char* data, std::size_t bytes);

  World& world_;
  std::int64_t rank_;
  std::unique_ptr<Capture> capture_;
  std::uint64_t captures_ = 0;
  std::unordered_set<void*> allocations_;
};

}  // namespace gtp::host
