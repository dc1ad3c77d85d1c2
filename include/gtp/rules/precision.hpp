// 10x: number formats of weights and GEMMs, and of what is gathered.
#pragma once

#include <algorithm>

#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/names.hpp>
#include <gtp/rules/weight_shards.hpp>

namespace gtp::rules {

namespace detail {

inline std::string off_label(const Facts& f, OptionId option) {
  return f.config().given(option) == nullptr ? "off by default" : "off";
}

/// GTP on either grid, as far as it is known.
inline bool known_gtp_on(const Facts& f) {
  return f.integer(kGtpRemat).value_or(1) > 1 || f.integer(kEgtpRemat).value_or(1) > 1;
}

inline bool recipe_is(const Facts& f, std::string_view recipe) { return f.text(kFp8Recipe) == recipe; }

/// Whether the optimizer keeps its state in shards, as the check of FP8 gathers sees it: before other options change
/// it.
inline bool sharded_optimizer(const Facts& f) {
  const Value* given = f.original(kDistributedOptimizer);
  return (given != nullptr && *given == Value(true)) || f.on(kTorchFsdp2) || f.on(kMegatronFsdp);
}

/// Whether MXFP8 gathers into the gradient buffer can be turned on without breaking another rule.
inline bool can_gather_mxfp8(const Facts& f) {
  return f.has(kFp8) && !f.on(kTorchFsdp2) && !f.on(kMegatronFsdp) && sharded_optimizer(f) &&
         !f.on("overlap_param_gather_with_optimizer_step"_opt) && !f.on("optimizer_cpu_offload"_opt);
}

/// Selective recompute of the parts that quantize their input again.
inline bool recomputes_quantized(const Facts& f) {
  const auto* modules = std::get_if<StringList>(f.find("recompute_modules"_opt));
  if (f.text("recompute_granularity"_opt) != "selective" || modules == nullptr) return false;
  return std::ranges::any_of(*modules, [](const std::string& m) { return m == "moe_act" || m == "layernorm"; });
}

inline Findings bf16_layer_counts(const Facts& f) {
  if (!f.has(kFp8) || !f.on("first_last_layers_bf16"_opt) || recipe_is(f, "delayed") || !f.has("num_layers"_opt))
    return {};
  const std::int64_t most = f["num_layers"_opt] / f[kPp];
  Findings findings;
  for (const OptionId option : {"num_layers_at_start_in_bf16"_opt, "num_layers_at_end_in_bf16"_opt}) {
    const auto count = f.integer(option);
    if (!count || (*count >= 0 && *count <= most)) continue;
    findings.list.push_back(at(option, fmt::format("{} is not within 0 and {}", *count, most))
                                .also("num_layers"_opt, fmt::format("{} layers", f["num_layers"_opt]))
                                .also(kPp, fmt::format("{} stages", f[kPp])));
  }
  return findings;
}

inline Findings backward_override(const Facts& f) {
  const Variable* variable = f.variable("NVTE_BACKWARD_OVERRIDE");
  if (!f.has(kFp8) || variable == nullptr) return {};
  if (recipe_is(f, "delayed"))
    return at(kFp8Recipe, fmt::format("delayed scaling with NVTE_BACKWARD_OVERRIDE `{}`", variable->value))
        .mend("unset NVTE_BACKWARD_OVERRIDE, or use another recipe");
  if (recipe_is(f, "custom") || variable->value == "high_precision" || variable->value == "dequantized") return {};
  return at(kFp8Recipe,
            fmt::format("NVTE_BACKWARD_OVERRIDE `{}` is neither high_precision nor dequantized", variable->value));
}

inline Findings gtp_mxfp8_gather(const Facts& f) {
  if (!any_gtp_on(f) || !recipe_is(f, "mxfp8") || f.on(kFp8Gather)) return {};
  Finding finding =
      at(kFp8Gather, off_label(f, kFp8Gather)).also(kFp8Recipe, "MXFP8").also(shards_that_are_on(f), "GTP is on");
  if (f.known(kFp8) && !f.has(kFp8)) {
    finding.notes.push_back("fp8 is off; upstream looks at the name of the recipe alone");
    finding.help = "leave fp8_recipe out, or set fp8, fp8_param_gather and reuse_grad_buf_for_mxfp8_param_ag";
  } else if (can_gather_mxfp8(f)) {
    return std::move(finding).fix(kFp8Gather, true).fix(kReuseGradBuffer, true);
  }
  return finding;
}

}  // namespace detail

inline constexpr Rule kPrecision[] = {
    {"GTP101",
     "fp16-bf16-exclusive",
     Severity::Error,
     Phase::Startup,
     {"fp16"_opt, "bf16"_opt},
     "fp16 and bf16 exclude each other",
     "Parameters and activations have one 16-bit format.",
     "leave one of them out",
     "megatron/training/arguments.py:1196",
     [](const Derivation& d) -> Findings {
       if (!d.facts.on("fp16"_opt) || !d.facts.on("bf16"_opt)) return {};
       return at("fp16"_opt, "on").also("bf16"_opt, "on");
     }},
    {"GTP102",
     "fp8-fp4-exclusive",
     Severity::Error,
     Phase::Startup,
     {kFp8, kFp4},
     "fp8 and fp4 exclude each other",
     "A run has one low-precision recipe for its GEMMs.",
     "leave one of them out",
     "megatron/training/arguments.py:1100",
     [](const Derivation& d) -> Findings {
       if (!d.facts.has(kFp8) || !d.facts.has(kFp4)) return {};
       return at(kFp4, fmt::format("`{}`", d.facts.text(kFp4).value_or("")))
           .also(kFp8, fmt::format("`{}`", d.facts.text(kFp8).value_or("")));
     }},
    {"GTP103",
     "fp8-param-needs-fp8",
     Severity::Error,
     Phase::Startup,
     {kFp8Gather, kFp8},
     "FP8 parameter gathers need FP8 training",
     "Weights are kept in the format in which GEMMs read them.",
     "set fp8, or leave fp8_param_gather out",
     "megatron/core/transformer/transformer_config.py:1566",
     [](const Derivation& d) -> Findings {
       if (!d.facts.on(kFp8Gather) || d.facts.has(kFp8)) return {};
       return at(kFp8Gather, "on").also(kFp8, "not set");
     }},
    {"GTP104",
     "fp4-param-needs-fp4",
     Severity::Error,
     Phase::Startup,
     {kFp4Gather, kFp4},
     "FP4 parameter gathers need FP4 training",
     "Weights are kept in the format in which GEMMs read them.",
     "set fp4, or leave fp4_param_gather out",
     "megatron/training/arguments.py:1104",
     [](const Derivation& d) -> Findings {
       if (!d.facts.on(kFp4Gather) || d.facts.has(kFp4)) return {};
       return at(kFp4Gather, "on").also(kFp4, "not set");
     }},
    {"GTP105",
     "fp8-param-gather-needs-sharded-optimizer",
     Severity::Error,
     Phase::Startup,
     {kFp8Gather, kDistributedOptimizer, kTorchFsdp2, kMegatronFsdp},
     "FP8 parameter gathers need an optimizer that shards its state",
     "The optimizer keeps the high-precision weights and writes FP8 shards, which are then gathered; an optimizer with "
     "whole weights gathers nothing.",
     "set use_distributed_optimizer, or leave fp8_param_gather out",
     "megatron/training/arguments.py:1095",
     [](const Derivation& d) -> Findings {
       if (!d.facts.on(kFp8Gather) || detail::sharded_optimizer(d.facts)) return {};
       return at(kFp8Gather, "on").also(kDistributedOptimizer, detail::off_label(d.facts, kDistributedOptimizer));
     }},
    {"GTP106",
     "fp8-output-proj",
     Severity::Error,
     Phase::Startup,
     {"fp8_output_proj"_opt, kFp8, kFp8Recipe},
     "the output projection can be quantized to MXFP8 only",
     "Its input and weight are quantized by an MXFP8 quantizer of its own.",
     "use fp8 with the mxfp8 recipe, or leave fp8_output_proj out",
     "megatron/core/transformer/transformer_config.py:1569",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.on("fp8_output_proj"_opt) || (f.has(kFp8) && detail::recipe_is(f, "mxfp8"))) return {};
       if (!f.has(kFp8)) return at("fp8_output_proj"_opt, "on").also(kFp8, "not set");
       return at("fp8_output_proj"_opt, "on").also(kFp8Recipe, fmt::format("`{}`", f.text(kFp8Recipe).value_or("")));
     }},
    {"GTP107",
     "gtp-fp4-needs-param-gather",
     Severity::Error,
     Phase::Startup,
     {kGtpRemat, kEgtpRemat, kFp4, kFp4Gather},
     "GTP with FP4 needs fp4_param_gather",
     "GTP gathers weights as NVFP4. Without this option the shards stay in bf16, and the backward GEMM would get a "
     "weight of another format than the forward one.",
     "set fp4_param_gather",
     "megatron/training/arguments.py:1516",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::any_gtp_on(f) || !f.has(kFp4) || f.on(kFp4Gather)) return {};
       return at(kFp4Gather, detail::off_label(f, kFp4Gather))
           .also(kFp4, "FP4 is on")
           .also(detail::shards_that_are_on(f), "GTP is on")
           .fix(kFp4Gather, true);
     }},
    {"GTP108",
     "gtp-mxfp8-needs-param-gather",
     Severity::Error,
     Phase::Startup,
     {kGtpRemat, kEgtpRemat, kFp8Recipe, kFp8Gather},
     "GTP with the MXFP8 recipe needs fp8_param_gather",
     "GTP keeps only the FP8 shard of a weight and never quantizes again, so the optimizer must maintain that shard; "
     "otherwise the weight that GEMMs read would never change.",
     "set fp8_param_gather and reuse_grad_buf_for_mxfp8_param_ag",
     "megatron/training/arguments.py:1575",
     [](const Derivation& d) { return detail::gtp_mxfp8_gather(d.facts); }},
    {"GTP109",
     "gtp-mxfp8-needs-grad-buf-reuse",
     Severity::Error,
     Phase::Startup,
     {kGtpRemat, kEgtpRemat, kFp8Recipe, kFp8Gather, kReuseGradBuffer},
     "GTP with the MXFP8 recipe needs reuse_grad_buf_for_mxfp8_param_ag",
     "MXFP8 weights keep storage of their own, with scales in tiles, and cannot be mapped into the parameter buffer; "
     "they are gathered into the gradient buffer instead.",
     "set reuse_grad_buf_for_mxfp8_param_ag",
     "megatron/training/arguments.py:1583",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::any_gtp_on(f) || !detail::recipe_is(f, "mxfp8") || !f.on(kFp8Gather) || f.on(kReuseGradBuffer) ||
           f.on(kMegatronFsdp))  // GTP014
         return {};
       Finding finding = at(kReuseGradBuffer, detail::off_label(f, kReuseGradBuffer))
                             .also(kFp8Recipe, "MXFP8")
                             .also(detail::shards_that_are_on(f), "GTP is on");
       if (detail::can_gather_mxfp8(f)) return std::move(finding).fix(kReuseGradBuffer, true);
       return finding;
     }},
    {"GTP110",
     "gtp-delayed-tensorwise-unchecked",
     Severity::Warning,
     Phase::Silent,
     {kGtpRemat, kEgtpRemat, kFp8, kFp8Recipe},
     "nothing upstream covers GTP with this FP8 recipe",
     "GTP is made and checked for bf16, MXFP8 and NVFP4 weights. Other recipes start without a word, and no check says "
     "whether their scales are right when weights are gathered from shards.",
     "prefer bf16, mxfp8 or nvfp4, or compare losses with a run without GTP first",
     "megatron/training/arguments.py:1575",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto recipe = f.text(kFp8Recipe).value_or("");
       if (!detail::any_gtp_on(f) || !f.has(kFp8) ||
           (recipe != "delayed" && recipe != "tensorwise" && recipe != "blockwise"))
         return {};
       return at(kFp8Recipe, fmt::format("`{}`{}", recipe, f.config().given(kFp8Recipe) ? "" : " by default"))
           .also(detail::shards_that_are_on(f), "GTP is on");
     }},
    {"GTP111",
     "reuse-grad-buf-needs-fp8-gather",
     Severity::Error,
     Phase::Startup,
     {kReuseGradBuffer, kFp8Gather, kTorchFsdp2, kMegatronFsdp},
     "reusing the gradient buffer for MXFP8 gathers needs fp8_param_gather",
     "Only MXFP8 weights are gathered into the gradient buffer; others have a parameter buffer.",
     "set fp8_param_gather, or leave reuse_grad_buf_for_mxfp8_param_ag out",
     "megatron/core/distributed/distributed_data_parallel_config.py:259",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.on(kReuseGradBuffer) || f.on(kFp8Gather) || f.on(kTorchFsdp2)) return {};
       if (detail::known_gtp_on(f) && detail::recipe_is(f, "mxfp8")) return {};  // GTP108
       return at(kReuseGradBuffer, "on").also(kFp8Gather, detail::off_label(f, kFp8Gather));
     }},
    {"GTP112",
     "reuse-grad-buf-vs-step-overlap",
     Severity::Error,
     Phase::Startup,
     {kReuseGradBuffer, "overlap_param_gather_with_optimizer_step"_opt, kMegatronFsdp},
     "a reused gradient buffer cannot be gathered into during the optimizer step",
     "The step still reads gradients from the buffer that the gather would overwrite.",
     "turn overlap_param_gather_with_optimizer_step off",
     "megatron/core/optimizer/optimizer_config.py:427",
     [](const Derivation& d) -> Findings {
       const auto overlap = "overlap_param_gather_with_optimizer_step"_opt;
       if (!d.facts.on(kReuseGradBuffer) || !d.facts.on(overlap)) return {};
       return at(overlap, "on").also(kReuseGradBuffer, "on");
     }},
    {"GTP113",
     "mxfp8-without-reuse-warn",
     Severity::Warning,
     Phase::Startup,
     {kFp8Recipe, kReuseGradBuffer, kMegatronFsdp},
     "MXFP8 without a reused gradient buffer takes much more memory",
     "Each weight is then kept in bf16 and in MXFP8 in both directions.",
     "set fp8_param_gather and reuse_grad_buf_for_mxfp8_param_ag",
     "megatron/core/optimizer/optimizer_config.py:416",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::recipe_is(f, "mxfp8") || f.on(kReuseGradBuffer) || f.on(kMegatronFsdp)) return {};
       if (detail::known_gtp_on(f)) return {};  // GTP108, GTP109
       Finding finding = at(kFp8Recipe, "MXFP8").also(kReuseGradBuffer, detail::off_label(f, kReuseGradBuffer));
       if (!f.has(kFp8)) return std::move(finding).note("fp8 is off; upstream looks at the name of the recipe alone");
       return finding;
     }},
    {"GTP114",
     "single-grouped-mxfp8-needs-reuse",
     Severity::Error,
     Phase::Startup,
     {"moe_single_grouped_weight"_opt, kNumExperts, kFp8, kFp8Recipe, kFp8Gather, kReuseGradBuffer,
      kDistributedOptimizer, kMegatronFsdp},
     "one grouped MXFP8 weight for all experts needs reuse_grad_buf_for_mxfp8_param_ag",
     "The storage of a grouped MXFP8 weight cannot be mapped into the parameter buffer; it is gathered into the "
     "gradient buffer instead.",
     "set reuse_grad_buf_for_mxfp8_param_ag",
     "megatron/core/distributed/param_and_grad_buffer.py:1333",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto single = "moe_single_grouped_weight"_opt;
       if (!f.on(single) || !f.has(kNumExperts) || !f.has(kFp8) || !detail::recipe_is(f, "mxfp8") ||
           !f.on(kFp8Gather) || f.on(kReuseGradBuffer) || !f.on(kDistributedOptimizer) || f.on(kMegatronFsdp) ||
           detail::known_gtp_on(f))  // GTP109
         return {};
       Finding finding =
           at(kReuseGradBuffer, detail::off_label(f, kReuseGradBuffer)).also(single, "one weight for all experts");
       if (detail::can_gather_mxfp8(f)) return std::move(finding).fix(kReuseGradBuffer, true);
       return finding;
     }},
    {"GTP115",
     "delayed-first-last-bf16",
     Severity::Error,
     Phase::Startup,
     {kFp8, "first_last_layers_bf16"_opt, kFp8Recipe},
     "delayed scaling cannot leave the first and last layers in bf16",
     "Delayed scaling updates the scales of all layers in one FP8 region around the model; single layers cannot leave "
     "it.",
     "use another recipe, or leave first_last_layers_bf16 out",
     "megatron/core/transformer/transformer_config.py:1529",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.has(kFp8) || !f.on("first_last_layers_bf16"_opt) || !detail::recipe_is(f, "delayed")) return {};
       return at("first_last_layers_bf16"_opt, "on")
           .also(kFp8Recipe, f.config().given(kFp8Recipe) ? "delayed" : "delayed by default");
     }},
    {"GTP116",
     "bf16-layer-counts",
     Severity::Error,
     Phase::Startup,
     {kFp8, "first_last_layers_bf16"_opt, kFp8Recipe, "num_layers_at_start_in_bf16"_opt,
      "num_layers_at_end_in_bf16"_opt, "num_layers"_opt, kPp},
     "layers kept in bf16 must fit in one pipeline stage",
     "Only the first and the last pipeline stage hold layers in bf16.",
     "use at most the layers of one stage (num_layers / pipeline_model_parallel_size)",
     "megatron/core/transformer/transformer_config.py:1538",
     [](const Derivation& d) { return detail::bf16_layer_counts(d.facts); }},
    {"GTP117",
     "custom-recipe-factory",
     Severity::Error,
     Phase::Startup,
     {kFp8, kFp8Recipe, "fp8_quantizer_factory"_opt, kFp4, "fp4_recipe"_opt, "fp4_quantizer_factory"_opt},
     "a custom recipe needs the function that makes its quantizers",
     "The recipe has no quantizers of its own; they come from a Python function named by its import path.",
     "set the quantizer factory, as package.module.function",
     "megatron/core/transformer/transformer_config.py:1558",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto lacks = [&](OptionId format, OptionId recipe, OptionId factory) {
         return f.has(format) && f.text(recipe) == "custom" && f.text(factory).value_or("").empty();
       };
       Findings findings;
       if (lacks(kFp8, kFp8Recipe, "fp8_quantizer_factory"_opt))
         findings.list.push_back(at(kFp8Recipe, "custom").also("fp8_quantizer_factory"_opt, "not set"));
       if (lacks(kFp4, "fp4_recipe"_opt, "fp4_quantizer_factory"_opt))
         findings.list.push_back(at("fp4_recipe"_opt, "custom").also("fp4_quantizer_factory"_opt, "not set"));
       return findings;
     }},
    {"GTP125",
     "moe-recompute-fp8-delayed",
     Severity::Error,
     Phase::Startup,
     {kFp8, kFp8Recipe, "recompute_granularity"_opt, "recompute_modules"_opt},
     "delayed scaling cannot recompute MoE activations or layer norms",
     "The recomputed input is quantized a second time, and delayed scaling would count it twice in its history.",
     "use another recipe, or recompute other modules",
     "megatron/core/transformer/transformer_config.py:2002",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.has(kFp8) || !detail::recipe_is(f, "delayed") || !detail::recomputes_quantized(f)) return {};
       return at("recompute_modules"_opt, "moe_act or layernorm")
           .also(kFp8Recipe, f.config().given(kFp8Recipe) ? "delayed" : "delayed by default");
     }},
    {"GTP126",
     "delayed-no-backward-override",
     Severity::Error,
     Phase::FirstStep,
     {kFp8, kFp8Recipe, "env"_opt},
     "NVTE_BACKWARD_OVERRIDE does not suit the FP8 recipe",
     "The variable makes backward GEMMs read high-precision or dequantized operands, which delayed scaling cannot "
     "do.",
     "unset NVTE_BACKWARD_OVERRIDE, or use high_precision or dequantized",
     "transformer_engine/common/recipe/__init__.py:268",
     [](const Derivation& d) { return detail::backward_override(d.facts); }},
};

}  // namespace gtp::rules
