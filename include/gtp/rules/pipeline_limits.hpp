// 24x, 25x: what pipelines and their overlap cannot be combined with; reinforcement learning's batches (41x, 42x),
// which follow from one step's samples; groups that do not communicate (03x).
#pragma once

#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/unsaid.hpp>

namespace gtp::rules {

inline constexpr OptionId kRl = "perform_rl_step"_opt;

namespace detail {

/// Training steps that the samples of one collection last, or nothing when they are not whole steps.
inline std::optional<std::int64_t> rl_steps(const Facts& f) {
  const auto samples =
      checked_product({f.integer("grpo_prompts_per_step"_opt).value_or(0), f.integer("grpo_group_size"_opt).value_or(0),
                       f.integer("grpo_iterations"_opt).value_or(0)});
  return samples ? exact_quotient(*samples, f[kGbs]) : std::nullopt;
}

inline Findings rl_interval_problems(const Facts& f) {
  if (!f.on(kRl)) return {};
  const auto steps = rl_steps(f);
  if (!steps) return {};
  Findings findings;
  for (const OptionId option : {"exit_interval"_opt, "save_interval"_opt}) {
    const auto interval = f.integer(option);
    if (!interval || (*steps != 0 && *interval % *steps == 0)) continue;
    findings.list.push_back(at(option, fmt::format("{} is not a multiple of {}", *interval, *steps)));
  }
  return findings;
}

inline Findings rl_conflicts(const Facts& f) {
  if (!f.on(kRl)) return {};
  const bool persists = f.on("rl_persist_cuda_graphs"_opt);
  if (text_or_default(f, "cuda_graph_impl"_opt) == "none")
    for (const OptionId graphs : {"rl_persist_cuda_graphs"_opt, "rl_training_cuda_graphs"_opt})
      if (f.on(graphs)) return at(graphs, "no CUDA graphs are built");
  const auto cache = "rl_kv_cache_management_mode"_opt;
  if (f.text(cache) == "offload") {
    if (!persists) return at(cache, "offload").also("rl_persist_cuda_graphs"_opt, "off");
    if (f.integer("inference_dynamic_batching_unified_memory_level"_opt).value_or(0) > 0)
      return at(cache, "offload").also("inference_dynamic_batching_unified_memory_level"_opt, "unified memory");
  }
  if (f.on("rl_offload_optimizer_during_inference"_opt) && f.on(kSkipTrain) && originally_on(f, "no_load_optim"_opt))
    return at("rl_offload_optimizer_during_inference"_opt, "there is no optimizer");
  return {};
}

inline Findings cpu_offload_problems(const Facts& f) {
  const auto offloaded = "cpu_offloading_num_layers"_opt;
  const auto layers = f.integer(offloaded);
  if (!layers || *layers <= 0) return {};
  if (const auto all = f.integer("num_layers"_opt); all && *layers >= *all)
    return at(offloaded, fmt::format("{} of {} layers", *layers, *all)).mend("leave one layer on the GPU");
  if (f.integer(kPp).value_or(1) > 1) return at(offloaded, "offloading").also(kPp, "pipeline stages");
  if (f.has("recompute_granularity"_opt))
    return at(offloaded, "offloading").also("recompute_granularity"_opt, "activations are recomputed");
  return {};
}

inline Findings defer_embedding_problems(const Facts& f) {
  const auto defer = "defer_embedding_wgrad_compute"_opt, fusion = "gradient_accumulation_fusion"_opt,
             limit = "wgrad_deferral_limit"_opt;
  if (!f.on(defer)) return {};
  if (f.integer(kPp) == 1) return at(defer, "on").also(kPp, "no pipeline");
  if (!f.on(fusion)) return at(defer, "on").also(fusion, "off");
  const auto batches = f.integer(limit);
  if (!batches || *batches >= 0) return {};
  return at(limit, fmt::format("{} is negative", *batches)).also(defer, "on");
}

}  // namespace detail

inline constexpr Rule kPipelineLimits[] = {
    {"GTP034",
     "fake-process-group-constraints",
     Severity::Error,
     Phase::Startup,
     {"fake_process_group"_opt, "moe_token_dispatcher_type"_opt},
     "the flex dispatcher needs real process groups",
     "Its backends communicate by themselves.",
     "use another dispatcher, or real process groups",
     "megatron/training/arguments.py:1757",
     [](const Derivation& d) -> Findings {
       const auto dispatcher = "moe_token_dispatcher_type"_opt;
       if (!d.facts.on("fake_process_group"_opt) || d.facts.text(dispatcher) != "flex") return {};
       return at(dispatcher, "flex").also("fake_process_group"_opt, "on");
     }},
    {"GTP245",
     "hybrid-pattern-sets-num-layers",
     Severity::Note,
     Phase::Silent,
     {"hybrid_layer_pattern"_opt, "num_layers"_opt},
     "the hybrid pattern says how many layers there are",
     "Upstream warns and counts the layers of the pattern.",
     "leave num_layers out",
     "megatron/training/arguments.py:797",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto given = detail::original_integer(f, "num_layers"_opt), used = f.integer("num_layers"_opt);
       if (!f.has("hybrid_layer_pattern"_opt) || !given || !used || *given == *used) return {};
       return at("num_layers"_opt, fmt::format("the pattern has {}", *used))
           .also("hybrid_layer_pattern"_opt, "pattern");
     }},
    {"GTP253",
     "warmup-flush-overlap",
     Severity::Error,
     Phase::Startup,
     {"overlap_p2p_comm_warmup_flush"_opt, "overlap_p2p_comm"_opt},
     "overlap in warm-up and flush needs point-to-point overlap",
     "It extends the overlap of the interleaved schedule, which upstream turns off without virtual stages.",
     "use virtual pipeline stages with overlap_p2p_comm, or drop the option",
     "megatron/core/model_parallel_config.py:570",
     [](const Derivation& d) -> Findings {
       const auto flush = "overlap_p2p_comm_warmup_flush"_opt, overlap = "overlap_p2p_comm"_opt;
       if (!d.facts.on(flush) || d.facts.on(overlap)) return {};
       if (!detail::originally_on(d.facts, overlap)) return at(flush, "on").also(overlap, "off");
       return at(flush, "on").note("overlap_p2p_comm is off because no virtual pipeline stages are set");
     }},
    {"GTP254",
     "defer-embedding-wgrad",
     Severity::Error,
     Phase::Startup,
     {"defer_embedding_wgrad_compute"_opt, kPp, "gradient_accumulation_fusion"_opt, "wgrad_deferral_limit"_opt},
     "embedding gradients cannot be deferred here",
     "They are deferred into the flush of a pipeline, by the fused kernel, for a number of microbatches.",
     "turn defer_embedding_wgrad_compute off",
     "megatron/core/model_parallel_config.py:545",
     [](const Derivation& d) { return detail::defer_embedding_problems(d.facts); }},
    {"GTP256",
     "cpu-offload-no-pp",
     Severity::Error,
     Phase::Startup,
     {"cpu_offloading_num_layers"_opt},
     "offloading layers to the CPU is not possible here",
     "It works neither with a pipeline nor with recomputed activations, and one layer must stay.",
     "drop cpu_offloading_num_layers",
     "megatron/core/transformer/transformer_config.py:1884",
     [](const Derivation& d) { return detail::cpu_offload_problems(d.facts); }},
    {"GTP258",
     "pp-inference-threshold",
     Severity::Error,
     Phase::Startup,
     {"inference_batch_times_seqlen_threshold"_opt, kPp},
     "splitting inference batches needs a pipeline and no CUDA graphs",
     "Small batches are split so that pipeline stages work at the same time; graphs hold one batch size.",
     "drop inference_batch_times_seqlen_threshold",
     "megatron/training/arguments.py:1853",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto threshold = "inference_batch_times_seqlen_threshold"_opt, graphs = "cuda_graph_impl"_opt;
       if (f.integer(threshold).value_or(-1) <= -1) return {};
       if (f[kPp] <= 1) return at(threshold, "given").also(kPp, "no pipeline");
       if (!f.has(graphs) || f.text(graphs) == "none") return {};
       return at(threshold, "given").also(graphs, "CUDA graphs");
     }},
    {"GTP418",
     "rl-samples-divisible",
     Severity::Error,
     Phase::Startup,
     {kRl, "grpo_prompts_per_step"_opt, "grpo_group_size"_opt, "grpo_iterations"_opt, kGbs},
     "the samples of one collection must be whole training batches",
     "Prompts x group size x iterations are trained on in steps of the global batch size.",
     "use a global batch size that divides them",
     "megatron/training/arguments.py:727",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.on(kRl) || detail::rl_steps(f)) return {};
       return at(kGbs, fmt::format("{} does not divide {} x {} x {}", f[kGbs], f["grpo_prompts_per_step"_opt],
                                   f["grpo_group_size"_opt], f["grpo_iterations"_opt]))
           .also(kRl, "on");
     }},
    {"GTP419",
     "rl-intervals",
     Severity::Error,
     Phase::Startup,
     {kRl, "grpo_prompts_per_step"_opt, "grpo_group_size"_opt, "grpo_iterations"_opt, kGbs},
     "a run with reinforcement learning stops and saves between collections only",
     "Samples that are collected and not yet trained on are not saved.",
     "use multiples of the steps that one collection lasts",
     "megatron/training/arguments.py:734",
     [](const Derivation& d) { return detail::rl_interval_problems(d.facts); }},
    {"GTP420",
     "rl-packing-mbs1",
     Severity::Error,
     Phase::Startup,
     {kRl, "rl_use_sequence_packing"_opt, kMbs},
     "packed sequences make a microbatch of one",
     "A microbatch is one bin of sequences.",
     "set micro_batch_size to 1, and raise seq_length instead",
     "megatron/training/arguments.py:563",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.on(kRl) || !f.on("rl_use_sequence_packing"_opt) || f[kMbs] == 1) return {};
       return at(kMbs, fmt::format("{}", f[kMbs])).also("rl_use_sequence_packing"_opt, "on").fix(kMbs, std::int64_t{1});
     }},
    {"GTP421",
     "rl-conflicts",
     Severity::Error,
     Phase::Startup,
     {kRl},
     "this option cannot serve reinforcement learning here",
     "CUDA graphs can be kept only where they are built; a cache is offloaded only under graphs that are kept, and not "
     "out of unified memory; an optimizer can be offloaded only where there is one.",
     "turn the option off",
     "megatron/training/arguments.py:483",
     [](const Derivation& d) { return detail::rl_conflicts(d.facts); }},
};

}  // namespace gtp::rules
