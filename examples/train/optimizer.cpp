#include "optimizer.hpp"

#include <algorithm>
#include <cmath>

namespace gtp::train {

namespace {

constexpr std::array kDomains{WeightDomain::kDense, WeightDomain::kExpert};

std::size_t index_of(WeightDomain domain) noexcept { return static_cast<std::size_t>(domain); }

/// The ranks that hold one whole copy of the parameters of a domain.
const Group& copy_group(const Groups& groups, WeightDomain domain) {
  return domain == WeightDomain::kDense ? groups.mp : groups.tp_ep_gtp_remat_pp;
}

}  // namespace

Optimizer::Optimizer(Rank& rank, Parameters& parameters, const PlanValues& plan, std::uint64_t seed)
    : rank_(rank), parameters_(parameters), plan_(plan), clip_(rank.memory<double>(2)), drain_first_(rank) {
  for (const WeightDomain domain : kDomains) {
    const std::size_t i = index_of(domain);
    const auto members = static_cast<std::size_t>(copy_group(rank.groups(), domain).size());
    sums_[i] = rank.memory<ExactSum>(1);
    all_sums_[i] = members == 1 ? sums_[i] : rank.memory<ExactSum>(members);
    states_[i] = make_state(parameters.domain(domain), seed);
  }
  for (const Parameter& parameter : parameters.all()) {
    if (parameter.weight != nullptr) weights_.push_back(parameter.weight);
  }
  rank_.clear(rank_.task("gradients", "norm"), clip_);  // an evaluation before the first step reads it
}

Optimizer::State Optimizer::make_state(FlatBuffers& flat, std::uint64_t seed) {
  State state;
  state.flat = &flat;
  if (flat.grads.empty()) return state;
  state.begin = static_cast<std::size_t>(flat.replicas->position()) * flat.slice();
  state.masters = rank_.floats(flat.slice());
  state.first_moment = rank_.floats(flat.slice());
  state.second_moment = rank_.floats(flat.slice());
  if (flat.replicas->size() > 1) state.updated = rank_.memory<std::uint16_t>(flat.slice());
  for (const Parameter* p : flat.parameters) note_parameter(state, *p);
  initialize_masters(state, seed);
  return state;
}

/// Ranges that touch, but for the zeros between parameters, become one.
void Optimizer::note_parameter(State& state, const Parameter& parameter) const {
  const Floats grads = state.flat->grads;
  const std::size_t begin = parameter.flat_offset;
  const std::size_t end = begin + parameter.held() * parameter.names.size();
  const float decay = parameter.spec.decays ? static_cast<float>(plan_.weight_decay) : 0.0F;
  if (state.decay.empty() || state.decay.back().decay != decay) {
    if (!state.decay.empty()) state.decay.back().end = begin;
    state.decay.push_back({begin, grads.size(), decay});
  }
  const auto place = place_of(parameter.tags, rank_.topology(), rank_.index());
  if (!place || !counted_in_grad_norm(parameter.tags, *place)) return;
  if (!state.counted.empty()) {
    const auto before = static_cast<std::size_t>(state.counted.back().data() - grads.data());
    if (before + state.counted.back().size() + kFlatAlignment > begin) {
      state.counted.back() = grads.subspan(before, end - before);
      return;
    }
  }
  state.counted.push_back(grads.subspan(begin, end - begin));
}

void Optimizer::initialize_masters(State& state, std::uint64_t seed) {
  for (const Floats values : {state.masters, state.first_moment, state.second_moment}) {
    rank_.clear(rank_.task("masters", "initial values"), values);
  }
  const std::size_t slice_end = state.begin + state.masters.size();
  for (const Parameter* p : state.flat->parameters) {
    for (std::size_t tensor = 0; tensor < p->names.size(); ++tensor) {
      const std::size_t offset = p->flat_offset + tensor * p->held();
      const std::size_t begin = std::max(offset, state.begin);
      const std::size_t end = std::min(offset + p->held(), slice_end);
      if (begin >= end) continue;
      rank_.arithmetic().initialize(rank_.task("masters", "initial values"),
                                    {&state.masters[begin - state.begin], ElementType::kFloat32}, end - begin,
                                    p->initial_values(tensor, begin - offset, seed));
    }
  }
}

void Optimizer::zero_grads() {
  for (const State& state : states_) rank_.clear(rank_.task("gradients", "zero"), state.flat->grads);
}

/// Dense and expert gradients come as means over GTP_remat and EGTP_remat. Whoever holds an expert has summed what all
/// its tokens said, from whichever of the dp x gtp_remat lanes they came.
void Optimizer::complete_grads(State& state, WeightDomain domain, std::int64_t tokens) {
  const FlatBuffers& flat = *state.flat;
  if (flat.grads.empty()) return;
  rank_.all_reduce(*flat.replicas, flat.grads, {"gradients", "replicas"}, rank_.calls().replicate);
  const Topology& t = rank_.topology();
  const auto lanes = static_cast<float>(t.data_distribution_size());
  float factor = domain == WeightDomain::kDense ? rank_.gtp().gradient_scaling_factor(domain)
                                                : static_cast<float>(t.egtp_remat) / lanes;
  if (plan_.calculate_per_token_loss) factor = 1.0F / static_cast<float>(tokens);
  if (factor == 1.0F) return;
  rank_.backend().scale(flat.grads.data(), ElementType::kFloat32, flat.grads.size(), factor, rank_.compute(),
                        {"gradients", "scale"});
}

void Optimizer::measure() {
  for (const WeightDomain domain : kDomains) {
    const std::size_t i = index_of(domain);
    rank_.arithmetic().squares(rank_.task("gradients", "squares"), sums_[i], states_[i].counted);
    const Group& group = copy_group(rank_.groups(), domain);
    if (states_[i].flat->grads.empty() || group.size() == 1) continue;
    rank_.all_gather(group, std::as_writable_bytes(all_sums_[i]), std::as_bytes(sums_[i]), {"gradients", "norm"},
                     rank_.calls().norm_and_loss);
  }
  const auto used = [&](std::size_t i) { return states_[i].flat->grads.empty() ? sums_[i] : all_sums_[i]; };
  rank_.arithmetic().clip(rank_.task("gradients", "norm"), clip_, used(0), used(1), plan_.clip_grad);
}

void Optimizer::apply(State& state, AdamStep adam) {
  const FlatBuffers& flat = *state.flat;
  if (flat.grads.empty()) return;
  const bool alone = flat.replicas->size() == 1;
  const std::span<std::uint16_t> updated = alone ? flat.values : state.updated;
  for (const DecayRange& range : state.decay) {
    const std::size_t begin = std::max(range.begin, state.begin);
    const std::size_t end = std::min(range.end, state.begin + flat.slice());
    if (begin >= end) continue;
    const auto part = [&](auto values) { return values.subspan(begin - state.begin, end - begin); };
    adam.decay = range.decay;
    rank_.arithmetic().adam(rank_.task("optimizer", "adam"),
                            {part(state.masters), part(state.first_moment), part(state.second_moment), part(updated)},
                            flat.grads.subspan(begin, end - begin), clip_, adam);
  }
  if (alone) return;
  rank_.all_gather(*flat.replicas, std::as_writable_bytes(flat.values), std::as_bytes(updated), {"weights", "replicas"},
                   rank_.calls().replicate);
}

void Optimizer::step(double lr, std::int64_t tokens) {
  ++steps_;
  rank_.gtp().fence_grads(rank_.compute());
  rank_.gtp().reduce_replicated_grads(rank_.compute());
  for (const WeightDomain domain : kDomains) complete_grads(states_[index_of(domain)], domain, tokens);
  measure();
  const AdamStep adam{static_cast<float>(lr),
                      static_cast<float>(plan_.adam_beta1),
                      static_cast<float>(plan_.adam_beta2),
                      static_cast<float>(plan_.adam_eps),
                      static_cast<float>(1.0 - std::pow(plan_.adam_beta1, steps_)),
                      static_cast<float>(1.0 - std::pow(plan_.adam_beta2, steps_)),
                      0.0F};
  for (State& state : states_) apply(state, adam);
  parameters_.refresh_quantized();
  rank_.gtp().publish(weights_, rank_.compute());
}

std::vector<WeightPiece> Optimizer::pieces(std::chrono::milliseconds limit) {
  std::array<Floats, 2> masters;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    State& state = states_[i];
    masters[i] = state.masters;
    if (state.flat->grads.empty() || state.flat->replicas->size() == 1) continue;
    masters[i] = rank_.floats(state.flat->grads.size());
    rank_.all_gather(*state.flat->replicas, std::as_writable_bytes(masters[i]), std::as_bytes(state.masters),
                     {"masters", "replicas"}, rank_.calls().replicate);
  }
  std::vector<WeightPiece> out;
  for (std::size_t i = 0; i < states_.size(); ++i) collect(states_[i], rank_.read_back(masters[i], limit), out);
  return out;
}

void Optimizer::collect(State& state, std::span<const float> masters, std::vector<WeightPiece>& out) {
  for (const Parameter* p : state.flat->parameters) {
    const HeldPart part = p->part();
    for (std::size_t tensor = 0; tensor < p->names.size(); ++tensor) {
      WeightPiece& piece = out.emplace_back(WeightPiece{p->names[tensor], p->spec.rows, p->spec.cols, {}, {}});
      for (std::size_t i = 0; i < p->held(); ++i) {
        if (part.is_padding(i)) continue;
        piece.where.push_back(part.whole_index(i));
        piece.values.push_back(masters[p->flat_offset + tensor * p->held() + i]);
      }
    }
  }
}

}  // namespace gtp::train
