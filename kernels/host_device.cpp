#include "kernels/host_device.hpp"

#include <fmt/format.h>

#include <cstring>
#include <new>

namespace gtp::host {

namespace {

constexpr std::align_val_t kAlignment{256};
constexpr int kPoison = 0xFF;

Op event_op(OpType type, std::shared_ptr<EventRecord> event) {
  Op op;
  op.type = type;
  op.name = type == OpType::kRecord ? host_op::kRecord : host_op::kWait;
  op.event = std::move(event);
  return op;
}

}  // namespace

/// What the rank did not free, because it failed, goes with the world.
Device::~Device() {
  for (void* data : allocations_) ::operator delete(data, kAlignment);
}

void Device::enqueue(VirtualStream& stream, Op op) {
  const auto& host_clock = state().host_clock;
  if (host_clock && stream.host_clock_seen != host_clock.get()) {
    stream.host_clock_seen = host_clock.get();
    op.host_clock = host_clock;
  }
  stream.queue.push_back(std::move(op));
}

void Device::push(VirtualStream& stream, Op op) {
  world_.enter(rank_);
  if (captures(stream)) {
    capture_->add(stream, std::move(op));
  } else {
    enqueue(stream, std::move(op));
  }
}

void Device::record(HostEvent& event, VirtualStream& stream) {
  world_.enter(rank_);
  if (captures(stream)) return capture_->record(event, stream);
  event.last = std::make_shared<EventRecord>();
  event.last->stream = &stream;
  event.captured_only = false;
  enqueue(stream, event_op(OpType::kRecord, event.last));
}

void Device::wait(VirtualStream& stream, HostEvent& event) {
  world_.enter(rank_);
  const bool captured_here = capture_ && event.captured_only && event.capture == capture_->number();
  if (captures(stream) || captured_here) return capture_->wait(stream, event);
  if (event.captured_only) {
    throw RuntimeError(
        RuntimeStatus::kCaptureFailed,
        fmt::format("stream {} waits for an internal event that was recorded in a capture", stream.name));
  }
  if (event.last) enqueue(stream, event_op(OpType::kWait, event.last));
}

void Device::collective(CollectiveCall call, Membership& membership, VirtualStream& stream, OpLabel label) {
  world_.enter(rank_);
  Op op;
  op.type = OpType::kCollective;
  op.name = collective_name(call.kind);
  op.label = label;
  op.communicator = membership.communicator;
  op.position = membership.position;
  const std::size_t members = membership.communicator->ranks.size();
  const bool sends_all = call.kind == CollectiveKind::kReduceScatter || call.kind == CollectiveKind::kAllToAll;
  const bool receives_all = call.kind == CollectiveKind::kAllGather || call.kind == CollectiveKind::kAllToAll;
  for (const CollectivePart& part : call.parts) {
    const std::size_t bytes = part.count * element_bytes(call.type);
    if (part.send != part.receive) op.accesses.push_back({part.send, bytes * (sends_all ? members : 1), false});
    op.accesses.push_back({part.receive, bytes * (receives_all ? members : 1), true});
  }
  op.call = std::move(call);
  if (captures(stream)) return capture_->add(stream, std::move(op));
  op.sequence = op.communicator->issued[op.position]++;
  enqueue(stream, std::move(op));
}

void Device::begin_capture(VirtualStream& stream) {
  world_.enter(rank_);
  if (capture_) throw RuntimeError(RuntimeStatus::kCaptureFailed, "a capture is already under way");
  capture_ = std::make_unique<Capture>(++captures_, stream);
}

std::unique_ptr<HostGraph> Device::end_capture(VirtualStream& stream) {
  world_.enter(rank_);
  if (!capture_ || &capture_->origin() != &stream) {
    throw RuntimeError(RuntimeStatus::kCaptureFailed, "no capture began on stream " + stream.name);
  }
  const std::unique_ptr<Capture> capture = std::move(capture_);
  std::unique_ptr<HostGraph> graph = capture->finish();
  for (const GraphNode& node : graph->nodes) {
    VirtualStream*& lane = graph->lanes[node.stream];
    if (lane == nullptr) lane = &world_.make_stream(rank_, node.stream->name + " (graph)");
  }
  return graph;
}

/// External waits see the records made before this launch, as event nodes of a graph do; its own records come after.
void Device::launch(HostGraph& graph, VirtualStream& stream) {
  world_.enter(rank_);
  const auto fork = std::make_shared<EventRecord>();
  fork->stream = &stream;
  enqueue(stream, event_op(OpType::kRecord, fork));
  for (const auto& [from, lane] : graph.lanes) enqueue(*lane, event_op(OpType::kWait, fork));

  std::vector<std::shared_ptr<EventRecord>> edges(graph.edges);
  for (auto& edge : edges) edge = std::make_shared<EventRecord>();
  std::vector<std::pair<HostEvent*, std::shared_ptr<EventRecord>>> recorded;
  for (const GraphNode& node : graph.nodes) {
    VirtualStream& lane = *graph.lanes[node.stream];
    Op op = node.op;
    if (node.is_edge) {
      op.event = edges[node.edge];
      if (op.type == OpType::kRecord) op.event->stream = &lane;
    } else if (node.external != nullptr && op.type == OpType::kWait) {
      op.event = node.external->last;
    } else if (node.external != nullptr) {
      op.event = std::make_shared<EventRecord>();
      op.event->stream = &lane;
      recorded.emplace_back(node.external, op.event);
    } else if (op.type == OpType::kCollective) {
      op.sequence = op.communicator->issued[op.position]++;
    }
    enqueue(lane, std::move(op));
  }
  for (auto& [event, record] : recorded) {
    event->last = std::move(record);
    event->captured_only = false;
  }
  for (const auto& [from, lane] : graph.lanes) {
    const auto join = std::make_shared<EventRecord>();
    join->stream = lane;
    enqueue(*lane, event_op(OpType::kRecord, join));
    enqueue(stream, event_op(OpType::kWait, join));
  }
}

void* Device::allocate(std::size_t bytes) {
  world_.enter(rank_);
  if (capture_) throw RuntimeError(RuntimeStatus::kCaptureFailed, "memory was asked for during capture");
  void* data = ::operator new(bytes, kAlignment, std::nothrow);
  if (data == nullptr) return nullptr;
  std::memset(data, kPoison, bytes);
  allocations_.insert(data);
  state().detector.allocate(data, bytes);
  state().live_bytes.fetch_add(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
  return data;
}

const Op* Device::pending_user(const char* data, std::size_t bytes) {
  for (const auto& stream : state().streams) {
    for (const Op& op : stream->queue) {
      for (const Access& access : op.accesses) {
        const char* begin = static_cast<const char*>(access.data);
        if (begin < data + bytes && data < begin + access.bytes) return &op;
      }
    }
  }
  return nullptr;
}

void Device::deallocate(void* data, std::size_t bytes) noexcept {
  if (data == nullptr || allocations_.erase(data) == 0) return;
  if (world_.is_alive(rank_)) {
    if (const Op* op = pending_user(static_cast<const char*>(data), bytes)) {
      world_.fail(rank_, RuntimeStatus::kCollectiveFailed,
                  fmt::format("hazard: memory was freed under a pending {} of {}", op->name, op->label.weight));
    }
  }
  state().detector.forget(data);
  state().live_bytes.fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
  std::memset(data, kPoison, bytes);
  ::operator delete(data, kAlignment);
}

void Device::host_caught_up(const VirtualStream* only) {
  auto clock = std::make_shared<Clock>();
  if (state().host_clock) clock->join(*state().host_clock);
  for (const auto& stream : state().streams) {
    if (only == nullptr || only == stream.get()) clock->join(stream->clock);
  }
  state().host_clock = std::move(clock);
}

void Device::synchronize(Until until, std::chrono::milliseconds limit) {
  world_.block(rank_, until, limit);
  host_caught_up(until.stream);
}

}  // namespace gtp::host
