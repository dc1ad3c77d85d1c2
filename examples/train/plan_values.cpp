#include "plan_values.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>

#include "gtp/check.hpp"
#include "validators/load.hpp"

namespace gtp::train {

namespace {

using namespace literals;

void read(const Facts& facts, OptionId option, double& out) {
  if (const auto value = detail::real(facts, option)) out = *value;
}

bool read_decay_style(const Facts& facts, DecayStyle& out) {
  const std::string_view name = facts.text("lr_decay_style"_opt).value_or("linear");
  if (name == "constant") out = DecayStyle::kConstant;
  if (name == "linear") out = DecayStyle::kLinear;
  if (name == "cosine") out = DecayStyle::kCosine;
  return name == "constant" || name == "linear" || name == "cosine";
}

void read_optimizer(const Facts& facts, PlanValues& out) {
  read(facts, "lr"_opt, out.lr);
  read(facts, "min_lr"_opt, out.min_lr);
  read(facts, "lr_warmup_init"_opt, out.lr_warmup_init);
  read(facts, "adam_beta1"_opt, out.adam_beta1);
  read(facts, "adam_beta2"_opt, out.adam_beta2);
  read(facts, "adam_eps"_opt, out.adam_eps);
  read(facts, "weight_decay"_opt, out.weight_decay);
  read(facts, "clip_grad"_opt, out.clip_grad);
  out.calculate_per_token_loss = facts.on("calculate_per_token_loss"_opt);
  out.gtp_remat_reduce_scatter_with_fp32_accumulation = facts.on("gtp_remat_reduce_scatter_with_fp32_accumulation"_opt);
}

std::string refuse_topology(const Topology& t, bool moe) {
  if (t.pp > 1) return fmt::format("pipeline_model_parallel_size is {}: this example has one stage", t.pp);
  if (t.cp > 1) return fmt::format("context_parallel_size is {}: this example keeps sequences whole", t.cp);
  if (moe && t.tp > 1) return fmt::format("tensor_model_parallel_size is {}: experts here need 1", t.tp);
  if (moe && t.etp > 1) return fmt::format("expert_tensor_parallel_size is {}: experts here need 1", t.etp);
  return {};
}

}  // namespace

PlanProblem plan_values_of(const Derivation& derivation, PlanValues& out) {
  if (!derivation.topology) return {"the plan does not say enough to build its process groups"};
  if (!derivation.batch_options || !derivation.batch) return {"the plan does not say enough to count its batches"};
  out.topology = *derivation.topology;
  out.batch_options = *derivation.batch_options;
  out.batch = *derivation.batch;
  BatchProblems problems;
  const auto iterations = resolve_train_iters(out.batch_options, out.batch, problems);
  const auto horizons = lr_horizons(out.batch_options, out.batch, problems);
  if (!iterations || !horizons) return {"the plan has no train_iters or train_samples that fit"};
  out.train_iters = *iterations;
  out.horizons = *horizons;
  if (out.batch_options.eval_interval) {
    const auto target = eval_target(out.batch_options, out.batch, problems);
    if (!target) return {"eval_interval is not positive"};
    out.evaluation = *target;
  }
  if (!read_decay_style(derivation.facts, out.lr_decay_style))
    return {"lr_decay_style is none of constant, linear, cosine"};
  read_optimizer(derivation.facts, out);
  out.num_experts = derivation.facts.integer("num_experts"_opt).value_or(0);
  out.moe_router_topk = derivation.facts.integer("moe_router_topk"_opt).value_or(out.moe_router_topk);
  return {};
}

PlanProblem read_plan(std::string_view name, std::string_view text, PlanValues& out) {
  LoadRequest request;
  request.format = InputFormat::Plan;
  request.config = Text{std::string(name), std::string(text)};
  const Loaded loaded = load(request);
  std::string refused;
  const auto collect = [&](const Diagnostics& diagnostics) {
    for (const Diagnostic& d : diagnostics) {
      if (d.severity == Severity::Error) refused += fmt::format("{}: {}\n", d.code, d.message);
    }
  };
  collect(loaded.diagnostics);
  if (!refused.empty()) return {refused};
  const Report report = check(loaded.config);
  collect(report.diagnostics);
  if (!refused.empty()) return {refused};
  return plan_values_of(report.derivation, out);
}

std::string refusal(const PlanValues& plan, const ModelShape& shape) {
  const Topology& t = plan.topology;
  if (std::string text = refuse_topology(t, shape.is_moe()); !text.empty()) return text;
  if (std::cmp_not_equal(plan.num_experts, shape.experts)) {
    return fmt::format("the plan has {} experts, the model {}", plan.num_experts, shape.experts);
  }
  struct Division {
    const char* what;
    std::size_t whole;
    std::int64_t parts;
  };
  const std::array divisions{
      Division{"hidden", shape.hidden, static_cast<std::int64_t>(shape.heads)},
      Division{"heads", shape.heads, t.tp},
      Division{"ffn", shape.ffn, t.tp},
      Division{"vocab", shape.vocab, t.tp},
      Division{"experts", shape.is_moe() ? shape.experts : static_cast<std::size_t>(t.ep), t.ep},
  };
  for (const Division& d : divisions) {
    if (d.whole == 0 || !divides(d.parts, static_cast<std::int64_t>(d.whole))) {
      return fmt::format("{} {} cannot be split by {}", d.what, d.whole, d.parts);
    }
  }
  if (shape.layers == 0 || shape.seq == 0) return "the model has no layers or no tokens";
  if (shape.is_moe() && (shape.topk == 0 || shape.topk > shape.experts)) {
    return fmt::format("topk {} is not within 1 to {} experts", shape.topk, shape.experts);
  }
  return {};
}

/// megatron/core/optimizer_param_scheduler.py:122
double learning_rate(const PlanValues& plan, std::int64_t samples) {
  const auto now = static_cast<double>(samples);
  const auto warmup = static_cast<double>(plan.horizons.lr_warmup_samples);
  const auto end = static_cast<double>(plan.horizons.lr_decay_samples);
  if (warmup > 0 && now <= warmup) return plan.lr_warmup_init + (plan.lr - plan.lr_warmup_init) * now / warmup;
  if (plan.lr_decay_style == DecayStyle::kConstant) return plan.lr;
  if (now > end || end <= warmup) return plan.min_lr;
  const double done = (now - warmup) / (end - warmup);
  const double left =
      plan.lr_decay_style == DecayStyle::kLinear ? 1.0 - done : 0.5 * (std::cos(std::numbers::pi * done) + 1.0);
  return plan.min_lr + left * (plan.lr - plan.min_lr);
}

}  // namespace gtp::train
