// 02x: the ranks, the two grids they form, and what divides them.
#pragma once

#include <algorithm>

#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/names.hpp>
#include <gtp/rules/weight_shards.hpp>

namespace gtp::rules {

namespace detail {

/// A product, or how to say that it does not fit.
inline std::string product_text(std::initializer_list<std::int64_t> factors) {
  const auto product = checked_product(factors);
  return product ? fmt::format("{}", *product) : "a product beyond 64 bits";
}

/// The nearest world sizes that a grid divides, as advice.
inline std::string nearest_worlds(std::int64_t world, std::initializer_list<std::int64_t> factors) {
  const auto grid = checked_product(factors);
  if (!grid) return "lower the parallel sizes";
  const std::int64_t below = world / *grid * *grid;
  const auto above = checked_add(below, *grid);
  if (below > 0 && above) return fmt::format("use {} or {} ranks, or lower a parallel size", below, *above);
  return fmt::format("use a multiple of {} ranks, or lower a parallel size", *grid);
}

/// Replicas x CP: what optimizer instances and hybrid context parallelism cut. Nothing beyond 64 bits, which no valid
/// topology reaches.
inline std::int64_t dp_cp(const Facts& f) { return checked_multiply(f[kDp], f[kCp]).value_or(0); }

inline Findings instances_divide(const Facts& f, std::int64_t size, std::string_view what) {
  if (divides(f[kInstances], size)) return {};
  return at(kInstances, fmt::format("{} does not divide {} = {}", f[kInstances], what, size));
}

inline Findings fsdp2_conflict(const Facts& f) {
  const auto fsdp2 = "use_torch_fsdp2"_opt;
  if (!f.on(fsdp2)) return {};
  Findings findings;
  const auto conflict = [&](OptionId option, std::string text) {
    findings.list.push_back(at(option, std::move(text)).also(fsdp2, "FSDP2 is on"));
  };
  if (f[kPp] != 1) conflict(kPp, "pipeline parallelism");
  if (f[kEp] != 1) conflict(kEp, "expert parallelism");
  const auto must_be_off = [&](OptionId option) {
    if (f.on(option)) conflict(option, f.config().given(option) == nullptr ? "on by default" : "on");
  };
  // Before upstream changes it: Megatron-FSDP turns it on, the layer-wise optimizer takes its place.
  if (const Value* sharded = f.original("use_distributed_optimizer"_opt); sharded != nullptr && *sharded == Value(true))
    conflict("use_distributed_optimizer"_opt, "on");
  must_be_off("gradient_accumulation_fusion"_opt);
  must_be_off("fp16"_opt);
  if (const auto format = f.text("ckpt_format"_opt); format && *format != "torch_dist" && *format != "torch_dcp")
    conflict("ckpt_format"_opt, fmt::format("{} is neither torch_dist nor torch_dcp", *format));
  const auto untie = "untie_embeddings_and_output_weights"_opt;
  if (f.known(untie) && !f.on(untie)) conflict(untie, "tied embeddings");
  return findings;
}

}  // namespace detail

inline constexpr Rule kWorldSizes[] = {
    {"GTP021",
     "world-divisible-by-dense-grid",
     Severity::Error,
     Phase::Startup,
     {kWorldSize, kTp, kPp, kCp, kGtpRemat},
     "the world size must be a multiple of TP x PP x CP x GTP_remat",
     "One dense replica takes TP x PP x CP x GTP_remat ranks, and the world holds a whole number of replicas.",
     "change the world size or a parallel size",
     "megatron/training/arguments.py:432",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (f.has(kDp)) return {};
       return at(kWorldSize, fmt::format("{} is not a multiple of {}", f[kWorldSize],
                                         detail::product_text({f[kTp], f[kPp], f[kCp], f[kGtpRemat]})))
           .note(fmt::format("TP {} x PP {} x CP {} x GTP_remat {}", f[kTp], f[kPp], f[kCp], f[kGtpRemat]))
           .mend(detail::nearest_worlds(f[kWorldSize], {f[kTp], f[kPp], f[kCp], f[kGtpRemat]}));
     }},
    {"GTP022",
     "world-divisible-by-expert-grid",
     Severity::Error,
     Phase::Startup,
     {kWorldSize, kEtp, kEp, kPp, kEgtpRemat},
     "the world size must be a multiple of ETP x EP x PP x EGTP_remat",
     "The expert grid factors the same ranks in its own way: context parallelism is part of expert data parallelism, "
     "and an unset expert_tensor_parallel_size takes the tensor-parallel size.",
     "change the world size or an expert size",
     "megatron/core/parallel_state.py:881",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (f.has(kEdp)) return {};
       Finding finding =
           at(kWorldSize, fmt::format("{} is not a multiple of {}", f[kWorldSize],
                                      detail::product_text({f[kEtp], f[kEp], f[kPp], f[kEgtpRemat]})))
               .note(fmt::format("ETP {} x EP {} x PP {} x EGTP_remat {}", f[kEtp], f[kEp], f[kPp], f[kEgtpRemat]))
               .mend(detail::nearest_worlds(f[kWorldSize], {f[kEtp], f[kEp], f[kPp], f[kEgtpRemat]}));
       if (f.config().given(kEtp) == nullptr && f[kEtp] != 1)
         finding.notes.push_back(fmt::format("expert_tensor_parallel_size is unset and takes TP {}", f[kEtp]));
       return finding;
     }},
    {"GTP023",
     "gtp-single-distopt-instance",
     Severity::Error,
     Phase::Startup,
     {kGtpRemat, kEgtpRemat, kInstances},
     "GTP needs a single distributed-optimizer instance",
     "Sharding the optimizer over part of the data ranks is not aware of the remat axis.",
     "set num_distributed_optimizer_instances to 1",
     "megatron/core/parallel_state.py:808",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::any_gtp_on(f) || f[kInstances] <= 1) return {};
       return at(kInstances, fmt::format("{} instances", f[kInstances]))
           .also(detail::shards_that_are_on(f), "GTP is on")
           .fix(kInstances, std::int64_t{1});
     }},
    {"GTP024",
     "distopt-instances-divide-dp-cp",
     Severity::Error,
     Phase::Startup,
     {kInstances, kDp, kCp},
     "optimizer instances must divide DP x CP",
     "Each optimizer instance owns an equal slice of the DP x CP group.",
     "use a divisor of DP x CP",
     "megatron/core/parallel_state.py:922",
     [](const Derivation& d) { return detail::instances_divide(d.facts, detail::dp_cp(d.facts), "DP x CP"); }},
    {"GTP025",
     "distopt-instances-divide-edp",
     Severity::Error,
     Phase::Startup,
     {kInstances, kEdp},
     "optimizer instances must divide the expert data-parallel size",
     "Expert data-parallel groups are cut by the same factor; upstream checks it for dense models too.",
     "use a divisor of the expert data-parallel size",
     "megatron/core/parallel_state.py:1447",
     [](const Derivation& d) { return detail::instances_divide(d.facts, d.facts[kEdp], "expert DP"); }},
    {"GTP026",
     "sharp-group-needs-use-sharp",
     Severity::Error,
     Phase::Startup,
     {"sharp_enabled_group"_opt, "use_sharp"_opt},
     "sharp_enabled_group needs use_sharp",
     "The choice of the group means nothing while SHARP is off.",
     "set use_sharp, or drop sharp_enabled_group",
     "megatron/core/parallel_state.py:789",
     [](const Derivation& d) -> Findings {
       if (!d.facts.has("sharp_enabled_group"_opt) || d.facts.on("use_sharp"_opt)) return {};
       return at("sharp_enabled_group"_opt, "given").also("use_sharp"_opt, "off");
     }},
    {"GTP027",
     "sharp-replica-needs-instances",
     Severity::Error,
     Phase::Startup,
     {"sharp_enabled_group"_opt, "use_sharp"_opt, kInstances},
     "SHARP on the dp_replica group needs several distributed-optimizer instances",
     "The replica communicator exists only with more than one instance.",
     "raise num_distributed_optimizer_instances, or use group dp",
     "megatron/core/parallel_state.py:785",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto group = "sharp_enabled_group"_opt;
       if (!f.on("use_sharp"_opt) || f.text(group) != "dp_replica" || f[kInstances] > 1) return {};
       return at(group, "dp_replica").also(kInstances, fmt::format("{} instance", f[kInstances]));
     }},
    {"GTP028",
     "sharp-dp-barrier-before-group",
     Severity::Error,
     Phase::Startup,
     {"sharp_enabled_group"_opt, "use_sharp"_opt},
     "SHARP on the dp group does not start in this version",
     "The warm-up barrier asks for the remat-inclusive DP x CP group before it is made, with or without GTP.",
     "turn use_sharp off, or use group dp_replica",
     "megatron/core/parallel_state.py:1031",
     [](const Derivation& d) -> Findings {
       const auto group = "sharp_enabled_group"_opt;
       if (!d.facts.on("use_sharp"_opt) || d.facts.text(group).value_or("dp") != "dp") return {};
       return at("use_sharp"_opt, d.facts.has(group) ? "on, for group dp" : "on, for group dp by default");
     }},
    {"GTP029",
     "hybrid-cp-even-group",
     Severity::Error,
     Phase::Startup,
     {"hybrid_context_parallel"_opt, kDp, kCp},
     "hybrid context parallelism needs an even DP x CP",
     "Sub-groups of powers of two are cut from each DP x CP group.",
     "make DP x CP a power of two",
     "megatron/core/parallel_state.py:1043",
     [](const Derivation& d) -> Findings {
       const auto hybrid = "hybrid_context_parallel"_opt;
       if (!d.facts.on(hybrid) || detail::dp_cp(d.facts) % 2 == 0) return {};
       return at(hybrid, fmt::format("DP x CP is {}", detail::dp_cp(d.facts))).also(kCp, "context-parallel size");
     }},
    {"GTP030",
     "hybrid-cp-power-of-two-subgroups",
     Severity::Warning,
     Phase::Silent,
     {"hybrid_context_parallel"_opt, kDp, kCp},
     "hybrid context parallelism cuts uneven sub-groups from this DP x CP",
     "Slices of 2, 4, ... ranks are taken without a check, so the last one can be smaller than its size says.",
     "make DP x CP a power of two",
     "megatron/core/parallel_state.py:450",
     [](const Derivation& d) -> Findings {
       const auto hybrid = "hybrid_context_parallel"_opt;
       const std::int64_t size = detail::dp_cp(d.facts);
       if (!d.facts.on(hybrid) || size % 2 != 0 || (size & (size - 1)) == 0) return {};
       return at(hybrid, fmt::format("DP x CP is {}", size)).also(kCp, "context-parallel size");
     }},
    {"GTP031",
     "cp-a2a-p2p-needs-hierarchy",
     Severity::Error,
     Phase::Startup,
     {"hierarchical_context_parallel_sizes"_opt, kCp},
     "the levels of context parallelism must multiply to its size",
     "The levels factor the context-parallel group exactly (hierarchical-cp-product), and a2a+p2p cannot do without "
     "them. Upstream checks both together, also when the context-parallel size is 1.",
     "set hierarchical_context_parallel_sizes to two sizes whose product is context_parallel_size, or leave it out",
     "megatron/training/arguments.py:580",
     [](const Derivation& d) -> Findings {
       const auto option = "hierarchical_context_parallel_sizes"_opt, comm = "cp_comm_type"_opt;
       const auto* levels = std::get_if<IntList>(d.facts.find(option));
       if (levels == nullptr) {
         const Value* words = d.facts.original(comm);
         const auto* types = words == nullptr ? nullptr : std::get_if<StringList>(words);
         if (types == nullptr || std::find(types->begin(), types->end(), "a2a+p2p") == types->end()) return {};
         return at(comm, "a2a+p2p").also(option, "not set");
       }
       const auto product = checked_product(std::span<const std::int64_t>(*levels));
       if (levels->empty() || product == d.facts[kCp]) return {};
       return at(option,
                 fmt::format("{} is not {}", product ? fmt::format("{}", *product) : "the product", d.facts[kCp]))
           .also(kCp, "context-parallel size");
     }},
    {"GTP032",
     "seed-positive",
     Severity::Error,
     Phase::Startup,
     {"seed"_opt},
     "the seed must be positive",
     "Upstream seeds the ranks from it and refuses zero and negative numbers.",
     "use a seed of 1 or more",
     "megatron/training/initialize.py:445",
     [](const Derivation& d) -> Findings {
       const auto seed = d.facts.integer("seed"_opt);
       if (seed && *seed > 0) return {};
       return at("seed"_opt, seed ? fmt::format("{} is not positive", *seed) : "None");
     }},
    {"GTP033",
     "fsdp2-parallelism-limits",
     Severity::Error,
     Phase::Startup,
     {"use_torch_fsdp2"_opt, kPp, kEp},
     "torch FSDP2 does not work with this option",
     "The FSDP2 path supports data and tensor parallel training only: no pipeline or expert parallelism, no "
     "distributed optimizer, no fused gradient accumulation, no tied embeddings, no fp16, and the checkpoint formats "
     "torch_dist and torch_dcp.",
     "turn the option off, or FSDP2",
     "megatron/training/arguments.py:1031",
     [](const Derivation& d) { return detail::fsdp2_conflict(d.facts); }},
    {"GTP036",
     "local-ranks-exceed-visible-gpus",
     Severity::Error,
     Phase::Startup,
     {"gpus_per_node"_opt, "visible_gpus_per_node"_opt},
     "more ranks on a host than GPUs they see",
     "Each rank takes the GPU of its local number. With fewer visible ones the rank fails, or two share a GPU and NCCL "
     "refuses them.",
     "show every GPU of the job (CUDA_VISIBLE_DEVICES), or start fewer ranks on a host",
     "megatron/training/initialize.py:288",
     [](const Derivation& d) -> Findings {
       const auto ranks = "gpus_per_node"_opt, visible = "visible_gpus_per_node"_opt;
       const Facts& f = d.facts;
       const std::int64_t local = std::min(f[ranks], f.integer(kWorldSize).value_or(f[ranks]));
       if (local <= f[visible]) return {};
       return at(visible, fmt::format("{} GPUs for {} ranks", f[visible], local)).also(ranks, "ranks on a host");
     }},
};

}  // namespace gtp::rules
