// 60x: variables of the job's environment, and the streams of its communicators.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include <gtp/assign.hpp>
#include <gtp/changes/cuda_graphs.hpp>
#include <gtp/changes/environment.hpp>
#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/names.hpp>
#include <gtp/rules/weight_shards.hpp>

namespace gtp::rules {

inline constexpr OptionId kEnv = "env"_opt, kArch = "gpu_arch"_opt,
                          kMoeOverlap = "overlap_moe_expert_parallel_comm"_opt;
inline constexpr std::string_view kConnections = "CUDA_DEVICE_MAX_CONNECTIONS";

namespace detail {

/// Whether the value has to be one of its own: a variable that the launcher fills in is neither right nor wrong.
inline bool filled_in_later(const Variable* variable) {
  return variable != nullptr && variable->value.find('$') != std::string::npos;
}

inline bool is_set_to(const Variable* variable, std::string_view value) {
  return variable != nullptr && variable->value == value;
}

/// Known not to have the value.
inline bool is_not(const Variable* variable, std::string_view value) {
  return !is_set_to(variable, value) && !filled_in_later(variable);
}

/// At the variable with its value; at the option that asks for it while the variable is not set.
inline Finding at_variable(std::string_view name, const Variable* variable, OptionId asks, std::string_view role) {
  if (variable == nullptr) return at(asks, fmt::format("{}, and {} is not set", role, name));
  Finding finding{
      .primary = {std::string(name_of(kEnv)), variable->place, fmt::format("{} is `{}`", name, variable->value)}};
  return std::move(finding).also(asks, std::string(role));
}

/// The size above 1 that asks pre-Blackwell GPUs for one queue, to point at.
inline OptionId tp_or_cp(const Facts& f) { return f[kTp] > 1 ? kTp : kCp; }

inline bool needs_one_queue(const Facts& f) { return (f[kTp] > 1 || f[kCp] > 1) && before_blackwell(f); }

inline bool fsdp_on(const Facts& f) { return f.on(kFsdp2) || f.on(kMegatronFsdp); }
inline OptionId fsdp_that_is_on(const Facts& f) { return f.on(kFsdp2) ? kFsdp2 : kMegatronFsdp; }

/// Start-up checks refuse every value of CUDA_DEVICE_MAX_CONNECTIONS but 1.
inline bool one_queue_is_checked(const Facts& f) { return needs_one_queue(f) && !fsdp_on(f) && !f.on(kMoeOverlap); }

inline Findings one_queue_refused(const Facts& f, OptionId option, bool on) {
  const Variable* variable = f.variable(kConnections);
  if (!on || !is_set_to(variable, "1")) return {};
  return at_variable(kConnections, variable, option, "needs several queues");
}

inline bool local_graphs_under_gtp(const Facts& f) { return gtp_on(f) && f.text(kGraphImpl) == "local"; }

/// Why a count of queues may be too small for GTP under captured graphs; empty when it is not.
inline std::string few_queues(const Variable* variable) {
  if (filled_in_later(variable)) return {};
  if (variable == nullptr) return "CUDA takes 8";
  const auto count = parse_int(variable->value).value;
  if (!count) return "not a number";
  return *count < 16 ? "below 16" : "";
}

inline constexpr std::array<std::string_view, 27> kGroupKeys{"gtp_remat",
                                                             "dp_cp",
                                                             "intra_dp_cp",
                                                             "dp",
                                                             "gtp_remat_dp",
                                                             "gtp_remat_dp_cp",
                                                             "cp",
                                                             "hcp",
                                                             "mp",
                                                             "tp",
                                                             "pp",
                                                             "embd",
                                                             "pos_embd",
                                                             "tp_dp_cp",
                                                             "tp_dp",
                                                             "tp_cp",
                                                             "expt_gtp_remat",
                                                             "ep",
                                                             "ep_tp",
                                                             "tp_ep_mp",
                                                             "tp_ep_pp",
                                                             "tp_ep_gtp_remat_pp",
                                                             "ep_dp",
                                                             "intra_ep_dp",
                                                             "inter_ep_dp",
                                                             "ep_gtp_remat_dp",
                                                             "intra_dist_opt_instance"};

}  // namespace detail

inline constexpr Rule kEnvironment[] = {
    {"GTP601",
     "cdmc-one-required",
     Severity::Error,
     Phase::Startup,
     {kTp, kCp, kArch, kFsdp2, kMegatronFsdp, kMoeOverlap, kEnv},
     "TP or CP before Blackwell needs CUDA_DEVICE_MAX_CONNECTIONS=1",
     "The overlap of communication with GEMMs relies on one hardware queue, in which kernels start in the order of "
     "their launch. Blackwell no longer needs it.",
     "set CUDA_DEVICE_MAX_CONNECTIONS=1 in the job's environment",
     "megatron/training/arguments.py:1477",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const Variable* variable = f.variable(kConnections);
       if (!detail::one_queue_is_checked(f) || !detail::is_not(variable, "1")) return {};
       const OptionId size = detail::tp_or_cp(f);
       return detail::at_variable(kConnections, variable, size, fmt::format("{}", f[size]));
     }},
    {"GTP602",
     "cdmc-fsdp-conflict-warn",
     Severity::Warning,
     Phase::Startup,
     {kTp, kCp, kArch, kFsdp2, kMegatronFsdp},
     "TP or CP and FSDP want opposite settings of CUDA_DEVICE_MAX_CONNECTIONS before Blackwell",
     "TP and CP overlap best with one hardware queue, FSDP needs several; FSDP's setting must be used.",
     "use one of the two, or accept less overlap",
     "megatron/training/arguments.py:1456",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::needs_one_queue(f) || !detail::fsdp_on(f)) return {};
       const OptionId size = detail::tp_or_cp(f);
       return at(detail::fsdp_that_is_on(f), "wants several queues").also(size, "wants one queue");
     }},
    {"GTP603",
     "cdmc-moe-overlap-conflict-warn",
     Severity::Warning,
     Phase::Startup,
     {kTp, kCp, kArch, kFsdp2, kMegatronFsdp, kMoeOverlap},
     "TP or CP and expert-parallel overlap want opposite settings of CUDA_DEVICE_MAX_CONNECTIONS before Blackwell",
     "TP and CP overlap best with one hardware queue, the all-to-all overlap with many. Upstream accepts both.",
     "set CUDA_DEVICE_MAX_CONNECTIONS to 1 or 32, whichever overlap matters more",
     "megatron/training/arguments.py:1466",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::needs_one_queue(f) || detail::fsdp_on(f) || !f.on(kMoeOverlap)) return {};
       return at(kMoeOverlap, "wants many queues").also(detail::tp_or_cp(f), "wants one queue");
     }},
    {"GTP604",
     "cdmc-not-one-fsdp2",
     Severity::Error,
     Phase::Startup,
     {kFsdp2, kEnv},
     "torch FSDP2 does not run with CUDA_DEVICE_MAX_CONNECTIONS=1",
     "Its gathers overlap with compute only when kernels may wait in several hardware queues.",
     "unset CUDA_DEVICE_MAX_CONNECTIONS, or raise it above 1",
     "megatron/training/arguments.py:1048",
     [](const Derivation& d) { return detail::one_queue_refused(d.facts, kFsdp2, d.facts.on(kFsdp2)); }},
    {"GTP605",
     "cdmc-not-one-mfsdp",
     Severity::Error,
     Phase::Startup,
     {kMegatronFsdp, kEnv},
     "Megatron-FSDP does not run with CUDA_DEVICE_MAX_CONNECTIONS=1",
     "Its gathers overlap with compute only when kernels may wait in several hardware queues.",
     "unset CUDA_DEVICE_MAX_CONNECTIONS, or raise it above 1",
     "megatron/training/arguments.py:1166",
     [](const Derivation& d) { return detail::one_queue_refused(d.facts, kMegatronFsdp, d.facts.on(kMegatronFsdp)); }},
    {"GTP606",
     "cdmc-not-one-ucc",
     Severity::Error,
     Phase::Startup,
     {"pipeline_model_parallel_comm_backend"_opt, kEnv},
     "the UCC pipeline backend does not run with CUDA_DEVICE_MAX_CONNECTIONS=1",
     "With one hardware queue all of its transfers would run one after the other.",
     "unset CUDA_DEVICE_MAX_CONNECTIONS, or raise it above 1",
     "megatron/core/parallel_state.py:1205",
     [](const Derivation& d) {
       const auto backend = "pipeline_model_parallel_comm_backend"_opt;
       return detail::one_queue_refused(d.facts, backend, d.facts.text(backend) == "ucc");
     }},
    {"GTP607",
     "cdmc-gtp-graphs-hint",
     Severity::Warning,
     Phase::FirstStep,
     {kGtpRemat, kGraphImpl, kEnv},
     "GTP under local CUDA graphs wants CUDA_DEVICE_MAX_CONNECTIONS of 16 or more",
     "Graphs, gathers, reduce-scatters, experts and DDP each have streams of their own. With fewer hardware queues "
     "than streams, independent work waits in one queue.",
     "set CUDA_DEVICE_MAX_CONNECTIONS to 16 or 32",
     "megatron/core/transformer/cuda_graphs.py:124",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::local_graphs_under_gtp(f) || !f.integer(kTp) || !f.integer(kCp)) return {};
       if (detail::one_queue_is_checked(f)) return {};  // GTP608
       const Variable* variable = f.variable(kConnections);
       const std::string few = detail::few_queues(variable);
       if (few.empty()) return {};
       return detail::at_variable(kConnections, variable, kShards, "GTP is on").note(few);
     },
     Version::kd98e8a64},
    {"GTP608",
     "cdmc-conflict-hopper-tp-gtp-graphs",
     Severity::Warning,
     Phase::Silent,
     {kTp, kCp, kArch, kGtpRemat, kGraphImpl},
     "no setting of CUDA_DEVICE_MAX_CONNECTIONS suits TP or CP together with GTP under local graphs before Blackwell",
     "Start-up checks insist on 1, while the graph runner of GTP wants 16 or more to keep its streams apart.",
     "accept less overlap, or use GPUs of the Blackwell generation",
     "megatron/training/arguments.py:1477",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::local_graphs_under_gtp(f) || !detail::one_queue_is_checked(f)) return {};
       return at(kGraphImpl, "wants 16 queues or more with GTP").also(detail::tp_or_cp(f), "must have one queue");
     },
     Version::kd98e8a64},
    {"GTP609",
     "gtp-graph-node-priority",
     Severity::Error,
     Phase::Startup,
     {kGtpRemat, kEgtpRemat, kArch, kGraphImpl, kEnv},
     "GTP with CUDA graphs on Blackwell needs CUDA_GRAPHS_USE_NODE_PRIORITY=1",
     "Without it a captured graph forgets the priority of the communication streams, and weight gathers wait behind "
     "the GEMMs they should overlap with.",
     "set CUDA_GRAPHS_USE_NODE_PRIORITY=1 in the job's environment",
     "megatron/training/arguments.py:1540",
     [](const Derivation& d) -> Findings {
       constexpr std::string_view kName = "CUDA_GRAPHS_USE_NODE_PRIORITY";
       const Facts& f = d.facts;
       const Variable* variable = f.variable(kName);
       if (!detail::any_gtp_on(f) || !detail::blackwell_or_later(f) || f.text(kGraphImpl) == "none" ||
           !detail::is_not(variable, "1"))
         return {};
       return detail::at_variable(kName, variable, kGraphImpl, *f.text(kGraphImpl))
           .also(detail::shards_that_are_on(f), "GTP is on");
     }},
    {"GTP610",
     "gtp-nccl-proto-simple",
     Severity::Warning,
     Phase::Startup,
     {kGtpRemat, kEgtpRemat, kEnv},
     "NCCL_PROTO=simple slows GTP down",
     "Weight gathers are many and small, so latency decides; NCCL's protocols LL and LL128 are the fast ones there.",
     "unset NCCL_PROTO, or use LL128",
     "megatron/training/arguments.py:1547",
     [](const Derivation& d) -> Findings {
       const Variable* variable = d.facts.variable("NCCL_PROTO");
       if (!detail::any_gtp_on(d.facts) || variable == nullptr) return {};
       std::string value = variable->value;
       std::transform(value.begin(), value.end(), value.begin(),
                      [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
       if (value != "simple") return {};
       return detail::at_variable("NCCL_PROTO", variable, detail::shards_that_are_on(d.facts), "GTP is on");
     }},
    {"GTP611",
     "high-priority-names-unchecked",
     Severity::Warning,
     Phase::Silent,
     {kPriorityGroups},
     "no process group has this name, so no stream gets a high priority",
     "Upstream only notes the name for the group that may ask for it, so a slip has no effect and no message.",
     "use one of the keys of upstream's groups, such as dp_cp, ep_dp or gtp_remat",
     "megatron/core/parallel_state.py:854",
     [](const Derivation& d) -> Findings {
       const auto name = first_outside(original_words(d.facts, kPriorityGroups), detail::kGroupKeys);
       if (name.empty()) return {};
       return at(kPriorityGroups, fmt::format("`{}` is no group", name));
     }},
    {"GTP612",
     "nccl-graph-register",
     Severity::Error,
     Phase::Startup,
     {kGraphImpl, kEnv},
     "TransformerEngine graphs with expandable segments need NCCL_GRAPH_REGISTER=0",
     "NCCL would register buffers of a graph whose memory may move, and then read what is no longer there.",
     "set NCCL_GRAPH_REGISTER=0, or drop expandable_segments from PYTORCH_CUDA_ALLOC_CONF",
     "megatron/training/arguments.py:1961",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const Variable* allocator = f.variable("PYTORCH_CUDA_ALLOC_CONF");
       const Variable* variable = f.variable("NCCL_GRAPH_REGISTER");
       if (f.text(kGraphImpl) != "transformer_engine" || allocator == nullptr ||
           allocator->value.find("expandable_segments:True") == std::string::npos || !detail::is_not(variable, "0"))
         return {};
       return detail::at_variable("NCCL_GRAPH_REGISTER", variable, kGraphImpl, "transformer_engine")
           .note(fmt::format("PYTORCH_CUDA_ALLOC_CONF is `{}`", allocator->value));
     }},
    {"GTP613",
     "nccl-ub-expandable-segments",
     Severity::Error,
     Phase::Startup,
     {"nccl_ub"_opt, kEnv},
     "NCCL user buffers do not go with expandable segments",
     "Before PyTorch 2.11 a memory pool cannot have segments that grow, so upstream refuses the pair there.",
     "drop expandable_segments from PYTORCH_CUDA_ALLOC_CONF, or turn nccl_ub off",
     "megatron/core/distributed/distributed_data_parallel_config.py:262",
     [](const Derivation& d) -> Findings {
       constexpr std::string_view kName = "PYTORCH_CUDA_ALLOC_CONF", kPart = "expandable_segments:True";
       const Variable* variable = d.facts.variable(kName);
       if (!d.facts.on("nccl_ub"_opt) || variable == nullptr) return {};
       const std::string list = ',' + variable->value + ',';
       if (list.find(fmt::format(",{},", kPart)) == std::string::npos) return {};
       return detail::at_variable(kName, variable, "nccl_ub"_opt, "on");
     }},
    {"GTP614",
     "gtp-symm-vs-disable-registration",
     Severity::Error,
     Phase::Startup,
     {kGtpRemat, kEgtpRemat, "gtp_remat_nccl_ub"_opt, "gtp_expert_remat_nccl_ub"_opt,
      "disable_symmetric_registration"_opt},
     "symmetric memory for GTP needs symmetric registration",
     "In-switch reduction reads symmetric windows, which disable_symmetric_registration forbids.",
     "turn one of the two off",
     "megatron/training/arguments.py:1591",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto dense = "gtp_remat_nccl_ub"_opt, expert = "gtp_expert_remat_nccl_ub"_opt,
                  off = "disable_symmetric_registration"_opt;
       if (!detail::any_gtp_on(f) || (!f.on(dense) && !f.on(expert)) || !f.on(off)) return {};
       return at(off, "on").also(f.on(dense) ? dense : expert, "registers symmetric windows");
     },
     Version::kd98e8a64},
    {"GTP615",
     "gtp-symm-precedence",
     Severity::Warning,
     Phase::Startup,
     {kGtpRemat, kEgtpRemat, "gtp_remat_nccl_ub"_opt, "gtp_expert_remat_nccl_ub"_opt,
      "gtp_remat_reduce_scatter_with_fp32_accumulation"_opt},
     "symmetric memory wins over the reduce-scatter with fp32 accumulation",
     "The switch already adds in fp32 on the groups with symmetric memory, so the other path is not used there.",
     "turn gtp_remat_reduce_scatter_with_fp32_accumulation off",
     "megatron/training/arguments.py:1596",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto dense = "gtp_remat_nccl_ub"_opt, expert = "gtp_expert_remat_nccl_ub"_opt,
                  fp32 = "gtp_remat_reduce_scatter_with_fp32_accumulation"_opt;
       if (!detail::any_gtp_on(f) || (!f.on(dense) && !f.on(expert)) || !f.on(fp32)) return {};
       return at(fp32, "on").also(f.on(dense) ? dense : expert, "wins on its groups");
     },
     Version::kd98e8a64},
    {"GTP616",
     "gtp-symm-size-one-noop",
     Severity::Note,
     Phase::Silent,
     {kGtpRemat, kEgtpRemat, "gtp_remat_nccl_ub"_opt, "gtp_expert_remat_nccl_ub"_opt},
     "symmetric memory for GTP has no effect without GTP",
     "Upstream registers no pool for a group of one rank.",
     "leave the option out, or set weight shards",
     "megatron/core/tensor_parallel/gtp_symmetric_memory.py:70",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       Findings findings;
       const auto check = [&](OptionId option, OptionId size, std::string_view name) {
         if (f.on(option) && f[size] == 1) findings.list.push_back(at(option, fmt::format("on, and {} is 1", name)));
       };
       check("gtp_remat_nccl_ub"_opt, kGtpRemat, "GTP_remat");
       check("gtp_expert_remat_nccl_ub"_opt, kEgtpRemat, "EGTP_remat");
       return findings;
     },
     Version::kd98e8a64},
};

}  // namespace gtp::rules
