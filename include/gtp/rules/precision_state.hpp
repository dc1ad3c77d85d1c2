// 12x: number formats of gradients, optimizer state, the residual stream and the loss.
#pragma once

#include <optional>
#include <utility>

#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/names.hpp>
#include <gtp/rules/precision.hpp>
#include <gtp/rules/unsaid.hpp>

namespace gtp::rules {

namespace detail {

inline Findings high_precision_states(const Facts& f) {
  if (!off_or_unsaid(f, "use_precision_aware_optimizer"_opt)) return {};
  std::optional<Finding> finding;
  for (const OptionId option :
       {"main_grads_dtype"_opt, "main_params_dtype"_opt, "exp_avg_dtype"_opt, "exp_avg_sq_dtype"_opt}) {
    const auto type = f.text(option);
    if (!type || *type == "fp32") continue;
    if (finding)
      finding->related.push_back({std::string(name_of(option)), {}, fmt::format("{}, too", *type)});
    else
      finding = at(option, fmt::format("{} is not fp32", *type));
  }
  return finding ? Findings(std::move(*finding)) : Findings{};
}

}  // namespace detail

inline constexpr Rule kPrecisionState[] = {
    {"GTP118",
     "fp32-accumulate-needs-fp32-main-grads",
     Severity::Error,
     Phase::Startup,
     {"bf16"_opt, "accumulate_allreduce_grads_in_fp32"_opt, "main_grads_dtype"_opt},
     "fp32 accumulation needs fp32 main gradients",
     "Gradients are accumulated in the main gradients, so both have one format.",
     "leave main_grads_dtype or accumulate_allreduce_grads_in_fp32 out",
     "megatron/training/arguments.py:1209",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto accumulate = "accumulate_allreduce_grads_in_fp32"_opt, main = "main_grads_dtype"_opt;
       const Value* given = f.original(accumulate);  // judged before grad_reduce_in_bf16 turns it off
       if (!f.on("bf16"_opt) || given == nullptr || *given != Value(true) || f.text(main) == "fp32") return {};
       return at(main, fmt::format("`{}`", f.text(main).value_or(""))).also(accumulate, "on");
     }},
    {"GTP119",
     "precision-aware-optimizer",
     Severity::Error,
     Phase::Startup,
     {"use_precision_aware_optimizer"_opt, "optimizer"_opt},
     "the precision-aware optimizer is Adam",
     "Only the fused Adam of TransformerEngine keeps its state in low precision. Versions before d98e8a64 also asked "
     "for the distributed optimizer.",
     "use adam, or leave use_precision_aware_optimizer out",
     "megatron/core/optimizer/optimizer_config.py:433",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto aware = "use_precision_aware_optimizer"_opt;
       if (!f.on(aware)) return {};
       if (f.text("optimizer"_opt) != "adam")
         return at("optimizer"_opt, fmt::format("`{}` is not adam", f.text("optimizer"_opt).value_or("")))
             .also(aware, "on");
       if (f.version() >= Version::kd98e8a64 || !f.known(kDistributedOptimizer) || f.on(kDistributedOptimizer))
         return {};
       return at(aware, "on")
           .also(kDistributedOptimizer, detail::off_label(f, kDistributedOptimizer))
           .mend("set use_distributed_optimizer, or leave use_precision_aware_optimizer out");
     }},
    {"GTP120",
     "low-precision-states-need-precision-aware",
     Severity::Error,
     Phase::Startup,
     {},
     "optimizer state below fp32 needs the precision-aware optimizer",
     "The ordinary optimizer keeps main weights, gradients and moments in fp32.",
     "set use_precision_aware_optimizer, or use fp32",
     "megatron/core/optimizer/optimizer_config.py:469",
     [](const Derivation& d) { return detail::high_precision_states(d.facts); }},
    {"GTP121",
     "optimizer-cpu-offload",
     Severity::Error,
     Phase::Startup,
     {"optimizer_cpu_offload"_opt, "use_precision_aware_optimizer"_opt},
     "offloading the optimizer needs the precision-aware optimizer, and FP8 gathers then need delayed scaling",
     "The optimizer that is part on the CPU shares the code of the precision-aware one, which writes FP8 weights with "
     "delayed scaling only.",
     "set use_precision_aware_optimizer, and fp8_recipe to delayed with fp8_param_gather",
     "megatron/training/arguments.py:1884",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto offload = "optimizer_cpu_offload"_opt, aware = "use_precision_aware_optimizer"_opt;
       if (!f.on(offload)) return {};
       if (!f.on(aware))
         return at(offload, "on")
             .also(aware, detail::off_label(f, aware))
             .mend("set use_precision_aware_optimizer, or leave optimizer_cpu_offload out");
       if (!f.on(kFp8Gather) || detail::recipe_is(f, "delayed")) return {};
       return at(kFp8Recipe, fmt::format("`{}`", f.text(kFp8Recipe).value_or("")))
           .also(kFp8Gather, "on")
           .also(offload, "on")
           .mend("use the delayed recipe, or leave fp8_param_gather or optimizer_cpu_offload out");
     }},
    {"GTP122",
     "fp16-lm-cross-entropy",
     Severity::Error,
     Phase::Startup,
     {"fp16_lm_cross_entropy"_opt, "fp16"_opt},
     "an fp16 loss needs fp16 training",
     "The loss is computed in fp16 only with fp16 logits.",
     "set fp16, or leave fp16_lm_cross_entropy out",
     "megatron/training/arguments.py:1372",
     [](const Derivation& d) -> Findings {
       if (!d.facts.on("fp16_lm_cross_entropy"_opt) || d.facts.on("fp16"_opt)) return {};
       return at("fp16_lm_cross_entropy"_opt, "on").also("fp16"_opt, detail::off_label(d.facts, "fp16"_opt));
     }},
    {"GTP123",
     "fp32-residual-needs-half",
     Severity::Error,
     Phase::Startup,
     {"fp32_residual_connection"_opt, "fp16"_opt, "bf16"_opt},
     "an fp32 residual stream needs fp16 or bf16 training",
     "In fp32 training the residual stream is fp32 anyhow.",
     "set bf16 or fp16, or leave fp32_residual_connection out",
     "megatron/training/arguments.py:1374",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.on("fp32_residual_connection"_opt) || f.on("fp16"_opt) || f.on("bf16"_opt)) return {};
       return at("fp32_residual_connection"_opt, "on")
           .also("bf16"_opt, detail::off_label(f, "bf16"_opt))
           .also("fp16"_opt, detail::off_label(f, "fp16"_opt));
     }},
    {"GTP124",
     "te-cross-entropy-fusion",
     Severity::Error,
     Phase::Startup,
     {"cross_entropy_loss_fusion"_opt, "cross_entropy_fusion_impl"_opt},
     "the fused cross entropy of TransformerEngine is refused",
     "It has known stability problems. Megatron Core by itself only warns; the training command refuses it.",
     "set cross_entropy_fusion_impl to native",
     "megatron/training/arguments.py:1697",
     [](const Derivation& d) -> Findings {
       const auto impl = "cross_entropy_fusion_impl"_opt, fusion = "cross_entropy_loss_fusion"_opt;
       if (!d.facts.on(fusion) || d.facts.text(impl) != "te") return {};
       return at(impl, "te").also(fusion, "on").fix(impl, std::string("native"));
     }},
};

}  // namespace gtp::rules
