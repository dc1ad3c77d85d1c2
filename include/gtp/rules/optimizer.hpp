// 72x-77x: gradient reduction, the distributed and the layer-wise optimizer, Megatron-FSDP. Many checks come before
// upstream changes the options they read (changes/optimizer.hpp), so they look at the original values.
#pragma once

#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/unsaid.hpp>
#include <gtp/rules/weight_shards.hpp>

namespace gtp::rules {

inline constexpr OptionId kAverage = "ddp_average_in_collective"_opt;

namespace detail {

/// The options that overlapping parameter gathers builds on, as far as they are certainly missing.
inline Findings param_gather_needs(const Facts& f) {
  if (!originally_on(f, kParamGather)) return {};
  Findings findings;
  const bool sharded =
      originally_on(f, kDistOpt) || f.on(kUsesMegatronFsdp) || text_before_changes(f, kOptimizer) == "dist_muon";
  if (!sharded) findings.list.push_back(at(kParamGather, "on").also(kDistOpt, std::string(off_text(f, kDistOpt))));
  if (!f.on(kGradReduce))
    findings.list.push_back(at(kParamGather, "on").also(kGradReduce, std::string(off_text(f, kGradReduce))));
  return findings;
}

/// What the overlap of the optimizer step with the first gather lacks.
inline Findings step_overlap_needs(const Facts& f) {
  if (!f.on(kStepOverlap)) return {};
  if (!originally_on(f, kDistOpt)) return at(kStepOverlap, "on").also(kDistOpt, std::string(off_text(f, kDistOpt)));
  if (!originally_on(f, kParamGather))
    return at(kStepOverlap, "on").also(kParamGather, std::string(off_text(f, kParamGather)));
  if (f.known(kVpp) && !f.has(kVpp)) return at(kStepOverlap, "on").also(kPp, "no virtual stages");
  const std::string_view format = text_or_default(f, kSaveFormat);
  if (format.empty() || format == "torch") return {};
  return at(kStepOverlap, "on").also(kSaveFormat, fmt::format("{} is a distributed format", format));
}

/// Every option that Megatron-FSDP refuses (arguments.py:1137-1170).
inline Findings megatron_fsdp_conflicts(const Facts& f) {
  if (!f.on(kUsesMegatronFsdp)) return {};
  Findings findings;
  const auto conflict = [&](OptionId option, std::string text) {
    findings.list.push_back(at(option, std::move(text)).also(kUsesMegatronFsdp, "Megatron-FSDP is on"));
  };
  for (const OptionId grouped : {"moe_single_grouped_weight"_opt, "moe_single_grouped_bias"_opt})
    if (f.on(grouped)) conflict(grouped, "one tensor for all experts");
  if (emerging_optimizer(f))
    conflict(kOptimizer, fmt::format("`{}` is neither adam nor sgd", text_before_changes(f, kOptimizer)));
  const auto hash = "check_weight_hash_across_dp_replicas_interval"_opt;
  if (f.has(hash) && text_or_default(f, "data_parallel_sharding_strategy"_opt) == "optim_grads_params")
    conflict(hash, "no rank holds whole weights");
  const std::string_view format = text_or_default(f, kSaveFormat);
  if (!format.empty() && format != "fsdp_dtensor") {
    if (f.config().given(kSaveFormat) != nullptr)
      conflict(kSaveFormat, fmt::format("`{}` is not fsdp_dtensor", format));
    else
      findings.list.push_back(at(kUsesMegatronFsdp, fmt::format("ckpt_format is unset and {} by default", format)));
    findings.list.back().help = "set `ckpt_format` to fsdp_dtensor";
  }
  return findings;
}

/// Whether (expert DP / DPxCP) / expert DP differs from 1 / DPxCP in doubles, which upstream compares exactly.
inline bool average_rounds(std::int64_t expert_dp, std::int64_t dp_cp) {
  const auto experts = static_cast<double>(expert_dp), all = static_cast<double>(dp_cp);
  return experts / all / experts != 1.0 / all;
}

/// Rows of one rank's fused QKV weight under TP and GTP, padding included, or nothing when they are not known to
/// divide.
inline std::optional<std::int64_t> local_qkv_rows(const Facts& f, std::int64_t group_rows, std::int64_t groups) {
  const auto rows = checked_multiply(group_rows, groups);
  const auto per_tp = rows ? exact_quotient(*rows, f[kTp]) : std::nullopt;
  if (!per_tp || f[kGtpRemat] <= 1) return per_tp;
  const std::int64_t alignment = f.text("fp8_recipe"_opt) == "mxfp8" && !f.has("fp4"_opt) ? 32 : 16;
  const auto unit = checked_multiply(alignment, f[kGtpRemat]);
  const auto padded = unit ? round_up_to_multiple(*per_tp, *unit) : std::nullopt;
  return padded ? std::optional(*padded / f[kGtpRemat]) : std::nullopt;
}

/// Rows of one query group in the fused weight: its queries (twice with an output gate), a key, a value.
inline std::optional<std::int64_t> query_group_rows(const Facts& f, std::int64_t groups) {
  const auto heads = f.integer("num_attention_heads"_opt);
  auto head_size = f.integer("kv_channels"_opt);
  if (!head_size && heads && f.integer("hidden_size"_opt)) head_size = exact_quotient(f["hidden_size"_opt], *heads);
  const auto queries = heads ? exact_quotient(*heads, groups) : std::nullopt;
  if (!queries || !head_size || *head_size < 1) return std::nullopt;
  const std::int64_t gates = f.on("attention_output_gate"_opt) ? 2 : 1;
  const auto parts = checked_multiply(*queries, gates);
  const auto all = parts ? checked_add(*parts, 2) : std::nullopt;
  return all ? checked_multiply(*all, *head_size) : std::nullopt;
}

inline Findings muon_qkv_split_skipped(const Facts& f) {
  const std::string_view name = text_before_changes(f, kOptimizer);
  const bool muon = name == "muon" || name == "dist_muon" || name == "adaptive_muon";
  if (!muon || !f.on("muon_split_qkv"_opt) || f.on("multi_latent_attention"_opt)) return {};
  const auto heads = f.integer("num_attention_heads"_opt);
  const auto groups = f.on("group_query_attention"_opt) ? f.integer("num_query_groups"_opt) : heads;
  if (!groups || *groups < 1) return {};
  const auto group_rows = query_group_rows(f, *groups);
  const auto local = group_rows ? local_qkv_rows(f, *group_rows, *groups) : std::nullopt;
  if (!local || *local % *group_rows == 0) return {};
  return at("muon_split_qkv"_opt, fmt::format("{} rows a rank are no multiple of {}", *local, *group_rows))
      .note(fmt::format("one query group has {} rows; TP is {}, GTP_remat {}", *group_rows, f[kTp], f[kGtpRemat]));
}

}  // namespace detail

inline constexpr Rule kOptimizers[] = {
    {"GTP721",
     "overlap-param-gather-prereq",
     Severity::Error,
     Phase::Startup,
     {kParamGather, kDistOpt, kUsesMegatronFsdp, kGradReduce},
     "overlapped parameter gathers need a sharded optimizer and overlapped gradient reduction",
     "They gather what the distributed optimizer, Megatron-FSDP or dist_muon has sharded, with the buckets of the "
     "overlapped reduction.",
     "turn use_distributed_optimizer and overlap_grad_reduce on, or overlap_param_gather off",
     "megatron/training/arguments.py:1024",
     [](const Derivation& d) { return detail::param_gather_needs(d.facts); }},
    {"GTP722",
     "step-overlap-prereq",
     Severity::Error,
     Phase::Startup,
     {kStepOverlap, kDistOpt, kParamGather},
     "gathering during the optimizer step is not possible here",
     "It needs the distributed optimizer, overlap_param_gather, virtual pipeline stages, and the legacy checkpoint "
     "format `torch`.",
     "turn overlap_param_gather_with_optimizer_step off",
     "megatron/training/arguments.py:1066",
     [](const Derivation& d) { return detail::step_overlap_needs(d.facts); }},
    {"GTP723",
     "gtp-average-in-collective",
     Severity::Error,
     Phase::Startup,
     {kGtpRemat, kEgtpRemat, kAverage},
     "GTP cannot average gradients in the collective",
     "The reduction runs over the replicate group, so the average would miss the factor 1 / GTP_remat.",
     "turn ddp_average_in_collective off",
     "megatron/training/arguments.py:1553",
     [](const Derivation& d) -> Findings {
       if (!detail::any_gtp_on(d.facts) || !d.facts.on(kAverage)) return {};
       return at(kAverage, "on").also(detail::shards_that_are_on(d.facts), "GTP is on").fix(kAverage, false);
     }},
    {"GTP724",
     "average-vs-per-token-loss",
     Severity::Error,
     Phase::FirstStep,
     {kAverage, "calculate_per_token_loss"_opt},
     "a per-token loss cannot be averaged in the collective",
     "Its gradients are summed, and divided by the number of tokens afterwards.",
     "turn ddp_average_in_collective or calculate_per_token_loss off",
     "megatron/core/distributed/distributed_data_parallel.py:244",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.on(kAverage) || !f.on("calculate_per_token_loss"_opt) || f.on(kUsesFsdp2) || f.on(kUsesMegatronFsdp))
         return {};
       return at(kAverage, "on").also("calculate_per_token_loss"_opt, "on");
     }},
    {"GTP725",
     "average-in-collective-float-equality",
     Severity::Error,
     Phase::FirstStep,
     {kAverage, kNumExperts, kDp, kCp, kEdp, kInstances},
     "rounding makes averaged expert gradients fail a check",
     "Upstream compares (expert DP / DPxCP) / expert DP with 1 / DPxCP exactly, in double arithmetic; for some sizes "
     "with odd factors the two differ in the last bit.",
     "turn ddp_average_in_collective off, or change the sizes",
     "megatron/core/distributed/distributed_data_parallel.py:298",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.on(kAverage) || !f.has(kNumExperts) || f[kInstances] != 1 || f.on("calculate_per_token_loss"_opt))
         return {};
       const auto dp_cp = checked_multiply(f[kDp], f[kCp]);
       if (!dp_cp || !detail::average_rounds(f[kEdp], *dp_cp)) return {};
       return at(kAverage, fmt::format("expert DP {}, DP x CP {}", f[kEdp], *dp_cp)).also(kNumExperts, "experts");
     }},
    {"GTP726",
     "instances-need-distopt",
     Severity::Error,
     Phase::FirstStep,
     {kInstances, kDistOpt},
     "optimizer instances need the distributed optimizer",
     "Each instance holds one copy of the sharded optimizer state.",
     "set use_distributed_optimizer, or num_distributed_optimizer_instances to 1",
     "megatron/core/distributed/distributed_data_parallel.py:357",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (f[kInstances] <= 1 || f.on(kDistOpt) || detail::layer_wise(f) || f.on(kUsesFsdp2) || f.on(kUsesMegatronFsdp))
         return {};
       return at(kInstances, fmt::format("{} instances", f[kInstances]))
           .also(kDistOpt,
                 f.on("freeze_all_layers"_opt) ? "off with frozen layers" : std::string(detail::off_text(f, kDistOpt)));
     }},
    {"GTP727",
     "layerwise-single-instance",
     Severity::Error,
     Phase::FirstStep,
     {kInstances, kOptimizer, kDistOpt},
     "the layer-wise optimizer knows a single instance",
     "It deals whole parameters to the ranks of all DP x CP, while gradients would be reduced over one instance only.",
     "set num_distributed_optimizer_instances to 1",
     "megatron/core/optimizer/layer_wise_optimizer.py:538",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (f[kInstances] <= 1 || !detail::layer_wise(f)) return {};
       return at(kInstances, fmt::format("{} instances", f[kInstances]))
           .also(kOptimizer, "updates whole parameters")
           .fix(kInstances, std::int64_t{1});
     }},
    {"GTP728",
     "fp32-rs-single-instance",
     Severity::Error,
     Phase::FirstStep,
     {"ddp_reduce_scatter_with_fp32_accumulation"_opt, kInstances},
     "reduce-scatter with fp32 accumulation knows a single optimizer instance",
     "Its all-to-all has no second level between instances.",
     "set num_distributed_optimizer_instances to 1, or turn the option off",
     "megatron/core/distributed/param_and_grad_buffer.py:233",
     [](const Derivation& d) -> Findings {
       const auto option = "ddp_reduce_scatter_with_fp32_accumulation"_opt;
       if (!d.facts.on(option) || d.facts[kInstances] <= 1) return {};
       return at(option, "on").also(kInstances, fmt::format("{} instances", d.facts[kInstances]));
     }},
    {"GTP730",
     "gtp-fp32-rs-bypass",
     Severity::Note,
     Phase::Silent,
     {"gtp_remat_reduce_scatter_with_fp32_accumulation"_opt, kGtpRemat, kEgtpRemat},
     "fp32 accumulation of GTP gradients has no effect in groups of two",
     "The sum of two values is rounded once either way, so upstream uses the plain reduce-scatter.",
     "leave the option out",
     "megatron/core/tensor_parallel/generalized_tensor_parallelism.py:2027",
     [](const Derivation& d) -> Findings {
       const auto option = "gtp_remat_reduce_scatter_with_fp32_accumulation"_opt;
       const Facts& f = d.facts;
       if (!f.on(option) || !detail::any_gtp_on(f) || f[kGtpRemat] > 2 || f[kEgtpRemat] > 2) return {};
       return at(option, fmt::format("GTP_remat {}, EGTP_remat {}", f[kGtpRemat], f[kEgtpRemat]));
     }},
    {"GTP731",
     "num-buckets-exclusive",
     Severity::Error,
     Phase::Startup,
     {"ddp_num_buckets"_opt, "ddp_bucket_size"_opt},
     "buckets are given by their number or by their size",
     "The one follows from the other; a number must be positive.",
     "keep one of ddp_num_buckets and ddp_bucket_size",
     "megatron/core/distributed/distributed_data_parallel_config.py:275",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto buckets = f.integer("ddp_num_buckets"_opt);
       if (!buckets || f.on(kUsesFsdp2)) return {};
       if (detail::original_integer(f, "ddp_bucket_size"_opt))
         return at("ddp_num_buckets"_opt, "a number").also("ddp_bucket_size"_opt, "a size");
       if (*buckets > 0) return {};
       return at("ddp_num_buckets"_opt, fmt::format("{} is not positive", *buckets)).mend("use 1 or more");
     }},
    {"GTP732",
     "fp32-local-accum-patterns",
     Severity::Error,
     Phase::Startup,
     {"ddp_param_name_patterns_for_fp32_local_accumulation"_opt, "accumulate_allreduce_grads_in_fp32"_opt},
     "patterns for fp32 accumulation are pointless when all gradients are fp32",
     "bf16 training accumulates in fp32 unless grad_reduce_in_bf16 is set, so the patterns need that option.",
     "drop the patterns, or set grad_reduce_in_bf16",
     "megatron/core/distributed/distributed_data_parallel_config.py:269",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto option = "ddp_param_name_patterns_for_fp32_local_accumulation"_opt;
       const auto* patterns = std::get_if<StringList>(f.find(option));
       const bool bf16_default = f.on("bf16"_opt) && !f.on("grad_reduce_in_bf16"_opt) &&
                                 detail::text_or_default(f, "main_grads_dtype"_opt) == "fp32";
       const bool off = f.on("bf16"_opt) && f.on("grad_reduce_in_bf16"_opt);
       const bool fp32 = !off && (f.on("accumulate_allreduce_grads_in_fp32"_opt) || bf16_default);
       if (patterns == nullptr || patterns->empty() || !fp32 || f.on(kUsesFsdp2)) return {};
       return at(option, "given")
           .also("accumulate_allreduce_grads_in_fp32"_opt,
                 f.on("accumulate_allreduce_grads_in_fp32"_opt) ? "on" : "bf16 turns it on");
     }},
    {"GTP735",
     "emerging-optimizer-limits",
     Severity::Error,
     Phase::Startup,
     {kOptimizer, kUsesFsdp2},
     "torch FSDP2 knows only adam and sgd",
     "Muon and its kin update whole matrices, which FSDP2 has cut.",
     "use adam or sgd, or turn FSDP2 off",
     "megatron/training/arguments.py:1739",
     [](const Derivation& d) -> Findings {
       if (!detail::emerging_optimizer(d.facts) || !d.facts.on(kUsesFsdp2)) return {};
       return at(kOptimizer, std::string(detail::text_before_changes(d.facts, kOptimizer))).also(kUsesFsdp2, "on");
     }},
    {"GTP736",
     "emerging-optimizer-no-fp16",
     Severity::Error,
     Phase::FirstStep,
     {kOptimizer, "fp16"_opt},
     "this optimizer does not know fp16",
     "Muon and its kin run in bf16 or fp32.",
     "use bf16, or adam",
     "megatron/core/optimizer/__init__.py:774",
     [](const Derivation& d) -> Findings {
       if (!detail::emerging_optimizer(d.facts) || !d.facts.on("fp16"_opt)) return {};
       return at(kOptimizer, std::string(detail::text_before_changes(d.facts, kOptimizer))).also("fp16"_opt, "on");
     }},
    {"GTP737",
     "layerwise-moe-fallback-groups",
     Severity::Error,
     Phase::FirstStep,
     {kOptimizer, kDistOpt, kNumExperts, kEp, "add_bias_linear"_opt, "use_layer_wise_param_layout"_opt},
     "the layer-wise optimizer has no place for biases of experts",
     "Parameters that are no matrices go to a distributed optimizer of their own, which does not know the expert "
     "data-parallel group.",
     "turn use_layer_wise_param_layout off, or add_bias_linear",
     "megatron/core/optimizer/__init__.py:919",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::layer_wise(f) || !f.on("use_layer_wise_param_layout"_opt) || !f.has(kNumExperts) || f[kEp] <= 1 ||
           !f.on("add_bias_linear"_opt))
         return {};
       return at("add_bias_linear"_opt, "experts have biases").also(kOptimizer, "updates matrices");
     }},
    {"GTP738",
     "layerwise-no-step-overlap",
     Severity::Error,
     Phase::FirstStep,
     {kOptimizer, kDistOpt, kStepOverlap},
     "the layer-wise optimizer cannot gather during its step",
     "It does not split the model chunks into a first one and the rest, so the gather would never start.",
     "turn overlap_param_gather_with_optimizer_step off",
     "megatron/core/optimizer/__init__.py:766",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::layer_wise(f) || !f.on(kStepOverlap) || !detail::step_overlap_needs(f).list.empty()) return {};
       return at(kStepOverlap, "on").also(kOptimizer, "sharded by layers").fix(kStepOverlap, false);
     }},
    {"GTP739",
     "muon-ns-steps",
     Severity::Error,
     Phase::FirstStep,
     {kOptimizer, "muon_num_ns_steps"_opt},
     "Muon needs a Newton-Schulz step",
     "Without an iteration nothing is orthogonalized.",
     "use 1 or more",
     "megatron/core/optimizer/emerging_optimizers.py:200",
     [](const Derivation& d) -> Findings {
       const auto steps = d.facts.integer("muon_num_ns_steps"_opt);
       const bool muon = detail::text_before_changes(d.facts, kOptimizer).find("muon") != std::string_view::npos;
       if (!muon || !steps || *steps >= 1) return {};
       return at("muon_num_ns_steps"_opt, fmt::format("{} is below 1", *steps));
     }},
    {"GTP740",
     "muon-qkv-split-skipped",
     Severity::Note,
     Phase::Silent,
     {kOptimizer, kTp, kGtpRemat, "muon_split_qkv"_opt, "num_attention_heads"_opt, "group_query_attention"_opt,
      "num_query_groups"_opt},
     "Muon does not split the fused QKV weight here",
     "A rank's rows are no whole number of query groups, so query, key and value are orthogonalized as one matrix; "
     "upstream says so in a debug log only.",
     "use sizes that leave whole query groups to each rank",
     "megatron/core/optimizer/__init__.py:794",
     [](const Derivation& d) { return detail::muon_qkv_split_skipped(d.facts); }},
    {"GTP742",
     "mfsdp-v2-no-distopt",
     Severity::Error,
     Phase::Startup,
     {kUsesMegatronFsdp, "megatron_fsdp_version"_opt, kDistOpt},
     "Megatron-FSDP version 2 excludes the distributed optimizer",
     "It shards the optimizer state itself.",
     "turn use_distributed_optimizer off",
     "megatron/training/arguments.py:1123",
     [](const Derivation& d) -> Findings {
       const auto version = "megatron_fsdp_version"_opt;
       if (!d.facts.on(kUsesMegatronFsdp) || d.facts.integer(version) != 2 || !detail::originally_on(d.facts, kDistOpt))
         return {};
       return at(kDistOpt, "on").also(version, "2").fix(kDistOpt, false);
     },
     Version::kd98e8a64},
    {"GTP743",
     "mfsdp-requirements",
     Severity::Error,
     Phase::Startup,
     {kUsesMegatronFsdp},
     "Megatron-FSDP does not work with this option",
     "It takes adam or sgd, the checkpoint format fsdp_dtensor, a tensor for each expert, and weight hashes only where "
     "weights are not sharded.",
     "change the option, or turn Megatron-FSDP off",
     "megatron/training/arguments.py:1138",
     [](const Derivation& d) { return detail::megatron_fsdp_conflicts(d.facts); }},
    {"GTP744",
     "mfsdp-meta-no-shard",
     Severity::Error,
     Phase::Startup,
     {kUsesMegatronFsdp, "init_model_with_meta_device"_opt, "data_parallel_sharding_strategy"_opt},
     "nothing is sharded, so a model on the meta device is never filled",
     "With the strategy no_shard every rank holds the whole model from the start.",
     "turn init_model_with_meta_device off",
     "megatron/training/arguments.py:1183",
     [](const Derivation& d) -> Findings {
       const auto meta = "init_model_with_meta_device"_opt, strategy = "data_parallel_sharding_strategy"_opt;
       if (!d.facts.on(kUsesMegatronFsdp) || !d.facts.on(meta) || d.facts.text(strategy) != "no_shard") return {};
       return at(meta, "on").also(strategy, "no_shard");
     }},
    {"GTP746",
     "fsdp-manual-registration",
     Severity::Error,
     Phase::Startup,
     {"fsdp_manual_registration"_opt, kUsesMegatronFsdp, "nccl_ub"_opt},
     "manual registration needs Megatron-FSDP and NCCL user buffers",
     "It registers the buffers of the one with the other.",
     "set use_megatron_fsdp and nccl_ub, or drop fsdp_manual_registration",
     "megatron/training/arguments.py:1189",
     [](const Derivation& d) -> Findings {
       const auto manual = "fsdp_manual_registration"_opt;
       if (!d.facts.on(manual)) return {};
       for (const OptionId needed : {kUsesMegatronFsdp, "nccl_ub"_opt})
         if (!d.facts.on(needed)) return at(manual, "on").also(needed, std::string(detail::off_text(d.facts, needed)));
       return {};
     }},
    {"GTP747",
     "save-params-vs-gather-overlap",
     Severity::Error,
     Phase::Startup,
     {kSave, "save_params_interval"_opt, kParamGather},
     "parameters cannot be dumped while their gathers overlap",
     "Between two forward passes the gathered parameters are stale.",
     "turn overlap_param_gather off, or drop save_params_interval",
     "megatron/training/arguments.py:1367",
     [](const Derivation& d) -> Findings {
       const auto interval = "save_params_interval"_opt;
       if (!d.facts.has(kSave) || !d.facts.has(interval) || !detail::originally_on(d.facts, kParamGather)) return {};
       return at(interval, "given").also(kParamGather, "on");
     }},
    {"GTP749",
     "gloo-off-distopt-needs-dist-ckpt",
     Severity::Error,
     Phase::Startup,
     {"use_gloo_process_groups"_opt, kDistOpt, kSaveFormat},
     "without Gloo the distributed optimizer needs a distributed checkpoint",
     "The legacy format, and the memory-efficient reshardable one, collect optimizer state on CPUs through Gloo.",
     "use ckpt_format torch_dist without the memory-efficient mode, or keep Gloo",
     "megatron/training/arguments.py:1745",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto gloo = "use_gloo_process_groups"_opt, efficient = "distrib_optim_fully_reshardable_mem_efficient"_opt;
       if (detail::originally_on(f, gloo) || !detail::distributed_optimizer(f)) return {};
       if (f.text(kSaveFormat) == "torch") return at(kSaveFormat, "torch").also(gloo, "off");
       if (!f.on("dist_ckpt_optim_fully_reshardable"_opt) || !f.on(efficient)) return {};
       return at(efficient, "on").also(gloo, "off");
     }},
};

}  // namespace gtp::rules
