// 36x: how tokens choose their experts.
#pragma once

#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/ask.hpp>
#include <gtp/rules/names.hpp>

namespace gtp::rules {

namespace detail {

inline constexpr OptionId kTopk = "moe_router_topk"_opt, kScore = "moe_router_score_function"_opt,
                          kBalancing = "moe_router_load_balancing_type"_opt, kGroupTopk = "moe_router_group_topk"_opt,
                          kNumGroups = "moe_router_num_groups"_opt,
                          kPadQuant = "moe_router_padding_for_quantization"_opt;

/// Group-limited routing (transformer_config.py:2671). Without experts upstream divides None.
inline Findings group_limited_routing(const Facts& f) {
  const std::int64_t topk = f.integer(kGroupTopk).value_or(0), groups = f.integer(kNumGroups).value_or(0);
  if (topk == 0) return {};
  if (groups == 0) return at(kGroupTopk, fmt::format("{} groups for each token", topk)).also(kNumGroups, "not set");
  if (!f.has(kNumExperts)) return at(kGroupTopk, "given").also(kNumExperts, "no experts");
  if (!ask::multiple(f[kNumExperts], groups))
    return at(kNumGroups, fmt::format("{} does not divide {}", groups, f[kNumExperts])).also(kNumExperts, "experts");
  if (topk > groups) return at(kGroupTopk, fmt::format("{} of {} groups", topk, groups)).also(kNumGroups, "groups");
  return {};
}

}  // namespace detail

inline constexpr Rule kExpertRouter[] = {
    {"GTP360",
     "topk1-softmax",
     Severity::Error,
     Phase::Startup,
     {detail::kTopk, detail::kScore, "moe_router_pre_softmax"_opt, detail::kBalancing},
     "one expert for each token needs the softmax before the choice",
     "A softmax over the one chosen expert is 1 whatever the router says, so the router would get no gradient. "
     "Upstream checks dense models as well.",
     "turn moe_router_pre_softmax on",
     "megatron/core/transformer/transformer_config.py:2661",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const std::span<const std::string> types = words(f, detail::kBalancing);
       if (f.integer(detail::kTopk) != 1 || !ask::is(f, detail::kScore, "softmax")) return {};
       if (f.on("moe_router_pre_softmax"_opt) || (types.size() == 1 && types.front() == "sinkhorn")) return {};
       return at(detail::kTopk, "one expert").also("moe_router_pre_softmax"_opt, "off");
     }},
    {"GTP361",
     "group-topk",
     Severity::Error,
     Phase::Startup,
     {detail::kGroupTopk, detail::kNumGroups, kNumExperts},
     "group-limited routing needs groups of equally many experts, and no more groups than there are",
     "Each token first chooses moe_router_group_topk of moe_router_num_groups groups, then experts within them.",
     "use a number of groups that divides the experts and is not below moe_router_group_topk",
     "megatron/core/transformer/transformer_config.py:2671",
     [](const Derivation& d) { return detail::group_limited_routing(d.facts); }},
    {"GTP362",
     "expert-bias-score-function",
     Severity::Error,
     Phase::Startup,
     {"moe_router_enable_expert_bias"_opt, detail::kScore},
     "balancing by an expert bias needs sigmoid or sqrtsoftplus scores",
     "The bias is added to the score of each expert on its own; a softmax ties them together.",
     "set moe_router_score_function to sigmoid or sqrtsoftplus",
     "megatron/core/transformer/transformer_config.py:2617",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.on("moe_router_enable_expert_bias"_opt)) return {};
       if (!ask::is_other(f, detail::kScore, "sigmoid") || !ask::is_other(f, detail::kScore, "sqrtsoftplus")) return {};
       return at(detail::kScore, fmt::format("`{}`", ask::shown(f, detail::kScore)))
           .also("moe_router_enable_expert_bias"_opt, "on");
     }},
    {"GTP363",
     "router-pad-for-quant",
     Severity::Error,
     Phase::Startup,
     {detail::kPadQuant},
     "padding the routing map needs a quantized format and the alltoall or flex dispatcher",
     "It rounds the tokens of each expert to the blocks of FP8 and FP4 GEMMs.",
     "turn moe_router_padding_for_quantization off, or change what is marked",
     "megatron/core/transformer/transformer_config.py:2649",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.on(detail::kPadQuant)) return {};
       const auto dispatcher = "moe_token_dispatcher_type"_opt;
       return ask::clashes(
           {{ask::none(f, "fp8"_opt) && ask::none(f, "fp4"_opt), detail::kPadQuant, "neither fp8 nor fp4"},
            {ask::is(f, dispatcher, "allgather"), dispatcher, "allgather"}});
     }},
    {"GTP364",
     "moe-router-dtype-hint",
     Severity::Warning,
     Phase::Startup,
     {kNumExperts, "moe_router_dtype"_opt},
     "many experts are routed in low precision",
     "Scores of 32 or more experts lie close together; in BF16 some cannot be told apart. Upstream warns.",
     "set moe_router_dtype to fp32",
     "megatron/core/transformer/transformer_config.py:3119",
     [](const Derivation& d) -> Findings {
       if (!ask::above(d.facts, kNumExperts, 31) || d.facts.has("moe_router_dtype"_opt)) return {};
       return at(kNumExperts, fmt::format("{} experts", d.facts[kNumExperts])).also("moe_router_dtype"_opt, "not set");
     }},
    {"GTP365",
     "aux-loss-list-length",
     Severity::Error,
     Phase::Startup,
     {detail::kBalancing, "moe_aux_loss_coeff"_opt},
     "several ways of balancing need a coefficient each",
     "Every kind of auxiliary loss is weighted on its own.",
     "give moe_aux_loss_coeff one number for each load-balancing type",
     "megatron/core/transformer/transformer_config.py:1828",
     [](const Derivation& d) -> Findings {
       const auto option = "moe_aux_loss_coeff"_opt;
       const auto* weights = std::get_if<FloatList>(d.facts.find(option));
       const std::size_t types = words(d.facts, detail::kBalancing).size(), given = weights ? weights->size() : 1;
       if (types <= 1 || types == given) return {};
       return at(option, fmt::format("{} for {} types", given, types)).also(detail::kBalancing, "types");
     }},
};

}  // namespace gtp::rules
