// 3xx: experts and the grid they live on.
#pragma once

#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/names.hpp>

namespace gtp::rules {

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
     }},
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
};

}  // namespace gtp::rules
