// Virtual streams of the host backend and what waits in them. Plain data: the scheduler runs it, the device fills it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/host_backend.hpp"
#include "kernels/host_clock.hpp"

namespace gtp::host {

struct VirtualStream;

/// One `record`. Done when the work before it in its stream has run.
struct EventRecord {
  bool done = false;
  Clock clock;
  const VirtualStream* stream = nullptr;
};

struct HostEvent {
  EventKind kind = EventKind::kInternal;
  /// Of the latest record outside captures, or by a launched graph; nullptr: never.
  std::shared_ptr<EventRecord> last;
  /// Latest capture in which it was recorded, and the number of that record in it.
  std::uint64_t capture = 0;
  std::size_t captured_record = 0;
  /// The latest record of an internal event was captured, so there is nothing to wait for outside.
  bool captured_only = false;
};

enum class CollectiveKind : std::uint8_t { kAllGather, kReduceScatter, kAllToAll, kAllReduce };

std::string_view collective_name(CollectiveKind kind) noexcept;

struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kAllGather;
  ElementType type = ElementType::kByte;
  std::vector<CollectivePart> parts;
};

/// Shared by the members; `arrived` and `done` belong to the scheduler, `issued[m]` to member m.
struct HostCommunicator {
  std::string group;
  CommunicatorPurpose purpose{};
  std::vector<std::int64_t> ranks;
  std::vector<std::uint64_t> issued;
  std::vector<VirtualStream*> arrived;
  std::size_t arrivals = 0;
  std::uint64_t done = 0;
  /// Registered memory of each member.
  std::vector<std::vector<std::pair<const char*, std::size_t>>> windows;
};

/// What a rank holds of a communicator.
struct Membership {
  std::shared_ptr<HostCommunicator> communicator;
  std::size_t position = 0;
};

enum class OpType : std::uint8_t { kKernel, kCollective, kRecord, kWait };

struct Op {
  OpType type = OpType::kKernel;
  std::string_view name;
  OpLabel label;
  std::function<void()> body;
  std::vector<Access> accesses;
  std::shared_ptr<EventRecord> event;
  std::shared_ptr<HostCommunicator> communicator;
  std::size_t position = 0;
  std::uint64_t sequence = 0;
  CollectiveCall call;
  /// Set if the host had waited for the device since the stream's previous operation: this one happens after.
  std::shared_ptr<const Clock> host_clock;

  // Of the scheduler, from the time the operation reaches the head of its stream.
  bool seen = false;
  bool fails = false;
  std::uint64_t seen_step = 0;
  std::uint64_t hold = 0;
  std::int64_t injection = -1;
};

struct VirtualStream {
  std::int64_t rank = 0;
  std::size_t index = 0;  ///< In clocks; unique in the world.
  std::string name;
  std::deque<Op> queue;
  Clock clock;
  const Clock* host_clock_seen = nullptr;
};

}  // namespace gtp::host
