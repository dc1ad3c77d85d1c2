// 33x and 34x: how tokens travel to their experts and back, and what that overlaps with.
#pragma once

#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/ask.hpp>
#include <gtp/rules/expert.hpp>
#include <gtp/rules/names.hpp>

namespace gtp::rules {

namespace detail {

inline constexpr OptionId kDispatcher = "moe_token_dispatcher_type"_opt, kBackend = "moe_flex_dispatcher_backend"_opt,
                          kPad = "moe_pad_expert_input_to_capacity"_opt, kCapacity = "moe_expert_capacity_factor"_opt,
                          kOverlapEp = "overlap_moe_expert_parallel_comm"_opt,
                          kSharedOverlap = "moe_shared_expert_overlap"_opt, kDelayWgrad = "delay_wgrad_compute"_opt;

/// Known to be the one dispatcher that neither `alltoall` nor `flex` is.
inline bool dispatcher_gathers(const Facts& f) {
  return ask::is_other(f, kDispatcher, "alltoall") && ask::is_other(f, kDispatcher, "flex");
}

inline Findings dispatch_dtypes(const Facts& f) {
  for (const OptionId dtype : {"moe_dispatch_fwd_dtype"_opt, "moe_combine_bwd_dtype"_opt}) {
    if (!ask::is_other(f, dtype, "bf16")) continue;
    return ask::also(ask::clashes({{ask::is_other(f, kDispatcher, "flex"), kDispatcher, "not flex"},
                                   {ask::is_other(f, kBackend, "ncclep"), kBackend, "not ncclep"},
                                   {ask::off(f, kOpFuser), kOpFuser, "off"},
                                   {ask::off(f, kGrouped), kGrouped, "off"}}),
                     dtype, ask::shown(f, dtype));
  }
  return {};
}

/// What the all-to-all overlap schedule cannot run with (transformer_config.py:3002).
inline Findings ep_overlap_limits(const Facts& f) {
  const auto granularity = "recompute_granularity"_opt, method = "recompute_method"_opt,
             count = "recompute_num_layers"_opt, modules = "recompute_modules"_opt, mtp = "mtp_num_layers"_opt,
             offload = "offload_modules"_opt;
  if (!f.on(kOverlapEp)) return {};
  const bool ncclep = ask::is(f, kDispatcher, "flex") && ask::is(f, kBackend, "ncclep");
  return ask::also(
      ask::clashes(
          {{ask::above(f, kPp, 1) && ask::none(f, kVpp), kPp, "stages without interleaving"},
           {ask::below(f, kEp, 2), kEp, "no expert parallelism"},
           {dispatcher_gathers(f), kDispatcher, "neither alltoall nor flex"},
           {ask::is(f, granularity, "full") && !f.on("recompute_activations"_opt), granularity, "full"},
           {f.has(method), method, "set"},
           {f.has(count), count, "set"},
           {ask::has_word(f, modules, "moe"), modules, "moe"},
           {f.on("moe_layer_recompute"_opt), "moe_layer_recompute"_opt, "on"},
           {ask::off(f, "bf16"_opt) && ask::off(f, "fp16"_opt), "bf16"_opt, "neither bf16 nor fp16"},
           {f.on(kSharedOverlap), kSharedOverlap, "on"},
           {ask::above(f, mtp, 1) || ask::below(f, mtp, 0), mtp, "more than one layer"},
           {ncclep && f.on("fine_grained_activation_offloading"_opt) && ask::has_word(f, offload, "expert_fc1"),
            offload, "expert_fc1 with ncclep"}}),
      kOverlapEp, "on");
}

/// Capacities that keep some tokens from their expert do not go with every way of balancing.
inline Findings capacity_balancing(const Facts& f) {
  const Value* factor = f.original(kCapacity);
  if (factor == nullptr || is_none(*factor)) return {};
  const auto option = "moe_router_load_balancing_type"_opt;
  const std::string* type = ask::word_other_than(f, option, {"aux_loss", "seq_aux_loss", "global_aux_loss", "none"});
  if (type == nullptr) return {};
  return at(option, fmt::format("`{}`", *type)).also(kCapacity, "a capacity");
}

}  // namespace detail

inline constexpr Rule kExpertDispatch[] = {
    {"GTP330",
     "deepep-flag-needs-flex",
     Severity::Error,
     Phase::Startup,
     {"moe_enable_deepep"_opt, detail::kDispatcher},
     "moe_enable_deepep needs the flex dispatcher and no other backend",
     "The deprecated flag stands for moe_flex_dispatcher_backend deepep.",
     "drop moe_enable_deepep and set moe_flex_dispatcher_backend",
     "megatron/core/transformer/transformer_config.py:1743",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.on("moe_enable_deepep"_opt)) return {};
       const Value* backend = f.original(detail::kBackend);
       return ask::also(ask::clashes({{ask::is_other(f, detail::kDispatcher, "flex"), detail::kDispatcher, "not flex"},
                                      {backend != nullptr && *backend == Value(std::string("hybridep")),
                                       detail::kBackend, "hybridep"}}),
                        "moe_enable_deepep"_opt, "on");
     }},
    {"GTP331",
     "ncclep-needs-flex",
     Severity::Error,
     Phase::Startup,
     {detail::kBackend, detail::kDispatcher},
     "the NCCL-EP backend needs the flex dispatcher, and grouped tensors its op fuser",
     "moe_flex_dispatcher_backend is a backend of the flex dispatcher. Grouped tensors reach NCCL-EP only through "
     "TransformerEngine's op fuser.",
     "set moe_token_dispatcher_type to flex, or use another backend",
     "megatron/core/transformer/transformer_config.py:1763",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!ask::is(f, detail::kBackend, "ncclep")) return {};
       return ask::also(ask::clashes({{ask::is_other(f, detail::kDispatcher, "flex"), detail::kDispatcher, "not flex"},
                                      {f.version() >= Version::kd98e8a64 && f.on(detail::kGroupedTensor) &&
                                           ask::off(f, detail::kOpFuser),
                                       detail::kGroupedTensor, "on without the op fuser"}}),
                        detail::kBackend, "ncclep");
     }},
    {"GTP332",
     "dispatch-dtype-needs-ncclep",
     Severity::Error,
     Phase::Startup,
     {"moe_dispatch_fwd_dtype"_opt, "moe_combine_bwd_dtype"_opt},
     "quantized dispatch needs NCCL-EP and the fused grouped GEMM",
     "Only that path carries MXFP8 tokens and consumes them as they come.",
     "use bf16, or flex with ncclep, the op fuser and the grouped GEMM",
     "megatron/core/transformer/transformer_config.py:1776",
     [](const Derivation& d) { return detail::dispatch_dtypes(d.facts); },
     Version::kd98e8a64},
    {"GTP333",
     "ncclep-capacity-limits",
     Severity::Error,
     Phase::FirstStep,
     {kNumExperts, detail::kDispatcher, detail::kBackend},
     "the NCCL-EP backend neither drops nor pads tokens",
     "Expert capacities are not implemented there; the dispatcher says so when the model is built.",
     "drop the capacity options, or use another backend",
     "megatron/core/transformer/moe/token_dispatcher.py:1555",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.has(kNumExperts) || !ask::is(f, detail::kDispatcher, "flex") || !ask::is(f, detail::kBackend, "ncclep"))
         return {};
       return ask::also(ask::clashes({{f.on(detail::kPad), detail::kPad, "on"},
                                      {f.has(detail::kCapacity), detail::kCapacity, "a capacity"}}),
                        detail::kBackend, "ncclep");
     }},
    {"GTP334",
     "deepep-no-capacity-padding",
     Severity::Error,
     Phase::Startup,
     {detail::kDispatcher, detail::kBackend, detail::kPad},
     "the DeepEP backend cannot pad expert inputs to their capacity",
     "Its buffers hold the tokens that come; deepep is the flex dispatcher's default backend.",
     "turn moe_pad_expert_input_to_capacity off, or use another backend",
     "megatron/core/transformer/transformer_config.py:1754",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.on(detail::kPad) || !ask::is(f, detail::kDispatcher, "flex") || !ask::is(f, detail::kBackend, "deepep"))
         return {};
       return at(detail::kPad, "on").also(detail::kBackend, "deepep");
     }},
    {"GTP335",
     "pad-to-capacity-needs-factor",
     Severity::Error,
     Phase::Startup,
     {detail::kPad, detail::kCapacity},
     "padding to the capacity needs a capacity",
     "A missing or negative moe_expert_capacity_factor means that no token is dropped, so there is no length to pad "
     "to.",
     "set moe_expert_capacity_factor, or turn moe_pad_expert_input_to_capacity off",
     "megatron/core/transformer/transformer_config.py:1862",
     [](const Derivation& d) -> Findings {
       if (!d.facts.on(detail::kPad) || d.facts.has(detail::kCapacity)) return {};
       return at(detail::kPad, "on").also(detail::kCapacity, "none");
     }},
    {"GTP336",
     "capacity-load-balancing",
     Severity::Error,
     Phase::Startup,
     {detail::kCapacity, "moe_router_load_balancing_type"_opt},
     "an expert capacity works only with auxiliary losses or without balancing",
     "Other ways of balancing choose experts themselves and know no dropped tokens. Upstream checks it even for a "
     "negative factor.",
     "use aux_loss, seq_aux_loss, global_aux_loss or none, or drop moe_expert_capacity_factor",
     "megatron/core/transformer/transformer_config.py:1839",
     [](const Derivation& d) { return detail::capacity_balancing(d.facts); }},
    {"GTP337",
     "rank-capacity-factor-backend",
     Severity::Error,
     Phase::Startup,
     {"moe_expert_rank_capacity_factor"_opt, detail::kBackend},
     "a capacity of whole ranks needs the hybridep or ncclep backend",
     "Only these receive into a buffer of fixed size; hybridep needs grouped tensors or the op fuser for it as well.",
     "change moe_flex_dispatcher_backend, or drop moe_expert_rank_capacity_factor",
     "megatron/core/transformer/transformer_config.py:1868",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.has("moe_expert_rank_capacity_factor"_opt)) return {};
       const bool hybrid = ask::is(f, detail::kBackend, "hybridep");
       return ask::also(ask::clashes({{!hybrid && !ask::is(f, detail::kBackend, "ncclep"), detail::kBackend,
                                       fmt::format("`{}`", ask::shown(f, detail::kBackend))},
                                      {hybrid && ask::off(f, detail::kOpFuser) && !f.on(detail::kGroupedTensor),
                                       detail::kOpFuser, "off"}}),
                        "moe_expert_rank_capacity_factor"_opt, "a capacity");
     }},
    {"GTP338",
     "dispatcher-num-sms-conflict",
     Severity::Error,
     Phase::Startup,
     {"moe_deepep_num_sms"_opt, "moe_hybridep_num_sms"_opt, "moe_flex_dispatcher_num_sms"_opt},
     "the two deprecated SM counts differ",
     "Both stand for moe_flex_dispatcher_num_sms, which wins where it is given.",
     "set moe_flex_dispatcher_num_sms alone",
     "megatron/core/transformer/transformer_config.py:1798",
     [](const Derivation& d) -> Findings {
       const auto deep = d.facts.integer("moe_deepep_num_sms"_opt),
                  hybrid = d.facts.integer("moe_hybridep_num_sms"_opt);
       if (d.facts.has("moe_flex_dispatcher_num_sms"_opt) || !deep || !hybrid || *deep == *hybrid) return {};
       return at("moe_hybridep_num_sms"_opt, fmt::format("{}", *hybrid))
           .also("moe_deepep_num_sms"_opt, fmt::format("{}", *deep));
     }},
    {"GTP339",
     "shared-expert-overlap",
     Severity::Error,
     Phase::Startup,
     {detail::kSharedSize, detail::kSharedOverlap, detail::kDispatcher},
     "overlapping shared experts needs the alltoall or flex dispatcher",
     "Shared experts run while tokens travel, in hooks that only these dispatchers have.",
     "change moe_token_dispatcher_type, or turn moe_shared_expert_overlap off",
     "megatron/core/transformer/transformer_config.py:1820",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.has(detail::kSharedSize) || !f.on(detail::kSharedOverlap) || !detail::dispatcher_gathers(f)) return {};
       return at(detail::kSharedOverlap, "on")
           .also(detail::kDispatcher, fmt::format("`{}`", ask::shown(f, detail::kDispatcher)));
     }},
    {"GTP340",
     "shared-overlap-latent",
     Severity::Error,
     Phase::FirstStep,
     {kNumExperts, detail::kSharedOverlap, detail::kSharedSize, "moe_latent_size"_opt},
     "overlapping shared experts does not work with a latent projection in training",
     "The forward pass refuses it: the shared experts would need the tokens before they are projected.",
     "turn moe_shared_expert_overlap off",
     "megatron/core/transformer/moe/moe_layer.py:477",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.has(kNumExperts) || !f.has(detail::kSharedSize) || !f.on(detail::kSharedOverlap)) return {};
       if (!ask::above(f, "moe_latent_size"_opt, 0)) return {};
       return at(detail::kSharedOverlap, "on").also("moe_latent_size"_opt, "a latent projection");
     }},
    {"GTP341",
     "fake-group-no-flex",
     Severity::Error,
     Phase::Startup,
     {"fake_process_group"_opt, detail::kDispatcher},
     "a fake process group does not work with the flex dispatcher",
     "The backends of the flex dispatcher talk to real peers.",
     "use the alltoall dispatcher",
     "megatron/training/arguments.py:1756",
     [](const Derivation& d) -> Findings {
       if (!d.facts.on("fake_process_group"_opt) || !ask::is(d.facts, detail::kDispatcher, "flex")) return {};
       return at(detail::kDispatcher, "flex").also("fake_process_group"_opt, "on");
     }},
    {"GTP342",
     "ep-overlap-requirements",
     Severity::Error,
     Phase::Startup,
     {detail::kOverlapEp},
     "overlapping the expert all-to-all does not work with this option",
     "Its schedule interleaves the forward pass of one microbatch with the backward pass of another, layer by layer: "
     "with expert parallelism, alltoall or flex dispatch, half precision, and interleaving when there are stages; "
     "without recomputed layers, overlapped shared experts or more than one MTP layer.",
     "change what is marked, or turn overlap_moe_expert_parallel_comm off",
     "megatron/core/transformer/transformer_config.py:3002",
     [](const Derivation& d) { return detail::ep_overlap_limits(d.facts); }},
    {"GTP343",
     "delay-wgrad-needs-ep-overlap",
     Severity::Error,
     Phase::Startup,
     {detail::kDelayWgrad},
     "delaying weight gradients needs the overlapped expert all-to-all of TransformerEngine layers",
     "The all-to-all overlap is the only schedule that runs weight gradients on their own.",
     "turn overlap_moe_expert_parallel_comm on, or delay_wgrad_compute off",
     "megatron/core/transformer/transformer_config.py:3074",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.on(detail::kDelayWgrad)) return {};
       return ask::also(ask::clashes({{ask::is_other(f, detail::kImpl, "transformer_engine"), detail::kImpl,
                                       "not transformer_engine"},
                                      {ask::off(f, detail::kOverlapEp), detail::kOverlapEp, "off"}}),
                        detail::kDelayWgrad, "on");
     }},
    {"GTP344",
     "overlap-dispatch-bwd",
     Severity::Error,
     Phase::Startup,
     {"overlap_dispatch_backward_with_experts_wgrad"_opt},
     "overlapping the backward dispatch with expert weight gradients excludes the other overlaps",
     "It is another way to hide the same all-to-all, and needs TransformerEngine 2.3.0.",
     "keep one of the overlaps",
     "megatron/core/transformer/transformer_config.py:3084",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.on("overlap_dispatch_backward_with_experts_wgrad"_opt)) return {};
       return ask::also(ask::clashes({{f.on(detail::kOverlapEp), detail::kOverlapEp, "on"},
                                      {te_older_than(f, "2.3.0"), "te_version"_opt, "older than 2.3.0"},
                                      {f.on(detail::kDelayWgrad), detail::kDelayWgrad, "on"}}),
                        "overlap_dispatch_backward_with_experts_wgrad"_opt, "on");
     }},
    {"GTP345",
     "ep-early-release",
     Severity::Error,
     Phase::Startup,
     {"ep_overlap_early_attn_memory_release"_opt, detail::kOverlapEp},
     "early release of attention memory needs the overlapped expert all-to-all",
     "It reorders the steps of that overlap.",
     "turn overlap_moe_expert_parallel_comm on, or this option off",
     "megatron/core/transformer/transformer_config.py:3097",
     [](const Derivation& d) {
       return ask::on_without(d.facts, "ep_overlap_early_attn_memory_release"_opt, detail::kOverlapEp);
     }},
};

}  // namespace gtp::rules
