// Materialize ahead.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/runtime_core.hpp"

namespace gtp::detail {

namespace {

constexpr std::int64_t kComponentAlignment = 256;

CopyDirection direction_of(Use use) noexcept { return use == Use::kDgrad ? CopyDirection::kCol : CopyDirection::kRow; }

/// Where a component begins in the buffer of one shard's gathered weight.
std::int64_t offset_of(const ShardLayout& layout, CopyDirection direction, Component wanted) noexcept {
  std::int64_t offset = 0;
  for (const Component component : kComponents) {
    if (component == wanted) break;
    if (layout.gathers(direction, component)) {
      offset += (layout.extent(component).gathered_bytes + kComponentAlignment - 1) / kComponentAlignment *
                kComponentAlignment;
    }
  }
  return offset;
}

std::size_t buffer_bytes(const ShardLayout& layout, CopyDirection direction) noexcept {
  std::int64_t bytes = 0;
  for (const Component component : kComponents) {
    if (!layout.gathers(direction, component)) continue;
    bytes = offset_of(layout, direction, component) + layout.extent(component).gathered_bytes;
  }
  return static_cast<std::size_t>(bytes);
}

std::size_t index_of(Component component) noexcept { return static_cast<std::size_t>(component); }

GatheredView shape_of(const ShardLayout& layout) noexcept {
  return {{}, layout.rows(), layout.padded_rows(), layout.cols(), false, 0, 0};
}

}  // namespace

void Gatherer::prepare(ShardedWeight& weight) {
  WeightState& state = weight.state();
  const bool graphed = !weight.is_alias() && state.streams->graphed;
  for (GatherState& gather : state.gathers) {
    gather.views.assign(weight.shard_count(), shape_of(weight.layout()));
    if (weight.is_alias()) continue;
    gather.ready = core_.make_event();
    gather.reader = core_.make_event();
    if (!graphed) continue;
    gather.ready_external = core_.make_event(EventKind::kExternal);
    gather.captured_reader = core_.make_event();
  }
  if (!weight.is_alias()) state.published = core_.make_event();
  open_.reserve(core_.weights.size() * kUseCount);
}

BufferKey Gatherer::key_of(const ShardedWeight& weight, Use use, std::size_t shard) const {
  const WeightState& state = weight.state();
  const ShardLayout& layout = weight.layout();
  BufferKey key;
  key.group = &weight.group();
  key.graphed = state.streams->graphed;
  key.use = BufferUse::kGather;
  key.padded_rows = layout.padded_rows();
  key.cols = layout.cols();
  key.format = layout.format();
  key.columns = use == Use::kDgrad && layout.format() == WeightFormat::kMxfp8;
  key.recompute = use == Use::kRecompute;
  key.expert = static_cast<std::uint32_t>(shard);
  key.chain = state.chain->key().role == ChainRole::kGeneral ? 0 : state.chain->id();
  return key;
}

/// Of weights that are live together, no two may share a buffer: the smallest slot that none of the `depth` weights
/// before this one has under the same key.
void Gatherer::link(ShardedWeight& weight, bool recompute) {
  if (weight.is_alias()) return;
  WeightState& state = weight.state();
  const std::size_t which = recompute ? 1 : 0;
  const Use use = recompute ? Use::kRecompute : Use::kForward;
  const std::size_t position = state.positions[which];
  if (position != WeightState::kNowhere && state.gather(use).tickets.empty()) {
    const auto order = state.chain->order(recompute);
    std::uint64_t taken = 0;
    for (std::size_t back = 1; back <= state.chain->depth() && back <= position; ++back) {
      const ShardedWeight& before = *order[position - back];
      const bool shares = key_of(before, use, 0) == key_of(weight, use, 0);
      if (shares) taken |= std::uint64_t{1} << before.state().slots[which];
    }
    while ((taken >> state.slots[which] & 1U) != 0) ++state.slots[which];
  }
  reserve(weight, use);
  if (!recompute) reserve(weight, Use::kDgrad);
}

void Gatherer::reserve(ShardedWeight& weight, Use use) {
  WeightState& state = weight.state();
  GatherState& gather = state.gather(use);
  if (!gather.tickets.empty()) return;
  const Communicator window = core_.options.register_gather_outputs ? weight.group().gather_comm() : Communicator{};
  for (std::size_t shard = 0; shard < weight.shard_count(); ++shard) {
    gather.tickets.push_back(core_.cache.reserve(key_of(weight, use, shard),
                                                 state.slots[use == Use::kRecompute ? 1 : 0],
                                                 buffer_bytes(weight.layout(), direction_of(use)), window));
  }
  gather.parts.reserve(weight.shard_count() * kComponentCount);
}

std::span<const GatheredView> Gatherer::materialize(ShardedWeight& weight, Use use, Stream compute) {
  core_.check();
  if (weight.is_alias()) return alias(weight, use, compute);
  core_.require_usable(weight);
  WeightState& state = weight.state();
  GatherState& gather = state.gather(use);
  if (gather.held) {
    throw RuntimeError(RuntimeStatus::kInvalidUse, fmt::format("`{}` was materialized while held", weight.name()));
  }
  ++core_.counters.consumes;
  if (use == Use::kDgrad) state.chain->seal(false);
  if (use == Use::kForward) state.chain->seal(true);
  const Step step = state.chain->advance(weight, use);
  link(weight, use == Use::kRecompute);
  close_views(compute);
  if (gather.open) close(weight, use, gather.reader_stream);
  if (gather.in_flight && gather.version != state.version) {
    ++core_.counters.stale_gathers;
    drop(weight, use);
  }
  // What a capture recorded has not run for an eager consumer.
  if (gather.in_flight && gather.capture != 0 && core_.scope == nullptr) drop(weight, use);
  if (!gather.in_flight) {
    count(step);
    issue(weight, use, compute);
  }
  wait_until_gathered(weight, use, compute);
  if (step == Step::kHead || step == Step::kNext) prefetch(weight, use, compute);
  return gather.views;
}

std::span<const GatheredView> Gatherer::alias(ShardedWeight& weight, Use use, Stream compute) {
  GatherState& gather = weight.state().gather(use);
  if (use == Use::kForward) ensure_published(weight.spec().bucket, compute);
  for (std::size_t shard = 0; shard < weight.shard_count(); ++shard) {
    gather.views[shard].data = weight.spec().shards[shard].data;
    gather.views[shard].version = weight.version();
  }
  return gather.views;
}

void Gatherer::count(Step step) noexcept {
  switch (step) {
    case Step::kHead:
      ++core_.counters.head_gathers;
      return;
    case Step::kRecording:
      ++core_.counters.recording_gathers;
      return;
    case Step::kNext:
    case Step::kRepeat:
    case Step::kForeign:
      ++core_.counters.on_demand_gathers;
      return;
  }
}

void Gatherer::ensure_published(ReadyBucket bucket, Stream stream) {
  if (bucket == ReadyBucket::kNone) return;
  Bucket& state = core_.buckets[static_cast<std::size_t>(bucket) - 1];
  if (state.armed) {
    state.armed = false;
    state.was_ready = true;
    state.ready_on = stream;
    ++core_.counters.param_ready_calls;
    state.param_ready(stream);
    core_.backend.record(state.ready, stream);
  } else if (state.was_ready && state.ready_on != stream) {
    core_.backend.wait(stream, state.ready);
  }
}

/// The shard must be final, and the stream part of the capture, before the gather reads.
void Gatherer::order_before_gather(ShardedWeight& weight, Use use, Stream compute) {
  WeightState& state = weight.state();
  CommStreams& streams = *state.streams;
  if (core_.scope != nullptr) {
    core_.join_capture(streams.gather, streams.gather_capture, compute);
    if (use == Use::kForward && weight.spec().bucket != ReadyBucket::kNone) {
      if (std::ranges::find(core_.scope->forward_reads, weight.spec().bucket) == core_.scope->forward_reads.end()) {
        core_.scope->forward_reads.push_back(weight.spec().bucket);
      }
    }
    if (std::ranges::find(core_.scope->gathered, &weight) == core_.scope->gathered.end()) {
      core_.scope->gathered.push_back(&weight);
    }
    return;
  }
  core_.wait_for_replays(streams, streams.gather);
  if (use == Use::kForward) ensure_published(weight.spec().bucket, streams.gather);
  if (state.awaits_published) {
    core_.backend.wait(streams.gather, state.published);
    state.awaits_published = false;
  }
}

void Gatherer::issue(ShardedWeight& weight, Use use, Stream compute) {
  WeightState& state = weight.state();
  GatherState& gather = state.gather(use);
  CommStreams& streams = *state.streams;
  acquire(weight, use);
  order_before_gather(weight, use, compute);
  for (const Ticket ticket : gather.tickets) {
    Buffer& buffer = core_.cache.get(ticket);
    core_.wait_for_reader(buffer, streams.gather, streams.graphed);
    zero_scale_padding(weight, use, buffer);
  }
  fill_parts(weight, use);
  core_.backend.all_gather(gather.parts, ElementType::kByte, weight.group().gather_comm(), streams.gather,
                           {weight.name(), ""});
  core_.backend.record(gather.ready, streams.gather);
  if (streams.graphed) core_.backend.record(gather.ready_external, streams.gather);
  gather.in_flight = true;
  gather.version = state.version;
  gather.capture = core_.capture();
  ++state.generation;
  for (GatheredView& view : gather.views) {
    view.version = state.version;
    view.generation = state.generation;
  }
  ++core_.counters.gathers;
}

/// All shards or, if memory runs out, none.
void Gatherer::acquire(ShardedWeight& weight, Use use) {
  GatherState& gather = weight.state().gather(use);
  try {
    for (const Ticket ticket : gather.tickets) core_.cache.acquire(ticket);
  } catch (...) {
    for (const Ticket ticket : gather.tickets) core_.cache.put_back(ticket);
    throw;
  }
}

void Gatherer::fill_parts(ShardedWeight& weight, Use use) {
  GatherState& gather = weight.state().gather(use);
  const ShardLayout& layout = weight.layout();
  const CopyDirection direction = direction_of(use);
  gather.parts.clear();
  for (std::size_t shard = 0; shard < weight.shard_count(); ++shard) {
    char* base = static_cast<char*>(core_.cache.get(gather.tickets[shard]).data);
    GatheredView& view = gather.views[shard];
    for (const Component component : kComponents) {
      const void* own = weight.spec().shards[shard].data[index_of(component)];
      if (component == Component::kAmax) view.data[index_of(component)] = own;
      if (!layout.gathers(direction, component)) continue;
      void* whole = base + offset_of(layout, direction, component);
      view.data[index_of(component)] = whole;
      const auto bytes = static_cast<std::size_t>(layout.extent(component).wire_bytes);
      gather.parts.push_back({own, whole, bytes});
      core_.counters.gathered_bytes += layout.extent(component).wire_bytes;
    }
  }
}

/// Scale padding behind the last rank's part is never sent; it is zeroed once in a buffer's life.
void Gatherer::zero_scale_padding(ShardedWeight& weight, Use use, Buffer& buffer) {
  if (buffer.prepared) return;
  buffer.prepared = true;
  const ShardLayout& layout = weight.layout();
  for (const Component component : kComponents) {
    if (!layout.gathers(direction_of(use), component)) continue;
    const std::int64_t sent = layout.extent(component).wire_bytes * layout.group_size();
    const std::int64_t rest = layout.extent(component).gathered_bytes - sent;
    if (rest == 0) continue;
    char* tail = static_cast<char*>(buffer.data) + offset_of(layout, direction_of(use), component) + sent;
    core_.backend.fill(tail, 0, static_cast<std::size_t>(rest), weight.state().streams->gather, {weight.name(), ""});
  }
}

/// A gather of another graph, or of an eager call before this capture, is awaited through its external event.
void Gatherer::wait_until_gathered(ShardedWeight& weight, Use use, Stream compute) {
  GatherState& gather = weight.state().gather(use);
  const bool same_side = gather.capture == core_.capture();
  core_.backend.wait(compute, same_side ? gather.ready : gather.ready_external);
  gather.in_flight = false;
  gather.open = true;
  gather.reader_stream = compute;
  gather.reader_capture = core_.capture();
  open_.push_back({&weight, use});
}

void Gatherer::prefetch(ShardedWeight& weight, Use use, Stream compute) {
  const PrefetchChain& chain = *weight.state().chain;
  for (std::uint32_t distance = 1; distance <= chain.depth(); ++distance) {
    ShardedWeight* target = chain.ahead(use, distance);
    if (target == nullptr || target->is_alias()) continue;
    GatherState& gather = target->state().gather(use);
    if (gather.open || gather.held) continue;
    if (gather.in_flight && gather.version == target->state().version) continue;
    if (gather.in_flight) {
      ++core_.counters.stale_gathers;
      drop(*target, use);
    }
    link(*target, use == Use::kRecompute);
    ++core_.counters.prefetched_gathers;
    issue(*target, use, compute);
  }
}

void Gatherer::hold(ShardedWeight& weight, Use use) {
  GatherState& gather = weight.state().gather(use);
  if (weight.is_alias()) return;
  if (!gather.open) {
    throw RuntimeError(RuntimeStatus::kInvalidUse,
                       fmt::format("`{}` is not materialized, so there is nothing to hold", weight.name()));
  }
  gather.held = true;
}

void Gatherer::release(ShardedWeight& weight, Use use, Stream compute) {
  core_.check();
  GatherState& gather = weight.state().gather(use);
  if (!gather.held) return;
  gather.held = false;
  close(weight, use, compute);
}

void Gatherer::close_views(Stream stream) {
  for (std::size_t index = open_.size(); index-- > 0;) {
    const OpenView view = open_[index];
    const GatherState& gather = view.weight->state().gather(view.use);
    if (gather.held || (stream.handle != nullptr && gather.reader_stream != stream)) continue;
    close(*view.weight, view.use, gather.reader_stream);
  }
}

/// The work that reads the view has been enqueued: from here on the buffer may be had by others, after `reader`.
void Gatherer::close(ShardedWeight& weight, Use use, Stream stream) {
  GatherState& gather = weight.state().gather(use);
  const bool captured = core_.capture() != 0;
  const Event reader = captured ? gather.captured_reader : gather.reader;
  core_.backend.record(reader, stream);
  poison(weight, use);
  for (const Ticket ticket : gather.tickets) core_.cache.release(ticket, reader, core_.capture());
  gather.open = false;
  std::erase_if(open_, [&](const OpenView& view) { return view.weight == &weight && view.use == use; });
}

void Gatherer::poison(ShardedWeight& weight, Use use) {
  GatherState& gather = weight.state().gather(use);
  if (!core_.options.poison_free_buffers || core_.scope != nullptr) return;
  const Stream stream = weight.state().streams->gather;
  if (gather.open) core_.backend.wait(stream, gather.reader);
  for (const CollectivePart& part : gather.parts) {
    core_.poison(part.receive, part.count * static_cast<std::size_t>(weight.group().size()), stream, weight);
  }
}

/// The gather itself is the last to touch the buffer; one that a capture recorded has not touched it.
void Gatherer::drop(ShardedWeight& weight, Use use) {
  GatherState& gather = weight.state().gather(use);
  if (!gather.in_flight) return;
  gather.in_flight = false;
  if (gather.capture != core_.capture()) {
    for (const Ticket ticket : gather.tickets) core_.cache.put_back(ticket);
    return;
  }
  poison(weight, use);
  const Event reader = core_.scope != nullptr ? gather.captured_reader : gather.reader;
  core_.backend.record(reader, weight.state().streams->gather);
  for (const Ticket ticket : gather.tickets) core_.cache.release(ticket, reader, core_.capture());
}

void Gatherer::drop_all() {
  for (ShardedWeight& weight : core_.weights) {
    for (const Use use : {Use::kForward, Use::kDgrad, Use::kRecompute}) drop(weight, use);
  }
}

void Gatherer::publish(ShardedWeight& weight, Stream stream) {
  WeightState& state = weight.state();
  ++state.version;
  if (weight.spec().bucket != ReadyBucket::kNone) {
    core_.buckets[static_cast<std::size_t>(weight.spec().bucket) - 1].armed = true;
  }
  if (weight.is_alias()) return;
  core_.backend.record(state.published, stream);
  state.was_published = true;
  state.awaits_published = true;
}

}  // namespace gtp::detail
