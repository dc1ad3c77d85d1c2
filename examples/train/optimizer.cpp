#include "optimizer.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/format/bf16.hpp"

namespace gtp::train {

namespace {

constexpr double kNormEpsilon = 1e-6;  // megatron/core/optimizer/clip_grads.py:171

constexpr std::array kDomains{WeightDomain::kDense, WeightDomain::kExpert};

std::size_t index_of(WeightDomain domain) noexcept { return static_cast<std::size_t>(domain); }

/// The ranks that hold one whole copy of the parameters of a domain.
const Group& copy_group(const Groups& groups, WeightDomain domain) {
  return domain == WeightDomain::kDense ? groups.mp : groups.tp_ep_gtp_remat_pp;
}

struct AdamStep {
  float lr, beta1, beta2, eps, correction1, correction2;

  float update(float master, float grad, float& m, float& v, float decay) const {
    m = beta1 * m + (1.0F - beta1) * grad;
    v = beta2 * v + (1.0F - beta2) * grad * grad;
    const float direction = (m / correction1) / (std::sqrt(v / correction2) + eps);
    return master - lr * (direction + decay * master);
  }
};

}  // namespace

Optimizer::Optimizer(Rank& rank, Parameters& parameters, const PlanValues& plan, std::uint64_t seed)
    : rank_(rank), plan_(plan), clip_(rank.memory<double>(2)), drain_first_(rank) {
  for (const WeightDomain domain : kDomains) {
    const std::size_t i = index_of(domain);
    states_[i].flat = &parameters.domain(domain);
    const auto members = static_cast<std::size_t>(copy_group(rank.groups(), domain).size());
    sums_[i] = rank.memory<ExactSum>(1);
    all_sums_[i] = members == 1 ? sums_[i] : rank.memory<ExactSum>(members);
    states_[i] = make_state(domain, seed);
  }
  for (const Parameter& parameter : parameters.all()) {
    if (parameter.weight != nullptr) weights_.push_back(parameter.weight);
  }
}

Optimizer::State Optimizer::make_state(WeightDomain domain, std::uint64_t seed) {
  State state;
  state.flat = states_[index_of(domain)].flat;
  const FlatBuffers& flat = *state.flat;
  if (flat.grads.empty()) return state;
  state.begin = static_cast<std::size_t>(flat.replicas->position()) * flat.slice();
  state.masters = rank_.floats(flat.slice());
  state.first_moment = rank_.floats(flat.slice());
  state.second_moment = rank_.floats(flat.slice());
  if (flat.replicas->size() > 1) state.updated = rank_.memory<std::uint16_t>(flat.slice());
  state.decay.assign(flat.grads.size(), 0.0F);
  for (const Parameter* p : flat.parameters) {
    const std::size_t count = p->held() * p->names.size();
    if (p->spec.decays) std::fill_n(&state.decay[p->flat_offset], count, static_cast<float>(plan_.weight_decay));
    const auto place = place_of(p->tags, rank_.topology(), rank_.index());
    if (place && counted_in_grad_norm(p->tags, *place))
      state.counted.push_back(flat.grads.subspan(p->flat_offset, count));
  }
  initialize_masters(state, seed);
  return state;
}

void Optimizer::initialize_masters(State& state, std::uint64_t seed) {
  const FlatBuffers& flat = *state.flat;
  rank_.run({"optimizer", "initial state"},
            {writes(state.masters), writes(state.first_moment), writes(state.second_moment)},
            [masters = state.masters, first = state.first_moment, second = state.second_moment, begin = state.begin,
             parameters = flat.parameters, seed] {
              std::ranges::fill(first, 0.0F);
              std::ranges::fill(second, 0.0F);
              std::ranges::fill(masters, 0.0F);
              for (const Parameter* p : parameters) {
                for (std::size_t i = 0; i < p->held() * p->names.size(); ++i) {
                  const std::size_t at = p->flat_offset + i - begin;  // wraps before the slice
                  if (at >= masters.size()) continue;
                  masters[at] = Parameters::initial_value(*p, i / p->held(), i % p->held(), seed);
                }
              }
            });
}

void Optimizer::zero_grads() {
  for (const State& state : states_) {
    const Floats grads = state.flat->grads;
    if (!grads.empty())
      rank_.backend().fill(grads.data(), 0, grads.size_bytes(), rank_.compute(), {"gradients", "zero"});
  }
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
    rank_.run({"gradients", "squares"}, {writes(sums_[i]), reads(states_[i].flat->grads)},
              [sum = sums_[i], counted = states_[i].counted] {
                sum[0] = ExactSum{};
                for (const ConstFloats range : counted) {
                  for (const float value : range) sum[0].add_square(value);
                }
              });
    const Group& group = copy_group(rank_.groups(), domain);
    if (states_[i].flat->grads.empty() || group.size() == 1) continue;
    rank_.all_gather(group, std::as_writable_bytes(all_sums_[i]), std::as_bytes(sums_[i]), {"gradients", "norm"},
                     rank_.calls().norm_and_loss);
  }
  const auto used = [&](std::size_t i) { return states_[i].flat->grads.empty() ? sums_[i] : all_sums_[i]; };
  rank_.run({"gradients", "norm"}, {writes(clip_), reads(used(0)), reads(used(1))},
            [clip = clip_, dense = used(0), expert = used(1), limit = plan_.clip_grad] {
              ExactSum total;
              for (const ExactSum& sum : dense) total.add(sum);
              for (const ExactSum& sum : expert) total.add(sum);
              clip[0] = std::sqrt(total.value());
              clip[1] = limit > 0 ? std::min(1.0, limit / (clip[0] + kNormEpsilon)) : 1.0;
            });
}

