// 3xx: experts, the grid they live on, and the layers built around them. How tokens reach them: expert_dispatch.hpp;
// who gets them: expert_router.hpp.
#pragma once

#include <algorithm>

#include <gtp/derive.hpp>
#include <gtp/hardware.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/ask.hpp>
#include <gtp/rules/names.hpp>
#include <gtp/te_version.hpp>

namespace gtp::rules {

namespace detail {

inline constexpr OptionId kMoeFfn = "moe_ffn_hidden_size"_opt, kGrouped = "moe_grouped_gemm"_opt,
                          kSharedSize = "moe_shared_expert_intermediate_size"_opt, kBias = "add_bias_linear"_opt,
                          kGroupedTensor = "moe_use_grouped_tensor"_opt,
                          kOpFuser = "use_transformer_engine_op_fuser"_opt,
                          kSingleWeight = "moe_single_grouped_weight"_opt, kSingleBias = "moe_single_grouped_bias"_opt,
                          kImpl = "transformer_impl"_opt;

/// Some layers have experts and some have not, whatever num_experts says (transformer_config.py:1690).
inline bool mixes_dense_layers(const Facts& f) {
  const Value* frequency = f.find("moe_layer_freq"_opt);
  if (frequency == nullptr) return false;
  if (const auto* every = std::get_if<std::int64_t>(frequency)) return *every > 1;
  const auto* layers = std::get_if<IntList>(frequency);
  return layers != nullptr && std::find(layers->begin(), layers->end(), 0) != layers->end();
}

/// The input is about inference: it skips training or sets an option of the inference engine.
inline bool only_serves(const Facts& f) {
  if (f.on("skip_train"_opt)) return true;
  for (const Setting& setting : f.config().settings())
    if (name_of(setting.option).starts_with("inference_")) return true;
  return false;
}

/// Coalesced expert parameters: the grouped GEMM, and from 2026-08-22 the grouped tensor; before it the op fuser.
inline Findings single_grouped_needs(const Facts& f) {
  const bool weight = f.on(kSingleWeight);
  if (!weight && !f.on(kSingleBias)) return {};
  const bool newer = f.version() >= Version::kd98e8a64;
  const bool grouped = f.on(kGrouped);
  return ask::also(ask::clashes({{ask::off(f, kGrouped) && !f.on(kGroupedTensor), kGrouped, "off"},
                                 {te_older_than(f, "2.14.0"), "te_version"_opt, "older than 2.14.0"},
                                 {newer && grouped && ask::off(f, kGroupedTensor), kGroupedTensor, "off"},
                                 {!newer && grouped && weight && ask::off(f, kOpFuser), kOpFuser, "off"}}),
                   weight ? kSingleWeight : kSingleBias, "on");
}

/// Primary weights that can be one tensor: high precision, MXFP8 and NVFP4.
inline Findings single_grouped_recipes(const Facts& f) {
  if (!f.on(kSingleWeight)) return {};
  const bool fp4 = f.has("fp4"_opt);
  return ask::also(
      ask::clashes({{f.has("fp8"_opt) && ask::is_other(f, "fp8_recipe"_opt, "mxfp8"), "fp8_recipe"_opt, "not mxfp8"},
                    {fp4 && ask::is_other(f, "fp4_recipe"_opt, "nvfp4"), "fp4_recipe"_opt, "not nvfp4"},
                    {f.version() >= Version::kd98e8a64 && fp4 && ask::off(f, "fp4_param_gather"_opt),
                     "fp4_param_gather"_opt, "off"}}),
      kSingleWeight, "on");
}

/// Inference-optimized layers run a narrow kind of MoE.
inline Findings inference_optimized_moe(const Facts& f) {
  const auto backend = "inference_grouped_gemm_backend"_opt, dtype = "moe_router_dtype"_opt;
  if (!ask::is(f, kImpl, "inference_optimized") || !f.has(kNumExperts)) return {};
  const bool newer = f.version() >= Version::kd98e8a64;
  const bool flashinfer = ask::is(f, backend, "flashinfer");
  const bool invariant = newer && f.on("batch_invariant_mode"_opt);
  const OptionId gate = f.on("swiglu"_opt) ? "swiglu"_opt : "quick_geglu"_opt;
  return ask::also(
      ask::clashes(
          {{ask::above(f, kEtp, 1), kEtp, "above 1"},
           {f.has("moe_expert_capacity_factor"_opt), "moe_expert_capacity_factor"_opt, "drops tokens"},
           {f.on("moe_router_padding_for_quantization"_opt), "moe_router_padding_for_quantization"_opt, "on"},
           {f.known(dtype) && !ask::is(f, dtype, "fp32"), dtype, "not fp32"},
           {f.on(gate) && (flashinfer || !newer), gate, flashinfer ? "not with flashinfer" : "gated"},
           {invariant && flashinfer, backend, "not with batch_invariant_mode"},
           {invariant && ask::above(f, kEp, 1) && ask::is_other(f, "inference_moe_token_dispatcher_type"_opt, "nvls"),
            "inference_moe_token_dispatcher_type"_opt, "not nvls"}}),
      kImpl, "inference_optimized");
}

}  // namespace detail

inline constexpr Rule kExperts[] = {
    {"GTP301",
     "experts-divisible-by-ep",
     Severity::Error,
     Phase::Startup,
     {kNumExperts, kEp},
     "the number of experts must be a multiple of the expert-parallel size",
     "Every rank holds equally many experts.",
     "use an expert-parallel size that divides the experts",
     "megatron/training/arguments.py:1657",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.has(kNumExperts) || f[kEp] <= 1 || divides(f[kEp], f[kNumExperts])) return {};
       return at(kEp, fmt::format("{} does not divide {}", f[kEp], f[kNumExperts])).also(kNumExperts, "experts");
     }},
    {"GTP302",
     "gtp-egtp-mismatch-grad-scale",
     Severity::Warning,
     Phase::Silent,
     {kNumExperts, kGtpRemat, kEgtpRemat, "calculate_per_token_loss"_opt},
     "expert gradients come out scaled by GTP_remat / EGTP_remat",
     "Gradients are scaled with the dense replicate size, then averaged over the remat axis of their own grid. With "
     "unequal remat sizes and without per-token loss the two do not cancel for experts. Nothing says so; later "
     "versions mend it (PRs 7160 and 7165).",
     "set calculate_per_token_loss, or use equal remat sizes",
     "megatron/core/distributed/distributed_data_parallel.py:275",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.has(kNumExperts) || f[kGtpRemat] == f[kEgtpRemat] || f.on("calculate_per_token_loss"_opt)) return {};
       const auto shards = f[kEgtpRemat] > 1 ? kExpertShards : kShards;
       return at(shards, fmt::format("expert gradients x {}/{}", f[kGtpRemat], f[kEgtpRemat]))
           .note(fmt::format("GTP_remat is {}, EGTP_remat is {}", f[kGtpRemat], f[kEgtpRemat]));
     },
     kOldestVersion,
     Version::kd98e8a64},
    {"GTP303",
     "ep-needs-experts",
     Severity::Error,
     Phase::Startup,
     {kNumExperts, kEp},
     "expert parallelism needs experts",
     "An expert-parallel size above 1 has nothing to split in a dense model.",
     "set num_experts, or expert_model_parallel_size to 1",
     "megatron/training/arguments.py:1655",
     [](const Derivation& d) -> Findings {
       if (d.facts.has(kNumExperts) || d.facts[kEp] <= 1) return {};
       return at(kEp, fmt::format("{} ranks for no experts", d.facts[kEp]));
     }},
    {"GTP304",
     "deepep-ncclep-need-tpxep",
     Severity::Error,
     Phase::FirstStep,
     {kNumExperts, "moe_token_dispatcher_type"_opt, "moe_flex_dispatcher_backend"_opt, kEtp, kEp},
     "this dispatcher backend needs ETP x EP above 1",
     "DeepEP and NCCL-EP exchange tokens between ranks; with one rank there is nothing to exchange.",
     "raise expert_model_parallel_size, or use the alltoall dispatcher",
     "megatron/core/transformer/moe/token_dispatcher.py:1836",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto option = "moe_flex_dispatcher_backend"_opt;
       const auto backend = f.text(option).value_or("");
       if (!f.has(kNumExperts) || f.text("moe_token_dispatcher_type"_opt) != "flex" ||
           (backend != "deepep" && backend != "ncclep") || f[kEtp] > 1 || f[kEp] > 1)
         return {};
       return at(option, fmt::format("`{}` with ETP 1 and EP 1", backend)).also(kEp, "expert-parallel size");
     }},
    {"GTP306",
     "moe-ffn-without-experts",
     Severity::Error,
     Phase::Startup,
     {kNumExperts, detail::kMoeFfn},
     "moe_ffn_hidden_size needs experts",
     "It is the width of one expert. Only a model whose moe_layer_freq mixes dense and expert layers may carry it "
     "without num_experts.",
     "set num_experts, or drop moe_ffn_hidden_size",
     "megatron/core/transformer/transformer_config.py:1689",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (f.has(kNumExperts) || !ask::given(f, detail::kMoeFfn) || detail::mixes_dense_layers(f)) return {};
       return at(detail::kMoeFfn, "given").also(kNumExperts, "no experts");
     }},
    {"GTP307",
     "num-experts-positive",
     Severity::Error,
     Phase::Startup,
     {kNumExperts},
     "the number of experts must not be negative",
     "0 means a dense model, and nothing is less.",
     "use a positive number",
     "megatron/core/transformer/transformer_config.py:1682",
     [](const Derivation& d) -> Findings {
       if (!ask::below(d.facts, kNumExperts, 0)) return {};
       return at(kNumExperts, fmt::format("{}", d.facts[kNumExperts]));
     }},
    {"GTP308",
     "moe-bias-needs-etp1",
     Severity::Error,
     Phase::Startup,
     {kNumExperts, detail::kBias, kEtp},
     "biases of experts need an expert-tensor-parallel size of 1",
     "The bias of an expert is not split over ranks. add_bias_linear is on by default, and an unset "
     "expert_tensor_parallel_size takes the tensor-parallel size.",
     "turn add_bias_linear off (--disable-bias-linear), or set expert_tensor_parallel_size to 1",
     "megatron/core/transformer/transformer_config.py:2612",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.has(kNumExperts) || !f.on(detail::kBias) || f[kEtp] == 1) return {};
       return at(detail::kBias, "on").also(kEtp, fmt::format("{} ranks for each expert", f[kEtp]));
     }},
    {"GTP309",
     "shared-expert-no-bias",
     Severity::Error,
     Phase::FirstStep,
     {kNumExperts, detail::kSharedSize, detail::kBias, kEtp},
     "shared experts have no biases",
     "The module of shared experts refuses add_bias_linear when the model is built.",
     "turn add_bias_linear off (--disable-bias-linear)",
     "megatron/core/transformer/moe/shared_experts.py:124",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.has(kNumExperts) || !f.has(detail::kSharedSize) || !f.on(detail::kBias) || f[kEtp] != 1) return {};
       return at(detail::kBias, "on").also(detail::kSharedSize, "shared experts");
     }},
    {"GTP310",
     "grouped-mlp-bias-dropout-fusion",
     Severity::Error,
     Phase::FirstStep,
     {kNumExperts, detail::kGrouped, detail::kBias, "bias_dropout_fusion"_opt, detail::kSharedSize, kEtp},
     "grouped experts with biases cannot fuse bias and dropout",
     "TransformerEngine's grouped layers return no bias to fuse; both options are on by default.",
     "turn add_bias_linear or bias_dropout_fusion off",
     "megatron/core/transformer/moe/experts.py:205",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.has(kNumExperts) || !f.on(detail::kGrouped) || f.has(detail::kSharedSize) || f[kEtp] != 1) return {};
       return ask::both_on(f, detail::kBias, "bias_dropout_fusion"_opt);
     }},
    {"GTP311",
     "grouped-gemm-arch",
     Severity::Error,
     Phase::Startup,
     {detail::kGrouped, "gpu_arch"_opt},
     "grouped expert GEMMs need Ampere or newer",
     "Upstream asks the local GPU for its compute capability, so a host without one fails as well.",
     "turn moe_grouped_gemm off",
     "megatron/training/arguments.py:1378",
     [](const Derivation& d) -> Findings {
       const auto major = arch_major(d.facts.text("gpu_arch"_opt).value_or(""));
       if (!d.facts.on(detail::kGrouped) || !major || *major >= 8) return {};
       return at(detail::kGrouped, "on").also("gpu_arch"_opt, "older than ampere").fix(detail::kGrouped, false);
     }},
    {"GTP312",
     "moe-tp-needs-sp-training",
     Severity::Error,
     Phase::FirstStep,
     {kNumExperts, kTp, "sequence_parallel"_opt},
     "training experts under tensor parallelism needs sequence parallelism",
     "Without it every tensor-parallel rank would route all tokens of the others too. Upstream only warns at startup "
     "(and only with expert parallelism), then stops in the first forward pass. Inference may go without.",
     "turn sequence_parallel on",
     "megatron/core/transformer/moe/moe_layer.py:636",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.has(kNumExperts) || f[kTp] <= 1 || f.on("sequence_parallel"_opt) || detail::only_serves(f)) return {};
       return at("sequence_parallel"_opt, "off")
           .also(kTp, fmt::format("{} ranks", f[kTp]))
           .also(kNumExperts, "experts")
           .fix("sequence_parallel"_opt, true);
     }},
    {"GTP313",
     "single-grouped-requires",
     Severity::Error,
     Phase::Startup,
     {detail::kSingleWeight, detail::kSingleBias},
     "one tensor for all experts needs the grouped GEMM and grouped tensors",
     "TransformerEngine keeps the parameters of all local experts in one GroupedTensor from 2.14.0 on. Before "
     "2026-08-22 upstream asked for its op fuser instead of moe_use_grouped_tensor.",
     "turn on what is marked, or moe_single_grouped_weight and moe_single_grouped_bias off",
     "megatron/core/transformer/transformer_config.py:1707",
     [](const Derivation& d) { return detail::single_grouped_needs(d.facts); }},
    {"GTP314",
     "single-grouped-recipes",
     Severity::Error,
     Phase::Startup,
     {detail::kSingleWeight},
     "one tensor for all expert weights needs high precision, MXFP8 or gathered NVFP4",
     "Other quantized weights need a cast of parts of the tensor that does not exist.",
     "change the recipe, or turn moe_single_grouped_weight off",
     "megatron/core/transformer/transformer_config.py:1718",
     [](const Derivation& d) { return detail::single_grouped_recipes(d.facts); }},
    {"GTP315",
     "single-grouped-bias-needs-bias",
     Severity::Error,
     Phase::Startup,
     {detail::kSingleBias, detail::kBias},
     "one tensor for all expert biases needs biases",
     "With add_bias_linear off there is none to put into it.",
     "turn moe_single_grouped_bias off",
     "megatron/core/transformer/transformer_config.py:1738",
     [](const Derivation& d) { return ask::on_without(d.facts, detail::kSingleBias, detail::kBias); }},
    {"GTP317",
     "grouped-tensor-needs-grouped-gemm",
     Severity::Error,
     Phase::Startup,
     {detail::kGroupedTensor, detail::kGrouped},
     "grouped tensors need the grouped GEMM",
     "moe_use_grouped_tensor changes how the grouped GEMM gets its tokens.",
     "turn moe_grouped_gemm on, or moe_use_grouped_tensor off",
     "megatron/core/transformer/transformer_config.py:1413",
     [](const Derivation& d) { return ask::on_without(d.facts, detail::kGroupedTensor, detail::kGrouped); },
     Version::kd98e8a64},
    {"GTP318",
     "moe-latent-positive",
     Severity::Error,
     Phase::Startup,
     {kNumExperts, "moe_latent_size"_opt},
     "a latent projection needs a positive width and experts",
     "moe_latent_size is the width to which tokens are projected on their way to the experts.",
     "use a positive width with experts, or leave moe_latent_size out",
     "megatron/training/arguments.py:1980",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto latent = "moe_latent_size"_opt;
       if (!f.has(latent)) return {};
       return ask::clashes(
           {{ask::below(f, latent, 1), latent, fmt::format("{} is not positive", ask::shown(f, latent))},
            {!f.has(kNumExperts), kNumExperts, "no experts"}});
     }},
    {"GTP319",
     "shared-expert-size-positive",
     Severity::Error,
     Phase::Startup,
     {detail::kSharedSize},
     "the width of shared experts must be positive",
     "It is the sum over all shared experts, checked also in dense models.",
     "use a positive width, or leave the option out",
     "megatron/core/transformer/transformer_config.py:1813",
     [](const Derivation& d) -> Findings {
       if (!ask::below(d.facts, detail::kSharedSize, 1)) return {};
       return at(detail::kSharedSize, fmt::format("{} is not positive", d.facts[detail::kSharedSize]));
     }},
    {"GTP320",
     "upcycling-needs-save",
     Severity::Error,
     Phase::Startup,
     {"moe_use_upcycling"_opt, "save"_opt},
     "upcycling needs a folder to save to",
     "The dense checkpoint is turned into one with experts, which is written before training.",
     "set save",
     "megatron/training/arguments.py:1863",
     [](const Derivation& d) -> Findings {
       if (!d.facts.on("moe_use_upcycling"_opt) || d.facts.has("save"_opt)) return {};
       return at("moe_use_upcycling"_opt, "on").also("save"_opt, "not set");
     }},
    {"GTP321",
     "inference-optimized-moe",
     Severity::Error,
     Phase::Startup,
     {detail::kImpl, kNumExperts},
     "inference-optimized layers cannot run experts with this option",
     "They know dropless experts on one rank each, routed in fp32; gated units only with the torch and vllm grouped "
     "GEMMs (before 2026-08-22 not at all).",
     "change the option, or transformer_impl",
     "megatron/core/transformer/transformer_config.py:1584",
     [](const Derivation& d) { return detail::inference_optimized_moe(d.facts); }},
    {"GTP322",
     "inference-optimized-moe-dead-mxfp8-checks",
     Severity::Warning,
     Phase::Silent,
     {detail::kImpl, kNumExperts, "fp8_recipe"_opt, "fp8"_opt},
     "upstream's MXFP8 checks of inference-optimized experts never run",
     "They compare the FP8 format with the name of a recipe, so a missing fp8_param_gather and a grouped GEMM without "
     "MXFP8 go unnoticed.",
     "set fp8_param_gather, and inference_grouped_gemm_backend to torch",
     "megatron/core/transformer/transformer_config.py:1628",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto recipe = "fp8_recipe"_opt;
       if (!ask::is(f, detail::kImpl, "inference_optimized") || !f.has(kNumExperts)) return {};
       if (!f.has("fp8"_opt) || !ask::is(f, recipe, "mxfp8")) return {};
       return at(recipe, "not checked against the experts").also(detail::kImpl, "inference_optimized");
     }},
};

}  // namespace gtp::rules
