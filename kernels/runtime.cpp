#include "kernels/runtime.hpp"

#include <fmt/format.h>

#include "kernels/runtime_core.hpp"

namespace gtp {

struct Runtime::Impl {
  Impl(Backend& backend, const Topology& topology, std::int64_t rank, RuntimeOptions options, MemoryCallbacks memory)
      : core(backend, topology, rank, options, std::move(memory)),
        gatherer(core),
        reducer(core),
        capturer(core, gatherer, reducer) {}

  detail::Core core;
  detail::Gatherer gatherer;
  detail::Reducer reducer;
  detail::Capturer capturer;
};

namespace {

[[noreturn]] void refuse(const WeightSpec& spec, std::string_view why) {
  throw RuntimeError(RuntimeStatus::kInvalidPlan, fmt::format("weight `{}` {}", spec.name, why));
}

bool has_component(const ShardLayout& layout, Component component) noexcept {
  return layout.extent(component).shard_bytes != 0;
}

void require_fitting(const WeightSpec& spec, const Group& group, std::size_t buckets) {
  if (spec.layout.group_size() != group.size()) {
    refuse(spec, fmt::format("is laid out for {} ranks, but group {} has {}", spec.layout.group_size(), group.name(),
                             group.size()));
  }
  if (spec.shards.empty()) refuse(spec, "has no shard");
  if (spec.main_grad_type == ElementType::kByte || spec.wire_type == ElementType::kByte) {
    refuse(spec, "has gradients of bytes");
  }
  if (static_cast<std::size_t>(spec.bucket) > buckets) refuse(spec, "names a ready bucket that does not exist");
  for (const ShardSpec& shard : spec.shards) {
    if ((shard.main_grad == nullptr) != (spec.shards[0].main_grad == nullptr)) {
      refuse(spec, "is frozen in some shards only");
    }
    for (const Component component : kComponents) {
      if (has_component(spec.layout, component) && shard.data[static_cast<std::size_t>(component)] == nullptr) {
        refuse(spec, fmt::format("lacks the memory of component {}", static_cast<int>(component)));
      }
    }
  }
}

constexpr std::uint32_t kMaxPrefetchDepth = 16;

}  // namespace

Runtime::Runtime(Backend& backend, const Topology& topology, std::int64_t rank, RuntimeOptions options,
                 MemoryCallbacks memory) {
  if (options.prefetch_depth > kMaxPrefetchDepth || options.graph_wgrad_ring_size == 0) {
    throw RuntimeError(RuntimeStatus::kInvalidPlan,
                       fmt::format("prefetch_depth {} must be at most {}, graph_wgrad_ring_size {} at least 1",
                                   options.prefetch_depth, kMaxPrefetchDepth, options.graph_wgrad_ring_size));
  }
  impl_ = std::make_unique<Impl>(backend, topology, rank, options, std::move(memory));
}

Runtime::~Runtime() = default;

const RuntimeOptions& Runtime::options() const noexcept { return impl_->core.options; }

const Group& Runtime::group(WeightDomain domain) const noexcept {
  return impl_->core.groups[static_cast<std::size_t>(domain)];
}

ReadyBucket Runtime::add_ready_bucket(std::function<void(Stream)> param_ready) {
  detail::Core& core = impl_->core;
  core.buckets.push_back({std::move(param_ready), true, false, {}, core.make_event()});
  return static_cast<ReadyBucket>(core.buckets.size());
}

ShardedWeight& Runtime::add_weight(WeightSpec spec) {
  detail::Core& core = impl_->core;
  core.check();
  const Group& of = spec.group != nullptr ? *spec.group : group(spec.domain);
  require_fitting(spec, of, core.buckets.size());
  ShardedWeight& weight = core.weights.emplace_back(std::move(spec), of);
  if (!weight.is_alias()) {
    weight.state().chain = &core.chain_of(weight.spec().chain);
    weight.state().streams = &core.streams_of(of, weight.spec().chain.graphed);
  }
  impl_->gatherer.prepare(weight);
  impl_->reducer.prepare(weight);
  return weight;
}

void Runtime::add_replicated(ReplicatedSpec spec) { impl_->reducer.add_replicated(std::move(spec)); }

void Runtime::declare_chain(std::span<ShardedWeight* const> order, bool recompute) {
  PrefetchChain* chain = nullptr;
  for (ShardedWeight* weight : order) {
    if (weight->is_alias()) continue;
    if (chain == nullptr) chain = weight->state().chain;
    if (weight->state().chain != chain) {
      throw RuntimeError(RuntimeStatus::kInvalidUse, fmt::format("`{}` is not on chain {} of the weights before it",
                                                                 weight->name(), chain->name()));
    }
    if (!chain->append(*weight, recompute)) {
      throw RuntimeError(
          RuntimeStatus::kInvalidUse,
          fmt::format("`{}` cannot join chain {}, which is sealed or has it already", weight->name(), chain->name()));
    }
    impl_->gatherer.link(*weight, recompute);
  }
  if (chain != nullptr) chain->seal(recompute);
}

void Runtime::seal_chains() noexcept {
  for (PrefetchChain& chain : impl_->core.chains) {
    chain.seal(false);
    chain.seal(true);
  }
}

std::vector<const PrefetchChain*> Runtime::chains() const {
  std::vector<const PrefetchChain*> all;
  for (const PrefetchChain& chain : impl_->core.chains) all.push_back(&chain);
  return all;
}

std::span<const GatheredView> Runtime::materialize(ShardedWeight& weight, Use use, Stream compute) {
  return impl_->gatherer.materialize(weight, use, compute);
}
void Runtime::hold(ShardedWeight& weight, Use use) { impl_->gatherer.hold(weight, use); }
void Runtime::release(ShardedWeight& weight, Use use, Stream compute) { impl_->gatherer.release(weight, use, compute); }

std::span<const WgradView> Runtime::grad_buffer(ShardedWeight& weight, Stream compute) {
  return impl_->reducer.grad_buffer(weight, compute);
}
void Runtime::reduce_grad(ShardedWeight& weight, Stream compute) { impl_->reducer.reduce(weight, compute); }
void Runtime::reduce_grad(ShardedWeight& weight, std::span<const ForeignWgrad> wgrads, Stream compute) {
  impl_->reducer.reduce_foreign(weight, wgrads, compute);
}
void* Runtime::dummy_wgrad(ShardedWeight& weight, Stream compute) { return impl_->reducer.dummy(weight, compute); }

void Runtime::fence_grads(Stream stream, const PrefetchChain* chain) {
  impl_->reducer.fence(stream, chain);
  seal_chains();
  for (PrefetchChain& each : impl_->core.chains) {
    if (chain == nullptr || chain == &each) each.end_passes();
  }
}
void Runtime::reduce_replicated_grads(Stream stream) { impl_->reducer.reduce_replicated(stream); }

float Runtime::gradient_scaling_factor(WeightDomain domain) const noexcept {
  const Topology& topology = impl_->core.topology;
  if (impl_->core.options.calculate_per_token_loss) return 1.0F;
  return 1.0F / static_cast<float>(domain == WeightDomain::kDense ? topology.dp * topology.cp : topology.edp);
}

void Runtime::publish(std::span<ShardedWeight* const> weights, Stream stream) {
  impl_->core.check();
  for (ShardedWeight* weight : weights) impl_->gatherer.publish(*weight, stream);
}
void Runtime::publish(ShardedWeight& weight, Stream stream) {
  ShardedWeight* const one[] = {&weight};
  publish(one, stream);
}

void Runtime::begin_warmup(Stream stream) { impl_->reducer.begin_warmup(stream); }

void Runtime::end_warmup(Stream stream) {
  impl_->core.check();
  impl_->gatherer.close_views({});
  impl_->gatherer.drop_all();
  impl_->reducer.end_warmup(stream);
  seal_chains();
  for (PrefetchChain& chain : impl_->core.chains) chain.end_passes();
}

GraphScope& Runtime::begin_capture(std::string name, Stream stream) {
  return impl_->capturer.begin(std::move(name), stream);
}
void Runtime::end_capture(GraphScope& scope) { impl_->capturer.end(scope); }
void Runtime::abort_capture(GraphScope& scope) noexcept { impl_->capturer.abort(scope); }
void Runtime::before_replay(GraphScope& scope, Stream stream) { impl_->capturer.before_replay(scope, stream); }
void Runtime::replay(GraphScope& scope, Stream stream) { impl_->capturer.replay(scope, stream); }

const Counters& Runtime::counters() const noexcept {
  Counters& counters = impl_->core.counters;
  counters.buffer_allocations = impl_->core.cache.allocations();
  counters.buffer_bytes = impl_->core.cache.bytes();
  counters.buffer_spills = impl_->core.cache.spills();
  return counters;
}
const BufferCache& Runtime::buffers() const noexcept { return impl_->core.cache; }
std::string Runtime::chain_table() const { return detail::chain_table(impl_->core); }

}  // namespace gtp
