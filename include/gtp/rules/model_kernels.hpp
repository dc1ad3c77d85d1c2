// 53x and 54x: activations, Mamba layers, and what kernels ask of shapes and numbers.
#pragma once

#include <cmath>

#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/ask.hpp>
#include <gtp/rules/model.hpp>
#include <gtp/rules/names.hpp>

namespace gtp::rules {

namespace detail {

inline constexpr OptionId kSwiglu = "swiglu"_opt, kSquaredRelu = "squared_relu"_opt, kQuickGeglu = "quick_geglu"_opt,
                          kTeActivation = "use_te_activation_func"_opt, kGluOffset = "glu_linear_offset"_opt,
                          kClamp = "activation_func_clamp_value"_opt;

/// What core_transformer_config_from_args makes of the activation options (argument_utils.py:313).
enum class Activation : std::uint8_t { Gelu, Swiglu, SquaredRelu, QuickGeglu, Conflict };

inline Activation activation(const Facts& f) {
  const bool other = f.on(kSquaredRelu) || f.on(kQuickGeglu);
  if (f.on(kSwiglu)) return other ? Activation::Conflict : Activation::Swiglu;
  if (f.on(kSquaredRelu)) return Activation::SquaredRelu;
  return f.on(kQuickGeglu) ? Activation::QuickGeglu : Activation::Gelu;
}

inline bool offset_is_set(const Facts& f) {
  const auto offset = ask::number(f, kGluOffset);
  return offset && *offset != 0;
}

/// The option that fuses bias and activation, and whether it is on after add_bias_linear had its say.
inline OptionId fusion_option(const Facts& f) {
  return f.on(kSwiglu) ? "bias_swiglu_fusion"_opt : "bias_gelu_fusion"_opt;
}

inline Findings fused_activation_limits(const Facts& f) {
  const OptionId fusion = fusion_option(f);
  const Activation kind = activation(f);
  if (kind == Activation::Conflict || !f.on(fusion)) return {};
  return ask::also(ask::clashes({{kind == Activation::SquaredRelu, kSquaredRelu, "no fused kernel"},
                                 {kind != Activation::QuickGeglu && kind != Activation::SquaredRelu && offset_is_set(f),
                                  kGluOffset, "not 0"},
                                 {f.on(kTeActivation), kTeActivation, "on"}}),
                   fusion, "on");
}

inline Findings swiglu_clamp_limits(const Facts& f) {
  const auto clamp = ask::number(f, kClamp);
  if (!clamp || activation(f) != Activation::Swiglu) return {};
  return ask::also(ask::clashes({{!std::isfinite(*clamp) || *clamp <= 0, kClamp, fmt::format("{}", *clamp)},
                                 {ask::none(f, kNumExperts), kNumExperts, "no experts"},
                                 {offset_is_set(f), kGluOffset, "not 0"},
                                 {f.on(kTeActivation), kTeActivation, "on"}}),
                   kClamp, "a limit");
}

/// Heads, groups and widths of a Mamba layer (mamba_mixer.py:218-270).
struct MambaShape {
  std::int64_t heads, groups, head_dim, inner, state;
};

inline bool has_mamba_layers(const Facts& f) {
  return f.text("hybrid_layer_pattern"_opt).value_or("").find('M') != std::string_view::npos;
}

/// Nothing without Mamba layers, or when a number is unknown or not positive.
inline std::optional<MambaShape> mamba_shape(const Derivation& d) {
  const Facts& f = d.facts;
  const auto groups = f.integer("mamba_num_groups"_opt), dim = f.integer("mamba_head_dim"_opt),
             state = f.integer("mamba_state_dim"_opt), hidden = f.integer(kHidden);
  if (!has_mamba_layers(d.facts) || !groups || !dim || !state || *groups < 1 || *dim < 1 || *state < 1)
    return std::nullopt;
  if (const auto heads = f.integer("mamba_num_heads"_opt)) {
    const auto inner = checked_multiply(*heads, *dim);
    if (*heads < 1 || !inner) return std::nullopt;
    return MambaShape{*heads, *groups, *dim, *inner, *state};
  }
  const auto inner = hidden ? checked_multiply(*hidden, 2) : std::nullopt;
  if (!inner) return std::nullopt;
  return MambaShape{*inner / *dim, *groups, *dim, *inner, *state};
}

inline Findings mamba_over_tp(const Derivation& d) {
  const auto shape = mamba_shape(d);
  const auto heads = "mamba_num_heads"_opt, groups = "mamba_num_groups"_opt;
  if (!shape) return {};
  const std::int64_t tp = d.facts[kTp];
  return ask::clashes({{!divides(shape->head_dim, shape->inner), "mamba_head_dim"_opt,
                        fmt::format("{} does not divide twice hidden_size", shape->head_dim)},
                       {!divides(tp, shape->heads), heads, fmt::format("{} heads over {} ranks", shape->heads, tp)},
                       {!divides(tp, shape->groups), groups, fmt::format("{} groups over {} ranks", shape->groups, tp)},
                       {!divides(shape->groups, shape->heads), groups,
                        fmt::format("{} groups of {} heads", shape->groups, shape->heads)}});
}

inline Findings mamba_over_cp(const Derivation& d) {
  const auto shape = mamba_shape(d);
  const std::int64_t tp = d.facts[kTp], cp = d.facts[kCp];
  if (!shape || cp <= 1 || !divides(tp, shape->heads) || !divides(tp, shape->groups)) return {};
  const std::int64_t heads = shape->heads / tp, groups = shape->groups / tp;
  const bool groups_fit = groups < cp ? divides(groups, cp) : divides(cp, groups);
  return ask::clashes(
      {{!divides(cp, heads), "mamba_num_heads"_opt, fmt::format("{} heads a rank over CP {}", heads, cp)},
       {!groups_fit, "mamba_num_groups"_opt, fmt::format("{} groups a rank over CP {}", groups, cp)}});
}

inline Findings mamba_fp8_width(const Derivation& d) {
  const auto shape = mamba_shape(d);
  if (!shape || !d.facts.has("fp8"_opt)) return {};
  const auto gates = checked_multiply(2, shape->inner), states = checked_product({2, shape->groups, shape->state});
  const auto most = gates && states ? checked_add(*gates, *states) : std::nullopt;
  const auto rows = most ? checked_add(*most, shape->heads) : std::nullopt;
  if (!rows || *rows % 16 == 0) return {};
  return at("mamba_num_heads"_opt, fmt::format("the input projection has {} rows", *rows)).also("fp8"_opt, "on");
}

/// Widths on one rank that are not whole blocks of a quantized GEMM, and its tokens: `columns` is the block along
/// rows of memory, `rows` the other.
inline Findings widths_off_blocks(const Derivation& d, OptionId format, std::int64_t columns, std::int64_t rows) {
  const Facts& f = d.facts;
  const auto local = [&](OptionId width, OptionId ranks) -> std::int64_t {
    const auto whole = f.integer(width), parts = f.integer(ranks);
    return whole && parts && divides(*parts, *whole) ? *whole / *parts : 0;
  };
  const auto label = [&](std::int64_t width) {
    return fmt::format("{} on each rank is not a multiple of {}", width, columns);
  };
  const std::int64_t hidden = f.integer(kHidden).value_or(0), ffn = builds_dense_mlp(d.facts) ? local(kFfn, kTp) : 0;
  const std::int64_t expert = f.has(kNumExperts) ? local(kMoeFfn, kEtp) : 0;
  std::int64_t tokens = local(kSeq, kCp);
  if (f.on(kSp)) tokens = divides(f[kTp], tokens) ? tokens / f[kTp] : 0;
  const auto all = checked_multiply(tokens, f.integer(kMbs).value_or(0)).value_or(0);
  return ask::also(
      ask::clashes({{hidden % columns != 0, kHidden, label(hidden)},
                    {ffn % columns != 0, kFfn, label(ffn)},
                    {expert % columns != 0, kMoeFfn, label(expert)},
                    {all % rows != 0, kSeq, fmt::format("{} tokens a rank are not a multiple of {}", all, rows)}}),
      format, "quantized GEMMs");
}

}  // namespace detail

inline constexpr Rule kModelKernels[] = {
    {"GTP530",
     "swiglu-vs-squared-relu",
     Severity::Error,
     Phase::Startup,
     {detail::kSwiglu},
     "a model has one activation",
     "swiglu excludes squared_relu and quick_geglu.",
     "keep one of them",
     "megatron/training/argument_utils.py:321",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (detail::activation(f) != detail::Activation::Conflict) return {};
       return at(f.on(detail::kSquaredRelu) ? detail::kSquaredRelu : detail::kQuickGeglu, "on as well")
           .also(detail::kSwiglu, "on");
     }},
    {"GTP531",
     "bias-act-fusion-limits",
     Severity::Error,
     Phase::Startup,
     {detail::kSwiglu, detail::kSquaredRelu, "bias_gelu_fusion"_opt, "bias_swiglu_fusion"_opt},
     "no fused kernel adds this bias and applies this activation",
     "They exist for GELU, SwiGLU and quick GEGLU. bias_gelu_fusion is on by default wherever linear layers have "
     "biases.",
     "turn the fusion off (--no-bias-gelu-fusion), or the biases (--disable-bias-linear)",
     "megatron/core/transformer/transformer_config.py:2420",
     [](const Derivation& d) { return detail::fused_activation_limits(d.facts); }},
    {"GTP532",
     "te-activation-limits",
     Severity::Error,
     Phase::Startup,
     {detail::kTeActivation, detail::kSwiglu},
     "TransformerEngine has no such activation",
     "use_te_activation_func covers GELU, SiLU and ReLU with their gated forms.",
     "turn use_te_activation_func off",
     "megatron/core/transformer/transformer_config.py:2460",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.on(detail::kTeActivation) || f.on(detail::fusion_option(f))) return {};
       const auto kind = detail::activation(f);
       if (kind != detail::Activation::SquaredRelu && kind != detail::Activation::QuickGeglu) return {};
       return at(detail::kTeActivation, "on")
           .also(kind == detail::Activation::SquaredRelu ? detail::kSquaredRelu : detail::kQuickGeglu, "on");
     }},
    {"GTP533",
     "fused-residual-needs-rmsnorm",
     Severity::Error,
     Phase::Startup,
     {"fused_residual_rmsnorm"_opt, "normalization"_opt},
     "fusing the residual into the norm needs RMSNorm",
     "The kernel computes no mean.",
     "set normalization to RMSNorm, or turn fused_residual_rmsnorm off",
     "megatron/core/transformer/transformer_config.py:2454",
     [](const Derivation& d) -> Findings {
       if (!d.facts.on("fused_residual_rmsnorm"_opt) || !ask::is_other(d.facts, "normalization"_opt, "RMSNorm"))
         return {};
       return at("fused_residual_rmsnorm"_opt, "on")
           .also("normalization"_opt, ask::shown(d.facts, "normalization"_opt));
     }},
    {"GTP534",
     "swiglu-clamp-limits",
     Severity::Error,
     Phase::Startup,
     {detail::kClamp, detail::kSwiglu},
     "clamping SwiGLU needs a positive limit, experts, and Megatron's own activation",
     "The clamp is part of the fused SwiGLU of experts.",
     "change what is marked, or leave activation_func_clamp_value out",
     "megatron/core/transformer/transformer_config.py:2471",
     [](const Derivation& d) { return detail::swiglu_clamp_limits(d.facts); },
     Version::kd98e8a64},
    {"GTP535",
     "gated-delta-product-limits",
     Severity::Error,
     Phase::Startup,
     {"gdp_num_householder"_opt},
     "gated delta products need at least one reflection, and at most 64 recomputed chunk states",
     "A layer multiplies gdp_num_householder reflections; its CuTe kernel keeps one state of every "
     "gdp_num_chunk_states_to_recompute + 1.",
     "use a number in range",
     "megatron/core/transformer/transformer_config.py:1437",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto reflections = "gdp_num_householder"_opt, states = "gdp_num_chunk_states_to_recompute"_opt;
       return ask::clashes({{ask::below(f, reflections, 1), reflections, "below 1"},
                            {f.on("gdp_cutedsl_kernel"_opt) && (ask::below(f, states, 0) || ask::above(f, states, 64)),
                             states, "not in 0 to 64"}});
     },
     Version::kd98e8a64},
    {"GTP537",
     "mup-base-positive",
     Severity::Error,
     Phase::Startup,
     {"use_mup"_opt, "mup_base_hidden_size"_opt},
     "the base width of muP must be positive",
     "Learning rates and initial weights are scaled by hidden_size / mup_base_hidden_size.",
     "use the width of the model that was tuned",
     "megatron/core/transformer/transformer_config.py:2530",
     [](const Derivation& d) -> Findings {
       const auto base = "mup_base_hidden_size"_opt;
       if (!d.facts.on("use_mup"_opt) || !ask::below(d.facts, base, 1)) return {};
       return at(base, fmt::format("{} is not positive", d.facts[base]));
     }},
    {"GTP538",
     "qk-clip-limits",
     Severity::Error,
     Phase::Startup,
     {"qk_clip"_opt},
     "clipping of query-key products needs a balance between 0 and 1 and a positive threshold",
     "qk_clip_alpha shares the correction out between query and key weights.",
     "use a qk_clip_alpha such as 0.5 and a positive qk_clip_threshold",
     "megatron/training/arguments.py:1615",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto alpha = ask::number(f, "qk_clip_alpha"_opt), threshold = ask::number(f, "qk_clip_threshold"_opt);
       if (!f.on("qk_clip"_opt)) return {};
       return ask::clashes({{alpha && !(*alpha > 0 && *alpha < 1), "qk_clip_alpha"_opt, "not between 0 and 1"},
                            {threshold && !(*threshold > 0), "qk_clip_threshold"_opt, "not positive"}});
     }},
    {"GTP539",
     "mamba-divisibility",
     Severity::Error,
     Phase::FirstStep,
     {"hybrid_layer_pattern"_opt, kTp},
     "Mamba heads and groups must split over tensor parallelism, and heads over groups",
     "Every rank computes whole heads of whole groups. Without mamba_num_heads there are 2 x hidden_size / "
     "mamba_head_dim of them.",
     "use head and group counts that are multiples of TP",
     "megatron/core/ssm/mamba_mixer.py:262",
     [](const Derivation& d) { return detail::mamba_over_tp(d); }},
    {"GTP540",
     "mamba-cp-divisibility",
     Severity::Error,
     Phase::FirstStep,
     {"hybrid_layer_pattern"_opt, kTp, kCp},
     "Mamba heads and groups of one rank must split over context parallelism",
     "Heads are exchanged for sequence within the context-parallel group; groups are split or repeated evenly.",
     "use a context-parallel size that divides the heads of a rank and fits its groups",
     "megatron/core/ssm/mamba_context_parallel.py:106",
     [](const Derivation& d) { return detail::mamba_over_cp(d); }},
    {"GTP541",
     "mamba-fp8-inproj",
     Severity::Error,
     Phase::FirstStep,
     {"hybrid_layer_pattern"_opt, "fp8"_opt},
     "the input projection of a Mamba layer must have a multiple of 16 rows in FP8",
     "It makes two inner widths, the states of all groups and one number for each head.",
     "use a number of heads that is a multiple of 16",
     "megatron/core/ssm/mamba_mixer.py:253",
     [](const Derivation& d) { return detail::mamba_fp8_width(d); }},
    {"GTP542",
     "fp8-gemm-dims",
     Severity::Error,
     Phase::FirstStep,
     {"fp8"_opt, "fp8_recipe"_opt},
     "FP8 GEMMs need widths in multiples of 16 and tokens in multiples of 8",
     "The tensor cores read FP8 operands in such pieces; TransformerEngine refuses others in the first step.",
     "use multiples on every rank",
     "transformer_engine/pytorch/utils.py:618",
     [](const Derivation& d) -> Findings {
       if (!d.facts.has("fp8"_opt) || ask::is(d.facts, "fp8_recipe"_opt, "mxfp8")) return {};
       return detail::widths_off_blocks(d, "fp8"_opt, 16, 8);
     }},
    {"GTP543",
     "mxfp8-dims",
     Severity::Error,
     Phase::FirstStep,
     {"fp8"_opt, "fp8_recipe"_opt},
     "MXFP8 needs widths and tokens in multiples of 32",
     "32 numbers in a row, and in a column, share one scale.",
     "use multiples on every rank",
     "transformer_engine/pytorch/tensor/mxfp8_tensor.py:129",
     [](const Derivation& d) -> Findings {
       if (!d.facts.has("fp8"_opt) || !ask::is(d.facts, "fp8_recipe"_opt, "mxfp8")) return {};
       return detail::widths_off_blocks(d, "fp8_recipe"_opt, 32, 32);
     }},
    {"GTP544",
     "nvfp4-dims",
     Severity::Error,
     Phase::FirstStep,
     {"fp4"_opt},
     "NVFP4 needs widths and tokens in multiples of 16",
     "16 numbers share one scale.",
     "use multiples on every rank",
     "transformer_engine/pytorch/tensor/nvfp4_tensor.py:267",
     [](const Derivation& d) -> Findings {
       if (!d.facts.has("fp4"_opt)) return {};
       return detail::widths_off_blocks(d, "fp4"_opt, 16, 16);
     }},
};

}  // namespace gtp::rules
