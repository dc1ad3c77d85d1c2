// Reduce behind, finalize late.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/runtime_core.hpp"

namespace gtp::detail {

namespace {

constexpr std::int64_t kSmallestFp32Group = 3;  // one addition rounds once, whatever is done about it

std::size_t elements(std::int64_t count) noexcept { return static_cast<std::size_t>(count); }

[[noreturn]] void misuse(std::string text) { throw RuntimeError(RuntimeStatus::kInvalidUse, std::move(text)); }

}  // namespace

void Reducer::prepare(ShardedWeight& weight) {
  GradState& grad = weight.state().grad;
  const ShardLayout& layout = weight.layout();
  grad.views.assign(weight.shard_count(), {nullptr, weight.wire_type(), layout.rows(), layout.cols(), false});
  if (weight.is_alias()) return;
  grad.produced = core_.make_event();
  grad.sent = core_.make_event();
  grad.added = core_.make_event();
  if (!weight.state().streams->graphed) return;
  grad.captured_sent = core_.make_event();
  grad.captured_added = core_.make_event();
}

BufferKey Reducer::key_of(const ShardedWeight& weight, BufferUse use, std::size_t shard) const {
  const ShardLayout& layout = weight.layout();
  BufferKey key;
  key.group = &weight.group();
  key.graphed = !weight.is_alias() && weight.state().streams->graphed;
  key.use = use;
  key.padded_rows = layout.padded_rows();
  key.cols = layout.cols();
  key.type = weight.wire_type();
  key.expert = static_cast<std::uint32_t>(shard);
  return key;
}

std::uint32_t Reducer::next_ring_slot(const BufferKey& key) {
  auto turn = std::ranges::find_if(ring_turns_, [&](const auto& entry) { return entry.first == key; });
  if (turn == ring_turns_.end()) turn = ring_turns_.emplace(ring_turns_.end(), key, 0U);
  return turn->second++ % std::max(1U, core_.options.graph_wgrad_ring_size);
}

bool Reducer::uses_windows(const ShardedWeight& weight) const noexcept {
  return weight.spec().domain == WeightDomain::kDense ? core_.options.gtp_remat_nccl_ub
                                                      : core_.options.gtp_expert_remat_nccl_ub;
}

bool Reducer::uses_fp32_accumulation(const ShardedWeight& weight) const noexcept {
  return core_.options.gtp_remat_reduce_scatter_with_fp32_accumulation && !uses_windows(weight) &&
         weight.wire_type() == ElementType::kBFloat16 && weight.group().size() >= kSmallestFp32Group;
}

void Reducer::reserve(ShardedWeight& weight) {
  GradState& grad = weight.state().grad;
  if (!grad.wgrads.empty()) return;
  const ShardLayout& layout = weight.layout();
  const std::size_t width = element_bytes(weight.wire_type());
  const Communicator window = uses_windows(weight) ? weight.group().reduce_comm() : Communicator{};
  for (std::size_t shard = 0; shard < weight.shard_count(); ++shard) {
    const BufferKey key = key_of(weight, BufferUse::kWgrad, shard);
    grad.wgrads.push_back(
        core_.cache.reserve(key, next_ring_slot(key), elements(layout.gathered_elements()) * width, window));
    const bool scratch = uses_fp32_accumulation(weight);
    const BufferKey output_key = key_of(weight, scratch ? BufferUse::kReduceScratch : BufferUse::kReduceOutput, shard);
    const std::int64_t received = scratch ? layout.gathered_elements() : layout.shard_elements();
    grad.outputs.push_back(core_.cache.reserve(output_key, 0, elements(received) * width));
  }
  grad.parts.reserve(weight.shard_count());
}

std::span<const WgradView> Reducer::grad_buffer(ShardedWeight& weight, Stream compute) {
  core_.check();
  for (const ShardSpec& shard : weight.spec().shards) {
    if (shard.main_grad == nullptr) misuse(fmt::format("`{}` is frozen and has no gradient", weight.name()));
  }
  if (weight.is_alias()) return alias(weight, compute);
  core_.require_usable(weight);
  GradState& grad = weight.state().grad;
  if (grad.handed_out) {
    misuse(fmt::format("grad_buffer of `{}` was called again before its gradient was reduced", weight.name()));
  }
  reserve(weight);
  try {
    for (std::size_t shard = 0; shard < weight.shard_count(); ++shard) {
      grad.views[shard].data = acquire_wgrad(weight, shard, compute).data;
    }
  } catch (...) {
    for (const Ticket ticket : grad.wgrads) core_.cache.put_back(ticket);
    throw;
  }
  grad.handed_out = true;
  return grad.views;
}

std::span<const WgradView> Reducer::alias(ShardedWeight& weight, Stream compute) {
  GradState& grad = weight.state().grad;
  if (core_.warming) back_up(weight, compute);
  for (std::size_t shard = 0; shard < weight.shard_count(); ++shard) {
    grad.views[shard].data = weight.spec().shards[shard].main_grad;
    grad.views[shard].type = weight.spec().main_grad_type;
    grad.views[shard].accumulate = true;
  }
  return grad.views;
}

Buffer& Reducer::acquire_wgrad(ShardedWeight& weight, std::size_t shard, Stream compute) {
  CommStreams& streams = *weight.state().streams;
  Buffer& buffer = core_.cache.acquire(weight.state().grad.wgrads[shard]);
  if (streams.graphed && buffer.sent.handle == nullptr) buffer.sent = core_.make_event(EventKind::kExternal);
  if (core_.scope != nullptr) claim_slot(weight, buffer);
  core_.wait_for_replays(streams, compute);
  core_.wait_for_reader(buffer, compute, streams.graphed);
  return buffer;
}

/// Replays wait for a slot before they start, which cannot order two weights inside one graph.
void Reducer::claim_slot(ShardedWeight& weight, const Buffer& buffer) {
  for (const GraphScope::WgradSlot& slot : core_.scope->slots) {
    if (slot.data != buffer.data) continue;
    if (slot.weight == &weight) return;
    throw RuntimeError(
        RuntimeStatus::kCaptureFailed,
        fmt::format("`{}` and `{}` share a gradient buffer in the capture of `{}`: graph_wgrad_ring_size is {}, and "
                    "must be at least the number of same-shape weights that one graph reduces",
                    slot.weight->name(), weight.name(), core_.scope->name, core_.options.graph_wgrad_ring_size));
  }
  core_.scope->slots.push_back({buffer.data, buffer.sent, &weight});
}

void Reducer::reduce_foreign(ShardedWeight& weight, std::span<const ForeignWgrad> wgrads, Stream compute) {
  if (wgrads.size() != weight.shard_count()) {
    misuse(
        fmt::format("`{}` has {} shards, but {} gradients came", weight.name(), weight.shard_count(), wgrads.size()));
  }
  GradState& grad = weight.state().grad;
  if (!grad.handed_out) grad_buffer(weight, compute);
  const std::size_t count = elements(weight.layout().rows() * weight.layout().cols());
  for (std::size_t shard = 0; shard < wgrads.size(); ++shard) {
    const WgradView& view = grad.views[shard];
    if (wgrads[shard].data == view.data) continue;
    if (view.accumulate) {
      core_.backend.add_into(view.data, view.type, wgrads[shard].data, wgrads[shard].type, count, 1.0F, compute,
                             {weight.name(), ""});
    } else {
      core_.backend.copy(view.data, view.type, wgrads[shard].data, wgrads[shard].type, count, compute,
                         {weight.name(), ""});
    }
    ++core_.counters.copied_wgrads;
  }
  reduce(weight, compute);
}

void Reducer::reduce(ShardedWeight& weight, Stream compute) {
  core_.check();
  if (weight.is_alias()) {
    if (weight.spec().grad_ready && !core_.warming && core_.scope == nullptr) {
      ++core_.counters.grad_ready_calls;
      weight.spec().grad_ready(weight, compute);
    }
    return;
  }
  core_.require_usable(weight);
  WeightState& state = weight.state();
  if (!state.grad.handed_out) misuse(fmt::format("nothing was written to grad_buffer of `{}`", weight.name()));
  if (state.grad.in_flight) finalize(weight);
  order_before_reduction(weight, compute);
  if (ShardedWeight* successor = state.chain->successor(weight); successor && successor->state().grad.in_flight) {
    ++core_.counters.deferred_finalizes;
    finalize(*successor);
  }
  zero_pad_rows(weight);
  issue(weight);
  release_wgrads(weight);
  state.grad.in_flight = true;
  const bool nobody_follows = state.positions[0] == WeightState::kNowhere || state.chain->is_head(weight);
  if (!core_.options.async_reduction || nobody_follows) finalize(weight);
}

void Reducer::order_before_reduction(ShardedWeight& weight, Stream compute) {
  WeightState& state = weight.state();
  CommStreams& streams = *state.streams;
  core_.wait_for_replays(streams, streams.reduce);
  core_.backend.record(state.grad.produced, compute);
  core_.backend.wait(streams.reduce, state.grad.produced);
  if (core_.scope == nullptr) return;
  if (streams.reduce_capture != core_.scope->capture) {
    streams.reduce_capture = core_.scope->capture;
    core_.scope->joined.push_back(streams.reduce);
    core_.backend.wait(streams.reduce, streams.graph_tail);
  }
  if (std::ranges::find(core_.scope->reduced, &weight) == core_.scope->reduced.end()) {
    core_.scope->reduced.push_back(&weight);
  }
}

/// The GEMM writes logical rows only, and a recycled buffer holds another weight's padding.
void Reducer::zero_pad_rows(ShardedWeight& weight) {
  const ShardLayout& layout = weight.layout();
  if (layout.pad_length() == 0) return;
  const std::size_t width = element_bytes(weight.wire_type());
  const std::size_t logical = elements(layout.rows() * layout.cols()) * width;
  const std::size_t pad = elements(layout.pad_length() * layout.cols()) * width;
  for (const WgradView& view : weight.state().grad.views) {
    core_.backend.fill(static_cast<char*>(view.data) + logical, 0, pad, weight.state().streams->reduce,
                       {weight.name(), ""});
  }
}

void Reducer::issue(ShardedWeight& weight) {
  WeightState& state = weight.state();
  GradState& grad = state.grad;
  CommStreams& streams = *state.streams;
  grad.fp32_accumulation = uses_fp32_accumulation(weight);
  grad.parts.clear();
  for (std::size_t shard = 0; shard < weight.shard_count(); ++shard) {
    Buffer& output = core_.cache.acquire(grad.outputs[shard]);
    core_.wait_for_reader(output, streams.reduce, streams.graphed);
    grad.parts.push_back({grad.views[shard].data, output.data, elements(weight.layout().shard_elements())});
  }
  const Communicator communicator = weight.group().reduce_comm();
  const OpLabel label{weight.name(), ""};
  if (grad.fp32_accumulation) {
    core_.backend.all_to_all(grad.parts, weight.wire_type(), communicator, streams.reduce, label);
    ++core_.counters.fp32_reduce_scatters;
  } else {
    core_.backend.reduce_scatter(grad.parts, weight.wire_type(), communicator, streams.reduce, label);
  }
  ++core_.counters.reduce_scatters;
  core_.counters.reduced_bytes += static_cast<std::int64_t>(weight.shard_count()) *
                                  weight.layout().gathered_elements() *
                                  static_cast<std::int64_t>(element_bytes(weight.wire_type()));
}

void Reducer::release_wgrads(ShardedWeight& weight) {
  GradState& grad = weight.state().grad;
  CommStreams& streams = *weight.state().streams;
  const std::size_t bytes = elements(weight.layout().gathered_elements()) * element_bytes(weight.wire_type());
  for (const WgradView& view : grad.views) core_.poison(view.data, bytes, streams.reduce, weight);
  const Event sent = core_.scope != nullptr ? grad.captured_sent : grad.sent;
  core_.backend.record(sent, streams.reduce);
  for (const Ticket ticket : grad.wgrads) {
    if (streams.graphed) core_.backend.record(core_.cache.get(ticket).sent, streams.reduce);
    core_.cache.release(ticket, sent, core_.capture());
  }
  grad.handed_out = false;
}

float Reducer::mean_factor(const Group& group) const noexcept {
  return core_.options.calculate_per_token_loss ? 1.0F : 1.0F / static_cast<float>(group.size());
}

void Reducer::add(ShardedWeight& weight, std::size_t shard) {
  const GradState& grad = weight.state().grad;
  const std::size_t count = elements(weight.layout().shard_elements());
  const float factor = mean_factor(weight.group());
  const Stream stream = weight.state().streams->reduce;
  const void* received = core_.cache.get(grad.outputs[shard]).data;
  void* main_grad = weight.spec().shards[shard].main_grad;
  if (grad.fp32_accumulation) {
    core_.backend.sum_chunks_into(main_grad, weight.spec().main_grad_type, received, weight.wire_type(), count,
                                  elements(weight.group().size()), factor, stream, {weight.name(), ""});
  } else {
    core_.backend.add_into(main_grad, weight.spec().main_grad_type, received, weight.wire_type(), count, factor, stream,
                           {weight.name(), ""});
  }
}

/// On the reduce stream, so the compute stream never waits. All shards are added before anybody hears of it.
void Reducer::finalize(ShardedWeight& weight) {
  WeightState& state = weight.state();
  GradState& grad = state.grad;
  const Stream stream = state.streams->reduce;
  if (core_.warming) back_up(weight, stream);
  for (std::size_t shard = 0; shard < weight.shard_count(); ++shard) add(weight, shard);
  for (const Ticket ticket : grad.outputs) {
    const Buffer& output = core_.cache.get(ticket);
    core_.poison(output.data, output.bytes, stream, weight);
  }
  const Event added = core_.scope != nullptr ? grad.captured_added : grad.added;
  core_.backend.record(added, stream);
  for (const Ticket ticket : grad.outputs) core_.cache.release(ticket, added, core_.capture());
  grad.in_flight = false;
  ++core_.counters.finalizes;
  if (weight.spec().grad_ready && !core_.warming && core_.scope == nullptr) {
    ++core_.counters.grad_ready_calls;
    weight.spec().grad_ready(weight, stream);
  }
}

void Reducer::finalize_all(const PrefetchChain* chain) {
  for (ShardedWeight& weight : core_.weights) {
    const WeightState& state = weight.state();
    if (state.grad.in_flight && (chain == nullptr || state.chain == chain)) finalize(weight);
  }
}

void Reducer::fence(Stream stream, const PrefetchChain* chain) {
  core_.check();
  finalize_all(chain);
  for (CommStreams& pair : core_.streams) {
    core_.wait_for_replays(pair, stream);
    if (core_.scope == nullptr || pair.gather_capture == core_.scope->capture) {
      core_.backend.record(pair.gather_tail, pair.gather);
      core_.backend.wait(stream, pair.gather_tail);
    }
    if (core_.scope == nullptr || pair.reduce_capture == core_.scope->capture) {
      core_.backend.record(pair.reduce_tail, pair.reduce);
      core_.backend.wait(stream, pair.reduce_tail);
    }
  }
}

void* Reducer::dummy(ShardedWeight& weight, Stream compute) {
  core_.check();
  const BufferKey key = key_of(weight, BufferUse::kDummy, 0);
  const std::size_t bytes = elements(weight.layout().shard_elements()) * element_bytes(weight.wire_type());
  auto known = std::ranges::find_if(dummies_, [&](const auto& entry) { return entry.first == key; });
  if (known == dummies_.end()) {
    known = dummies_.emplace(dummies_.end(), key, core_.cache.reserve(key, 0, bytes));
    core_.cache.acquire(known->second);
  }
  void* data = core_.cache.get(known->second).data;
  if (weight.spec().zero_out_wgrad) core_.backend.fill(data, 0, bytes, compute, {weight.name(), "dummy"});
  return data;
}

}  // namespace gtp::detail
