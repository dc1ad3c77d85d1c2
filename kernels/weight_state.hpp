// What the runtime remembers of one weight between calls. Private to kernels/.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/buffer_cache.hpp"
#include "kernels/sharded_weight.hpp"

namespace gtp::detail {

/// The two side streams of one group on one side of the capture border. They never serve another group, nor the other
/// side, so what shares a buffer key shares their order.
struct CommStreams {
  const Group* group = nullptr;
  bool graphed = false;
  Stream gather{};
  Stream reduce{};
  Event gather_tail{};  ///< For joining, inside a capture or outside.
  Event reduce_tail{};
  Event graph_tail{};                ///< External: end of the reductions of the latest replay.
  std::uint64_t gather_capture = 0;  ///< Latest capture that the stream joined.
  std::uint64_t reduce_capture = 0;
  bool replayed = false;
  bool used_eagerly = false;  ///< On the graphed side, since the latest replay.
};

/// Forward, dgrad or recompute: each has its own buffers and its own gather in flight.
struct GatherState {
  std::vector<Ticket> tickets;  ///< One per shard.
  std::vector<CollectivePart> parts;
  std::vector<GatheredView> views;
  bool in_flight = false;  ///< Issued, not consumed.
  bool open = false;       ///< Consumed, and its last reader may not have been enqueued.
  bool held = false;
  std::uint64_t version = 0;
  std::uint64_t capture = 0;  ///< In which it was issued.
  std::uint64_t reader_capture = 0;
  Stream reader_stream{};
  Event ready{};
  Event ready_external{};
  Event reader{};
  Event captured_reader{};
};

struct GradState {
  std::vector<Ticket> wgrads;
  std::vector<Ticket> outputs;  ///< Of a reduce-scatter, or the scratch of an all-to-all.
  std::vector<Ticket> scratches;
  std::vector<Ticket> backups;
  std::vector<CollectivePart> parts;
  std::vector<WgradView> views;
  bool handed_out = false;
  bool in_flight = false;
  bool fp32_accumulation = false;
  bool backed_up = false;
  Event produced{};
  Event sent{};  ///< The reduction has read the wgrads.
  Event captured_sent{};
  Event added{};
  Event captured_added{};
};

struct WeightState {
  PrefetchChain* chain = nullptr;
  CommStreams* streams = nullptr;
  std::array<GatherState, kUseCount> gathers;
  GradState grad;
  std::uint64_t version = 1;
  std::uint64_t generation = 0;
  Event published{};
  bool was_published = false;
  bool awaits_published = false;

  // Of the chain: positions in the forward and the recompute order, and the buffer slots there.
  static constexpr std::size_t kNowhere = ~std::size_t{0};
  std::array<std::size_t, 2> positions{kNowhere, kNowhere};
  std::array<std::uint32_t, 2> slots{0, 0};

  GatherState& gather(Use use) noexcept { return gathers[static_cast<std::size_t>(use)]; }
};

}  // namespace gtp::detail
