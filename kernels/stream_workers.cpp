#include "kernels/stream_workers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace gtp {

using host::EventRecord;
using host::GraphNode;
using host::HostEvent;
using host::HostGraph;
using host::Op;
using host::OpType;
using host::VirtualStream;

namespace {

Op event_op(OpType type, std::shared_ptr<EventRecord> event) {
  Op op;
  op.type = type;
  op.name = type == OpType::kRecord ? host_op::kRecord : host_op::kWait;
  op.event = std::move(event);
  return op;
}

[[noreturn]] void refuse_capture(std::string text) {
  throw RuntimeError(RuntimeStatus::kCaptureFailed, std::move(text));
}

}  // namespace

StreamWorkers::~StreamWorkers() {
  {
    Lock lock(mutex_);
    const bool drained = is_drained(nullptr);
    lock.unlock();
    if (!drained) {
      fail({RuntimeStatus::kAborted, fmt::format("rank {}: the backend was destroyed with work under way", rank_)});
    }
  }
  while (!streams_.empty()) destroy_stream(*streams_.back());
}

VirtualStream& StreamWorkers::make_stream(std::string_view name) {
  check();
  auto made = std::make_unique<WorkerStream>();
  made->rank = rank_;
  made->name = name;
  WorkerStream& stream = *made;
  const Lock lock(mutex_);
  streams_.push_back(std::move(made));
  stream.thread = std::thread([this, &stream] { work(stream); });
  return stream;
}

void StreamWorkers::destroy_stream(VirtualStream& stream) noexcept {
  Lock lock(mutex_);
  const auto place =
      std::ranges::find(streams_, &stream, [](const auto& each) -> VirtualStream* { return each.get(); });
  if (place == streams_.end()) return;
  const std::unique_ptr<WorkerStream> taken = std::move(*place);
  streams_.erase(place);
  taken->stopping = true;
  changed_.notify_all();
  lock.unlock();
  taken->thread.join();
}

void StreamWorkers::work(WorkerStream& stream) {
  Lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stream.stopping || !stream.queue.empty(); });
    if (stream.queue.empty()) return;
    if (failure() == nullptr) run_head(stream, lock);
    if (failure() != nullptr) {
      stream.queue.clear();
    } else {
      stream.queue.pop_front();
    }
    changed_.notify_all();
  }
}

void StreamWorkers::run_head(WorkerStream& stream, Lock& lock) {
  Op& op = stream.queue.front();  // stays in place while others push behind it
  const auto wait_for = [&](auto&& condition) {
    changed_.wait(lock, [&] { return condition() || failure() != nullptr; });
  };
  switch (op.type) {
    case OpType::kRecord:
      op.event->done = true;
      return;
    case OpType::kWait:
      if (op.event) wait_for([&] { return op.event->done; });
      return;
    case OpType::kCollective:
      wait_for([&] { return op.communicator->done == op.sequence; });
      if (failure() != nullptr) return;
      run_body(stream, op, lock);
      ++op.communicator->done;
      return;
    case OpType::kKernel:
      run_body(stream, op, lock);
      return;
  }
}

void StreamWorkers::run_body(WorkerStream& stream, Op& op, Lock& lock) {
  const std::int64_t begin = now();
  lock.unlock();
  try {
    op.body();
  } catch (const RuntimeError& error) {
    fail({error.status(), error.text()});
  } catch (const std::exception& error) {
    fail({RuntimeStatus::kCollectiveFailed, fmt::format("rank {}: {} of `{}` on stream {}: {}", rank_, op.name,
                                                        op.label.weight, stream.name, error.what())});
  }
  lock.lock();
  if (trace_ == nullptr || failure() != nullptr) return;
  const std::string_view group = op.communicator ? std::string_view(op.communicator->group) : std::string_view{};
  trace_->span({rank_, stream.name, op.name, op.label.weight, group, begin, now()});
}

std::int64_t StreamWorkers::now() const {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start_).count();
}

/// Precondition: the mutex is held.
void StreamWorkers::enqueue(VirtualStream& stream, Op op) {
  if (op.type == OpType::kCollective) op.sequence = op.communicator->issued[op.position]++;
  stream.queue.push_back(std::move(op));
  changed_.notify_all();
}

void StreamWorkers::push(VirtualStream& stream, Op op) {
  check();
  if (captures(stream)) return capture_->add(stream, std::move(op));
  const Lock lock(mutex_);
  enqueue(stream, std::move(op));
}

