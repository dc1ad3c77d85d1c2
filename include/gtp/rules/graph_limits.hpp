// 67x: CUDA graphs together with recompute, offloading, overlap, reinforcement learning and GTP.
#pragma once

#include <string>
#include <string_view>

#include <gtp/rule.hpp>
#include <gtp/rules/cuda_graphs.hpp>

namespace gtp::rules {

inline constexpr Rule kGraphLimits[] = {
    {"GTP667",
     "graph-full-recompute",
     Severity::Error,
     Phase::Startup,
     {kGraphImpl, kGranularity},
     "full recompute does not go with per-layer graphs",
     "A recomputed layer would hold the graph that should hold it; only a graph of the whole step can contain full "
     "recompute.",
     "use selective recompute, or full_iteration graphs",
     "megatron/core/transformer/transformer_config.py:2855",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::graphs_per_layer(f) || f.text(kGranularity) != "full") return {};
       return at(kGranularity, "full").also(kGraphImpl, std::string(*f.text(kGraphImpl)));
     }},
    {"GTP668",
     "graph-te-moe-recompute",
     Severity::Error,
     Phase::Startup,
     {kGraphImpl, kGraphModules, kGranularity, kRecomputeModules},
     "a recomputed MoE layer cannot hold a captured router",
     "TransformerEngine's graphs must lie outside of what is recomputed, or contain all of it.",
     "remove moe from recompute_modules, or moe_router from cuda_graph_modules",
     "megatron/core/transformer/transformer_config.py:2862",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (f.text(kGraphImpl) != "transformer_engine" || !detail::selective(f) ||
           !contains(detail::recompute_modules(f), "moe") || !contains(words(f, kGraphModules), "moe_router"))
         return {};
       return at(kRecomputeModules, "moe").also(kGraphModules, "moe_router");
     }},
    {"GTP669",
     "graph-recompute-dropout",
     Severity::Error,
     Phase::Startup,
     {kGraphImpl, kGraphModules, kGranularity, kRecomputeModules, "attention_dropout"_opt, "hidden_dropout"_opt,
      "moe_input_jitter_eps"_opt},
     "random numbers in a captured module that is recomputed",
     "Recompute must draw the numbers of the forward pass again, which a replayed graph does not do.",
     "turn the dropout or jitter off, or do not recompute the module",
     "megatron/core/transformer/transformer_config.py:2878",
     [](const Derivation& d) { return detail::graphed_randomness(d.facts); }},
    {"GTP670",
     "graph-gtp-shared-expert-recompute",
     Severity::Error,
     Phase::Startup,
     {kGraphImpl, kGraphModules, kGranularity, kRecomputeModules, kGtpRemat, "fp8"_opt,
      "moe_shared_expert_intermediate_size"_opt, "moe_shared_expert_overlap"_opt},
     "GTP with local graphs cannot recompute shared experts in FP8 or FP4",
     "The warm-up of a local graph asks for gradients in a way that TransformerEngine's checkpoint cannot answer.",
     "remove shared_experts from recompute_modules, or use full_iteration graphs",
     "megatron/core/transformer/transformer_config.py:2908",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const bool low_precision = f.has("fp8"_opt) || f.has("fp4"_opt);
       const bool captured = detail::captures(f, "moe") || detail::captures(f, "moe_router");
       if (!detail::gtp_on(f) || f.text(kGraphImpl) != "local" || !detail::selective(f) || !low_precision ||
           !f.has("moe_shared_expert_intermediate_size"_opt) || f.on("moe_shared_expert_overlap"_opt) || !captured ||
           !contains(detail::recompute_modules(f), "shared_experts"))
         return {};
       return at(kRecomputeModules, "shared_experts").also(kGraphImpl, "local").also(kShards, "GTP is on");
     }},
    {"GTP671",
     "graph-offload-restrictions",
     Severity::Error,
     Phase::Startup,
     {kGraphImpl, kGraphModules, "fine_grained_activation_offloading"_opt, "offload_modules"_opt, kGraphWarmup,
      "fine_grained_offloading_max_inflight_offloads"_opt},
     "activations cannot be offloaded this way from CUDA graphs",
     "Offloading works with TransformerEngine and full-iteration graphs, and in local graphs for parts of the MoE "
     "layer that are not captured; it needs a warm-up, and full-iteration graphs a bound on unfinished copies.",
     "offload only expert_fc1, moe_act or fused_group_mlp under local graphs, keep moe uncaptured, warm up at least "
     "once, and set fine_grained_offloading_max_inflight_offloads for full_iteration",
     "megatron/core/transformer/transformer_config.py:2929",
     [](const Derivation& d) { return detail::offload_in_graphs(d.facts); }},
    {"GTP672",
     "graph-ep-overlap",
     Severity::Error,
     Phase::Startup,
     {kGraphImpl, kGraphModules, "overlap_moe_expert_parallel_comm"_opt},
     "expert-parallel overlap does not go with captured moe or mlp modules",
     "The overlapped schedule runs parts of these modules at different times.",
     "remove moe and mlp from cuda_graph_modules",
     "megatron/core/transformer/transformer_config.py:3063",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto overlap = "overlap_moe_expert_parallel_comm"_opt;
       const auto modules = words(f, kGraphModules);
       if (!f.on(overlap) || f.text(kGraphImpl) != "transformer_engine" || !contains_any(modules, {"moe", "mlp"}))
         return {};
       return at(kGraphModules, contains(modules, "moe") ? "moe" : "mlp").also(overlap, "on");
     }},
    {"GTP673",
     "graph-block-inference-fp8",
     Severity::Error,
     Phase::Startup,
     {kGraphImpl, kInferenceScope, "fp8"_opt, "fp8_recipe"_opt, "transformer_impl"_opt},
     "inference graphs of whole blocks know one FP8 path",
     "It is the inference-optimized transformer with the mxfp8 recipe.",
     "use transformer_impl inference_optimized with fp8_recipe mxfp8, or no FP8",
     "megatron/training/arguments.py:1239",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto impl = "transformer_impl"_opt, recipe = "fp8_recipe"_opt;
       if (detail::inference_scope(f) != "block" || !f.has("fp8"_opt)) return {};
       const bool optimized = f.text(impl) == "inference_optimized";
       if (optimized && f.text(recipe) == "mxfp8") return {};
       const OptionId wrong = optimized ? recipe : impl;
       return at(wrong, std::string(f.text(wrong).value_or("unset"))).also(kInferenceScope, "block");
     }},
    {"GTP674",
     "graph-delay-wgrad",
     Severity::Error,
     Phase::Startup,
     {kGraphModules, kOldGraphScope, "delay_wgrad_compute"_opt, "overlap_grad_reduce"_opt,
      "gradient_accumulation_fusion"_opt, "add_bias_linear"_opt, "add_qkv_bias"_opt},
     "delayed weight gradients in a graph need fused accumulation and attention without biases",
     "A graph writes to fixed addresses, which only the fused accumulation has; delayed gradients of captured "
     "attention leave biases out.",
     "turn gradient_accumulation_fusion on, and the biases off",
     "megatron/training/arguments.py:1919",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto fusion = "gradient_accumulation_fusion"_opt, linear = "add_bias_linear"_opt, qkv = "add_qkv_bias"_opt;
       if (!detail::captures_delayed_gradients(f)) return {};
       if (!f.on(fusion)) return at(fusion, "off").also("delay_wgrad_compute"_opt, "on");
       if (!contains(detail::named_graph_modules(f), "attn") || (!f.on(linear) && !f.on(qkv))) return {};
       const OptionId bias = f.on(linear) ? linear : qkv;
       return at(bias, f.config().given(bias) == nullptr ? "on by default" : "on")
           .also("delay_wgrad_compute"_opt, "on");
     }},
    {"GTP675",
     "rl-graphs-need-graphs",
     Severity::Error,
     Phase::Startup,
     {kGraphImpl, "perform_rl_step"_opt},
     "reinforcement learning asks for CUDA graphs that are not built",
     "rl_persist_cuda_graphs and rl_training_cuda_graphs say when graphs are used; cuda_graph_impl builds them.",
     "set cuda_graph_impl, or turn the option off",
     "megatron/training/arguments.py:481",
     [](const Derivation& d) {
       Findings findings;
       if (!d.facts.on("perform_rl_step"_opt) || detail::original_text(d.facts, kGraphImpl) != "none") return findings;
       for (const OptionId option : {"rl_persist_cuda_graphs"_opt, "rl_training_cuda_graphs"_opt})
         if (d.facts.on(option)) findings.list.push_back(at(option, "on").also(kGraphImpl, "none"));
       return findings;
     }},
    {"GTP676",
     "rl-offload-needs-persistent-graphs",
     Severity::Error,
     Phase::Startup,
     {"perform_rl_step"_opt, "rl_kv_cache_management_mode"_opt, "rl_persist_cuda_graphs"_opt,
      "inference_dynamic_batching_unified_memory_level"_opt},
     "an offloaded key-value cache needs persistent CUDA graphs and no unified memory",
     "Capturing again would write over the cache that waits on the host, and unified memory moves it by itself.",
     "turn rl_persist_cuda_graphs on and unified memory off, or keep or recompute the cache",
     "megatron/training/arguments.py:501",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto mode = "rl_kv_cache_management_mode"_opt, persist = "rl_persist_cuda_graphs"_opt,
                  level = "inference_dynamic_batching_unified_memory_level"_opt;
       if (!f.on("perform_rl_step"_opt) || f.text(mode) != "offload") return {};
       if (!f.on(persist)) return at(mode, "offload").also(persist, "off");
       if (f.integer(level).value_or(0) > 0) return at(mode, "offload").also(level, fmt::format("{}", f[level]));
       return {};
     }},
    {"GTP677",
     "graph-gtp-keyed-on-dense",
     Severity::Warning,
     Phase::Silent,
     {kGtpRemat, kEgtpRemat, kGraphImpl, kGraphModules, kNumExperts},
     "captured experts under expert GTP alone get no fences between graphs",
     "The graph runner looks at the dense weight shards to decide whether gathers of one graph must wait for "
     "another's; with expert shards alone it sees none.",
     "do not capture moe, or shard the dense weights too",
     "megatron/core/transformer/cuda_graphs.py:1028",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (detail::gtp_on(f) || !detail::egtp_on(f) || f.text(kGraphImpl) != "local" || !detail::is_moe(f) ||
           !detail::captures(f, "moe"))
         return {};
       return at(kExpertShards, "expert GTP is on").also(kGraphImpl, "local").also(kShards, "GTP is off");
     }},
    {"GTP678",
     "graph-gtp-te-impl",
     Severity::Warning,
     Phase::Silent,
     {kGtpRemat, kEgtpRemat, kGraphImpl},
     "TransformerEngine's graphs know nothing of GTP",
     "Only the local and the full-iteration implementation order gathers and reduce-scatters across graphs; nothing "
     "checks this one.",
     "use local or full_iteration graphs with GTP",
     "megatron/training/training.py:4534",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::any_gtp_on(f) || f.text(kGraphImpl) != "transformer_engine") return {};
       return at(kGraphImpl, "transformer_engine").also(detail::shards_that_are_on(f), "GTP is on");
     }},
};

}  // namespace gtp::rules
