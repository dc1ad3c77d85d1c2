// From what an input says to what upstream would run with, in upstream's order: weight shards, grids, batches, layers.
// A value whose inputs are unknown or wrong stays unknown, so that no rule blames it a second time. Derivation judges
// nothing: rules/ do, on what it finds.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtp/batch.hpp>
#include <gtp/bridge.hpp>
#include <gtp/changes.hpp>
#include <gtp/facts.hpp>
#include <gtp/grid.hpp>
#include <gtp/hybrid_pattern.hpp>
#include <gtp/layers.hpp>
#include <gtp/topology.hpp>

namespace gtp {

/// A change that took place, in the order of application.
struct Changed {
  const Rule* rule;
  Change change;
};

struct Derivation {
  Facts facts;
  /// Both grids; present when every size is known and upstream would build them.
  std::optional<Topology> topology{};
  std::optional<BatchSchedule> schedule{};
  ScheduleProblems schedule_problems{};
  /// Present when every batch option that the accounting needs is known.
  std::optional<BatchOptions> batch_options{};
  BatchProblems batch_problems{};
  std::optional<BatchPlan> batch{};
  /// Present when the pipeline size and what decides the split are known.
  std::optional<LayerSplitResult> layers{};
  std::optional<LayersPerStage> layers_per_stage{};
  std::vector<Changed> changed{};
};

namespace detail {

using namespace literals;

/// Sizes that upstream divides by. One below 1 is unknown to everything that depends on it (rule GTP001).
inline constexpr std::array kSizes{
    "world_size"_opt,
    "gpus_per_node"_opt,
    "visible_gpus_per_node"_opt,
    "tensor_model_parallel_size"_opt,
    "context_parallel_size"_opt,
    "pipeline_model_parallel_size"_opt,
    "expert_model_parallel_size"_opt,
    "expert_tensor_parallel_size"_opt,
    "num_distributed_optimizer_instances"_opt,
    "num_layers"_opt,
    "hidden_size"_opt,
    "num_attention_heads"_opt,
    "seq_length"_opt,
    "micro_batch_size"_opt,
    "global_batch_size"_opt,
    "eval_micro_batch_size"_opt,
    "eval_global_batch_size"_opt,
};

inline void forget_impossible_sizes(Facts& f) {
  for (const OptionId size : kSizes)
    if (const auto value = f.integer(size); value && *value < 1) f.forget(size);
}

/// Sets a derived integer, or leaves it unknown.
inline void set_or_forget(Facts& f, OptionId option, std::optional<std::int64_t> value) {
  if (value)
    f.set(option, *value);
  else
    f.forget(option);
}

/// The remat size of a shard count and the parallel size it is a multiple of, and the shard count itself, which
/// upstream writes back (arguments.py:417, model_parallel_config.py:27-41).
inline void derive_remat_size(Facts& f, OptionId shards, OptionId parallel, OptionId remat) {
  const auto parallel_size = f.integer(parallel);
  if (!f.known(shards) || !parallel_size) return f.forget(remat);
  const auto size = remat_size(f.integer(shards), *parallel_size);
  set_or_forget(f, remat, size);
  if (size) f.set(shards, *parallel_size * *size);
}

inline void derive_weight_shards(Facts& f) {
  constexpr auto kTp = "tensor_model_parallel_size"_opt, kEtp = "expert_tensor_parallel_size"_opt;
  derive_remat_size(f, "tensor_parallel_num_weight_shards"_opt, kTp, "gtp_weight_remat_size"_opt);
  if (f.known(kEtp) && !f.has(kEtp)) set_or_forget(f, kEtp, f.integer(kTp));  // arguments.py:587
  derive_remat_size(f, "expert_tensor_parallel_num_weight_shards"_opt, kEtp, "expert_gtp_weight_remat_size"_opt);
}

/// World / product, when all are known.
inline std::optional<std::int64_t> replicas(const Facts& f, std::initializer_list<OptionId> model_sizes) {
  const auto world = f.integer("world_size"_opt);
  if (!world) return std::nullopt;
  std::array<std::int64_t, 4> sizes{};
  std::size_t count = 0;
  for (const OptionId option : model_sizes) {
    const auto size = f.integer(option);
    if (!size) return std::nullopt;
    sizes.at(count++) = *size;
  }
  return replicate_size(*world, std::span<const std::int64_t>(sizes.data(), count));
}

inline void derive_grids(Derivation& d) {
  Facts& f = d.facts;
  const auto dp = replicas(f, {"tensor_model_parallel_size"_opt, "pipeline_model_parallel_size"_opt,
                               "context_parallel_size"_opt, "gtp_weight_remat_size"_opt});
  const auto edp = replicas(f, {"expert_tensor_parallel_size"_opt, "expert_model_parallel_size"_opt,
                                "pipeline_model_parallel_size"_opt, "expert_gtp_weight_remat_size"_opt});
  const auto gtp_remat = f.integer("gtp_weight_remat_size"_opt);
  set_or_forget(f, "data_parallel_size"_opt, dp);
  set_or_forget(f, "expert_data_parallel_size"_opt, edp);
  set_or_forget(f, "data_distribution_size"_opt, dp && gtp_remat ? checked_multiply(*dp, *gtp_remat) : std::nullopt);
  if (!f.known("use_tp_pp_dp_mapping"_opt)) return;
  const bool pp_before_dp = f.on("use_tp_pp_dp_mapping"_opt);
  const bool cp_before_gtp_remat = f.version() >= Version::k2026_09;
  f.set("dense_order"_opt, std::string(AxisOrderText(dense_order(pp_before_dp, cp_before_gtp_remat)).view()));
  f.set("expert_order"_opt, std::string(AxisOrderText(expert_order(pp_before_dp)).view()));
  if (!dp || !edp) return;
  const std::int64_t pp = f["pipeline_model_parallel_size"_opt];
  if (!pipeline_groups_agree(pp_before_dp, pp, *dp, *edp)) return;
  d.topology = Topology{.world_size = f["world_size"_opt],
                        .tp = f["tensor_model_parallel_size"_opt],
                        .gtp_remat = *gtp_remat,
                        .cp = f["context_parallel_size"_opt],
                        .pp = pp,
                        .dp = *dp,
                        .etp = f["expert_tensor_parallel_size"_opt],
                        .ep = f["expert_model_parallel_size"_opt],
                        .egtp_remat = f["expert_gtp_weight_remat_size"_opt],
                        .edp = *edp,
                        .pp_before_dp = pp_before_dp,
                        .cp_before_gtp_remat = cp_before_gtp_remat};
}

/// What the target asks of an evaluation batch.
constexpr EvalBatchRule eval_batch_rule(Version version) {
  return version >= Version::kd98e8a64 ? EvalBatchRule::kDataDistribution : EvalBatchRule::kReplicateOnly;
}

/// Upstream is handed `seq_length` and reads thresholds as tokens; without one they are samples.
inline void derive_schedule(Derivation& d) {
  const auto text = d.facts.text("step_batch_size_schedule"_opt);
  if (!text) return;
  const bool wrong_length = d.facts.config().given("seq_length"_opt) != nullptr && !d.facts.has("seq_length"_opt);
  if (!wrong_length) d.schedule = parse_batch_schedule(*text, d.facts.integer("seq_length"_opt), d.schedule_problems);
}

inline std::optional<double> real(const Facts& f, OptionId option) {
  const Value* value = f.find(option);
  if (value == nullptr || !std::holds_alternative<double>(*value)) return std::nullopt;
  return std::get<double>(*value);
}

/// Nothing while an option that every batch depends on is unknown or a schedule cannot be read.
inline std::optional<BatchOptions> gather_batch_options(const Derivation& d) {
  const Facts& f = d.facts;
  const auto dp = f.integer("data_parallel_size"_opt), gtp_remat = f.integer("gtp_weight_remat_size"_opt);
  if (!dp || !gtp_remat || !f.has("micro_batch_size"_opt)) return std::nullopt;
  for (const OptionId needed :
       {"global_batch_size"_opt, "decrease_batch_size_if_needed"_opt, "step_batch_size_schedule"_opt,
        "eval_micro_batch_size"_opt, "eval_global_batch_size"_opt, "eval_iters"_opt})
    if (!f.known(needed)) return std::nullopt;
  if (f.has("step_batch_size_schedule"_opt) && !d.schedule) return std::nullopt;
  BatchOptions options{.data_parallel_size = *dp,
                       .gtp_weight_remat_size = *gtp_remat,
                       .micro_batch_size = f.integer("micro_batch_size"_opt),
                       .global_batch_size = f.integer("global_batch_size"_opt),
                       .decrease_batch_size_if_needed = f.on("decrease_batch_size_if_needed"_opt),
                       .step_batch_size_schedule = d.schedule,
                       .eval_micro_batch_size = f.integer("eval_micro_batch_size"_opt),
                       .eval_global_batch_size = f.integer("eval_global_batch_size"_opt),
                       .eval_iters = f.integer("eval_iters"_opt).value_or(0),
                       .eval_interval = f.integer("eval_interval"_opt),
                       .start_eval_at_iter = f.integer("start_eval_at_iter"_opt),
                       .train_iters = f.integer("train_iters"_opt),
                       .train_samples = f.integer("train_samples"_opt),
                       .lr_decay_iters = f.integer("lr_decay_iters"_opt),
                       .lr_decay_samples = f.integer("lr_decay_samples"_opt),
                       .lr_wsd_decay_iters = f.integer("lr_wsd_decay_iters"_opt),
                       .lr_wsd_decay_samples = f.integer("lr_wsd_decay_samples"_opt),
                       .lr_warmup_fraction = real(f, "lr_warmup_fraction"_opt),
                       .lr_warmup_iters = f.integer("lr_warmup_iters"_opt).value_or(0),
                       .lr_warmup_samples = f.integer("lr_warmup_samples"_opt).value_or(0),
                       .iteration = 0,
                       .consumed_train_samples = f.integer("consumed_train_samples"_opt).value_or(0),
                       .skipped_train_samples = f.integer("skipped_train_samples"_opt).value_or(0),
                       .iterations_to_skip = {}};
  if (const Value* skip = f.find("iterations_to_skip"_opt); skip != nullptr && std::holds_alternative<IntList>(*skip))
    options.iterations_to_skip = std::get<IntList>(*skip);
  return options;
}

/// The batch of the first step. Training values do not wait for evaluation to be right.
inline void set_batch_facts(Facts& f, const BatchOptions& options) {
  const std::int64_t mbs = *options.micro_batch_size;
  const auto lanes = checked_multiply(options.data_parallel_size, options.gtp_weight_remat_size);
  const auto global = options.global_batch_size ? options.global_batch_size
                                                : default_global_batch_size(mbs, options.data_parallel_size);
  if (!lanes || !global) {
    f.forget("global_batch_size"_opt);
    return f.forget("eval_global_batch_size"_opt);
  }
  f.set("global_batch_size"_opt, *global);
  if (!options.eval_micro_batch_size) f.set("eval_micro_batch_size"_opt, mbs);
  if (!options.eval_global_batch_size) f.set("eval_global_batch_size"_opt, *global);
  const BatchSchedule* schedule = options.step_batch_size_schedule ? &*options.step_batch_size_schedule : nullptr;
  const std::int64_t batch =
      schedule != nullptr ? schedule->schedule_at(options.consumed_train_samples).global_batch_size : *global;
  const bool decrease = options.decrease_batch_size_if_needed;
  // A schedule is rounded down without a check until training reaches an entry (num_microbatches_calculator.py:580).
  if (schedule == nullptr && !decrease && batch_not_divisible(batch, mbs, *lanes)) return;
  if (const std::int64_t count = num_microbatches(batch, mbs, *lanes); count > 0 || schedule != nullptr) {
    f.set("num_microbatches"_opt, count);
    f.set("running_global_batch_size"_opt, running_global_batch_size(batch, mbs, *lanes, decrease));
  }
}

/// Where a resumed run stands: override_ckpt_iteration x the global batch size, nothing skipped
/// (checkpointing.py:2888).
inline void derive_resume(Facts& f) {
  const auto iteration = f.integer("override_ckpt_iteration"_opt), mbs = f.integer("micro_batch_size"_opt),
             dp = f.integer("data_parallel_size"_opt);
  if (!iteration || *iteration < 0) return;
  auto batch = f.integer("global_batch_size"_opt);
  if (!batch && mbs && dp) batch = default_global_batch_size(*mbs, *dp);
  set_or_forget(f, "consumed_train_samples"_opt, batch ? checked_multiply(*iteration, *batch) : std::nullopt);
  f.set("skipped_train_samples"_opt, std::int64_t{0});
}

inline void derive_batches(Derivation& d) {
  derive_schedule(d);
  derive_resume(d.facts);
  d.batch_options = gather_batch_options(d);
  if (!d.batch_options) return;
  Facts& f = d.facts;
  set_batch_facts(f, *d.batch_options);
  d.batch = resolve_batch(*d.batch_options, eval_batch_rule(f.version()), d.batch_problems);
  if (!d.batch) return;
  f.set("eval_num_microbatches"_opt, d.batch->eval_num_microbatches);
  if (f.has("train_iters"_opt) || !f.has("train_samples"_opt)) return;
  BatchProblems ignored;  // a horizon that is not positive is judged by its own rule
  if (const auto iterations = resolve_train_iters(*d.batch_options, *d.batch, ignored))
    f.set("train_iters"_opt, *iterations);
}

/// The one of two names that the input gave, under the name that the rules know.
inline void take_from(Facts& f, OptionId option, OptionId other) {
  const Value* value = f.find(other);
  if (f.has(option) || f.config().given(option) != nullptr || value == nullptr || is_none(*value)) return;
  f.set(option, Value(*value));
}

/// A pattern under its deprecated name, and its MTP parts given apart (arguments.py:743, 775).
inline void derive_hybrid_pattern(Facts& f) {
  constexpr auto kPattern = "hybrid_layer_pattern"_opt;
  take_from(f, kPattern, "hybrid_override_pattern"_opt);
  const auto part = f.text("mtp_hybrid_override_pattern"_opt);
  const std::int64_t depths = f.integer("mtp_num_layers"_opt).value_or(0);
  const std::string_view main = f.text(kPattern).value_or("");
  if (!part || depths < 1 || !f.known(kPattern) || main.find('/') != std::string_view::npos) return;
  const auto length = checked_multiply(depths, static_cast<std::int64_t>(part->size()) + 1);
  if (!length || *length > static_cast<std::int64_t>(kMaxHybridPatternLength)) return f.forget(kPattern);
  std::string whole(main);
  for (std::int64_t depth = 0; depth < depths; ++depth) whole.append("/").append(*part);
  f.set(kPattern, std::move(whole));
}

/// The depth of an encoder-decoder model, and widths that upstream fills in (arguments.py:1293, 1327, 1346, 1651).
/// Megatron Core, which Bridge leaves it to, does not narrow a gated MLP (transformer_config.py:1452).
inline void derive_shape(Facts& f) {
  derive_hybrid_pattern(f);
  take_from(f, "seq_length"_opt, "encoder_seq_length"_opt);
  if (!f.has("num_layers"_opt) && f.has("encoder_num_layers"_opt))
    set_or_forget(f, "num_layers"_opt, f.integer("encoder_num_layers"_opt));
  constexpr auto kFfn = "ffn_hidden_size"_opt, kMoeFfn = "moe_ffn_hidden_size"_opt;
  const auto hidden = f.integer("hidden_size"_opt);
  if (f.known(kFfn) && !f.has(kFfn)) {
    const auto four = hidden ? checked_multiply(*hidden, 4) : std::nullopt;
    // 4 x 2/3 of the width in double arithmetic, cut to a multiple of 64.
    const auto gated = [](std::int64_t x) {
      return static_cast<std::int64_t>(static_cast<double>(x) * 2 / 3 / 64) * 64;
    };
    if (!f.known("swiglu"_opt) || !four)
      f.forget(kFfn);
    else
      f.set(kFfn, f.on("swiglu"_opt) && !f.on_bridge() ? gated(*four) : *four);
  }
  if (f.has("num_experts"_opt) && f.known(kMoeFfn) && !f.has(kMoeFfn)) set_or_forget(f, kMoeFfn, f.integer(kFfn));
}

/// The width of a head and the rows of the embedding (arguments.py:1331, vocab_utils.py:58). Upstream rounds in double
/// arithmetic, which is exact below 2^53; GTP_remat is no part of the multiple.
inline void derive_heads_and_vocabulary(Facts& f) {
  constexpr auto kChannels = "kv_channels"_opt, kPadded = "padded_vocab_size"_opt;
  const auto hidden = f.integer("hidden_size"_opt), heads = f.integer("num_attention_heads"_opt);
  if (f.known(kChannels) && !f.has(kChannels))
    set_or_forget(f, kChannels, hidden && heads ? exact_quotient(*hidden, *heads) : std::nullopt);
  if (!f.known(kPadded) || f.has(kPadded)) return;
  const auto vocabulary = f.integer("vocab_size"_opt), unit = f.integer("make_vocab_size_divisible_by"_opt),
             tp = f.integer("tensor_model_parallel_size"_opt);
  const bool positive = vocabulary && unit && tp && *vocabulary > 0 && *unit > 0;
  const auto multiple = positive ? checked_multiply(*unit, *tp) : std::nullopt;
  set_or_forget(f, kPadded, multiple ? round_up_to_multiple(*vocabulary, *multiple) : std::nullopt);
}

/// Rows of changes/ in their order, each on what the ones before it left.
inline void apply_changes(Derivation& d) {
  Facts& f = d.facts;
  const auto known = [&](OptionId option) { return f.known(option); };
  for (const Rule* rule : changes_of(f.config().target())) {
    if (!std::ranges::all_of(rule->needs.span(), known)) continue;
    for (Change& change : rule->change(f)) {
      const Value* before = f.find(change.option);
      if (before != nullptr && *before == change.value) continue;
      f.set(change.option, change.value);
      d.changed.push_back({rule, std::move(change)});
    }
  }
}

}  // namespace detail

/// `config` must outlive the result.
[[nodiscard]] inline Derivation derive(const Config& config) {
  using namespace literals;
  Derivation d{.facts = Facts(config)};
  if (config.env_known) d.facts.set("env"_opt, true);
  detail::forget_impossible_sizes(d.facts);
  detail::derive_shape(d.facts);
  const bool on_bridge = d.facts.on_bridge();
  if (on_bridge) apply_bridge_sizes(d.facts);
  detail::derive_weight_shards(d.facts);
  if (on_bridge && config.version() < Version::k2026_09) drop_bridge_remat(d.facts);
  detail::derive_grids(d);
  detail::derive_batches(d);
  d.layers = derive_layers(d.facts);
  if (d.layers && d.layers->split) d.layers_per_stage = d.layers->split->table();
  detail::derive_heads_and_vocabulary(d.facts);
  detail::apply_changes(d);
  if (on_bridge) apply_bridge_sets(d.facts);
  return d;
}

/// The derived values that reports show, in order; one that is unknown or None is left out.
inline constexpr auto kDerivedNames = [] {
  using namespace literals;
  return std::array{
      "world_size"_opt,
      "gtp_weight_remat_size"_opt,
      "expert_gtp_weight_remat_size"_opt,
      "tensor_parallel_num_weight_shards"_opt,
      "expert_tensor_parallel_num_weight_shards"_opt,
      "expert_tensor_parallel_size"_opt,
      "data_parallel_size"_opt,
      "expert_data_parallel_size"_opt,
      "data_distribution_size"_opt,
      "dense_order"_opt,
      "expert_order"_opt,
      "virtual_pipeline_model_parallel_size"_opt,
      "sequence_parallel"_opt,
      "global_batch_size"_opt,
      "running_global_batch_size"_opt,
      "num_microbatches"_opt,
      "eval_global_batch_size"_opt,
      "eval_num_microbatches"_opt,
      "train_iters"_opt,
      "padded_vocab_size"_opt,
  };
}();

}  // namespace gtp
