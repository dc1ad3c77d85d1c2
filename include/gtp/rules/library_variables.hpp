// 61x and 62x: variables that libraries read, as far as upstream checks or overwrites them.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <gtp/derive.hpp>
#include <gtp/package_version.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/environment.hpp>

namespace gtp::rules {

inline constexpr OptionId kDeterministic = "deterministic_mode"_opt;

namespace detail {

inline std::string_view strip(std::string_view text) { return gtp::detail::trim(text); }

/// The first algorithm that deterministic mode does not take; the text itself when it names none.
inline std::optional<std::string_view> refused_algorithm(std::string_view list) {
  constexpr std::array<std::string_view, 4> kAccepted{"Ring", "CollnetDirect", "CollnetChain", "^NVLS"};
  bool any = false;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view token = strip(list.substr(begin, end - begin));
    if (!token.empty() && std::find(kAccepted.begin(), kAccepted.end(), token) == kAccepted.end()) return token;
    any = any || !token.empty();
    begin = end + 1;
  }
  return any ? std::nullopt : std::optional(list);
}

/// Variables that deterministic mode checks, and the values it takes; a final `*` takes any ending, and an empty value.
struct DeterministicVariable {
  std::string_view name;
  std::string_view accepted;
  std::string_view other{};
  Version first = kOldestVersion;
};
inline constexpr std::array<DeterministicVariable, 4> kDeterministicVariables{{
    {"NVTE_ALLOW_NONDETERMINISTIC_ALGO", "0"},
    {"CUBLAS_WORKSPACE_CONFIG", ":4096:8", ":16:8"},
    {"MAMBA_DETERMINISTIC", "1*"},
    {"CAUSAL_CONV1D_DETERMINISTIC", "1*", {}, Version::kd98e8a64},
}};

inline bool accepts(const DeterministicVariable& row, std::string_view value) {
  if (row.accepted.ends_with('*')) return value.empty() || value.front() == row.accepted.front();
  return value == row.accepted || (!row.other.empty() && value == row.other);
}

/// The attention variables, and what upstream insists on for each backend.
inline constexpr std::array<std::string_view, 3> kAttentionVariables{"NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN",
                                                                     "NVTE_UNFUSED_ATTN"};
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kAttentionValues{
    {{"local", "000"}, {"flash", "100"}, {"fused", "010"}, {"unfused", "001"}, {"auto", "111"}}};

inline Findings attention_variables(const Facts& f) {
  const OptionId option = "attention_backend"_opt;
  Findings findings;
  const auto expect = [&](std::string_view name, char value) {
    const Variable* variable = f.variable(name);
    if (variable == nullptr || !is_not(variable, std::string_view(&value, 1))) return;
    findings.list.push_back(
        at_variable(name, variable, option, fmt::format("{} sets it to {}", *f.text(option), value)));
  };
  for (const auto& [backend, values] : kAttentionValues)
    if (f.text(option) == backend)
      for (std::size_t i = 0; i < values.size(); ++i) expect(kAttentionVariables.at(i), values[i]);
  constexpr std::array<std::string_view, 3> kVersions{"NVTE_FLASH_ATTN_V2", "NVTE_FLASH_ATTN_V3", "NVTE_FLASH_ATTN_V4"};
  if (const auto version = f.integer("flash_attention_version"_opt))
    for (std::size_t i = 0; i < kVersions.size(); ++i)
      if (*version != static_cast<std::int64_t>(i) + 2) expect(kVersions.at(i), '0');
  return findings;
}

/// A TransformerEngine version that is not known is taken to be 2.19 or newer, which GTP needs anyway.
inline bool te_at_least(const Facts& f, std::string_view wanted) {
  const auto version = PackageVersion::parse(f.text("te_version"_opt).value_or(""));
  return !version || *version >= *PackageVersion::parse(wanted);
}

/// What upstream writes over whatever the job says, for the UCC backend.
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kUccVariables{
    {{"NSYS_UCP_COMM_PARAMS", "1"},
     {"UCX_RNDV_THRESH", "0"},
     {"UCX_NET_DEVICES", "all"},
     {"UCC_CL_BASIC_TLS", "^sharp,nccl"}}};

inline constexpr std::array<std::string_view, 7> kFlightRecorderVariables{
    "TORCH_FR_DUMP_TEMP_FILE",      "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_NCCL_TRACE_BUFFER_SIZE",
    "TORCH_NCCL_DUMP_ON_TIMEOUT",   "TORCH_INCLUDE_STACK_TRACE",       "TORCH_INCLUDE_ONLY_ACTIVE",
    "TORCH_NCCL_EXTRA_DUMP_ON_EXEC"};

}  // namespace detail

