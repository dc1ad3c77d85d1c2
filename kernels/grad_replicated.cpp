// Gradients that are not sharded: replicated parameters, and the copies that a warm-up puts back.
#include <fmt/format.h>

#include "kernels/runtime_core.hpp"

namespace gtp::detail {

namespace {

std::size_t index_of(WeightDomain domain) noexcept { return static_cast<std::size_t>(domain); }

}  // namespace

void Reducer::add_replicated(ReplicatedSpec spec) {
  if (spec.main_grad == nullptr || spec.count == 0 || spec.main_grad_type == ElementType::kByte) {
    throw RuntimeError(RuntimeStatus::kInvalidPlan,
                       fmt::format("replicated parameter `{}` has no gradient", spec.name));
  }
  const Group& group = core_.groups[index_of(spec.domain)];
  if (group.size() > 1) core_.streams_of(group, false);
  replicated_.push_back(std::move(spec));
  replicated_parts_.reserve(replicated_.size());
}

void Reducer::reduce_replicated(Stream stream) {
  core_.check();
  for (const WeightDomain domain : {WeightDomain::kDense, WeightDomain::kExpert}) {
    const Group& group = core_.groups[index_of(domain)];
    if (group.size() == 1) continue;
    CommStreams& streams = core_.streams_of(group, false);
    core_.backend.record(core_.fork, stream);
    core_.backend.wait(streams.reduce, core_.fork);
    reduce_replicated(domain, ElementType::kFloat32, streams);
    reduce_replicated(domain, ElementType::kBFloat16, streams);
    core_.backend.record(streams.reduce_tail, streams.reduce);
    core_.backend.wait(stream, streams.reduce_tail);
  }
}

void Reducer::reduce_replicated(WeightDomain domain, ElementType type, CommStreams& streams) {
  replicated_parts_.clear();
  const OpLabel label{"replicated", ""};
  for (const ReplicatedSpec& spec : replicated_) {
    if (spec.domain != domain || spec.main_grad_type != type) continue;
    replicated_parts_.push_back({spec.main_grad, spec.main_grad, spec.count});
  }
  if (replicated_parts_.empty()) return;
  core_.backend.all_reduce(replicated_parts_, type, streams.group->reduce_comm(), streams.reduce, label);
  ++core_.counters.replicated_reductions;
  const float factor = mean_factor(*streams.group);
  if (factor == 1.0F) return;
  for (const CollectivePart& part : replicated_parts_) {
    core_.backend.scale(part.receive, type, part.count, factor, streams.reduce, label);
  }
}

void Reducer::begin_warmup(Stream stream) {
  core_.check();
  for (const ShardedWeight& weight : core_.weights) {
    if (weight.state().grad.in_flight) {
      throw RuntimeError(
          RuntimeStatus::kInvalidUse,
          fmt::format("a reduction of `{}` is outstanding: call fence_grads before a warm-up", weight.name()));
    }
  }
  core_.warming = true;
  core_.backend.record(core_.fork, stream);
  for (const CommStreams& pair : core_.streams) core_.backend.wait(pair.reduce, core_.fork);
}

/// Before the first addition of the warm-up, on the stream that adds.
void Reducer::back_up(ShardedWeight& weight, Stream stream) {
  GradState& grad = weight.state().grad;
  if (grad.backed_up) return;
  grad.backed_up = true;
  const ElementType type = weight.spec().main_grad_type;
  const auto count = static_cast<std::size_t>(weight.layout().shard_elements());
  for (std::size_t shard = 0; shard < weight.shard_count(); ++shard) {
    if (grad.backups.size() <= shard) {
      BufferKey key = key_of(weight, BufferUse::kBackup, shard);
      key.chain = ++backups_;
      grad.backups.push_back(core_.cache.reserve(key, 0, count * element_bytes(type)));
      core_.cache.acquire(grad.backups[shard]);
    }
    core_.backend.copy(core_.cache.get(grad.backups[shard]).data, type, weight.spec().shards[shard].main_grad, type,
                       count, stream, {weight.name(), "backup"});
  }
}

void Reducer::restore(ShardedWeight& weight, Stream stream) {
  GradState& grad = weight.state().grad;
  if (!grad.backed_up) return;
  grad.backed_up = false;
  const ElementType type = weight.spec().main_grad_type;
  const auto count = static_cast<std::size_t>(weight.layout().shard_elements());
  for (std::size_t shard = 0; shard < weight.shard_count(); ++shard) {
    core_.backend.copy(weight.spec().shards[shard].main_grad, type, core_.cache.get(grad.backups[shard]).data, type,
                       count, stream, {weight.name(), "backup"});
  }
}

void Reducer::end_warmup(Stream stream) {
  fence(stream, nullptr);
  for (ShardedWeight& weight : core_.weights) restore(weight, stream);
  core_.warming = false;
}

}  // namespace gtp::detail
