// 18x: what a GPU generation can do. `gpu_arch` is the one the job runs on; upstream asks the first GPU of each host.
#pragma once

#include <gtp/derive.hpp>
#include <gtp/hardware.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/names.hpp>

namespace gtp::rules {

namespace detail {

/// Whether the generation is known and its compute capability below `major`.0.
inline bool arch_below(const Facts& f, int major) {
  const auto arch = arch_major(f.text("gpu_arch"_opt).value_or(""));
  return arch && *arch < major;
}

/// `fp8_recipe` when FP8 is on, else empty.
inline std::string_view active_fp8_recipe(const Facts& f) {
  return f.has(kFp8) ? f.text(kFp8Recipe).value_or("") : std::string_view{};
}

inline Finding at_arch(const Facts& f, OptionId user, std::string label) {
  return at("gpu_arch"_opt, fmt::format("{} cannot", *f.text("gpu_arch"_opt))).also(user, std::move(label));
}

}  // namespace detail

inline constexpr Rule kHardware[] = {
    {"GTP181",
     "fp8-arch",
     Severity::Error,
     Phase::FirstStep,
     {kFp8, kFp8Recipe, "gpu_arch"_opt},
     "FP8 needs an Ada or Hopper GPU, or newer",
     "Tensor cores have FP8 from compute capability 8.9 on; TransformerEngine refuses older GPUs when it first enters "
     "an FP8 region.",
     "leave fp8 out, or run on Hopper or newer",
     "transformer_engine/pytorch/quantization.py:153",
     [](const Derivation& d) -> Findings {
       const auto recipe = detail::active_fp8_recipe(d.facts);
       if ((recipe != "delayed" && recipe != "tensorwise") || !detail::arch_below(d.facts, 9)) return {};
       return detail::at_arch(d.facts, kFp8, "FP8 is on");
     }},
    {"GTP182",
     "blockwise-arch",
     Severity::Error,
     Phase::FirstStep,
     {kFp8, kFp8Recipe, "gpu_arch"_opt},
     "the blockwise FP8 recipe needs a Hopper GPU or newer",
     "Block-scaled FP8 GEMMs exist from compute capability 9.0 on, with CUDA 12.9 or newer.",
     "use another recipe, or run on Hopper or newer",
     "transformer_engine/pytorch/quantization.py:180",
     [](const Derivation& d) -> Findings {
       if (detail::active_fp8_recipe(d.facts) != "blockwise" || !detail::arch_below(d.facts, 9)) return {};
       return detail::at_arch(d.facts, kFp8Recipe, "blockwise scaling");
     }},
    {"GTP183",
     "mxfp8-arch",
     Severity::Error,
     Phase::FirstStep,
     {kFp8, kFp8Recipe, "gpu_arch"_opt},
     "the MXFP8 recipe needs a Blackwell GPU",
     "MXFP8 scales every 32 values in hardware, which data-centre Blackwell (compute capability 10.x) does first; "
     "TransformerEngine also refuses 12.0 and above.",
     "use another recipe, or run on Blackwell",
     "transformer_engine/pytorch/quantization.py:164",
     [](const Derivation& d) -> Findings {
       if (detail::active_fp8_recipe(d.facts) != "mxfp8" || !detail::arch_below(d.facts, 10)) return {};
       return detail::at_arch(d.facts, kFp8Recipe, "MXFP8");
     }},
    {"GTP184",
     "nvfp4-arch",
     Severity::Warning,
     Phase::FirstStep,
     {kFp4, "fp4_recipe"_opt, "gpu_arch"_opt},
     "NVFP4 needs a Blackwell GPU",
     "FP4 tensor cores exist from compute capability 10.0 on. The support check of TransformerEngine 2.19 covers the "
     "FP8 recipes only, so an older GPU is not stopped there.",
     "leave fp4 out, or run on Blackwell",
     "transformer_engine/pytorch/quantization.py:224",
     [](const Derivation& d) -> Findings {
       if (!d.facts.has(kFp4) || d.facts.text("fp4_recipe"_opt) == "custom" || !detail::arch_below(d.facts, 10))
         return {};
       return detail::at_arch(d.facts, kFp4, "FP4 is on");
     }},
    {"GTP185",
     "bf16-arch",
     Severity::Error,
     Phase::FirstStep,
     {"bf16"_opt, "gpu_arch"_opt},
     "bf16 needs an Ampere GPU or newer",
     "Tensor cores have bf16 from compute capability 8.0 on, and TransformerEngine counts on it.",
     "train with fp16, or run on Ampere or newer",
     "transformer_engine/pytorch/utils.py:631",
     [](const Derivation& d) -> Findings {
       if (!d.facts.on("bf16"_opt) || !detail::arch_below(d.facts, 8)) return {};
       return detail::at_arch(d.facts, "bf16"_opt, "on");
     }},
    {"GTP186",
     "ncclep-capacity-fp8-arch",
     Severity::Error,
     Phase::Startup,
     {kNumExperts, "moe_token_dispatcher_type"_opt, "moe_flex_dispatcher_backend"_opt, kFp8, kFp4,
      "use_transformer_engine_op_fuser"_opt, "moe_grouped_gemm"_opt},
     "NCCL EP with fixed shapes and FP8 or FP4 needs Blackwell and the fused grouped MLP",
     "Experts then read a receive buffer of fixed size with token counts that only the device knows. In low precision "
     "only the CuTe DSL grouped GEMM can, which needs compute capability 10.0 and NVTE_CUTEDSL_FUSED_GROUPED_MLP=1.",
     "run on Blackwell with NVTE_CUTEDSL_FUSED_GROUPED_MLP=1, or leave moe_expert_rank_capacity_factor out",
     "megatron/core/transformer/moe/token_dispatcher.py:1576",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto factor =
           f.version() >= Version::kd98e8a64 ? "moe_expert_rank_capacity_factor"_opt : "moe_ncclep_static_shape"_opt;
       const bool fixed = f.version() >= Version::kd98e8a64 ? f.has(factor) : f.on(factor);
       if (!fixed || !f.has(kNumExperts) || f.text("moe_token_dispatcher_type"_opt) != "flex" ||
           f.text("moe_flex_dispatcher_backend"_opt) != "ncclep" || (!f.has(kFp8) && !f.has(kFp4)) ||
           !f.on("use_transformer_engine_op_fuser"_opt) || !f.on("moe_grouped_gemm"_opt))
         return {};
       if (detail::arch_below(f, 10)) return detail::at_arch(f, factor, "fixed receive buffer");
       if (!f.known("env"_opt)) return {};
       const Variable* fused = f.variable("NVTE_CUTEDSL_FUSED_GROUPED_MLP");
       if (fused != nullptr && !fused->value.empty() && fused->value != "0" && fused->value.front() != '-') return {};
       return at(factor, fmt::format("NVTE_CUTEDSL_FUSED_GROUPED_MLP is {}",
                                     fused == nullptr ? "not set" : "`" + fused->value + "`"))
           .mend("export NVTE_CUTEDSL_FUSED_GROUPED_MLP=1, or leave the option out");
     }},
};

}  // namespace gtp::rules
