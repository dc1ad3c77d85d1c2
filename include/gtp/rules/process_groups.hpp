// 88x: process groups that are not those of Megatron's two grids.
#pragma once

#include <algorithm>
#include <array>
#include <string>

#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/names.hpp>
#include <gtp/rules/weight_shards.hpp>

namespace gtp::rules {

namespace detail {

/// The sizes of a model that reinforcement learning builds for inference, on a grid of its own.
inline constexpr std::array<OptionId, 4> kInferenceSizes{
    "rl_inference_tensor_model_parallel_size"_opt, "rl_inference_pipeline_model_parallel_size"_opt,
    "rl_inference_expert_model_parallel_size"_opt, "rl_inference_expert_tensor_model_parallel_size"_opt};

}  // namespace detail

inline constexpr Rule kProcessGroups[] = {
    {"GTP881",
     "decentralized-process-groups",
     Severity::Error,
     Phase::Startup,
     {"use_decentralized_pg"_opt},
     "process groups from a grid of their own are not supported",
     "With HyperCommGrid (Megatron-Bridge's use_decentralized_pg, the heterogeneous MIMO example) each module has "
     "ranks and sizes of its own, and no GTP_remat axis unless its grid names one. Groups, batches and ranks of "
     "Megatron's two grids would be wrong for such a job, so none are derived.",
     "turn use_decentralized_pg off, or describe each module as a job of its own",
     "megatron/core/hyper_comm_grid.py:105",
     [](const Derivation& d) -> Findings {
       const auto option = "use_decentralized_pg"_opt;
       if (!d.facts.on(option)) return {};
       return at(option, "asks for grids of their own");
     }},
    {"GTP882",
     "gtp-custom-collection-fallback",
     Severity::Error,
     Phase::Silent,
     {"perform_rl_step"_opt, kGtpRemat, kEgtpRemat, kCp},
     "an inference model with a grid of its own does not work under GTP",
     "Its process groups (HyperCommGrid) have no GTP_remat axis, so its layers silently take the remat groups of the "
     "training grid, whose ranks hold other parts of the inference weights. Prefetch chains are shared by both models "
     "as well. CP above 1 always builds such a model.",
     "leave the rl_inference sizes out and CP at 1, or turn GTP off",
     "megatron/core/process_groups_config.py:709",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.on("perform_rl_step"_opt) || !detail::any_gtp_on(f)) return {};
       const auto* size = std::find_if(detail::kInferenceSizes.begin(), detail::kInferenceSizes.end(),
                                       [&](OptionId option) { return f.has(option); });
       if (size == detail::kInferenceSizes.end() && f[kCp] <= 1) return {};
       const OptionId option = size == detail::kInferenceSizes.end() ? kCp : *size;
       return at(option, to_text(*f.find(option))).also(detail::shards_that_are_on(f), "GTP is on");
     }},
};

}  // namespace gtp::rules
