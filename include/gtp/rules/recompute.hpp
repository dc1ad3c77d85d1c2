// 70x and 71x: activation recompute and offloading.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <gtp/changes/recompute.hpp>
#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/names.hpp>
#include <gtp/word_lists.hpp>

namespace gtp::rules {

inline constexpr OptionId kRecomputeMethod = "recompute_method"_opt, kRecomputeLayers = "recompute_num_layers"_opt,
                          kOffload = "fine_grained_activation_offloading"_opt, kOffloadModules = "offload_modules"_opt,
                          kCpuOffload = "cpu_offloading_num_layers"_opt, kMhc = "enable_mhc_connections"_opt;

namespace detail {

/// Those that only the newer target knows stand last.
inline constexpr std::array<std::string_view, 11> kRecomputable{
    "core_attn",      "moe_act",      "layernorm",   "mla_up_proj", "mlp", "moe",
    "shared_experts", "gdn_norm_out", "gdp_in_proj", "gdp_qkv",     "mhc"};
inline constexpr std::array<std::string_view, 9> kOffloadable{"core_attn",       "attn_proj",  "expert_fc1",
                                                              "fused_group_mlp", "moe_act",    "attn_norm",
                                                              "mlp_norm",        "qkv_linear", "gdp_qkv"};

/// The first `newer` fewer words for the older target.
inline std::span<const std::string_view> known_words(const Facts& f, std::span<const std::string_view> all,
                                                     std::size_t newer) {
  return f.version() >= Version::kd98e8a64 ? all : all.first(all.size() - newer);
}

/// Selective before a deprecated switch sets it, and the module is among those to recompute.
inline bool early_recompute(const Facts& f, std::string_view module) {
  return early_granularity(f) == "selective" && contains(recompute_modules(f), module);
}

/// A module that needs an option which is off.
inline Findings module_without(const Facts& f, std::string_view module, OptionId option) {
  if (!early_recompute(f, module) || f.on(option)) return {};
  return at(kRecomputeModules, std::string(module)).also(option, "off");
}

inline bool offloads_whole_layers(const Facts& f) { return f.integer(kCpuOffload).value_or(0) > 0; }

/// Numbers of fine-grained offloading that are out of range.
inline Findings offload_numbers(const Facts& f) {
  Findings findings;
  for (const OptionId size : {"min_offloaded_tensor_size"_opt, "delta_offload_bytes_across_pp_ranks"_opt})
    if (const auto value = f.integer(size); value && *value < 0)
      findings.list.push_back(at(size, fmt::format("{} is below 0", *value)).also(kOffload, "on"));
  const OptionId fraction = "activation_offload_fraction"_opt;
  if (const auto value = gtp::detail::real(f, fraction); value && !(*value >= 0 && *value <= 1))
    findings.list.push_back(at(fraction, fmt::format("{} is not within 0 and 1", *value)).also(kOffload, "on"));
  return findings;
}

/// Modules to offload that contradict each other or what is recomputed.
inline Findings offload_conflicts(const Facts& f) {
  Findings findings;
  const auto modules = words(f, kOffloadModules);
  const auto add = [&](Finding finding) { findings.list.push_back(std::move(finding)); };
  if (contains(modules, "attn_proj") && !contains(modules, "core_attn"))
    add(at(kOffloadModules, "attn_proj without core_attn"));
  if (selective(f)) {
    const auto recomputed = recompute_modules(f);
    if (contains(modules, "gdp_qkv") && contains(recomputed, "gdp_in_proj"))
      add(at(kOffloadModules, "gdp_qkv").also(kRecomputeModules, "gdp_in_proj discards its input"));
    if (contains(recomputed, "moe") && contains_any(modules, {"moe_act", "expert_fc1", "fused_group_mlp"}))
      add(at(kOffloadModules, "a part of the MoE layer").also(kRecomputeModules, "moe discards it"));
  }
  if (!contains(modules, "fused_group_mlp")) return findings;
  const OptionId fuser = "use_transformer_engine_op_fuser"_opt;
  if (f.known(fuser) && !f.on(fuser)) add(at(kOffloadModules, "fused_group_mlp").also(fuser, "off"));
  if (contains_any(modules, {"expert_fc1", "moe_act"}))
    add(at(kOffloadModules, "fused_group_mlp contains expert_fc1 and moe_act"));
  return findings;
}

inline Findings offload_findings(const Facts& f) {
  if (!f.on(kOffload)) return {};
  if (offloads_whole_layers(f)) return at(kOffload, "on").also(kCpuOffload, "offloads whole layers");
  const auto modules = words(f, kOffloadModules);
  if (modules.empty()) return at(kOffloadModules, "no module").also(kOffload, "on");
  if (const auto unknown = first_outside(modules, known_words(f, kOffloadable, 1)); !unknown.empty())
    return at(kOffloadModules, fmt::format("`{}` is no module", unknown));
  Findings findings = offload_conflicts(f), numbers = offload_numbers(f);
  for (Finding& finding : numbers.list) findings.list.push_back(std::move(finding));
  return findings;
}

/// What hyper-connections exclude, in upstream's order.
inline Findings mhc_findings(const Facts& f) {
  Findings findings;
  if (!f.on(kMhc)) return findings;
  const auto add = [&](OptionId option, std::string text) {
    findings.list.push_back(at(option, std::move(text)).also(kMhc, "on"));
  };
  const OptionId mtp = "mtp_num_layers"_opt, iterations = "mhc_sinkhorn_iterations"_opt,
                 gate = "mhc_init_gating_factor"_opt;
  if (f.has(mtp)) add(mtp, fmt::format("{}: even 0 counts as MTP here", to_text(*f.find(mtp))));
  if (f.text(kGranularity) == "full") add(kGranularity, "full");
  for (const OptionId option : {"inference_fuse_tp_communication"_opt, "fp32_residual_connection"_opt})
    if (f.on(option)) add(option, "on");
  if (const auto value = f.integer(iterations); value && *value < 1) add(iterations, fmt::format("{}", *value));
  if (const auto value = gtp::detail::real(f, gate); value && *value < 0) add(gate, fmt::format("{}", *value));
  return findings;
}

}  // namespace detail

inline constexpr Rule kRecompute[] = {
    {"GTP703",
     "recompute-full-needs-method",
     Severity::Error,
     Phase::Startup,
     {kGranularity, kRecomputeMethod, kRecomputeLayers, "recompute_activations"_opt},
     "full recompute needs a method and a number of layers",
     "uniform and block cut the layers in different ways, and the number says how coarsely.",
     "set recompute_method and recompute_num_layers",
     "megatron/core/transformer/transformer_config.py:1908",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (detail::early_granularity(f) != "full") return {};
       for (const OptionId option : {kRecomputeMethod, kRecomputeLayers})
         if (!f.has(option)) return at(option, "unset").also(kGranularity, "full");
       return {};
     }},
    {"GTP704",
     "recompute-selective-no-method",
     Severity::Error,
     Phase::Startup,
     {kGranularity, kRecomputeMethod, kRecomputeLayers, "recompute_activations"_opt},
     "selective recompute takes no method and no number of layers",
     "It recomputes the listed modules of every layer.",
     "remove recompute_method and recompute_num_layers, or use full recompute",
     "megatron/training/arguments.py:1425",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (detail::early_granularity(f) != "selective") return {};
       for (const OptionId option : {kRecomputeMethod, kRecomputeLayers})
         if (f.has(option)) return at(option, to_text(*f.find(option))).also(kGranularity, "selective");
       return {};
     }},
    {"GTP705",
     "recompute-modules-allowed",
     Severity::Error,
     Phase::Startup,
     {kGranularity, kRecomputeModules, "recompute_activations"_opt},
     "no such module can be recomputed",
     "Selective recompute knows core_attn, moe_act, layernorm, mla_up_proj, mlp, moe, shared_experts and "
     "gdn_norm_out; since August 2026 also gdp_in_proj, gdp_qkv and mhc.",
     "use only these modules",
     "megatron/core/transformer/transformer_config.py:1945",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (detail::early_granularity(f) != "selective") return {};
       const auto unknown =
           first_outside(words(f, kRecomputeModules), detail::known_words(f, detail::kRecomputable, 3));
       if (unknown.empty()) return {};
       return at(kRecomputeModules, fmt::format("`{}` is no module", unknown));
     }},
    {"GTP706",
     "recompute-moe-act",
     Severity::Error,
     Phase::Startup,
     {kGranularity, kRecomputeModules, "moe_grouped_gemm"_opt},
     "the experts' activation is recomputed only with grouped GEMMs",
     "Only the grouped experts keep the activation apart from the GEMMs around it.",
     "turn moe_grouped_gemm on, or remove moe_act",
     "megatron/core/transformer/transformer_config.py:1964",
     [](const Derivation& d) { return detail::module_without(d.facts, "moe_act", "moe_grouped_gemm"_opt); }},
    {"GTP707",
     "recompute-mla-up",
     Severity::Error,
     Phase::Startup,
     {kGranularity, kRecomputeModules, "multi_latent_attention"_opt},
     "mla_up_proj is recomputed only with multi-latent attention",
     "Other attention has no such projection.",
     "remove mla_up_proj from recompute_modules",
     "megatron/core/transformer/transformer_config.py:1969",
     [](const Derivation& d) { return detail::module_without(d.facts, "mla_up_proj", "multi_latent_attention"_opt); }},
    {"GTP708",
     "recompute-gdn-norm-out",
     Severity::Error,
     Phase::Startup,
     {kGranularity, kRecomputeModules, "experimental_attention_variant"_opt},
     "gdn_norm_out is recomputed only with a gated delta net",
     "Other attention has no such norm.",
     "remove gdn_norm_out from recompute_modules",
     "megatron/core/transformer/transformer_config.py:1974",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto option = "experimental_attention_variant"_opt;
       const auto variant = f.text(option).value_or("unset");
       constexpr std::array<std::string_view, 3> kNets{"gdn", "gdn2", "gated_delta_net"};
       if (!detail::early_recompute(f, "gdn_norm_out") || std::find(kNets.begin(), kNets.end(), variant) != kNets.end())
         return {};
       return at(kRecomputeModules, "gdn_norm_out").also(option, std::string(variant));
     }},
    {"GTP709",
     "recompute-shared-overlap",
     Severity::Error,
     Phase::Startup,
     {kGranularity, kRecomputeModules, "moe_shared_expert_intermediate_size"_opt, "moe_shared_expert_overlap"_opt},
     "overlapped shared experts cannot be recomputed",
     "The overlap runs them in pieces between the steps of the dispatcher.",
     "remove shared_experts from recompute_modules, or turn the overlap off",
     "megatron/core/transformer/transformer_config.py:1991",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto overlap = "moe_shared_expert_overlap"_opt;
       if (!detail::early_recompute(f, "shared_experts") || !f.has("moe_shared_expert_intermediate_size"_opt) ||
           !f.on(overlap))
         return {};
       return at(kRecomputeModules, "shared_experts").also(overlap, "on");
     }},
    {"GTP710",
     "recompute-moe-layer-full",
     Severity::Error,
     Phase::Startup,
     {kGranularity, "moe_layer_recompute"_opt},
     "moe_layer_recompute does not go with full recompute",
     "The switch means selective recompute of the MoE layer, which full recompute contains.",
     "turn moe_layer_recompute off",
     "megatron/core/transformer/transformer_config.py:2014",
     [](const Derivation& d) -> Findings {
       const auto option = "moe_layer_recompute"_opt;
       if (!d.facts.on(option) || d.facts.text(kGranularity) != "full") return {};
       return at(option, "on").also(kGranularity, "full").fix(option, false);
     }},
    {"GTP711",
     "recompute-mhc",
     Severity::Error,
     Phase::Startup,
     {kGranularity, kRecomputeModules, kMhc, "mhc_recompute_layer_num"_opt, kOffload},
     "hyper-connections cannot be recomputed this way",
     "The module mhc needs the connections, checkpoints differently from mlp, runs before the offloaded activations "
     "are back, and counts its blocks in whole layers.",
     "turn enable_mhc_connections on, remove mlp, turn fine-grained offloading off, or use blocks of 1 layer or more",
     "megatron/core/transformer/transformer_config.py:2028",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::selective(f) || !contains(detail::recompute_modules(f), "mhc")) return {};
       const auto layers = "mhc_recompute_layer_num"_opt;
       if (!f.on(kMhc)) return at(kRecomputeModules, "mhc").also(kMhc, "off");
       if (contains(detail::recompute_modules(f), "mlp")) return at(kRecomputeModules, "mhc and mlp");
       if (f.integer(layers).value_or(1) < 1) return at(layers, fmt::format("{} is below 1", f[layers]));
       if (f.on(kOffload)) return at(kRecomputeModules, "mhc").also(kOffload, "on");
       return {};
     },
     Version::kd98e8a64},
    {"GTP712",
     "mhc-exclusions",
     Severity::Error,
     Phase::Startup,
     {kMhc},
     "hyper-connections do not go with this option",
     "They carry several residual streams, which multi-token prediction, full recompute, fused inference "
     "communication and an fp32 residual do not know; their normalization needs an iteration and a factor of 0 or "
     "more.",
     "change this option, or turn enable_mhc_connections off",
     "megatron/core/transformer/transformer_config.py:2063",
     [](const Derivation& d) { return detail::mhc_findings(d.facts); },
     Version::kd98e8a64},
    {"GTP713",
     "offload-modules",
     Severity::Error,
     Phase::Startup,
     {kOffload, kOffloadModules},
     "fine-grained offloading cannot offload this way",
     "It moves the inputs of the listed modules to the host until the backward pass, so they must exist, must not be "
     "discarded by recompute or moved already by another option, and the sizes must make sense.",
     "correct offload_modules or the option named beside it",
     "megatron/core/transformer/transformer_config.py:2127",
     [](const Derivation& d) { return detail::offload_findings(d.facts); }},
    {"GTP714",
     "offload-needs-te",
     Severity::Error,
     Phase::Startup,
     {kOffload, "transformer_impl"_opt},
     "fine-grained offloading needs TransformerEngine's layers",
     "Only they have the hooks that move an activation.",
     "use transformer_impl transformer_engine",
     "megatron/training/arguments.py:1932",
     [](const Derivation& d) -> Findings {
       const auto impl = "transformer_impl"_opt;
       if (!d.facts.on(kOffload) || d.facts.text(impl) == "transformer_engine") return {};
       return at(impl, std::string(d.facts.text(impl).value_or("unset"))).also(kOffload, "on");
     }},
    {"GTP715",
     "paged-stash",
     Severity::Error,
     Phase::Startup,
     {"moe_paged_stash"_opt, kOffloadModules, kCpuOffload, "moe_expert_rank_capacity_factor"_opt},
     "the paged stash cannot work this way",
     "It holds the experts' activations in a buffer sized by the capacity of a rank, so the capacity must be given "
     "and nothing else may move these activations.",
     "set moe_expert_rank_capacity_factor, and do not offload layers or experts",
     "megatron/core/transformer/transformer_config.py:2210",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto stash = "moe_paged_stash"_opt, factor = "moe_expert_rank_capacity_factor"_opt;
       if (!f.on(stash)) return {};
       if (detail::offloads_whole_layers(f)) return at(stash, "on").also(kCpuOffload, "offloads whole layers");
       if (!f.has(factor)) return at(factor, "unset").also(stash, "on");
       if (contains_any(words(f, kOffloadModules), {"expert_fc1", "moe_act", "fused_group_mlp"}))
         return at(kOffloadModules, "a part of the experts").also(stash, "keeps it already");
       return {};
     }},
    {"GTP716",
     "distribute-saved-activations",
     Severity::Error,
     Phase::Startup,
     {"distribute_saved_activations"_opt, kTp, kGranularity, kRecomputeMethod, "sequence_parallel"_opt},
     "saved activations are distributed only under full recompute with TP and without sequence parallelism",
     "The inputs of recomputed layers are cut over the TP ranks, which sequence parallelism has done already.",
     "turn distribute_saved_activations off, or use TP above 1, full recompute with a method, and no sequence "
     "parallelism",
     "megatron/training/arguments.py:1410",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto option = "distribute_saved_activations"_opt, sp = "sequence_parallel"_opt;
       if (!f.on(option)) return {};
       if (f[kTp] == 1) return at(option, "on").also(kTp, "1");
       if (detail::early_granularity(f) != "full")
         return at(option, "on").also(kGranularity, std::string(f.text(kGranularity).value_or("unset")));
       if (!f.has(kRecomputeMethod)) return {};  // GTP703
       if (f.on(sp)) return at(option, "on").also(sp, "on");
       return {};
     }},
    {"GTP717",
     "gdp-chunk-states-range",
     Severity::Error,
     Phase::Startup,
     {"gdp_cutedsl_kernel"_opt, "gdp_num_chunk_states_to_recompute"_opt},
     "the chunk states to recompute must be between 0 and 64",
     "The kernel rebuilds that many states from each one it keeps.",
     "use 0 to 64",
     "megatron/core/transformer/transformer_config.py:2195",
     [](const Derivation& d) -> Findings {
       const auto option = "gdp_num_chunk_states_to_recompute"_opt;
       const auto count = d.facts.integer(option);
       if (!d.facts.on("gdp_cutedsl_kernel"_opt) || !count || (*count >= 0 && *count <= 64)) return {};
       return at(option, fmt::format("{}", *count));
     },
     Version::kd98e8a64},
    {"GTP718",
     "checkpoint-activations-removed",
     Severity::Error,
     Phase::Startup,
     {"checkpoint_activations"_opt},
     "checkpoint_activations is no longer an option",
     "Upstream names its replacements and ends the program.",
     "use recompute_activations, or recompute_granularity with recompute_method",
     "megatron/training/arguments.py:601",
     [](const Derivation& d) -> Findings {
       if (!d.facts.on("checkpoint_activations"_opt)) return {};
       return at("checkpoint_activations"_opt, "on").fix("checkpoint_activations"_opt, false);
     }},
};

}  // namespace gtp::rules
