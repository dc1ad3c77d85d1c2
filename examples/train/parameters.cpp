#include "parameters.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/format/bf16.hpp"
#include "synthetic.hpp"

namespace gtp::train {

namespace {

std::size_t size(std::int64_t value) noexcept { return static_cast<std::size_t>(value); }

WeightDomain domain_of(const Parameter& parameter) noexcept {
  return parameter.spec.is_expert() ? WeightDomain::kExpert : WeightDomain::kDense;
}

ShardLayout layout_of(const Parameter& parameter, std::int64_t group_size) {
  LayoutRequest request;
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

std::optional<std::size_t> Parameter::whole_index(std::size_t held_index) const noexcept {
  const std::size_t row = held_index / cols;
  if (row >= real_rows()) return std::nullopt;
  return (row_begin + first_row + row) * spec.cols + col_begin + held_index % cols;
}

Parameters::Parameters(Rank& rank, const ModelShape& shape, std::uint64_t seed, ElementType wire) : drain_first_(rank) {
  for (TensorSpec& spec : tensors_of(shape)) place(rank, std::move(spec));
  lay_out(rank, WeightDomain::kDense, rank.groups().dp_cp);
  lay_out(rank, WeightDomain::kExpert, rank.groups().ep_dp);
  initialize(rank, WeightDomain::kDense, seed);
  initialize(rank, WeightDomain::kExpert, seed);
  for (Parameter& parameter : parameters_) add_to_runtime(rank, parameter, wire);
  declare_chains(rank);
}

Parameter& Parameters::find(const std::string& name) {
  return *std::ranges::find_if(parameters_, [&](const Parameter& p) { return p.spec.name == name; });
}

float Parameters::initial_value(const Parameter& parameter, std::size_t tensor, std::size_t held_index,
                                std::uint64_t seed) {
  const auto index = parameter.whole_index(held_index);
  if (!index) return 0.0F;
  const TensorSpec& spec = parameter.spec;
  return spec.initial_mean + spec.initial_range * uniform(seed, parameter.names[tensor], *index);
}

void Parameters::place(Rank& rank, TensorSpec spec) {
  Parameter& parameter = parameters_.emplace_back();
  parameter.spec = std::move(spec);
  const bool tp_sharded = parameter.spec.cut != Cut::kNone;
  parameter.tags = {parameter.spec.sharded, tp_sharded, parameter.spec.is_expert(), 0};
  apply_tensor_parallelism(parameter, rank.groups().tp);
  parameter.names = {parameter.spec.name};
  if (parameter.spec.is_expert()) {
    const Group& ep = rank.groups().ep;
    const std::size_t local = parameter.spec.experts / size(ep.size());
    parameter.names.clear();
    for (std::size_t e = 0; e < local; ++e) {
      parameter.names.push_back(fmt::format("{}.{}", parameter.spec.name, size(ep.position()) * local + e));
    }
  }
  parameter.held_rows = parameter.rows;
  if (!parameter.spec.sharded) return;
  const Group& group = rank.gtp().group(domain_of(parameter));
  const ShardLayout layout = layout_of(parameter, group.size());
  parameter.tags.pad_length = layout.pad_length();
  parameter.first_row = size(layout.row_begin(group.position()));
  parameter.held_rows = size(layout.shard_rows());
}

void Parameters::lay_out(Rank& rank, WeightDomain domain, const Group& replicas) {
  FlatBuffers& flat = this->domain(domain);
  flat.replicas = &replicas;
  std::size_t count = 0;
  for (Parameter& parameter : parameters_) {
    if (domain_of(parameter) != domain) continue;
    flat.parameters.push_back(&parameter);
    parameter.flat_offset = count;
    count += parameter.held() * parameter.names.size();
  }
  const auto slices = size(replicas.size());
  count = (count + slices - 1) / slices * slices;
  if (count == 0) return;
  flat.grads = rank.floats(count);
  flat.values = rank.memory<std::uint16_t>(count);
}

void Parameters::initialize(Rank& rank, WeightDomain domain, std::uint64_t seed) {
  const FlatBuffers& flat = this->domain(domain);
  if (flat.values.empty()) return;
  const std::span<std::uint16_t> values = flat.values;
  rank.run({"parameters", "initial values"}, {writes(values)}, [values, seed, parameters = flat.parameters] {
    std::ranges::fill(values, std::uint16_t{0});
    for (const Parameter* p : parameters) {
      for (std::size_t i = 0; i < p->held() * p->names.size(); ++i) {
        const float value = initial_value(*p, i / p->held(), i % p->held(), seed);
        values[p->flat_offset + i] = bits_of(to_bf16(value));
      }
    }
  });
}

void Parameters::add_to_runtime(Rank& rank, Parameter& parameter, ElementType wire) {
  FlatBuffers& flat = domain(domain_of(parameter));
  const std::size_t held = parameter.held();
  if (!parameter.spec.sharded) {
    parameter.values = flat.values.subspan(parameter.flat_offset, held);
    parameter.grad = flat.grads.subspan(parameter.flat_offset, held);
    rank.gtp().add_replicated(
        {parameter.spec.name, domain_of(parameter), parameter.grad.data(), ElementType::kFloat32, held});
    return;
  }
  WeightSpec spec{.name = parameter.spec.name,
                  .layout = layout_of(parameter, rank.gtp().group(domain_of(parameter)).size()),
                  .shards = {}};
  for (std::size_t tensor = 0; tensor < parameter.names.size(); ++tensor) {
    const std::size_t offset = parameter.flat_offset + tensor * held;
    spec.shards.push_back({{&flat.values[offset]}, &flat.grads[offset]});
  }
  spec.domain = domain_of(parameter);
  spec.chain.role = parameter.spec.role;
  spec.wire_type = wire;
  spec.needs_dgrad = parameter.spec.needs_dgrad;
  parameter.weight = &rank.gtp().add_weight(std::move(spec));
}

/// Initial values count as published: the first gathers come after them.
void Parameters::declare_chains(Rank& rank) {
  for (const ChainRole role : {ChainRole::kGeneral, ChainRole::kExpertFc1, ChainRole::kExpertFc2}) {
    std::vector<ShardedWeight*> order;
    for (const Parameter& parameter : parameters_) {
      if (parameter.weight != nullptr && parameter.spec.role == role) order.push_back(parameter.weight);
    }
    if (order.empty()) continue;
    rank.gtp().declare_chain(order);
    rank.gtp().publish(order, rank.compute());
  }
}

}  // namespace gtp::train
