// 04x: the order of the axes on both grids.
#pragma once

#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/names.hpp>

namespace gtp::rules {

inline constexpr Rule kRankOrder[] = {
    {"GTP041",
     "non-pp-last-needs-equal-dp",
     Severity::Error,
     Phase::Startup,
     {kPpBeforeDp, kPp, kDp, kEdp},
     "with pipeline stages inside data parallelism, dense and expert replicas must be as many",
     "Both grids must agree on which ranks form a pipeline. With PP outermost they always do; with "
     "use_tp_pp_dp_mapping only if TP x GTP_remat x CP = ETP x EP x EGTP_remat.",
     "drop use_tp_pp_dp_mapping, or make both products equal",
     "megatron/core/parallel_state.py:898",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (pipeline_groups_agree(f.on(kPpBeforeDp), f[kPp], f[kDp], f[kEdp])) return {};
       return at(kPpBeforeDp, fmt::format("replicate DP is {}, expert replicate DP {}", f[kDp], f[kEdp]))
           .also(kPp, "pipeline size");
     }},
    {"GTP042",
     "all-gather-groups-ignore-order",
     Severity::Warning,
     Phase::Silent,
     {kPpBeforeDp, "create_all_gather_group"_opt, kPp},
     "the separate all-gather groups ignore use_tp_pp_dp_mapping",
     "They are made for the order with PP last, so they can hold other ranks than the data-parallel groups they are "
     "to mirror.",
     "drop create_all_gather_group or use_tp_pp_dp_mapping",
     "megatron/core/parallel_state.py:1636",
     [](const Derivation& d) -> Findings {
       const auto option = "create_all_gather_group"_opt;
       if (!d.facts.on(kPpBeforeDp) || !d.facts.on(option) || d.facts[kPp] == 1) return {};
       return at(option, "made for the other order").also(kPpBeforeDp, "on");
     }},
};

}  // namespace gtp::rules