void Optimizer::apply(State& state, float lr) {
  const FlatBuffers& flat = *state.flat;
  if (flat.grads.empty()) return;
  const Floats grads = flat.grads.subspan(state.begin, flat.slice());
  const bool alone = flat.replicas->size() == 1;
  const std::span<std::uint16_t> updated = alone ? flat.values : state.updated;
  const AdamStep adam{lr,
                      static_cast<float>(plan_.adam_beta1),
                      static_cast<float>(plan_.adam_beta2),
                      static_cast<float>(plan_.adam_eps),
                      static_cast<float>(1.0 - std::pow(plan_.adam_beta1, steps_)),
                      static_cast<float>(1.0 - std::pow(plan_.adam_beta2, steps_))};
  const std::span<const float> decay(&state.decay[state.begin], flat.slice());
  rank_.run({"optimizer", "adam"},
            {writes(state.masters), writes(state.first_moment), writes(state.second_moment), writes(updated),
             reads(grads), reads(clip_)},
            [=, masters = state.masters, m = state.first_moment, v = state.second_moment, clip = clip_] {
              const auto factor = static_cast<float>(clip[1]);
              for (std::size_t i = 0; i < masters.size(); ++i) {
                masters[i] = adam.update(masters[i], grads[i] * factor, m[i], v[i], decay[i]);
                updated[i] = bits_of(to_bf16(masters[i]));
              }
            });
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
  for (State& state : states_) apply(state, static_cast<float>(lr));
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
  rank_.backend().synchronize(rank_.compute(), limit);
  std::vector<WeightPiece> out;
  for (std::size_t i = 0; i < states_.size(); ++i) collect(states_[i], masters[i], out);
  return out;
}

void Optimizer::collect(State& state, Floats masters, std::vector<WeightPiece>& out) {
  for (const Parameter* p : state.flat->parameters) {
    for (std::size_t tensor = 0; tensor < p->names.size(); ++tensor) {
      WeightPiece& piece = out.emplace_back(WeightPiece{p->names[tensor], p->spec.rows, p->spec.cols, {}, {}});
      for (std::size_t i = 0; i < p->held(); ++i) {
        const auto index = p->whole_index(i);
        if (!index) continue;
        piece.where.push_back(*index);
        piece.values.push_back(masters[p->flat_offset + tensor * p->held() + i]);
      }
    }
  }
}

}  // namespace gtp::train
