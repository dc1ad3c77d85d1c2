// 80x-81x: what may be saved how. What a checkpoint can be loaded under is in resume.hpp.
#pragma once

#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/unsaid.hpp>
#include <gtp/rules/weight_shards.hpp>

namespace gtp::rules {

inline constexpr OptionId kReshardable = "dist_ckpt_optim_fully_reshardable"_opt,
                          kMemEfficient = "distrib_optim_fully_reshardable_mem_efficient"_opt,
                          kNonPersistent = "non_persistent_ckpt_type"_opt;

namespace detail {

inline bool gtp_known_on(const Facts& f) {
  return f.integer(kGtpRemat).value_or(1) > 1 || f.integer(kEgtpRemat).value_or(1) > 1;
}

inline Findings save_interval_problems(const Facts& f) {
  if (!f.has(kSave)) return {};
  const auto interval = f.integer("save_interval"_opt);
  if (!interval) return at(kSave, "without save_interval");
  if (*interval > 0) return {};
  return at("save_interval"_opt, fmt::format("{} is not positive", *interval));
}

inline Findings retain_problems(const Facts& f) {
  const auto interval = f.integer("save_interval"_opt), retain = f.integer("save_retain_interval"_opt);
  if (!f.has(kSave) || !retain || !interval || *interval < 1) return {};
  if (*retain > 0 && *retain % *interval == 0) return {};
  return at("save_retain_interval"_opt, fmt::format("{} is no positive multiple of {}", *retain, *interval))
      .also("save_interval"_opt, "saves");
}

/// torch_dcp is for FSDP2. A pipeline under FSDP2 is refused before (GTP033), and GTP refuses the format (GTP808).
inline Findings torch_dcp_problems(const Facts& f) {
  if (f.text(kSaveFormat) != "torch_dcp" || gtp_known_on(f)) return {};
  if (off_or_unsaid(f, kUsesFsdp2))
    return at(kSaveFormat, "torch_dcp without FSDP2").also(kUsesFsdp2, std::string(off_text(f, kUsesFsdp2)));
  if (f.integer(kTp).value_or(1) > 1) return at(kSaveFormat, "torch_dcp").also(kTp, "tensor parallelism");
  return {};
}

/// Whether optimizer state is written or read at all.
inline bool optimizer_state_moves(const Facts& f) {
  const bool saves = f.has(kSave) && !f.on("no_save_optim"_opt);
  const bool loads = f.has(kLoad) && !f.on("no_load_optim"_opt) && !f.on("finetune"_opt);
  return saves || loads;
}

}  // namespace detail

inline constexpr Rule kCheckpoints[] = {
    {"GTP801",
     "save-needs-interval",
     Severity::Error,
     Phase::Startup,
     {kSave, "save_interval"_opt},
     "saving needs a positive interval",
     "Without save_interval upstream does not know when to save.",
     "set save_interval to 1 or more",
     "megatron/training/arguments.py:1361",
     [](const Derivation& d) { return detail::save_interval_problems(d.facts); }},
    {"GTP802",
     "save-retain-multiple",
     Severity::Error,
     Phase::Startup,
     {kSave, "save_interval"_opt, "save_retain_interval"_opt},
     "retained checkpoints must be among the saved ones",
     "save_retain_interval says which of the saved checkpoints stay.",
     "use a positive multiple of save_interval",
     "megatron/training/arguments.py:1364",
     [](const Derivation& d) { return detail::retain_problems(d.facts); }},
    {"GTP803",
     "ckpt-convert-args",
     Severity::Error,
     Phase::Startup,
     {"ckpt_convert_format"_opt, "ckpt_convert_save"_opt, kLoad},
     "a conversion needs a checkpoint to read and a folder to write",
     "Upstream loads the one and writes the other in the new format.",
     "set load and ckpt_convert_save",
     "megatron/training/arguments.py:392",
     [](const Derivation& d) -> Findings {
       const auto format = "ckpt_convert_format"_opt;
       if (!d.facts.has(format)) return {};
       for (const OptionId needed : {"ckpt_convert_save"_opt, kLoad})
         if (!d.facts.has(needed)) return at(format, fmt::format("without {}", name_of(needed)));
       return {};
     }},
    {"GTP804",
     "non-persistent-type",
     Severity::Error,
     Phase::Startup,
     {kNonPersistent, "non_persistent_local_ckpt_dir"_opt},
     "this short-lived checkpoint cannot be made",
     "Checkpoints in memory are not implemented, and local ones need a folder on each node (and the package "
     "nvidia-resiliency-ext).",
     "use `global`, or `local` with non_persistent_local_ckpt_dir",
     "megatron/training/arguments.py:398",
     [](const Derivation& d) -> Findings {
       const auto type = d.facts.text(kNonPersistent);
       if (type == "in_memory") return at(kNonPersistent, "not implemented");
       if (type != "local" || d.facts.has("non_persistent_local_ckpt_dir"_opt)) return {};
       return at(kNonPersistent, "local without non_persistent_local_ckpt_dir");
     }},
    {"GTP805",
     "replication-requirements",
     Severity::Error,
     Phase::Startup,
     {"replication"_opt, "replication_jump"_opt, kNonPersistent},
     "only local checkpoints are replicated, and the jump says where to",
     "Copies of a rank's local checkpoint go to the ranks replication_jump apart.",
     "set replication_jump and non_persistent_ckpt_type local, or drop replication",
     "megatron/training/arguments.py:1895",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.on("replication"_opt)) return {};
       if (!f.has("replication_jump"_opt)) return at("replication"_opt, "without replication_jump");
       if (f.text(kNonPersistent) == "local") return {};
       return at("replication"_opt, "on").also(kNonPersistent, f.has(kNonPersistent) ? "not local" : "unset");
     }},
    {"GTP806",
     "torch-dcp-limits",
     Severity::Error,
     Phase::Startup,
     {kSaveFormat},
     "the checkpoint format torch_dcp is for torch FSDP2 without tensor or pipeline parallelism",
     "Upstream tests it with nothing else, and refuses the rest.",
     "use torch_dist",
     "megatron/training/arguments.py:1667",
     [](const Derivation& d) { return detail::torch_dcp_problems(d.facts); }},
    {"GTP807",
     "fsdp-dtensor-limits",
     Severity::Error,
     Phase::Startup,
     {kSaveFormat},
     "the checkpoint format fsdp_dtensor is for Megatron-FSDP",
     "It stores the shards of Megatron-FSDP.",
     "use torch_dist, or turn use_megatron_fsdp on",
     "megatron/training/arguments.py:1675",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (f.text(kSaveFormat) != "fsdp_dtensor" || detail::gtp_known_on(f) ||
           !detail::off_or_unsaid(f, kUsesMegatronFsdp))
         return {};
       return at(kSaveFormat, "fsdp_dtensor")
           .also(kUsesMegatronFsdp, std::string(detail::off_text(f, kUsesMegatronFsdp)));
     }},
    {"GTP808",
     "gtp-ckpt-format",
     Severity::Error,
     Phase::Startup,
     {kGtpRemat, kEgtpRemat, kSaveFormat},
     "GTP takes only the checkpoint formats torch_dist and torch",
     "Other formats do not know the remat axis.",
     "use torch_dist",
     "megatron/training/arguments.py:1558",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const std::string_view format = f.text(kSaveFormat).value_or("torch_dist");
       if (!detail::any_gtp_on(f) || format == "torch" || format == "torch_dist" || f.on(kUsesMegatronFsdp)) return {};
       return at(kSaveFormat, std::string(format)).also(detail::shards_that_are_on(f), "GTP is on");
     }},
    {"GTP809",
     "gtp-ckpt-mem-efficient",
     Severity::Error,
     Phase::Startup,
     {kGtpRemat, kEgtpRemat, kReshardable, kMemEfficient},
     "GTP does not know the memory-efficient reshardable optimizer state",
     "That mode collects state through Gloo groups, which GTP does not create.",
     "turn distrib_optim_fully_reshardable_mem_efficient off",
     "megatron/training/arguments.py:1562",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::any_gtp_on(f) || !f.on(kReshardable) || !f.on(kMemEfficient)) return {};
       return at(kMemEfficient, "on").also(detail::shards_that_are_on(f), "GTP is on");
     }},
    {"GTP810",
     "gtp-legacy-torch-loses-shards",
     Severity::Warning,
     Phase::Silent,
     {kGtpRemat, kEgtpRemat, kSaveFormat},
     "the legacy checkpoint format loses GTP shards",
     "Its file names hold TP, PP and EP ranks only, so all ranks of a remat group write one file and read the same "
     "shard back. The argument checks allow it.",
     "use torch_dist",
     "megatron/training/checkpointing.py:266",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::any_gtp_on(f) || f.text(kSaveFormat) != "torch") return {};
       if (detail::distributed_optimizer(f) && detail::optimizer_state_moves(f)) return {};  // GTP811
       return at(kSaveFormat, "torch")
           .also(detail::shards_that_are_on(f), "GTP is on")
           .fix(kSaveFormat, std::string("torch_dist"));
     }},
    {"GTP811",
     "gtp-legacy-torch-distopt",
     Severity::Error,
     Phase::Later,
     {kGtpRemat, kEgtpRemat, kSaveFormat, kDistOpt},
     "the legacy format cannot collect the distributed optimizer under GTP",
     "It collects optimizer state through a Gloo group, which GTP does not create; weights of a remat group would also "
     "overwrite each other.",
     "use torch_dist",
     "megatron/core/optimizer/distrib_optimizer.py:1299",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::any_gtp_on(f) || f.text(kSaveFormat) != "torch" || !detail::distributed_optimizer(f) ||
           !detail::optimizer_state_moves(f))
         return {};
       return at(kSaveFormat, "torch")
           .also(detail::shards_that_are_on(f), "GTP is on")
           .fix(kSaveFormat, std::string("torch_dist"));
     }},
    {"GTP812",
     "gtp-fully-reshardable-broken",
     Severity::Warning,
     Phase::Later,
     {kGtpRemat, kEgtpRemat, kReshardable, kDistOpt},
     "reshardable optimizer state is reported broken under GTP in this version",
     "Argument checks accept it, but saving and loading fail for native FP8 weights and fused input projections (PR "
     "7162, open).",
     "turn dist_ckpt_optim_fully_reshardable off, and keep the parallel sizes across a resume",
     "megatron/training/arguments.py:1562",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::any_gtp_on(f) || !f.on(kReshardable) || f.on(kMemEfficient) || !detail::distributed_optimizer(f))
         return {};
       return at(kReshardable, "on").also(detail::shards_that_are_on(f), "GTP is on");
     }},
    {"GTP813",
     "no-parallel-save-warn",
     Severity::Warning,
     Phase::Later,
     {"ckpt_fully_parallel_save"_opt, kSaveFormat, kDistOpt},
     "this checkpoint can be resumed only under the same parallelism",
     "Without the parallel save the distributed optimizer is stored in the form of this run's ranks.",
     "leave ckpt_fully_parallel_save on",
     "megatron/training/arguments.py:1769",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto parallel = "ckpt_fully_parallel_save"_opt;
       if (f.on(parallel) || f.text(kSaveFormat) == "torch" || !detail::distributed_optimizer(f)) return {};
       return at(parallel, "off").also(kDistOpt, "on");
     }},
    {"GTP814",
     "local-ckpt-sharding",
     Severity::Error,
     Phase::Later,
     {kNonPersistent, kReshardable, kDistOpt},
     "local checkpoints cannot hold reshardable optimizer state",
     "A local checkpoint belongs to its rank; a reshardable one to all.",
     "turn dist_ckpt_optim_fully_reshardable off",
     "megatron/training/checkpointing.py:983",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (f.text(kNonPersistent) != "local" || !f.on(kReshardable) || !detail::distributed_optimizer(f)) return {};
       return at(kReshardable, "on").also(kNonPersistent, "local");
     }},
    {"GTP815",
     "pg-cache-same-groups",
     Severity::Error,
     Phase::Startup,
     {"ckpt_pg_tensors_cache_path"_opt, "ckpt_fully_parallel_save_process_group"_opt,
      "ckpt_fully_parallel_load_process_group"_opt},
     "a cached distribution needs the same groups for saving and loading",
     "The cache has one file a group for both, so one side would read what was computed for the other's layout.",
     "use the same group for both",
     "megatron/training/arguments.py:1797",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto save = "ckpt_fully_parallel_save_process_group"_opt,
                  load = "ckpt_fully_parallel_load_process_group"_opt;
       if (!f.has("ckpt_pg_tensors_cache_path"_opt) || f.text(save) == f.text(load)) return {};
       return at(load, std::string(f.text(load).value_or("None")))
           .also(save, std::string(f.text(save).value_or("None")));
     },
     Version::kd98e8a64},
    {"GTP816",
     "load-main-params",
     Severity::Error,
     Phase::Startup,
     {"load_main_params_from_ckpt"_opt, "no_load_optim"_opt},
     "main weights come from the checkpoint's weights or from its optimizer state",
     "load_main_params_from_ckpt fills them from the weights; loading the optimizer would fill them again.",
     "set no_load_optim, or drop load_main_params_from_ckpt",
     "megatron/training/arguments.py:1811",
     [](const Derivation& d) -> Findings {
       const auto main = "load_main_params_from_ckpt"_opt, none = "no_load_optim"_opt;
       const bool skips = detail::originally_on(d.facts, none);
       if (!d.facts.on(main) || skips) return {};
       return at(main, "on").also(none, "unset");
     }},
    {"GTP817",
     "async-legacy",
     Severity::Error,
     Phase::Later,
     {"async_save"_opt, kSaveFormat},
     "the legacy format cannot be saved in the background",
     "Background saves are implemented for distributed formats.",
     "use torch_dist, or turn async_save off",
     "megatron/training/checkpointing.py:765",
     [](const Derivation& d) -> Findings {
       if (!d.facts.on("async_save"_opt) || d.facts.text(kSaveFormat) != "torch") return {};
       return at("async_save"_opt, "on").also(kSaveFormat, "torch");
     }},
    {"GTP818",
     "verify-integrity",
     Severity::Error,
     Phase::FirstStep,
     {"verify_integrity"_opt, kSaveFormat},
     "only torch_dist checkpoints are verified",
     "Hashes are stored beside its files.",
     "use torch_dist, or turn verify_integrity off",
     "megatron/training/config/training_config.py:670",
     [](const Derivation& d) -> Findings {
       if (!d.facts.on("verify_integrity"_opt) || d.facts.text(kSaveFormat) == "torch_dist") return {};
       return at("verify_integrity"_opt, "on")
           .also(kSaveFormat, std::string(d.facts.text(kSaveFormat).value_or("None")));
     }},
    {"GTP820",
     "parallel-load-exchange-algo",
     Severity::Warning,
     Phase::Silent,
     {"ckpt_fully_parallel_load"_opt, "ckpt_fully_parallel_load_exchange_algo"_opt, kSaveFormat},
     "only the exchange by broadcast is stable",
     "Upstream warns that the other algorithms may not return the bits that were read.",
     "use broadcast",
     "megatron/training/arguments.py:1784",
     [](const Derivation& d) -> Findings {
       const auto exchange = "ckpt_fully_parallel_load_exchange_algo"_opt;
       if (!d.facts.on("ckpt_fully_parallel_load"_opt) || d.facts.text(kSaveFormat) == "torch" ||
           d.facts.text(exchange).value_or("broadcast") == "broadcast")
         return {};
       return at(exchange, std::string(*d.facts.text(exchange))).fix(exchange, std::string("broadcast"));
     }},
    {"GTP821",
     "deprecated-checkpoint-flags",
     Severity::Note,
     Phase::Silent,
     {},
     "this option has no effect",
     "ckpt_format selects the format, and parallel saving is the default.",
     "drop the option",
     "megatron/training/arguments.py:1766",
     [](const Derivation& d) {
       Findings findings;
       for (const OptionId option : {"ckpt_fully_parallel_save_deprecated"_opt, "use_dist_ckpt_deprecated"_opt,
                                     "dist_ckpt_format_deprecated"_opt}) {
         const Setting* given = d.facts.config().given(option);
         if (given != nullptr && !is_none(given->value) && given->value != Value(false))
           findings.list.push_back(at(option, "deprecated"));
       }
       return findings;
     }},
};

}  // namespace gtp::rules
