// What a training run takes from a plan: the grids, the batch accounting and the options of the optimizer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gtp/batch.hpp"
#include "gtp/topology.hpp"
#include "model_shape.hpp"

namespace gtp {

struct Derivation;

namespace train {

enum class DecayStyle : std::uint8_t { kConstant, kLinear, kCosine };

struct PlanValues {
  Topology topology;
  BatchOptions batch_options;
  BatchPlan batch;
  std::int64_t train_iters = 0;
  LrHorizons horizons;
  EvalTarget evaluation;         ///< Zeros without an eval_interval.
  std::int64_t num_experts = 0;  ///< 0: the plan is of a dense model.
  std::int64_t moe_router_topk = 2;

  double lr = 0.01;
  double min_lr = 0.0;
  double lr_warmup_init = 0.0;
  DecayStyle lr_decay_style = DecayStyle::kLinear;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_eps = 1e-8;
  double weight_decay = 0.01;
  double clip_grad = 1.0;  ///< 0: no clipping.
  bool calculate_per_token_loss = false;
  bool gtp_remat_reduce_scatter_with_fp32_accumulation = false;
};

/// `text` is empty if all is well.
struct PlanProblem {
  std::string text;
};

/// The values of a checked configuration, or what is missing in it.
PlanProblem plan_values_of(const Derivation& derivation, PlanValues& out);
/// The same for the text of a plan; the messages of all error diagnostics, a line each, if it is refused.
PlanProblem read_plan(std::string_view name, std::string_view text, PlanValues& out);

/// Why this model cannot run on this plan; empty if it can. The example has no pipeline or context parallelism, and
/// tensor parallelism only in dense models.
std::string refusal(const PlanValues& plan, const ModelShape& shape);

/// After `samples` consumed samples: warmup from lr_warmup_init to lr, then decay to min_lr.
double learning_rate(const PlanValues& plan, std::int64_t samples);

}  // namespace train
}  // namespace gtp