void StreamWorkers::record(HostEvent& event, VirtualStream& stream) {
  check();
  if (captures(stream)) return capture_->record(event, stream);
  event.last = std::make_shared<EventRecord>();
  event.captured_only = false;
  const Lock lock(mutex_);
  enqueue(stream, event_op(OpType::kRecord, event.last));
}

void StreamWorkers::wait(VirtualStream& stream, HostEvent& event) {
  check();
  const bool captured_here = capture_ && event.captured_only && event.capture == capture_->number();
  if (captures(stream) || captured_here) return capture_->wait(stream, event);
  if (event.captured_only) {
    refuse_capture(fmt::format("stream {} waits for an internal event that was recorded in a capture", stream.name));
  }
  if (!event.last) return;
  const Lock lock(mutex_);
  enqueue(stream, event_op(OpType::kWait, event.last));
}

void StreamWorkers::begin_capture(VirtualStream& stream) {
  check();
  if (capture_) refuse_capture("a capture is already under way");
  capture_ = std::make_unique<host::Capture>(++captures_, stream);
}

std::unique_ptr<HostGraph> StreamWorkers::end_capture(VirtualStream& stream) {
  check();
  if (!capture_ || &capture_->origin() != &stream) refuse_capture("no capture began on stream " + stream.name);
  const std::unique_ptr<host::Capture> capture = std::move(capture_);
  std::unique_ptr<HostGraph> graph = capture->finish();
  for (const GraphNode& node : graph->nodes) {
    VirtualStream*& lane = graph->lanes[node.stream];
    if (lane == nullptr) lane = &make_stream(node.stream->name + " (graph)");
  }
  return graph;
}

/// External waits see the records made before this launch; its own records come after.
void StreamWorkers::launch(HostGraph& graph, VirtualStream& stream) {
  check();
  const Lock lock(mutex_);
  const auto fork = std::make_shared<EventRecord>();
  enqueue(stream, event_op(OpType::kRecord, fork));
  for (const auto& [from, lane] : graph.lanes) enqueue(*lane, event_op(OpType::kWait, fork));
  std::vector<std::shared_ptr<EventRecord>> edges(graph.edges);
  for (auto& edge : edges) edge = std::make_shared<EventRecord>();
  std::vector<std::pair<HostEvent*, std::shared_ptr<EventRecord>>> recorded;
  for (const GraphNode& node : graph.nodes) {
    Op op = node.op;
    if (node.is_edge) {
      op.event = edges[node.edge];
    } else if (node.external != nullptr && op.type == OpType::kWait) {
      op.event = node.external->last;
    } else if (node.external != nullptr) {
      op.event = std::make_shared<EventRecord>();
      recorded.emplace_back(node.external, op.event);
    }
    enqueue(*graph.lanes[node.stream], std::move(op));
  }
  for (auto& [event, record] : recorded) {
    event->last = std::move(record);
    event->captured_only = false;
  }
  for (const auto& [from, lane] : graph.lanes) {
    const auto join = std::make_shared<EventRecord>();
    enqueue(*lane, event_op(OpType::kRecord, join));
    enqueue(stream, event_op(OpType::kWait, join));
  }
}

void StreamWorkers::destroy_graph(std::unique_ptr<HostGraph> graph) noexcept {
  for (const auto& [from, lane] : graph->lanes) destroy_stream(*lane);
}

void StreamWorkers::fail(BackendFailure failure) noexcept {
  const Lock lock(mutex_);
  if (failed_.load(std::memory_order_relaxed) != nullptr) return;
  failure_ = std::move(failure);
  failed_.store(&failure_, std::memory_order_release);
  changed_.notify_all();
}

void StreamWorkers::check() const {
  if (const BackendFailure* why = failure()) throw RuntimeError(why->status, why->text);
}

bool StreamWorkers::is_drained(const VirtualStream* stream) const {
  return std::ranges::all_of(
      streams_, [&](const auto& each) { return (stream != nullptr && each.get() != stream) || each->queue.empty(); });
}

bool StreamWorkers::drain(const VirtualStream* stream, std::chrono::milliseconds limit) {
  Lock lock(mutex_);
  const bool drained = changed_.wait_for(lock, limit, [&] { return failure() != nullptr || is_drained(stream); });
  lock.unlock();
  check();
  return drained;
}

void StreamWorkers::set_trace(TraceSink* sink) {
  const Lock lock(mutex_);
  trace_ = sink;
}

}  // namespace gtp
