// 97x-99x: what Megatron-Bridge checks of process groups, checkpoints, precision, FSDP, determinism and dispatchers.
#pragma once

#include <algorithm>
#include <string_view>

#include <gtp/derive.hpp>
#include <gtp/package_version.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/bridge.hpp>
#include <gtp/rules/names.hpp>

namespace gtp::rules {

inline constexpr OptionId kDecentralized = "use_decentralized_pg"_opt, kGloo = "use_gloo_process_groups"_opt,
                          kCkptFormat = "ckpt_format"_opt;

namespace detail {

inline bool sharded_format(const Facts& f) {
  return !f.has(kCkptFormat) || is_one_of(*f.text(kCkptFormat), {"torch_dist", "fsdp_dtensor"});
}

inline std::string on_text(const Derivation& d, OptionId option) { return given(d, option) ? "on" : "on by default"; }

/// The job's variable of that name, the last when there are several; null when the input does not say it.
inline const Variable* variable(const Derivation& d, std::string_view name) {
  const Variable* found = nullptr;
  for (const Variable& each : d.facts.config().env)
    if (each.name == name) found = &each;
  return found;
}

inline Finding at_variable(const Variable& variable, std::string text) {
  return {.primary = {"", variable.place, std::move(text)}};
}

inline bool older_te(const Facts& f, std::string_view least) {
  const auto version = PackageVersion::parse(f.text("te_version"_opt).value_or(""));
  return version && *version < *PackageVersion::parse(least);
}

inline Findings recipe_overrides(const Derivation& d) {
  Findings findings;
  const auto name = d.facts.text("mixed_precision"_opt);
  const BridgeRecipe* recipe = name ? find_bridge_recipe(*name) : nullptr;
  if (recipe == nullptr) return findings;
  for (const RecipeValue& set : values_of(*recipe)) {
    const Setting* setting = d.facts.config().given(set.option);
    if (setting == nullptr || setting->value == set.value) continue;
    findings.list.push_back(at(set.option, fmt::format("becomes {}", gtp::to_text(set.value)))
                                .also("mixed_precision"_opt, "the recipe that sets it"));
  }
  return findings;
}

inline Findings fp4_conflict(const Facts& f) {
  const auto fp4 = "fp4"_opt, fp8 = "fp8"_opt;
  if (!f.has(fp4)) return {};
  if (f.has(fp8)) return at(fp4, "FP4").also(fp8, "FP8");
  if (!older_te(f, "2.7.0.dev0")) return {};
  return at("te_version"_opt, fmt::format("{} is older than 2.7", *f.text("te_version"_opt))).also(fp4, "FP4");
}

inline bool fsdp_version_2(const Facts& f) { return f.integer("megatron_fsdp_version"_opt) == 2; }

/// What Megatron-FSDP of the first version cannot be combined with (config.py:1079-1130).
inline Findings fsdp1_conflict(const Derivation& d) {
  const Facts& f = d.facts;
  if (!f.on(kMegatronFsdp) || fsdp_version_2(f)) return {};
  Findings findings;
  const auto conflict = [&](OptionId option, std::string text) {
    findings.list.push_back(at(option, std::move(text)).also(kMegatronFsdp, "Megatron-FSDP is on"));
  };
  const bool files = f.has("save"_opt) || f.has("load"_opt);
  if (files && f.has(kCkptFormat) && f.text(kCkptFormat) != "fsdp_dtensor")
    conflict(kCkptFormat, fmt::format("`{}` is not fsdp_dtensor", *f.text(kCkptFormat)));
  if (f.on(kPpBeforeDp)) conflict(kPpBeforeDp, "another order of the ranks");
  const auto manual = "fsdp_manual_registration"_opt, buffers = "nccl_ub"_opt;
  if (f.on(manual) && f.known(buffers) && !f.on(buffers)) conflict(manual, "needs nccl_ub");
  if (const Variable* connections = variable(d, "CUDA_DEVICE_MAX_CONNECTIONS");
      connections != nullptr && connections->value == "1")
    findings.list.push_back(at_variable(*connections, "must not be 1").also(kMegatronFsdp, "Megatron-FSDP is on"));
  return findings;
}

/// What the experimental second version of Megatron-FSDP refuses (config.py:1134-1200).
inline Findings fsdp2_version_conflict(const Facts& f) {
  if (!f.on(kMegatronFsdp) || !fsdp_version_2(f)) return {};
  Findings findings;
  const auto conflict = [&](OptionId option, std::string text) {
    findings.list.push_back(at(option, std::move(text)).also("megatron_fsdp_version"_opt, "version 2"));
  };
  for (const OptionId size : {kTp, kPp, kCp, kEp, kInstances})
    if (const auto value = f.integer(size); value && *value != 1) conflict(size, fmt::format("{} is not 1", *value));
  for (const OptionId option :
       {kPpBeforeDp, "data_parallel_random_init"_opt, "use_precision_aware_optimizer"_opt, "optimizer_cpu_offload"_opt,
        "calculate_per_token_loss"_opt, "fp8_param_gather"_opt, "fp4_param_gather"_opt})
    if (f.on(option)) conflict(option, "on");
  for (const OptionId option :
       {kNumExperts, kVpp, "save"_opt, "load"_opt, "pretrained_checkpoint"_opt, "loss_scale"_opt, "fp8"_opt, "fp4"_opt})
    if (f.has(option)) conflict(option, "set");
  const auto bf16 = "bf16"_opt, clip = "clip_grad"_opt, graphs = "cuda_graph_impl"_opt;
  if (f.known(bf16) && !f.on(bf16)) conflict(bf16, "off");
  if (const auto norm = gtp::detail::real(f, clip); norm && *norm > 0)
    conflict(clip, fmt::format("{} is above 0", *norm));
  if (f.has(graphs) && f.text(graphs) != "none") conflict(graphs, "captures graphs");
  return findings;
}

inline Findings nondeterministic(const Derivation& d) {
  const auto mode = "deterministic_mode"_opt, fusion = "cross_entropy_loss_fusion"_opt;
  if (!d.facts.on(mode)) return {};
  Findings findings;
  if (d.facts.on(fusion)) findings.list.push_back(at(fusion, on_text(d, fusion)).also(mode, "on"));
  const Variable* algorithm = variable(d, "NCCL_ALGO");
  if (algorithm != nullptr && !is_one_of(algorithm->value, {"Tree", "Ring", "CollnetDirect", "CollnetChain", "^NVLS"}))
    findings.list.push_back(
        at_variable(*algorithm, fmt::format("`{}` is not allowed", algorithm->value)).also(mode, "on"));
  return findings;
}

/// The dispatcher's backend on a GPU that it was not made for. Which Blackwell a GPU is cannot be told from its
/// generation.
inline Findings backend_needs_ampere(const Facts& f, std::string_view backend) {
  const auto option = "moe_flex_dispatcher_backend"_opt, arch = "gpu_arch"_opt;
  if (f.text("moe_token_dispatcher_type"_opt) != "flex" || f.text(option) != backend || f.text(arch) != "volta")
    return {};
  return at(option, fmt::format("`{}`", backend)).also(arch, "older than Ampere");
}

}  // namespace detail

inline constexpr Rule kBridgeRuntime[] = {
    {"GTP969",
     "bridge-full-iteration-nan",
     Severity::Error,
     Phase::Startup,
     {"cuda_graph_impl"_opt, "check_for_nan_in_loss"_opt},
     "a full-iteration CUDA graph excludes the check of the loss",
     "The check reads the loss on the host in every step, which no graph can hold.",
     "set rerun_state_machine.check_for_nan_in_loss to false",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1509",
     [](const Derivation& d) -> Findings {
       const auto check = "check_for_nan_in_loss"_opt, graphs = "cuda_graph_impl"_opt;
       if (!d.facts.on(check) || d.facts.text(graphs) != "full_iteration") return {};
       return at(check, detail::on_text(d, check)).also(graphs, "all of an iteration").fix(check, false);
     }},
    {"GTP970",
     "bridge-async-formats",
     Severity::Error,
     Phase::Startup,
     {"async_save"_opt, kCkptFormat},
     "saving in the background needs a sharded checkpoint format",
     "Only torch_dist and fsdp_dtensor can be written while the training goes on.",
     "use torch_dist, or turn async_save off",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1536",
     [](const Derivation& d) -> Findings {
       const auto async = "async_save"_opt;
       if (!d.facts.on(async) || detail::sharded_format(d.facts)) return {};
       return at(kCkptFormat, fmt::format("`{}`", *d.facts.text(kCkptFormat))).also(async, "on");
     }},
    {"GTP971",
     "bridge-decentralized-gloo",
     Severity::Error,
     Phase::Startup,
     {kDecentralized, kGloo},
     "decentralized process groups have no Gloo groups",
     "The grids make NCCL groups only.",
     "set use_gloo_process_groups to false",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1551",
     [](const Derivation& d) -> Findings {
       if (!d.facts.on(kDecentralized) || !d.facts.on(kGloo)) return {};
       return at(kGloo, detail::on_text(d, kGloo)).also(kDecentralized, "on").fix(kGloo, false);
     }},
    {"GTP972",
     "bridge-decentralized-hcp",
     Severity::Error,
     Phase::Startup,
     {kDecentralized, "hierarchical_context_parallel_sizes"_opt},
     "decentralized process groups have no hierarchical context parallelism",
     "The grids make one flat context-parallel group.",
     "drop hierarchical_context_parallel_sizes, or use_decentralized_pg",
     "Megatron-Bridge src/megatron/bridge/training/initialize.py:410",
     [](const Derivation& d) -> Findings {
       const auto sizes = "hierarchical_context_parallel_sizes"_opt;
       if (!d.facts.on(kDecentralized) || !d.facts.has(sizes)) return {};
       return at(sizes, "two levels").also(kDecentralized, "on");
     }},
    {"GTP974",
     "bridge-decentralized-intra-dp",
     Severity::Warning,
     Phase::Silent,
     {kDecentralized, kInstances},
     "decentralized process groups do not slice data parallelism by optimizer instance",
     "The dense group within an instance is the whole DP x CP group, so that instances are not apart.",
     "use one instance, or verify before use",
     "Megatron-Bridge src/megatron/bridge/training/initialize.py:548",
     [](const Derivation& d) -> Findings {
       if (!d.facts.on(kDecentralized) || d.facts[kInstances] <= 1) return {};
       return at(kInstances, fmt::format("{} instances", d.facts[kInstances])).also(kDecentralized, "on");
     }},
    {"GTP975",
     "bridge-gloo-off-format",
     Severity::Error,
     Phase::Startup,
     {kGloo, "use_distributed_optimizer"_opt, kCkptFormat},
     "without Gloo groups a distributed optimizer needs a sharded checkpoint format",
     "The legacy format gathers the optimizer state on the CPU, over Gloo.",
     "use torch_dist",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1558",
     [](const Derivation& d) -> Findings {
       if (d.facts.on(kGloo) || !d.facts.on("use_distributed_optimizer"_opt) || detail::sharded_format(d.facts))
         return {};
       return at(kCkptFormat, fmt::format("`{}`", *d.facts.text(kCkptFormat))).also(kGloo, "off");
     }},
    {"GTP976",
     "bridge-mxfp8-gather-reuse",
     Severity::Error,
     Phase::Startup,
     {"fp8_param_gather"_opt, "fp8_recipe"_opt, "reuse_grad_buf_for_mxfp8_param_ag"_opt},
     "gathering MXFP8 parameters needs the gradient buffer",
     "MXFP8 parameters are gathered into the gradient buffer; without it there is nowhere to put them.",
     "set reuse_grad_buf_for_mxfp8_param_ag, or turn fp8_param_gather off",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1489",
     [](const Derivation& d) -> Findings {
       const auto gather = "fp8_param_gather"_opt, reuse = "reuse_grad_buf_for_mxfp8_param_ag"_opt;
       const Facts& f = d.facts;
       if (!f.on(gather) || f.text("fp8_recipe"_opt) != "mxfp8" || f.on(reuse) || f.on(kMegatronFsdp)) return {};
       return at(reuse, detail::given(d, reuse) ? "off" : "off by default").also(gather, "on").fix(reuse, true);
     }},
    {"GTP977",
     "bridge-mp-recipe-overrides",
     Severity::Warning,
     Phase::Silent,
     {"mixed_precision"_opt},
     "the mixed-precision recipe overwrites this value",
     "A recipe sets every precision option of model, optimizer and DDP; what was given for them is replaced, and only "
     "the debug log says so.",
     "put the value into mixed_precision, or choose another recipe",
     "Megatron-Bridge src/megatron/bridge/training/mixed_precision.py:155",
     [](const Derivation& d) { return detail::recipe_overrides(d); }},
    {"GTP978",
     "bridge-mp-fp4-fp8",
     Severity::Error,
     Phase::Startup,
     {"fp4"_opt, "fp8"_opt},
     "FP4 excludes FP8 and needs TransformerEngine 2.7",
     "A precision has one narrow number format, and TransformerEngine has NVFP4 since 2.7.0.dev0.",
     "keep one of the two, and use TransformerEngine 2.7 or newer",
     "Megatron-Bridge src/megatron/bridge/training/mixed_precision.py:107",
     [](const Derivation& d) { return detail::fp4_conflict(d.facts); }},
    {"GTP979",
     "bridge-precision-consistency",
     Severity::Error,
     Phase::Startup,
     {"bf16"_opt, "fp16"_opt},
     "bf16 and fp16 exclude each other",
     "Parameters have one type.",
     "keep one of the two",
     "Megatron-Bridge src/megatron/bridge/training/config.py:2154",
     [](const Derivation& d) -> Findings {
       if (!d.facts.on("bf16"_opt) || !d.facts.on("fp16"_opt)) return {};
       return at("fp16"_opt, "on").also("bf16"_opt, "on");
     }},
    {"GTP980",
     "bridge-mfsdp-v1",
     Severity::Error,
     Phase::Startup,
     {kMegatronFsdp},
     "Megatron-FSDP does not work with this",
     "It writes fsdp_dtensor checkpoints, needs more than one hardware queue, registers buffers by hand only with "
     "nccl_ub, and knows the usual order of the ranks only.",
     "change it, or turn Megatron-FSDP off",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1079",
     [](const Derivation& d) { return detail::fsdp1_conflict(d); }},
    {"GTP981",
     "bridge-mfsdp-v2",
     Severity::Error,
     Phase::Startup,
     {kMegatronFsdp, "megatron_fsdp_version"_opt},
     "the second version of Megatron-FSDP does not work with this",
     "It is experimental: data parallelism only, BF16 only, without experts, checkpoints, gradient clipping, loss "
     "scaling or CUDA graphs.",
     "use the first version, or meet these limits",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1134",
     [](const Derivation& d) { return detail::fsdp2_version_conflict(d.facts); },
     Version::kd98e8a64},
    {"GTP982",
     "bridge-fsdp-exclusive",
     Severity::Error,
     Phase::Startup,
     {kMegatronFsdp, "use_torch_fsdp2"_opt},
     "Megatron-FSDP and torch FSDP2 exclude each other",
     "Both shard the same state.",
     "keep one of the two",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1481",
     [](const Derivation& d) -> Findings {
       const auto torch = "use_torch_fsdp2"_opt;
       if (!d.facts.on(kMegatronFsdp) || !d.facts.on(torch)) return {};
       return at(torch, "on").also(kMegatronFsdp, "on");
     }},
    {"GTP983",
     "bridge-determinism",
     Severity::Error,
     Phase::Startup,
     {"deterministic_mode"_opt},
     "this is not deterministic",
     "Deterministic mode excludes the fused cross entropy, and NCCL_ALGO must name one of Tree, Ring, CollnetDirect, "
     "CollnetChain and ^NVLS; Megatron-LM refuses Tree.",
     "turn cross_entropy_loss_fusion off, and export NCCL_ALGO=Ring",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1057",
     [](const Derivation& d) { return detail::nondeterministic(d); }},
    {"GTP984",
     "bridge-flex-deepep-arch",
     Severity::Error,
     Phase::Startup,
     {"moe_token_dispatcher_type"_opt, "moe_flex_dispatcher_backend"_opt, "gpu_arch"_opt},
     "DeepEP needs Ampere or newer",
     "It runs on compute capability 8 and 9, and on B200 and B300.",
     "use the alltoall dispatcher",
     "Megatron-Bridge src/megatron/bridge/training/flex_dispatcher_backend.py:96",
     [](const Derivation& d) { return detail::backend_needs_ampere(d.facts, "deepep"); }},
    {"GTP985",
     "bridge-flex-hybridep-arch",
     Severity::Error,
     Phase::Startup,
     {"moe_token_dispatcher_type"_opt, "moe_flex_dispatcher_backend"_opt, "gpu_arch"_opt},
     "HybridEP needs Ampere or newer",
     "It runs on compute capability 8, 9 and 10.",
     "use the alltoall dispatcher",
     "Megatron-Bridge src/megatron/bridge/training/flex_dispatcher_backend.py:105",
     [](const Derivation& d) { return detail::backend_needs_ampere(d.facts, "hybridep"); }},
    {"GTP986",
     "bridge-comm-delay-wgrad",
     Severity::Error,
     Phase::Startup,
     {"comm_overlap"_opt, "delay_wgrad_compute"_opt, "overlap_grad_reduce"_opt, "te_version"_opt},
     "delayed weight gradients beside overlapped reductions need TransformerEngine 2.7",
     "Older versions finish a weight gradient after its reduction has started. Megatron-LM asks for 2.8.",
     "install TransformerEngine 2.8 or newer",
     "Megatron-Bridge src/megatron/bridge/training/comm_overlap.py:521",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto delay = "delay_wgrad_compute"_opt, te = "te_version"_opt;
       if (!f.on("comm_overlap"_opt) || !f.on(delay) || !f.on("overlap_grad_reduce"_opt) ||
           !detail::older_te(f, "2.7.0"))
         return {};
       return at(te, fmt::format("{} is older", *f.text(te))).also(delay, "on");
     }},
    {"GTP987",
     "layout-vpp-conflict",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "the virtual pipeline size must be that of the layout",
     "A layout has stages / PP virtual stages; Bridge also takes the number itself, and the two must agree. On "
     "Megatron-LM's command line they exclude each other (GTP211).",
     "drop virtual_pipeline_model_parallel_size",
     "Megatron-Bridge over megatron/core/transformer/transformer_config.py:2276",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::LayoutVppConflict, kVirtualStages, "{} is not {}", kLayout, "layout");
     }},
    {"GTP998",
     "bridge-gtp-decentralized-post5569",
     Severity::Error,
     Phase::Startup,
     {kGtpRemat, kEgtpRemat, "use_decentralized_pg"_opt},
     "GTP does not work with decentralized process groups",
     "Bridge takes GTP's groups from Megatron Core's global state, which decentralized process groups replace.",
     "set use_decentralized_pg to false",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1551",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if ((f[kGtpRemat] <= 1 && f[kEgtpRemat] <= 1) || !f.on("use_decentralized_pg"_opt)) return {};
       return at("use_decentralized_pg"_opt, "on").also(f[kGtpRemat] > 1 ? kShards : kExpertShards, "GTP is on");
     },
     Version::k2026_09},
    {"GTP999",
     "bridge-gtp-mxfp8-post5569",
     Severity::Error,
     Phase::Startup,
     {kGtpRemat, kEgtpRemat, kFp8, kFp8Recipe, kFp8Gather, kReuseGradBuffer},
     "GTP with MXFP8 needs MXFP8 weights that are gathered into the gradient buffer",
     "What is gathered must be what the GEMM reads; without the two options the shards stay BF16.",
     "set fp8_param_gather and reuse_grad_buf_for_mxfp8_param_ag",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1489",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const bool mxfp8 = f.has(kFp8) && f.text(kFp8Recipe) == "mxfp8";
       if (!mxfp8 || (f[kGtpRemat] <= 1 && f[kEgtpRemat] <= 1) || (f.on(kFp8Gather) && f.on(kReuseGradBuffer)))
         return {};
       return at(f.on(kFp8Gather) ? kReuseGradBuffer : kFp8Gather, "off").also(kFp8Recipe, "the recipe");
     },
     Version::k2026_09},
};

}  // namespace gtp::rules
