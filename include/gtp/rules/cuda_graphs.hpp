// 65x to 67x: CUDA graphs, what they may capture and what not.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <gtp/changes/cuda_graphs.hpp>
#include <gtp/changes/recompute.hpp>
#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/names.hpp>
#include <gtp/rules/weight_shards.hpp>

namespace gtp::rules {

namespace detail {

inline constexpr std::array<std::string_view, 6> kCaptured{"attn",           "mlp",  "moe", "moe_router",
                                                           "moe_preprocess", "mamba"};
inline constexpr std::array<std::string_view, 9> kCapturedOrDeprecated{"attn",
                                                                       "mlp",
                                                                       "moe",
                                                                       "moe_router",
                                                                       "moe_preprocess",
                                                                       "mamba",
                                                                       "full",
                                                                       "full_iteration",
                                                                       "full_iteration_inference"};

/// The option that names the modules, to point at.
inline OptionId named_modules_option(const Facts& f) {
  return original_words(f, kGraphModules).empty() ? kOldGraphScope : kGraphModules;
}

/// Whole layers or whole steps are captured, not parts of a layer.
inline bool captures_all(const Facts& f) {
  return f.text(kGraphImpl) == "full_iteration" || words(f, kGraphModules).empty();
}

inline bool captures(const Facts& f, std::string_view module) {
  return captures_all(f) || contains(words(f, kGraphModules), module);
}

/// A module named for per-layer graphs; nothing is named for whole layers.
inline bool names_module(const Facts& f, std::string_view module) {
  return graphs_per_layer(f) && contains(words(f, kGraphModules), module);
}

inline bool is_moe(const Facts& f) { return f.integer(kNumExperts).value_or(0) > 1; }

/// Every layer has experts, as far as upstream looks (transformer_config.py:2830).
inline bool all_layers_moe(const Facts& f) {
  const Value* frequency = f.find("moe_layer_freq"_opt);
  if (frequency == nullptr) return false;
  if (const auto* every = std::get_if<std::int64_t>(frequency)) return *every == 1;
  const auto* layers = std::get_if<IntList>(frequency);
  return layers != nullptr && std::find(layers->begin(), layers->end(), 0) == layers->end();
}

inline bool drops_and_pads(const Facts& f) {
  return f.has("moe_expert_capacity_factor"_opt) && f.on("moe_pad_expert_input_to_capacity"_opt);
}

/// The inference scopes of each implementation (cuda_graph_config.py:19).
inline bool scope_allowed(std::string_view impl, std::string_view scope) {
  return impl == "local" ? scope == "layer" || scope == "block" : scope == "none";
}

/// A source of random numbers, the recomputed module it is in, and the graph module that captures it.
struct GraphedRandomness {
  OptionId option;
  std::string_view recomputed;
  std::string_view captured;
};
inline constexpr std::array<GraphedRandomness, 4> kGraphedRandomness{{
    {"attention_dropout"_opt, "core_attn", "attn"},
    {"hidden_dropout"_opt, "mlp", "mlp"},
    {"hidden_dropout"_opt, "moe", "moe"},
    {"moe_input_jitter_eps"_opt, "moe", "moe"},
}};

/// Dropout counts when it is not 0, the jitter as soon as it is given.
inline bool draws(const Facts& f, OptionId option) {
  if (option == "moe_input_jitter_eps"_opt) return f.has(option);
  return gtp::detail::real(f, option).value_or(0) != 0;
}

inline Findings graphed_randomness(const Facts& f) {
  Findings findings;
  if (f.text(kGraphImpl) == "none" || !selective(f)) return findings;
  for (const GraphedRandomness& row : kGraphedRandomness) {
    if (!draws(f, row.option) || !contains(recompute_modules(f), row.recomputed) || !captures(f, row.captured))
      continue;
    const bool by_default = f.config().given(row.option) == nullptr;
    findings.list.push_back(
        at(row.option, fmt::format("{}{}", to_text(*f.find(row.option)), by_default ? " by default" : ""))
            .also(kRecomputeModules, fmt::format("{} is recomputed", row.recomputed))
            .also(kGraphImpl, "captures it"));
    if (row.option == "hidden_dropout"_opt) break;  // upstream asks once for both modules
  }
  return findings;
}

inline bool is_partial_moe_offload(std::span<const std::string> modules) {
  constexpr std::array<std::string_view, 3> kPartial{"expert_fc1", "moe_act", "fused_group_mlp"};
  return !modules.empty() && first_outside(modules, kPartial).empty();
}

/// Offloading from captured layers, in upstream's order; the first thing wrong.
inline Findings offload_in_graphs(const Facts& f) {
  constexpr std::string_view kOn = "offloads activations";
  const OptionId offload = "fine_grained_activation_offloading"_opt, modules = "offload_modules"_opt,
                 inflight = "fine_grained_offloading_max_inflight_offloads"_opt;
  const auto impl = f.text(kGraphImpl);
  if (!f.on(offload) || impl == "none" || words(f, modules).empty()) return {};
  if (impl == "local" && !is_partial_moe_offload(words(f, modules)))
    return at(modules, "more than expert_fc1, moe_act and fused_group_mlp").also(kGraphImpl, "local");
  if (impl == "local" && words(f, kGraphModules).empty())
    return at(kGraphImpl, "local, for whole layers").also(offload, std::string(kOn));
  if (contains(words(f, kGraphModules), "moe"))
    return at(kGraphModules, "captures moe").also(offload, std::string(kOn));
  const Value* warmup = f.original(kGraphWarmup);
  const auto* steps = warmup == nullptr ? nullptr : std::get_if<std::int64_t>(warmup);
  if (steps != nullptr && *steps <= 0)
    return at(kGraphWarmup, fmt::format("{}", *steps)).also(offload, std::string(kOn));
  if (impl == "full_iteration" && f.integer(inflight).value_or(-1) < 0)
    return at(inflight, f.has(inflight) ? fmt::format("{}", f[inflight]) : "unset").also(kGraphImpl, "full_iteration");
  return {};
}

/// Weight gradients that are computed later lie in a captured part (arguments.py:1910).
inline bool captures_delayed_gradients(const Facts& f) {
  if (!f.on("delay_wgrad_compute"_opt) || !f.on("overlap_grad_reduce"_opt)) return false;
  const auto modules = named_graph_modules(f);
  return contains(modules, "attn") ||
         (contains(modules, "moe_router") && f.has("moe_shared_expert_intermediate_size"_opt) &&
          !f.on("moe_shared_expert_overlap"_opt));
}

}  // namespace detail

inline constexpr Rule kCudaGraphs[] = {
    {"GTP651",
     "graph-legacy-flags",
     Severity::Error,
     Phase::Startup,
     {kGraphImpl, kEnableGraph, kExternalGraph},
     "a deprecated CUDA-graph switch stands beside another choice of implementation",
     "enable_cuda_graph and external_cuda_graph each mean one implementation; upstream takes neither beside the other "
     "or beside cuda_graph_impl.",
     "use cuda_graph_impl alone",
     "megatron/training/arguments.py:611",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::graph_switches_clash(f)) return {};
       const OptionId on = f.on(kEnableGraph) ? kEnableGraph : kExternalGraph;
       const std::string_view impl = detail::original_text(f, kGraphImpl);
       if (impl != "none") return at(on, "on").also(kGraphImpl, std::string(impl));
       return at(on, "on").also(kExternalGraph, "on as well");
     }},
    {"GTP652",
     "graph-scope-vs-modules",
     Severity::Error,
     Phase::Startup,
     {kGraphModules, kOldGraphScope},
     "cuda_graph_scope and cuda_graph_modules are two names of one option",
     "cuda_graph_scope is the deprecated name; upstream does not take both.",
     "use cuda_graph_modules alone",
     "megatron/training/arguments.py:634",
     [](const Derivation& d) -> Findings {
       if (!d.facts.has(kOldGraphScope) || original_words(d.facts, kGraphModules).empty()) return {};
       return at(kOldGraphScope, "the deprecated name").also(kGraphModules, "given too");
     }},
    {"GTP653",
     "graph-modules-full-exclusive",
     Severity::Error,
     Phase::Startup,
     {kGraphModules, kOldGraphScope},
     "the graph module full stands alone",
     "It means whole layers, so parts of a layer beside it say nothing.",
     "leave cuda_graph_modules empty to capture whole layers",
     "megatron/core/transformer/cuda_graph_config.py:39",
     [](const Derivation& d) -> Findings {
       const auto modules = detail::named_graph_modules(d.facts);
       if (!contains(modules, "full") || modules.size() == 1) return {};
       return at(detail::named_modules_option(d.facts), fmt::format("full and {} more", modules.size() - 1));
     }},
    {"GTP654",
     "graph-modules-allowed",
     Severity::Error,
     Phase::Startup,
     {kGraphModules, kOldGraphScope},
     "no such module can be captured",
     "Per-layer graphs capture attn, mlp, moe, moe_router, moe_preprocess and mamba.",
     "use only these modules",
     "megatron/training/arguments.py:256",
     [](const Derivation& d) -> Findings {
       const auto modules = detail::named_graph_modules(d.facts);
       const std::string_view unknown = first_outside(modules, detail::kCapturedOrDeprecated);
       if (unknown.empty() || contains(modules, "full")) return {};
       return at(detail::named_modules_option(d.facts), fmt::format("`{}` is no module", unknown));
     }},
    {"GTP655",
     "graph-modules-deprecated-conflict",
     Severity::Error,
     Phase::Startup,
     {kGraphImpl, kGraphModules, kOldGraphScope, kInferenceScope, kEnableGraph, kExternalGraph},
     "a deprecated word among the graph modules contradicts another option",
     "full_iteration among the modules means that implementation, and full_iteration_inference the inference scope "
     "block of local graphs; upstream refuses both beside options that say otherwise.",
     "set cuda_graph_impl and inference_cuda_graph_scope instead of the deprecated word",
     "megatron/core/transformer/cuda_graph_config.py:90",
     [](const Derivation& d) -> Findings {
       const std::string_view problem = detail::deprecated_module_problem(d.facts);
       if (problem.empty()) return {};
       return at(detail::named_modules_option(d.facts), std::string(problem));
     }},
    {"GTP656",
     "graph-full-iteration-modules-empty",
     Severity::Error,
     Phase::Startup,
     {kGraphImpl, kGraphModules},
     "full-iteration graphs take no modules",
     "The whole step is one graph, so there are no parts to choose.",
     "leave cuda_graph_modules out",
     "megatron/training/arguments.py:1969",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (f.text(kGraphImpl) != "full_iteration" || words(f, kGraphModules).empty()) return {};
       return at(kGraphModules, to_text(*f.find(kGraphModules))).also(kGraphImpl, "full_iteration");
     }},
    {"GTP657",
     "graph-full-iteration-nan-check",
     Severity::Error,
     Phase::Startup,
     {kGraphImpl, "check_for_nan_in_loss_and_grad"_opt},
     "full-iteration graphs cannot check loss and gradients for NaN",
     "The check waits on the host for a value of the GPU, which cannot be captured. It is on by default.",
     "turn check_for_nan_in_loss_and_grad off",
     "megatron/training/arguments.py:1235",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto check = "check_for_nan_in_loss_and_grad"_opt;
       if (f.text(kGraphImpl) != "full_iteration" || !f.on(check)) return {};
       return at(check, f.config().given(check) == nullptr ? "on by default" : "on")
           .also(kGraphImpl, "full_iteration")
           .fix(check, false);
     }},
    {"GTP658",
     "graph-inference-scope",
     Severity::Error,
     Phase::Startup,
     {kGraphImpl, kInferenceScope},
     "this CUDA-graph implementation has no such inference scope",
     "Local graphs capture layers or blocks in inference; every other implementation captures nothing there.",
     "use layer or block with local graphs, and none otherwise",
     "megatron/training/arguments.py:647",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const std::string_view impl = f.text(kGraphImpl).value_or(""), scope = detail::inference_scope(f);
       if (detail::scope_allowed(impl, scope) || !detail::deprecated_module_problem(f).empty()) return {};
       return at(kInferenceScope, std::string(scope)).also(kGraphImpl, std::string(impl));
     }},
    {"GTP659",
     "graph-local-dynamic-count",
     Severity::Error,
     Phase::Startup,
     {kGraphImpl, "inference_dynamic_batching_num_cuda_graphs"_opt},
     "the number of inference graphs must be at least 1, or -1",
     "Local graphs are captured for that many batch sizes; -1 lets upstream choose.",
     "use a positive number, or -1",
     "megatron/training/arguments.py:1247",
     [](const Derivation& d) -> Findings {
       const auto option = "inference_dynamic_batching_num_cuda_graphs"_opt;
       const auto count = d.facts.integer(option);
       if (d.facts.text(kGraphImpl) != "local" || !count || *count > 0 || *count == -1) return {};
       return at(option, fmt::format("{}", *count)).also(kGraphImpl, "local");
     }},
    {"GTP660",
     "graph-moe-vs-router",
     Severity::Error,
     Phase::Startup,
     {kGraphImpl, kGraphModules},
     "graphs capture the whole MoE layer or its router, not both",
     "moe contains the router, so the two captures would overlap.",
     "keep one of moe and moe_router",
     "megatron/core/transformer/transformer_config.py:2817",
     [](const Derivation& d) -> Findings {
       if (!detail::names_module(d.facts, "moe") || !detail::names_module(d.facts, "moe_router")) return {};
       return at(kGraphModules, "moe and moe_router");
     }},
    {"GTP661",
     "graph-preprocess-needs-router",
     Severity::Error,
     Phase::Startup,
     {kGraphImpl, kGraphModules},
     "moe_preprocess is captured only together with moe_router",
     "The preprocessing reads what the router has just written.",
     "add moe_router",
     "megatron/core/transformer/transformer_config.py:2821",
     [](const Derivation& d) -> Findings {
       if (!detail::names_module(d.facts, "moe_preprocess") || detail::names_module(d.facts, "moe_router")) return {};
       return at(kGraphModules, "moe_preprocess without moe_router");
     }},
    {"GTP662",
     "graph-moe-needs-moe",
     Severity::Error,
     Phase::Startup,
     {kGraphImpl, kGraphModules, kNumExperts},
     "MoE modules are captured only in a model with experts",
     "There is no such module in a dense model.",
     "remove moe and moe_router from cuda_graph_modules",
     "megatron/core/transformer/transformer_config.py:2825",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const bool moe = detail::names_module(f, "moe");
       if (detail::is_moe(f) || (!moe && !detail::names_module(f, "moe_router"))) return {};
       return at(kGraphModules, moe ? "moe" : "moe_router").also(kNumExperts, f.has(kNumExperts) ? "1" : "unset");
     }},
    {"GTP663",
     "graph-mlp-needs-dense",
     Severity::Error,
     Phase::Startup,
     {kGraphImpl, kGraphModules, kNumExperts, "moe_layer_freq"_opt},
     "the module mlp is captured only where some layer is dense",
     "Every layer has experts instead of an MLP.",
     "remove mlp from cuda_graph_modules",
     "megatron/core/transformer/transformer_config.py:2831",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::is_moe(f) || !detail::all_layers_moe(f) || !detail::names_module(f, "mlp")) return {};
       return at(kGraphModules, "mlp").also("moe_layer_freq"_opt, "every layer has experts");
     }},
    {"GTP664",
     "graph-moe-needs-drop-pad",
     Severity::Error,
     Phase::Startup,
     {kGraphImpl, kGraphModules, kNumExperts, "moe_expert_capacity_factor"_opt, "moe_pad_expert_input_to_capacity"_opt},
     "the module moe is captured only with experts of a fixed capacity",
     "A graph replays fixed shapes, so every expert must get equally many tokens: dropped beyond the capacity, padded "
     "below it.",
     "set moe_expert_capacity_factor and moe_pad_expert_input_to_capacity, or capture moe_router alone",
     "megatron/core/transformer/transformer_config.py:2838",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::is_moe(f) || detail::drops_and_pads(f) || !detail::names_module(f, "moe")) return {};
       const auto factor = "moe_expert_capacity_factor"_opt, pad = "moe_pad_expert_input_to_capacity"_opt;
       return at(kGraphModules, "moe").also(f.has(factor) ? pad : factor, f.has(factor) ? "off" : "unset");
     }},
    {"GTP665",
     "graph-preprocess-alltoall-sync",
     Severity::Error,
     Phase::Startup,
     {kGraphImpl, kGraphModules, kNumExperts, "moe_expert_capacity_factor"_opt, "moe_pad_expert_input_to_capacity"_opt,
      "moe_token_dispatcher_type"_opt, "moe_router_padding_for_fp8"_opt},
     "this MoE preprocessing waits for the GPU and cannot be captured",
     "The all-to-all dispatcher copies counts to the host when tokens are dropped without padding or padded for FP8.",
     "remove moe_preprocess, or use a fixed capacity with padding",
     "megatron/core/transformer/transformer_config.py:2845",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto factor = "moe_expert_capacity_factor"_opt, padding = "moe_router_padding_for_fp8"_opt;
       if (!detail::is_moe(f) || detail::drops_and_pads(f) || !detail::names_module(f, "moe_preprocess") ||
           detail::names_module(f, "moe") || f.text("moe_token_dispatcher_type"_opt) != "alltoall" ||
           (!f.has(factor) && !f.on(padding)))
         return {};
       return at(kGraphModules, "moe_preprocess").also(f.has(factor) ? factor : padding, "needs counts on the host");
     }},
    {"GTP666",
     "graph-cpu-offload",
     Severity::Error,
     Phase::Startup,
     {kGraphImpl, "cpu_offloading_num_layers"_opt},
     "layers in CUDA graphs cannot be offloaded to the CPU",
     "Copies of whole layers to the host are not part of per-layer graphs.",
     "turn one of the two off",
     "megatron/core/transformer/transformer_config.py:2800",
     [](const Derivation& d) -> Findings {
       const auto layers = "cpu_offloading_num_layers"_opt;
       if (!detail::graphs_per_layer(d.facts) || d.facts.integer(layers).value_or(0) <= 0) return {};
       return at(layers, fmt::format("{}", d.facts[layers])).also(kGraphImpl, std::string(*d.facts.text(kGraphImpl)));
     }},
};

}  // namespace gtp::rules
