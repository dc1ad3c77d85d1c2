#include "parameters.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gtp::train {

namespace {

std::size_t size(std::int64_t value) noexcept { return static_cast<std::size_t>(value); }
std::size_t round_up(std::size_t value, std::size_t unit) noexcept { return (value + unit - 1) / unit * unit; }

WeightDomain domain_of(const Parameter& parameter) noexcept {
  return parameter.spec.is_expert() ? WeightDomain::kExpert : WeightDomain::kDense;
}

ShardLayout layout_of(const Parameter& parameter, WeightFormat format, std::int64_t group_size) {
  LayoutRequest request;
  request.format = parameter.spec.quantizes ? format : WeightFormat::kBf16;
  request.pad_for_alignment = default_pad_for_alignment(request.format);
  request.rows = static_cast<std::int64_t>(parameter.rows);
  request.cols = static_cast<std::int64_t>(parameter.cols);
  request.group_size = group_size;
  LayoutRefusal why;
  const auto layout = make_shard_layout(request, why);
  if (!layout) {
    throw RuntimeError(RuntimeStatus::kInvalidPlan, fmt::format("{}: {}", parameter.spec.name, describe(why.problem)));
  }
  return *layout;
}

/// Expert groups of the example have ETP 1, so TP cuts dense tensors only.
void apply_tensor_parallelism(Parameter& parameter, const Group& tp) {
  const auto parts = size(tp.size());
  const auto part = size(tp.position());
  parameter.rows = parameter.spec.rows;
  parameter.cols = parameter.spec.cols;
  if (parameter.spec.cut == Cut::kRows) {
    parameter.rows /= parts;
    parameter.row_begin = part * parameter.rows;
  } else if (parameter.spec.cut == Cut::kCols) {
    parameter.cols /= parts;
    parameter.col_begin = part * parameter.cols;
  }
}

}  // namespace

Parameters::Parameters(Rank& rank, const ModelShape& shape, const ParameterOptions& options)
    : rank_(rank), options_(options), drain_first_(rank) {
  for (TensorSpec& spec : tensors_of(shape)) place(std::move(spec));
  lay_out(WeightDomain::kDense, rank.groups().dp_cp);
  lay_out(WeightDomain::kExpert, rank.groups().ep_dp);
  initialize(WeightDomain::kDense);
  initialize(WeightDomain::kExpert);
  prepare_quantized();
  for (Parameter& parameter : parameters_) add_to_runtime(parameter);
  refresh_quantized();
  declare_chains();
}

Parameter& Parameters::find(const std::string& name) {
  return *std::ranges::find_if(parameters_, [&](const Parameter& p) { return p.spec.name == name; });
}

void Parameters::place(TensorSpec spec) {
  Parameter& parameter = parameters_.emplace_back();
  parameter.spec = std::move(spec);
  const bool tp_sharded = parameter.spec.cut != Cut::kNone;
  parameter.tags = {parameter.spec.sharded, tp_sharded, parameter.spec.is_expert(), 0};
  apply_tensor_parallelism(parameter, rank_.groups().tp);
  parameter.names = {parameter.spec.name};
  if (parameter.spec.is_expert()) {
    const Group& ep = rank_.groups().ep;
    const std::size_t local = parameter.spec.experts / size(ep.size());
    parameter.names.clear();
    for (std::size_t e = 0; e < local; ++e) {
      parameter.names.push_back(fmt::format("{}.{}", parameter.spec.name, size(ep.position()) * local + e));
    }
  }
  parameter.held_rows = parameter.rows;
  if (!parameter.spec.sharded) return;
  const Group& group = rank_.gtp().group(domain_of(parameter));
  const ShardLayout layout = layout_of(parameter, options_.format, group.size());
  parameter.tags.pad_length = layout.pad_length();
  parameter.first_row = size(layout.row_begin(group.position()));
  parameter.held_rows = size(layout.shard_rows());
}

