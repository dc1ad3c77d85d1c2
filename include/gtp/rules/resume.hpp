// 84x: what happens when the checkpoint to be loaded, whose options the input gives under `checkpoint`, is not like
// this run. What the input does not say of the checkpoint is unknown.
#pragma once

#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/checkpoint.hpp>

namespace gtp::rules {

inline constexpr OptionId kOptimizerSharding = "optimizer_sharding"_opt;

namespace detail {

inline std::optional<std::int64_t> saved_integer(const Facts& f, OptionId option) {
  const Value* value = f.config().checkpoint_value(option);
  if (value == nullptr || !std::holds_alternative<std::int64_t>(*value)) return std::nullopt;
  return std::get<std::int64_t>(*value);
}

inline std::string_view saved_text(const Facts& f, OptionId option) {
  const Value* value = f.config().checkpoint_value(option);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return text == nullptr ? std::string_view{} : *text;
}

inline bool saved_on(const Facts& f, OptionId option) {
  const Value* value = f.config().checkpoint_value(option);
  return value != nullptr && *value == Value(true);
}

/// Remat size of the checkpoint: itself, or its shards / the parallel size.
inline std::optional<std::int64_t> saved_remat(const Facts& f, OptionId remat, OptionId shards, OptionId parallel) {
  if (const auto size = saved_integer(f, remat)) return size;
  const auto count = saved_integer(f, shards), size = saved_integer(f, parallel);
  return count && size ? exact_quotient(*count, *size) : std::nullopt;
}

inline std::optional<std::int64_t> saved_gtp(const Facts& f) { return saved_remat(f, kGtpRemat, kShards, kTp); }
inline std::optional<std::int64_t> saved_egtp(const Facts& f) {
  return saved_remat(f, kEgtpRemat, kExpertShards, kEtp);
}

/// Whether both sides are known and differ.
inline bool differs(const Facts& f, OptionId size) {
  const auto saved = saved_integer(f, size), now = f.integer(size);
  return saved && now && *saved != *now;
}

inline bool tp_or_pp_differs(const Facts& f) { return differs(f, kTp) || differs(f, kPp); }

/// TP and PP are known on both sides and equal.
inline bool tp_and_pp_agree(const Facts& f) {
  return saved_integer(f, kTp) && saved_integer(f, kPp) && f.integer(kTp) == saved_integer(f, kTp) &&
         f.integer(kPp) == saved_integer(f, kPp);
}

inline bool gtp_differs(const Facts& f) {
  const auto dense = saved_gtp(f), expert = saved_egtp(f);
  return (dense && f.integer(kGtpRemat) && *dense != f[kGtpRemat]) ||
         (expert && f.integer(kEgtpRemat) && *expert != f[kEgtpRemat]);
}

inline bool gtp_on_either_side(const Facts& f) {
  return gtp_known_on(f) || saved_gtp(f).value_or(1) > 1 || saved_egtp(f).value_or(1) > 1;
}

inline bool resumes(const Facts& f) { return f.has(kLoad) && !f.on("finetune"_opt); }
inline bool loads_optimizer(const Facts& f) {
  return resumes(f) && !f.on("no_load_optim"_opt) && !saved_on(f, "no_save_optim"_opt);
}

/// How the checkpoint's optimizer state is sharded: as it says, or by the options it was saved with
/// (checkpointing.py:558); empty when neither is known.
inline std::string_view saved_sharding(const Facts& f) {
  if (const auto text = saved_text(f, kOptimizerSharding); !text.empty()) return text;
  if (!saved_on(f, kDistOpt)) return {};
  const Value* reshardable = f.config().checkpoint_value(kReshardable);
  if (reshardable == nullptr) return {};
  return *reshardable == Value(true) ? "fully_reshardable" : "dp_reshardable";
}

inline bool reshards_over_tp_and_pp(std::string_view sharding) {
  return sharding == "fully_reshardable" || sharding == "fully_sharded_model_space" || sharding == "fsdp_dtensor";
}

/// "TP 2 -> 4, PP 1 -> 2", of the sizes that differ.
inline std::string changed_sizes(const Facts& f) {
  std::string text;
  const auto add = [&](std::string_view name, std::optional<std::int64_t> saved, std::optional<std::int64_t> now) {
    if (saved && now && *saved != *now)
      text += fmt::format("{}{} {} -> {}", text.empty() ? "" : ", ", name, *saved, *now);
  };
  add("TP", saved_integer(f, kTp), f.integer(kTp));
  add("PP", saved_integer(f, kPp), f.integer(kPp));
  add("EP", saved_integer(f, kEp), f.integer(kEp));
  add("GTP_remat", saved_gtp(f), f.integer(kGtpRemat));
  add("EGTP_remat", saved_egtp(f), f.integer(kEgtpRemat));
  return text;
}

/// The vocabulary after padding (vocab_utils.py:58), or nothing when it is not known.
inline std::optional<std::int64_t> padded_vocabulary(const Facts& f) {
  if (const auto given = f.integer("padded_vocab_size"_opt)) return given;
  const auto size = f.integer("vocab_size"_opt), unit = f.integer("make_vocab_size_divisible_by"_opt),
             tp = f.integer(kTp);
  if (!size || !unit || !tp || *size < 0) return std::nullopt;
  const auto multiple = checked_multiply(*unit, *tp);
  return multiple ? round_up_to_multiple(*size, *multiple) : std::nullopt;
}

/// Padding that GTP adds to the rows of one TP slice (generalized_tensor_parallelism.py:537).
inline bool pads(std::int64_t rows, std::int64_t remat) {
  const auto unit = checked_multiply(16, remat);
  return remat > 1 && unit && rows % *unit != 0;
}

/// Whether a column-parallel weight is padded on a side with TP and GTP: the MLP's first, or the attention's.
inline bool padded_under_tp(const Facts& f, std::optional<std::int64_t> tp, std::optional<std::int64_t> remat) {
  if (!tp || !remat || *tp <= 1 || *remat <= 1) return false;
  const auto ffn = f.integer("ffn_hidden_size"_opt);
  const auto rows = ffn ? checked_multiply(*ffn, f.on("swiglu"_opt) ? 2 : 1) : std::nullopt;
  if (rows && pads(*rows / *tp, *remat)) return true;
  const auto hidden = f.integer("hidden_size"_opt), heads = f.integer("num_attention_heads"_opt);
  const auto groups = f.on("group_query_attention"_opt) ? f.integer("num_query_groups"_opt) : heads;
  auto head_size = f.integer("kv_channels"_opt);
  if (!head_size && hidden && heads) head_size = exact_quotient(*hidden, *heads);
  if (!heads || !groups || !head_size || f.on("multi_latent_attention"_opt)) return false;
  const auto twice = checked_multiply(*groups, 2);
  const auto parts = twice ? checked_add(*heads, *twice) : std::nullopt;
  const auto qkv = parts ? checked_multiply(*parts, *head_size) : std::nullopt;
  return qkv && pads(*qkv / *tp, *remat);
}

inline bool fused_rows(const Facts& f) {
  return f.on("swiglu"_opt) || f.has("hybrid_layer_pattern"_opt) || f.has("experimental_attention_variant"_opt);
}

}  // namespace detail

inline constexpr Rule kResumes[] = {
    {"GTP840",
     "gtp-reshard-gated-fc1",
     Severity::Warning,
     Phase::Silent,
     {kLoad},
     "a gated or fused projection is mixed up when GTP shards are loaded under other sizes",
     "Rows of the fused weight (gate and up of a gated MLP, the input projection of Mamba and gated delta net) are "
     "stored in the order of the shards, not of the parts. Under the same sizes that does not show; under others rows "
     "land in the wrong part, and nothing says so (PR 7161, open).",
     "resume under the same tensor-parallel and remat sizes",
     "megatron/core/tensor_parallel/generalized_tensor_parallelism.py:2797",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const bool changed = detail::differs(f, kTp) || detail::gtp_differs(f);
       if (!f.has(kLoad) || !changed || !detail::gtp_on_either_side(f) || !detail::fused_rows(f)) return {};
       return at(kLoad, detail::changed_sizes(f));
     }},
    {"GTP841",
     "gtp-reshard-padding",
     Severity::Warning,
     Phase::Silent,
     {kLoad},
     "padded GTP shards shift rows when they are loaded under other sizes",
     "Padding is part of the saved shape and a different shape is tolerated, so the rows of every tensor-parallel rank "
     "after the first are shifted (PR 7168, open).",
     "resume under the same sizes, or use widths that need no padding",
     "megatron/core/utils.py:1107",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const bool changed = detail::differs(f, kTp) || detail::gtp_differs(f);
       if (!f.has(kLoad) || !changed) return {};
       if (!detail::padded_under_tp(f, f.integer(kTp), f.integer(kGtpRemat)) &&
           !detail::padded_under_tp(f, detail::saved_integer(f, kTp), detail::saved_gtp(f)))
         return {};
       return at(kLoad, detail::changed_sizes(f));
     }},
    {"GTP842",
     "distopt-default-not-reshardable",
     Severity::Error,
     Phase::Later,
     {kLoad, kDistOpt},
     "this optimizer state cannot be loaded under another TP or PP",
     "Saved without dist_ckpt_optim_fully_reshardable, it is cut along gradient buckets, which TP and PP shape. "
     "Upstream's own message names ckpt_fully_parallel_save, which does not help.",
     "keep TP and PP, set no_load_optim, or save with dist_ckpt_optim_fully_reshardable first",
     "megatron/training/checkpointing.py:2649",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const std::string_view sharding = detail::saved_sharding(f);
       if (!detail::loads_optimizer(f) || !detail::distributed_optimizer(f) || !detail::tp_or_pp_differs(f) ||
           sharding.empty() || detail::reshards_over_tp_and_pp(sharding))
         return {};
       return at(kLoad, detail::changed_sizes(f)).note(fmt::format("its optimizer state is {}", sharding));
     }},
    {"GTP843",
     "distopt-ep-change-unguarded",
     Severity::Warning,
     Phase::Silent,
     {kLoad, kDistOpt},
     "nothing checks that this optimizer state fits another expert-parallel size",
     "Upstream compares TP and PP only before it loads; state that is cut along gradient buckets does not fit the "
     "buckets of other experts.",
     "keep the expert-parallel size, set no_load_optim, or save with dist_ckpt_optim_fully_reshardable first",
     "megatron/training/checkpointing.py:2649",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const std::string_view sharding = detail::saved_sharding(f);
       if (!detail::loads_optimizer(f) || !detail::distributed_optimizer(f) || detail::tp_or_pp_differs(f) ||
           !detail::differs(f, kEp) || sharding.empty() || detail::reshards_over_tp_and_pp(sharding))
         return {};
       return at(kLoad, detail::changed_sizes(f)).note(fmt::format("its optimizer state is {}", sharding));
     }},
    {"GTP844",
     "gtp-degree-change-not-detected",
     Severity::Warning,
     Phase::Silent,
     {kLoad},
     "a changed remat size is not noticed on a resume",
     "Upstream compares TP and PP only. Optimizer state that is cut along gradient buckets, padded shards and random "
     "states do not fit another remat size.",
     "resume with the same weight shards, or load weights only (no_load_optim, no_load_rng)",
     "megatron/training/checkpointing.py:2650",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::resumes(f) || !detail::gtp_differs(f) || !detail::tp_and_pp_agree(f)) return {};
       return at(kLoad, detail::changed_sizes(f));
     }},
    {"GTP845",
     "rng-ignored-on-tp-pp-change",
     Severity::Warning,
     Phase::Later,
     {kLoad, kSaveFormat},
     "the saved random states are not restored",
     "They belong to the TP and PP ranks of the checkpoint; under other sizes upstream skips them, so the run is not "
     "the continuation bit by bit.",
     "keep TP and PP, or set no_load_rng",
     "megatron/training/checkpointing.py:2593",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::resumes(f) || f.on("no_load_rng"_opt) || f.text(kSaveFormat) == "torch" ||
           !detail::tp_or_pp_differs(f) || !detail::saved_on(f, "has_rng"_opt))
         return {};
       return at(kLoad, detail::changed_sizes(f));
     }},
    {"GTP846",
     "legacy-tp-pp-must-match",
     Severity::Error,
     Phase::Later,
     {kLoad, kSaveFormat},
     "a legacy checkpoint loads only under its own TP and PP",
     "Its files belong to the ranks that wrote them.",
     "keep TP and PP, or convert the checkpoint (ckpt_convert_format torch_dist)",
     "megatron/training/checkpointing.py:219",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::resumes(f) || f.text(kSaveFormat) != "torch" || !detail::tp_or_pp_differs(f)) return {};
       return at(kLoad, detail::changed_sizes(f)).also(kSaveFormat, "torch");
     }},
    {"GTP847",
     "legacy-padded-vocab-must-match",
     Severity::Error,
     Phase::Later,
     {kLoad, kSaveFormat, "vocab_file"_opt, "vocab_size"_opt, "make_vocab_size_divisible_by"_opt, kTp},
     "a legacy checkpoint loads only with its own padded vocabulary",
     "The vocabulary is padded to a multiple of make_vocab_size_divisible_by x TP, and the embedding has its rows.",
     "change make_vocab_size_divisible_by, or use torch_dist, which tolerates other padding",
     "megatron/training/checkpointing.py:207",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto saved = detail::saved_integer(f, "padded_vocab_size"_opt), now = detail::padded_vocabulary(f);
       if (!detail::resumes(f) || f.text(kSaveFormat) != "torch" || !f.has("vocab_file"_opt) || !saved || !now ||
           *saved == *now)
         return {};
       return at("vocab_size"_opt, fmt::format("{} is padded to {}", f["vocab_size"_opt], *now))
           .also(kLoad, fmt::format("{} in the checkpoint", *saved));
     }},
    {"GTP848",
     "fully-parallel-load-limits",
     Severity::Error,
     Phase::Later,
     {kLoad, "ckpt_fully_parallel_load"_opt, kDistOpt},
     "this optimizer state cannot be loaded in parallel",
     "State of the kind dp_zero_gather_scatter is read whole by one rank.",
     "turn ckpt_fully_parallel_load off",
     "megatron/training/checkpointing.py:2661",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto parallel = "ckpt_fully_parallel_load"_opt;
       if (!detail::loads_optimizer(f) || !detail::distributed_optimizer(f) || !f.on(parallel) ||
           detail::saved_sharding(f) != "dp_zero_gather_scatter" || detail::tp_or_pp_differs(f))
         return {};
       return at(parallel, "on").also(kLoad, "dp_zero_gather_scatter");
     }},
    {"GTP849",
     "use-checkpoint-args",
     Severity::Error,
     Phase::Startup,
     {"use_checkpoint_args"_opt, kLoad, "pretrained_checkpoint"_opt, kNonPersistent},
     "options cannot be taken from this checkpoint",
     "They are read before anything else, from load or pretrained_checkpoint; local checkpoints cannot be read so "
     "early.",
     "set load or pretrained_checkpoint, and do not use local checkpoints",
     "megatron/training/arguments.py:94",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto use = "use_checkpoint_args"_opt;
       if (!f.on(use)) return {};
       if (!f.has(kLoad) && !f.has("pretrained_checkpoint"_opt)) return at(use, "without load");
       if (f.text(kNonPersistent) != "local") return {};
       return at(use, "on").also(kNonPersistent, "local");
     }},
    {"GTP836",
     "use-mp-args-omits-gtp",
     Severity::Warning,
     Phase::Silent,
     {"use_mp_args_from_checkpoint_args"_opt},
     "parallel sizes from the checkpoint leave its weight shards out",
     "Upstream takes TP, PP, VPP and EP from the checkpoint, but neither CP, ETP nor the weight shards: without them "
     "the run continues without GTP.",
     "give the weight shards here too",
     "megatron/training/checkpointing.py:2355",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto use = "use_mp_args_from_checkpoint_args"_opt;
       if (!f.on(use)) return {};
       Findings findings;
       const auto check = [&](std::optional<std::int64_t> saved, OptionId shards) {
         if (saved.value_or(1) > 1 && f.config().given(shards) == nullptr)
           findings.list.push_back(at(use, fmt::format("{} is not taken over", name_of(shards))));
       };
       check(detail::saved_gtp(f), kShards);
       check(detail::saved_egtp(f), kExpertShards);
       return findings;
     }},
    {"GTP837",
     "override-ckpt-iteration",
     Severity::Error,
     Phase::Startup,
     {"override_ckpt_iteration"_opt, "finetune"_opt},
     "finetuning starts at iteration 0, whatever override_ckpt_iteration says",
     "The two say different things about where the run starts.",
     "keep one of the two",
     "megatron/training/arguments.py:1850",
     [](const Derivation& d) -> Findings {
       const auto iteration = "override_ckpt_iteration"_opt;
       if (!d.facts.has(iteration) || !d.facts.on("finetune"_opt)) return {};
       return at(iteration, fmt::format("{}", d.facts[iteration])).also("finetune"_opt, "on");
     }},
    {"GTP838",
     "resume-consumed-fallback",
     Severity::Error,
     Phase::Later,
     {kLoad, "train_samples"_opt},
     "this checkpoint cannot continue a run that lasts samples",
     "It counts no consumed samples. Upstream then multiplies its iteration by the global batch size, but only in a "
     "run "
     "that lasts iterations.",
     "use train_iters, or set override_ckpt_iteration",
     "megatron/training/training.py:5478",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const bool fallback = detail::saved_integer(f, "iteration"_opt).value_or(0) > 0 &&
                             detail::saved_integer(f, "consumed_train_samples"_opt) == 0;
       if (!detail::resumes(f) || !fallback || !f.has("train_samples"_opt) || f.has("override_ckpt_iteration"_opt))
         return {};
       return at(kLoad, "no consumed samples").also("train_samples"_opt, "counted in samples");
     }},
};

}  // namespace gtp::rules
