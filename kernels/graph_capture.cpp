// The capture and replay state machine.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/runtime_core.hpp"

namespace gtp::detail {

namespace {

[[noreturn]] void refuse(std::string text) { throw RuntimeError(RuntimeStatus::kCaptureFailed, std::move(text)); }

}  // namespace

void Capturer::require_drained() const {
  for (ShardedWeight& weight : core_.weights) {
    WeightState& state = weight.state();
    if (weight.is_alias() || !state.streams->graphed) continue;
    if (state.grad.in_flight || state.grad.handed_out) {
      refuse(fmt::format("a reduction of `{}` is outstanding: call fence_grads before a capture", weight.name()));
    }
    for (const GatherState& gather : state.gathers) {
      if (gather.held) refuse(fmt::format("`{}` is held across the border of a capture", weight.name()));
      if (gather.in_flight && gather.capture == 0) {
        refuse(
            fmt::format("a gather of `{}` is outstanding, and replays would not repeat it: end the warm-up with "
                        "end_warmup before a capture",
                        weight.name()));
      }
    }
  }
}

GraphScope& Capturer::begin(std::string name, Stream stream) {
  core_.check();
  if (core_.scope != nullptr) refuse(fmt::format("the capture of `{}` is under way", core_.scope->name));
  if (core_.warming) refuse("a warm-up is under way: call end_warmup before a capture");
  gatherer_.close_views({});
  require_drained();
  core_.scopes.push_back({});
  GraphScope& scope = core_.scopes.back();
  scope.name = std::move(name);
  scope.capture = ++core_.captures;
  scope.origin = stream;
  scope.completion = core_.make_event(EventKind::kExternal);
  core_.backend.begin_capture(stream);
  core_.scope = &scope;
  core_.cache.forbid_allocation(true);
  return scope;
}

/// Gathers first: the next graph may start once they and compute are done. Then reductions, up to the last addition.
void Capturer::join(GraphScope& scope) {
  gatherer_.close_views({});
  for (CommStreams& pair : core_.streams) {
    if (pair.gather_capture != scope.capture) continue;
    core_.backend.record(pair.gather_tail, pair.gather);
    core_.backend.wait(scope.origin, pair.gather_tail);
  }
  core_.backend.record(scope.completion, scope.origin);
  for (ShardedWeight* weight : scope.reduced) {
    if (weight->state().grad.in_flight) reducer_.finalize(*weight);
  }
  for (CommStreams& pair : core_.streams) {
    if (pair.reduce_capture != scope.capture) continue;
    core_.backend.record(pair.graph_tail, pair.reduce);
    core_.backend.record(pair.reduce_tail, pair.reduce);
    core_.backend.wait(scope.origin, pair.reduce_tail);
  }
}

void Capturer::end(GraphScope& scope) {
  core_.check();
  if (core_.scope != &scope) refuse(fmt::format("the capture of `{}` is not under way", scope.name));
  try {
    join(scope);
    scope.graph = core_.backend.end_capture(scope.origin);
  } catch (...) {
    abort(scope);
    throw;
  }
  core_.scope = nullptr;
  core_.cache.forbid_allocation(false);
  ++core_.counters.captures;
}

void Capturer::abort(GraphScope& scope) noexcept {
  if (core_.scope != &scope) return;
  core_.backend.abort_capture();
  forget_capture(scope);
  core_.scope = nullptr;
  core_.cache.forbid_allocation(false);
}

/// None of what was recorded will run, so nothing is under way.
void Capturer::forget_capture(GraphScope& scope) noexcept {
  for (ShardedWeight& weight : core_.weights) {
    WeightState& state = weight.state();
    for (GatherState& gather : state.gathers) {
      const bool issued = gather.in_flight && gather.capture == scope.capture;
      const bool opened = gather.open && gather.reader_capture == scope.capture;
      if (!issued && !opened) continue;
      for (const Ticket ticket : gather.tickets) core_.cache.release(ticket, {}, scope.capture);
      gather.in_flight = gather.open = gather.held = false;
    }
    if (!state.grad.in_flight && !state.grad.handed_out) continue;
    if (weight.is_alias() || !state.streams->graphed) continue;
    for (const Ticket ticket : state.grad.wgrads) core_.cache.release(ticket, {}, scope.capture);
    for (const Ticket ticket : state.grad.outputs) core_.cache.release(ticket, {}, scope.capture);
    state.grad.in_flight = state.grad.handed_out = false;
  }
  gatherer_.forget_open();
  scope.slots.clear();
}

void Capturer::before_replay(GraphScope& scope, Stream stream) {
  core_.check();
  if (scope.graph.handle == nullptr) refuse(fmt::format("`{}` has no graph: its capture failed", scope.name));
  for (const ReadyBucket bucket : scope.forward_reads) gatherer_.ensure_published(bucket, stream);
  for (const ShardedWeight* weight : scope.gathered) {
    if (weight->state().was_published) core_.backend.wait(stream, weight->state().published);
  }
  if (core_.last_replayed != nullptr) core_.backend.wait(stream, core_.last_replayed->completion);
  for (CommStreams& pair : core_.streams) {
    if (!pair.graphed || !pair.used_eagerly) continue;
    pair.used_eagerly = false;
    core_.backend.record(pair.gather_tail, pair.gather);
    core_.backend.wait(stream, pair.gather_tail);
    core_.backend.record(pair.reduce_tail, pair.reduce);
    core_.backend.wait(stream, pair.reduce_tail);
  }
  for (const GraphScope::WgradSlot& slot : scope.slots) core_.backend.wait(stream, slot.ready);
}

void Capturer::replay(GraphScope& scope, Stream stream) {
  before_replay(scope, stream);
  core_.backend.launch(scope.graph, stream);
  scope.replayed = true;
  core_.last_replayed = &scope;
  ++core_.counters.replays;
  for (CommStreams& pair : core_.streams) {
    if (!pair.graphed || (pair.gather_capture == 0 && pair.reduce_capture == 0)) continue;
    pair.replayed = true;
  }
  for (ShardedWeight* weight : scope.reduced) {
    if (!weight->spec().grad_ready) continue;
    const CommStreams& pair = *weight->state().streams;
    core_.backend.wait(pair.reduce, pair.graph_tail);
    ++core_.counters.grad_ready_calls;
    weight->spec().grad_ready(*weight, pair.reduce);
  }
}

}  // namespace gtp::detail
