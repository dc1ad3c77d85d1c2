// 05x: what GTP does while it runs, as far as options decide it: prefetch chains, symmetric memory.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <gtp/changes/cuda_graphs.hpp>
#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/names.hpp>
#include <gtp/rules/weight_shards.hpp>

namespace gtp::rules {

namespace detail {

inline constexpr OptionId kDenseSymmetric = "gtp_remat_nccl_ub"_opt, kExpertSymmetric = "gtp_expert_remat_nccl_ub"_opt;

/// Symmetric memory is used on some group of more than one rank; the option that asks for it.
inline std::optional<OptionId> symmetric_option(const Facts& f) {
  if (gtp_on(f) && f.on(kDenseSymmetric)) return kDenseSymmetric;
  if (egtp_on(f) && f.on(kExpertSymmetric)) return kExpertSymmetric;
  return std::nullopt;
}

}  // namespace detail

inline constexpr Rule kGtpRuntime[] = {
    {"GTP051",
     "gtp-multi-use-weights",
     Severity::Warning,
     Phase::Silent,
     {kGtpRemat, "mtp_num_layers"_opt},
     "weights that a step uses twice are prefetched once",
     "The chain of prefetches holds each weight once a step. Layers of multi-token prediction use the embedding and "
     "the output layer again, and those uses wait for a gather of their own.",
     "measure it, and expect some gathers not to overlap",
     "docs/api-guide/core/generalized_tensor_parallel.md:636",
     [](const Derivation& d) -> Findings {
       const auto mtp = "mtp_num_layers"_opt;
       if (!detail::gtp_on(d.facts) || d.facts.integer(mtp).value_or(0) < 1) return {};
       return at(mtp, fmt::format("{}", d.facts[mtp])).also(kShards, "GTP is on");
     }},
    {"GTP052",
     "gtp-overlap-param-gather-order",
     Severity::Warning,
     Phase::Silent,
     {kGtpRemat, kEgtpRemat, "overlap_param_gather"_opt, kGraphImpl},
     "captured GTP gathers do not wait for the parameters of the optimizer",
     "With overlap_param_gather a prefetch may reach a weight before its updated values have arrived. Eager runs "
     "wait for them; a captured gather cannot, because no collective may start during a capture.",
     "turn overlap_param_gather off, or compare losses of both settings first",
     "docs/api-guide/core/generalized_tensor_parallel.md:543",
     [](const Derivation& d) -> Findings {
       const auto overlap = "overlap_param_gather"_opt;
       if (!detail::any_gtp_on(d.facts) || !d.facts.on(overlap) || d.facts.text(kGraphImpl) == "none") return {};
       return at(overlap, "on")
           .also(kGraphImpl, std::string(*d.facts.text(kGraphImpl)))
           .also(detail::shards_that_are_on(d.facts), "GTP is on");
     }},
    {"GTP053",
     "gtp-symm-slot-reuse",
     Severity::Warning,
     Phase::FirstStep,
     {kGtpRemat, kEgtpRemat, detail::kDenseSymmetric, detail::kExpertSymmetric, "delay_wgrad_compute"_opt},
     "delayed weight gradients may ask for a symmetric buffer that is still in use",
     "Each weight has one symmetric send buffer, which its reduce-scatter must free before the next gradient. A "
     "schedule that puts the gradients off can come back earlier, and upstream then stops.",
     "turn delay_wgrad_compute off, or GTP's symmetric memory",
     "megatron/core/tensor_parallel/generalized_tensor_parallelism.py:1806",
     [](const Derivation& d) -> Findings {
       const auto delay = "delay_wgrad_compute"_opt;
       const auto symmetric = detail::symmetric_option(d.facts);
       if (!symmetric || !d.facts.on(delay)) return {};
       return at(delay, "on").also(*symmetric, "on");
     },
     Version::kd98e8a64},
    {"GTP054",
     "gtp-symm-pool-exhausted",
     Severity::Warning,
     Phase::FirstStep,
     {kGtpRemat, kEgtpRemat, detail::kDenseSymmetric, detail::kExpertSymmetric, kGraphImpl, kGraphWarmup},
     "without a warm-up a capture finds no symmetric buffers",
     "Buffers must not be allocated during a capture, so warm-up steps fill the pool. Upstream stops when it is empty.",
     "set cuda_graph_warmup_steps to 2 or more",
     "megatron/core/tensor_parallel/gtp_symmetric_memory.py:161",
     [](const Derivation& d) -> Findings {
       const auto symmetric = detail::symmetric_option(d.facts);
       const auto steps = d.facts.integer(kGraphWarmup);
       if (!symmetric || d.facts.text(kGraphImpl) == "none" || !steps || *steps > 0) return {};
       return at(kGraphWarmup, fmt::format("{}", *steps)).also(*symmetric, "on");
     },
     Version::kd98e8a64},
};

}  // namespace gtp::rules