inline constexpr Rule kLibraryVariables[] = {
    {"GTP617",
     "determinism-args",
     Severity::Error,
     Phase::Startup,
     {kDeterministic, "cross_entropy_loss_fusion"_opt},
     "deterministic mode refuses fused cross entropy",
     "Its sums do not give the same bits in every run.",
     "turn cross_entropy_loss_fusion off",
     "megatron/training/determinism.py:24",
     [](const Derivation& d) -> Findings {
       const auto fusion = "cross_entropy_loss_fusion"_opt;
       if (!d.facts.on(kDeterministic) || !d.facts.on(fusion)) return {};
       return at(fusion, "on").also(kDeterministic, "on").fix(fusion, false);
     }},
    {"GTP618",
     "determinism-nccl-algo",
     Severity::Error,
     Phase::Startup,
     {kDeterministic, kEnv},
     "deterministic mode does not take this NCCL algorithm",
     "The order of a sum must not depend on the machine. Tree depends on it, so upstream takes Ring, CollnetDirect, "
     "CollnetChain and ^NVLS alone; Megatron-Bridge takes Tree too.",
     "unset NCCL_ALGO, or set it to Ring",
     "megatron/training/determinism.py:91",
     [](const Derivation& d) -> Findings {
       const Variable* variable = d.facts.variable("NCCL_ALGO");
       if (!d.facts.on(kDeterministic) || variable == nullptr || detail::filled_in_later(variable)) return {};
       const auto refused = detail::refused_algorithm(variable->value);
       if (!refused) return {};
       return detail::at_variable("NCCL_ALGO", variable, kDeterministic, "on")
           .note(refused->empty() ? "it names no algorithm" : fmt::format("`{}` is not taken", *refused));
     }},
    {"GTP619",
     "determinism-env-values",
     Severity::Error,
     Phase::Startup,
     {kDeterministic, kEnv},
     "deterministic mode does not take this value of the variable",
     "The variable asks a library for an algorithm that may give other bits in every run.",
     "unset the variable, and upstream will choose",
     "megatron/training/determinism.py:98",
     [](const Derivation& d) {
       Findings findings;
       if (!d.facts.on(kDeterministic)) return findings;
       for (const detail::DeterministicVariable& row : detail::kDeterministicVariables) {
         const Variable* variable = d.facts.variable(row.name);
         if (row.first > d.facts.version() || variable == nullptr || detail::filled_in_later(variable) ||
             detail::accepts(row, variable->value))
           continue;
         findings.list.push_back(detail::at_variable(row.name, variable, kDeterministic, "on"));
       }
       return findings;
     }},
    {"GTP620",
     "ucc-env-defaults",
     Severity::Warning,
     Phase::Silent,
     {"pipeline_model_parallel_comm_backend"_opt, kEnv},
     "the UCC pipeline backend overwrites this variable",
     "Upstream sets four variables of UCX and UCC whatever the job's environment says.",
     "leave the variable out",
     "megatron/core/parallel_state.py:1222",
     [](const Derivation& d) {
       const auto backend = "pipeline_model_parallel_comm_backend"_opt;
       Findings findings;
       if (d.facts.text(backend) != "ucc") return findings;
       for (const auto& [name, value] : detail::kUccVariables) {
         const Variable* variable = d.facts.variable(name);
         if (variable != nullptr && detail::is_not(variable, value))
           findings.list.push_back(detail::at_variable(name, variable, backend, fmt::format("sets it to {}", value)));
       }
       return findings;
     }},
    {"GTP621",
     "nvte-qk-layer-scaling-env",
     Severity::Error,
     Phase::FirstStep,
     {"apply_query_key_layer_scaling"_opt, "transformer_impl"_opt, kEnv},
     "apply_query_key_layer_scaling and NVTE_APPLY_QK_LAYER_SCALING must agree",
     "TransformerEngine takes the scaling from the variable alone, so upstream refuses to build attention when the "
     "option says otherwise.",
     "set NVTE_APPLY_QK_LAYER_SCALING=1 with the option, and unset it without",
     "megatron/core/extensions/transformer_engine.py:2080",
     [](const Derivation& d) -> Findings {
       constexpr std::string_view kName = "NVTE_APPLY_QK_LAYER_SCALING";
       const Facts& f = d.facts;
       const auto option = "apply_query_key_layer_scaling"_opt;
       const Variable* variable = f.variable(kName);
       if (f.text("transformer_impl"_opt) != "transformer_engine" || detail::filled_in_later(variable)) return {};
       const auto value = variable == nullptr ? std::optional<std::int64_t>(0) : parse_int(variable->value).value;
       if (value && (*value != 0) == f.on(option)) return {};
       return detail::at_variable(kName, variable, option, f.on(option) ? "on" : "off");
     }},
    {"GTP622",
     "attention-backend-env",
     Severity::Error,
     Phase::FirstStep,
     {"attention_backend"_opt, kEnv},
     "the variable contradicts attention_backend",
     "Upstream sets the attention variables of TransformerEngine from the option and refuses others; auto wants all "
     "kernels allowed.",
     "unset the variable and choose with attention_backend",
     "megatron/core/models/common/language_module/language_module.py:120",
     [](const Derivation& d) { return detail::attention_variables(d.facts); }},
    {"GTP623",
     "cpu-offload-v1-env",
     Severity::Error,
     Phase::Startup,
     {"fine_grained_activation_offloading"_opt, kEnv},
     "fine-grained offloading needs NVTE_CPU_OFFLOAD_V1=1",
     "From TransformerEngine 2.10 on, the newer offload code would move weights as well.",
     "set NVTE_CPU_OFFLOAD_V1=1 in the job's environment",
     "megatron/training/arguments.py:1935",
     [](const Derivation& d) -> Findings {
       constexpr std::string_view kName = "NVTE_CPU_OFFLOAD_V1";
       const auto option = "fine_grained_activation_offloading"_opt;
       const Variable* variable = d.facts.variable(kName);
       if (!d.facts.on(option) || !detail::te_at_least(d.facts, "2.10.0") || !detail::is_not(variable, "1")) return {};
       return detail::at_variable(kName, variable, option, "on");
     }},
    {"GTP624",
     "flight-recorder-env-wins",
     Severity::Warning,
     Phase::Startup,
     {"flight_recorder_dump_path"_opt, kEnv},
     "this variable wins over the flight recorder's options",
     "Upstream fills in only what the environment leaves unset.",
     "unset the variable to use the options",
     "megatron/training/initialize.py:328",
     [](const Derivation& d) {
       const auto option = "flight_recorder_dump_path"_opt;
       Findings findings;
       if (!d.facts.has(option)) return findings;
       for (const std::string_view name : detail::kFlightRecorderVariables)
         if (const Variable* variable = d.facts.variable(name))
           findings.list.push_back(detail::at_variable(name, variable, option, "given"));
       return findings;
     }},
    {"GTP625",
     "nccl-collnet-env-cleared",
     Severity::Warning,
     Phase::Silent,
     {kEnv},
     "upstream removes NCCL_COLLNET_ENABLE from the environment",
     "In-network reduction serves one communicator, so upstream clears the variable and sets it for one group itself "
     "when use_sharp is on.",
     "use use_sharp and sharp_enabled_group",
     "megatron/core/parallel_state.py:774",
     [](const Derivation& d) -> Findings {
       constexpr std::string_view kName = "NCCL_COLLNET_ENABLE";
       const Variable* variable = d.facts.variable(kName);
       if (variable == nullptr || variable->value == "0") return {};
       return detail::at_variable(kName, variable, "use_sharp"_opt, "the option to use");
     }},
    {"GTP626",
     "determinism-tp-overlap",
     Severity::Warning,
     Phase::Startup,
     {kDeterministic, "tp_comm_overlap"_opt},
     "deterministic mode refuses tp_comm_overlap",
     "Overlapped sums do not give the same bits in every run. The start-up check of this version refuses the pair, yet "
     "a weekly test of the same version is run with it, so this is no error here.",
     "turn tp_comm_overlap off",
     "megatron/training/determinism.py:24",
     [](const Derivation& d) -> Findings {
       const auto overlap = "tp_comm_overlap"_opt;
       if (!d.facts.on(kDeterministic) || !d.facts.on(overlap)) return {};
       return at(overlap, "on").also(kDeterministic, "on");
     }},
};

}  // namespace gtp::rules