void Parameters::lay_out(WeightDomain domain, const Group& replicas) {
  FlatBuffers& flat = this->domain(domain);
  flat.replicas = &replicas;
  std::size_t count = 0;
  for (Parameter& parameter : parameters_) {
    if (domain_of(parameter) != domain) continue;
    flat.parameters.push_back(&parameter);
    parameter.flat_offset = count;
    count = round_up(count + parameter.held() * parameter.names.size(), kFlatAlignment);
  }
  count = round_up(count, kFlatAlignment * size(replicas.size()));
  if (count == 0) return;
  flat.grads = rank_.floats(count);
  flat.values = rank_.memory<std::uint16_t>(count);
}

void Parameters::initialize(WeightDomain domain) {
  const FlatBuffers& flat = this->domain(domain);
  if (flat.values.empty()) return;
  rank_.clear(rank_.task("parameters", "initial values"), flat.values);
  for (const Parameter* p : flat.parameters) {
    for (std::size_t tensor = 0; tensor < p->names.size(); ++tensor) {
      const GradTarget out{&flat.values[p->flat_offset + tensor * p->held()], ElementType::kBFloat16};
      rank_.arithmetic().initialize(rank_.task(p->spec.name, "initial values"), out, p->held(),
                                    p->initial_values(tensor, 0, options_.seed));
    }
  }
}

/// What decoded weights need, and room for all that is said about them.
void Parameters::prepare_quantized() {
  std::size_t largest = 0;
  std::array<std::size_t, 2> shards{};
  for (const Parameter& p : parameters_) {
    if (!p.spec.quantizes || options_.format == WeightFormat::kBf16) continue;
    largest = std::max(largest, p.held() * size(rank_.gtp().group(domain_of(p)).size()));
    shards[static_cast<std::size_t>(domain_of(p))] += p.names.size();
  }
  quantized_.emplace(rank_, options_.format, shards);
  if (largest == 0) return;
  const auto scratch = rank_.memory<std::uint16_t>(largest);
  for (Parameter& p : parameters_) p.scratch = scratch;
}

void Parameters::add_to_runtime(Parameter& parameter) {
  FlatBuffers& flat = domain(domain_of(parameter));
  const std::size_t held = parameter.held();
  if (!parameter.spec.sharded) {
    parameter.values = flat.values.subspan(parameter.flat_offset, held);
    parameter.grad = flat.grads.subspan(parameter.flat_offset, held);
    rank_.gtp().add_replicated(
        {parameter.spec.name, domain_of(parameter), parameter.grad.data(), ElementType::kFloat32, held});
    return;
  }
  const ShardLayout layout = layout_of(parameter, options_.format, rank_.gtp().group(domain_of(parameter)).size());
  WeightSpec spec{.name = parameter.spec.name, .layout = layout, .shards = {}};
  for (std::size_t tensor = 0; tensor < parameter.names.size(); ++tensor) {
    const std::size_t offset = parameter.flat_offset + tensor * held;
    const Weights values = flat.values.subspan(offset, held);
    ShardSpec shard{{values.data()}, &flat.grads[offset]};
    if (layout.format() != WeightFormat::kBf16) shard.data = quantized_->add(parameter, layout, values);
    spec.shards.push_back(shard);
  }
  spec.domain = domain_of(parameter);
  spec.chain.graphed = options_.graphed;
  spec.chain.role = parameter.spec.role;
  spec.wire_type = options_.wire;
  spec.needs_dgrad = parameter.spec.needs_dgrad;
  parameter.weight = &rank_.gtp().add_weight(std::move(spec));
}

/// Initial values count as published: the first gathers come after them. In a graph all weights are one chain.
void Parameters::declare_chains() {
  for (const ChainRole role : {ChainRole::kGeneral, ChainRole::kExpertFc1, ChainRole::kExpertFc2}) {
    std::vector<ShardedWeight*> order;
    for (const Parameter& parameter : parameters_) {
      const ChainRole own = options_.graphed ? ChainRole::kGeneral : parameter.spec.role;
      if (parameter.weight != nullptr && own == role) order.push_back(parameter.weight);
    }
    if (order.empty()) continue;
    rank_.gtp().declare_chain(order);
    rank_.gtp().publish(order, rank_.compute());
  }
}

}  // namespace gtp::train
