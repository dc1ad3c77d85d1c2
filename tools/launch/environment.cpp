#include "tools/launch/environment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>

#include <gtp/assign.hpp>
#include <gtp/hardware.hpp>
#include <gtp/rules/form.hpp>

#include "validators/reading.hpp"

namespace gtp::cli {

namespace {

using namespace literals;

enum class Applies : std::uint8_t { No, Yes, Unknown };

constexpr Applies when(bool condition) { return condition ? Applies::Yes : Applies::No; }

constexpr int kBlackwell = 10;

/// The input with every section described: what it does not give is a default of the job that is started.
Config completed(Config config) {
  for (int section = 0; section < kSectionCount; ++section) config.describe(static_cast<Section>(section));
  return config;
}

/// What the variables depend on.
class JobFacts {
 public:
  JobFacts(const Config& config, const Derivation& derivation) : config_(completed(config)), facts_(config_) {
    const Topology& t = *derivation.topology;
    tp = t.tp, cp = t.cp, pp = t.pp, ep = t.ep, gtp_remat = t.gtp_remat, egtp_remat = t.egtp_remat;
  }
  JobFacts(const JobFacts&) = delete;  // the facts refer to the configuration
  JobFacts& operator=(const JobFacts&) = delete;

  [[nodiscard]] const Facts& facts() const { return facts_; }
  [[nodiscard]] bool gtp() const { return gtp_remat > 1 || egtp_remat > 1; }
  [[nodiscard]] bool blackwell() const { return arch && *arch >= kBlackwell; }
  /// Whether kernels beside NCCL's occupy SMs to communicate.
  [[nodiscard]] bool kernels_communicate() const {
    return facts_.on("tp_comm_overlap"_opt) || (ep > 1 && facts_.text("moe_token_dispatcher_type"_opt) == "flex");
  }
  /// NVLink domains of 72 GPUs have 4 in a node, and came with Blackwell.
  [[nodiscard]] Applies large_domain() const {
    if (gpus_per_node && *gpus_per_node != 4) return Applies::No;
    return arch ? when(*arch >= kBlackwell && gpus_per_node.has_value()) : Applies::Unknown;
  }
  [[nodiscard]] Applies small_domain() const {
    const Applies large = large_domain();
    return large == Applies::Unknown ? large : when(large == Applies::No);
  }

 private:
  Config config_;
  Facts facts_;

 public:
  std::int64_t tp = 1, cp = 1, pp = 1, ep = 1, gtp_remat = 1, egtp_remat = 1;
  std::optional<int> arch = facts_.text("gpu_arch"_opt) ? arch_major(*facts_.text("gpu_arch"_opt)) : std::nullopt;
  std::optional<std::int64_t> gpus_per_node = facts_.integer("gpus_per_node"_opt);
  bool torch_fsdp2 = facts_.on("use_torch_fsdp2"_opt), megatron_fsdp = facts_.on("use_megatron_fsdp"_opt);
  bool ucc = facts_.text("pipeline_model_parallel_comm_backend"_opt) == "ucc";
  bool moe_overlap = facts_.on("overlap_moe_expert_parallel_comm"_opt);
  bool deterministic = facts_.on("deterministic_mode"_opt);
  bool qk_scaling = facts_.on("apply_query_key_layer_scaling"_opt);
  bool activation_offload = facts_.on("fine_grained_activation_offloading"_opt);
  bool hybrid_ep = facts_.text("moe_token_dispatcher_type"_opt) == "flex" &&
                   facts_.text("moe_flex_dispatcher_backend"_opt) == "hybridep";
  std::string_view graphs = facts_.text("cuda_graph_impl"_opt).value_or("none");
  bool expandable_segments = [this] {
    const Variable* variable = facts_.variable("PYTORCH_CUDA_ALLOC_CONF");
    return variable != nullptr && variable->value.find("expandable_segments:True") != std::string::npos;
  }();
};

/// `condition` before Blackwell; unknown with an unknown generation.
Applies before_blackwell(const JobFacts& f, bool condition) {
  if (!condition) return Applies::No;
  return f.arch ? when(*f.arch < kBlackwell) : Applies::Unknown;
}

bool any(std::string_view) { return true; }
bool is_zero(std::string_view value) { return value == "0"; }
bool is_one(std::string_view value) { return value == "1"; }
bool starts_with_one(std::string_view value) { return value.empty() || value[0] == '1'; }
bool is_off(std::string_view value) { return value.empty() || value == "0"; }
bool not_one(std::string_view value) { return value != "1"; }
bool at_least_16(std::string_view value) {
  constexpr std::int64_t kQueues = 16;
  return parse_int(value).value.value_or(0) >= kQueues;
}
bool not_simple(std::string_view value) {
  std::string lower(value);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c | 0x20 : c; });
  return lower != "simple";
}
bool is_deterministic_workspace(std::string_view value) { return value == ":4096:8" || value == ":16:8"; }
bool is_deterministic_algorithm(std::string_view value) {
  constexpr std::array<std::string_view, 4> kTokens{"Ring", "CollnetDirect", "CollnetChain", "^NVLS"};
  bool some = false;
  for (std::size_t at = 0; at <= value.size();) {
    const std::size_t end = std::min(value.find(',', at), value.size());
    const std::string_view token = gtp::detail::trim(value.substr(at, end - at));
    if (!token.empty() && std::find(kTokens.begin(), kTokens.end(), token) == kTokens.end()) return false;
    some = some || !token.empty();
    at = end + 1;
  }
  return some;
}

using Condition = Applies (*)(const JobFacts&);
using Accepts = bool (*)(std::string_view);

/// One reason for one variable. `value` is what the job gets if the input says nothing; empty: nothing. Of several rows
/// that apply to a variable the first one counts.
struct Row {
  std::string_view name;
  std::string_view value;
  Condition applies;
  std::string_view why;
  std::string_view rule = {};  ///< upstream rule that another value would break
  std::string_view source = {};
  Accepts accepts = any;  ///< values of the input that keep the rule
  Severity severity = Severity::Error;
};

constexpr std::string_view kQueues = "CUDA_DEVICE_MAX_CONNECTIONS";

constexpr Row kRows[] = {
    {kQueues, "32", [](const JobFacts& f) { return when(f.torch_fsdp2); }, "FSDP2 needs several hardware queues",
     "cdmc-not-one-fsdp2", "megatron/training/arguments.py:1048", not_one},
    {kQueues, "32", [](const JobFacts& f) { return when(f.megatron_fsdp); },
     "Megatron-FSDP needs several hardware queues", "cdmc-not-one-mfsdp", "megatron/training/arguments.py:1166",
     not_one},
    {kQueues, "32", [](const JobFacts& f) { return when(f.ucc); }, "UCC needs several hardware queues",
     "cdmc-not-one-ucc", "megatron/core/parallel_state.py:1205", not_one},
    {kQueues, "32", [](const JobFacts& f) { return when(f.moe_overlap); },
     "the overlap of expert exchanges needs several hardware queues; 1 would favour TP and CP overlap before Blackwell",
     "cdmc-moe-overlap-conflict-warn", "megatron/training/arguments.py:1466"},
    {kQueues, "1", [](const JobFacts& f) { return before_blackwell(f, f.tp > 1 || f.cp > 1); },
     "TP and CP overlap relies on a single hardware queue before Blackwell", "cdmc-one-required",
     "megatron/training/arguments.py:1477", is_one},
    {kQueues, "32", [](const JobFacts& f) { return when(f.gtp_remat > 1 && f.graphs == "local"); },
     "graphs of GTP run many streams at once, which alias when hardware queues are few", "cdmc-gtp-graphs-hint",
     "megatron/core/transformer/cuda_graphs.py:124", at_least_16, Severity::Warning},
    {kQueues, "32", [](const JobFacts& f) { return when(f.blackwell()); },
     "from Blackwell on, overlap needs no single queue, and collectives run beside GEMMs"},
    {"CUDA_GRAPHS_USE_NODE_PRIORITY", "1",
     [](const JobFacts& f) { return when(f.gtp() && f.graphs != "none" && (!f.arch || f.blackwell())); },
     "captured graphs must keep the priority of GTP's streams", "gtp-graph-node-priority",
     "megatron/training/arguments.py:1540", is_one},
    {"NCCL_PROTO", "", [](const JobFacts& f) { return when(f.gtp()); },
     "the many small collectives of GTP want the LL or LL128 protocol", "gtp-nccl-proto-simple",
     "megatron/training/arguments.py:1547", not_simple, Severity::Warning},
    {"NCCL_GRAPH_REGISTER", "0",
     [](const JobFacts& f) { return when(f.graphs == "transformer_engine" && f.expandable_segments); },
     "graphs of TransformerEngine with expandable segments read unmapped memory otherwise", "nccl-graph-register",
     "megatron/training/arguments.py:1961", is_zero},
    {"NCCL_P2P_NET_CHUNKSIZE", "2097152", [](const JobFacts& f) { return when(f.pp > 1); },
     "pipeline stages send whole activations: larger chunks"},
    {"TORCH_NCCL_HIGH_PRIORITY", "1", [](const JobFacts& f) { return when(f.gtp()); },
     "collectives start ahead of the GEMMs that they hide behind"},
    {"NVTE_FWD_LAYERNORM_SM_MARGIN", "20", [](const JobFacts& f) { return when(f.kernels_communicate()); },
     "leaves SMs to kernels that communicate"},
    {"NVTE_BWD_LAYERNORM_SM_MARGIN", "20", [](const JobFacts& f) { return when(f.kernels_communicate()); },
     "leaves SMs to kernels that communicate"},
    {"NVTE_APPLY_QK_LAYER_SCALING", "1", [](const JobFacts& f) { return when(f.qk_scaling); },
     "must agree with apply_query_key_layer_scaling", "nvte-qk-layer-scaling-env",
     "megatron/core/extensions/transformer_engine.py:2080", is_one},
    {"NVTE_APPLY_QK_LAYER_SCALING", "", [](const JobFacts& f) { return when(!f.qk_scaling); },
     "must agree with apply_query_key_layer_scaling, which is off", "nvte-qk-layer-scaling-env",
     "megatron/core/extensions/transformer_engine.py:2080", is_off},
    {"NVTE_CPU_OFFLOAD_V1", "1", [](const JobFacts& f) { return when(f.activation_offload); },
     "keeps weights on the GPU while activations are offloaded", "cpu-offload-v1-env",
     "megatron/training/arguments.py:1935", is_one},
    {"NCCL_ALGO", "Ring", [](const JobFacts& f) { return when(f.deterministic); },
     "deterministic mode allows only algorithms that add in one order", "determinism-nccl-algo",
     "megatron/training/determinism.py:91", is_deterministic_algorithm},
    {"NVTE_ALLOW_NONDETERMINISTIC_ALGO", "0", [](const JobFacts& f) { return when(f.deterministic); },
     "deterministic mode", "determinism-env-values", "megatron/training/determinism.py:98", is_zero},
    {"CUBLAS_WORKSPACE_CONFIG", ":4096:8", [](const JobFacts& f) { return when(f.deterministic); },
     "deterministic mode", "determinism-env-values", "megatron/training/determinism.py:98", is_deterministic_workspace},
    {"MAMBA_DETERMINISTIC", "", [](const JobFacts& f) { return when(f.deterministic); }, "deterministic mode",
     "determinism-env-values", "megatron/training/determinism.py:98", starts_with_one},
    {"CAUSAL_CONV1D_DETERMINISTIC", "", [](const JobFacts& f) { return when(f.deterministic); }, "deterministic mode",
     "determinism-env-values", "megatron/training/determinism.py:98", starts_with_one},
    {"NVLINK_DOMAIN_SIZE", "8", [](const JobFacts& f) { return f.hybrid_ep ? f.small_domain() : Applies::No; },
     "HybridEP: NVLink ends at the node"},
    {"NVLINK_DOMAIN_SIZE", "72", [](const JobFacts& f) { return f.hybrid_ep ? f.large_domain() : Applies::No; },
     "HybridEP: NVLink spans a rack of 18 nodes"},
    {"USE_MNNVL", "0", [](const JobFacts& f) { return f.hybrid_ep ? f.small_domain() : Applies::No; },
     "HybridEP: NVLink ends at the node"},
    {"USE_MNNVL", "1", [](const JobFacts& f) { return f.hybrid_ep ? f.large_domain() : Applies::No; },
     "HybridEP: NVLink spans a rack of 18 nodes"},
};

constexpr std::string_view kRanksPerDomain = "NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN";

/// What launchers set for each process.
constexpr auto kLaunchers = std::to_array<std::string_view>(
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"});
/// Bash exports none of these.
constexpr auto kReadOnly =
    std::to_array<std::string_view>({"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"});

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_variable_name(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !name.empty() && letter(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

class EnvironmentMaker {
 public:
  EnvironmentMaker(const Config& config, const Derivation& derivation) : config_(config), facts_(config, derivation) {}

  Environment make() {
    take_given();
    for (std::size_t at = 0; at < std::size(kRows);) at = apply_rows_of_one_variable(at);
    add_ranks_per_domain();
    std::sort(out_.list.begin(), out_.list.end(),
              [](const Assignment& a, const Assignment& b) { return a.name < b.name; });
    return std::move(out_);
  }

 private:
  void take_given() {
    for (const Variable& variable : config_.env) {
      if (const std::string why = unusable(variable); !why.empty()) {
        report(variable, contains(kLaunchers, variable.name) ? Severity::Warning : Severity::Error, "variable-name",
               fmt::format("the variable `{}` cannot be given to the job", variable.name), why);
        continue;
      }
      std::erase_if(out_.list, [&](const Assignment& other) { return other.name == variable.name; });
      out_.list.push_back({variable.name, variable.value, "given in the input"});
      if (readers::has_variable(variable.value))
        report(variable, Severity::Warning, rules::kUnresolved.id,
               fmt::format("`{}` is handed to the job as it is written", variable.name), "no shell will replace it");
    }
  }

  static std::string unusable(const Variable& variable) {
    if (contains(kLaunchers, variable.name)) return "the launcher sets it for each process";
    if (contains(kReadOnly, variable.name)) return "a shell lets nobody set it";
    if (!is_variable_name(variable.name)) return "letters, digits and `_` make a name";
    if (const auto problem = readers::find_not_text(variable.value)) return problem->what;
    return {};
  }

  std::size_t apply_rows_of_one_variable(std::size_t at) {
    const std::string_view name = kRows[at].name;
    bool decided = false;
    for (; at < std::size(kRows) && kRows[at].name == name; ++at) {
      if (decided) continue;
      const Applies applies = kRows[at].applies(facts_);
      decided = applies != Applies::No;
      if (applies == Applies::Yes) apply(kRows[at]);
      if (applies == Applies::Unknown && given(name) == nullptr)
        out_.undecided.push_back(
            fmt::format("{}={} if {}: gpu_arch is not known", name, kRows[at].value, kRows[at].why));
    }
    return at;
  }

  [[nodiscard]] const Variable* given(std::string_view name) const { return facts_.facts().variable(name); }

  void apply(const Row& row) {
    const Variable* variable = given(row.name);
    if (variable == nullptr) {
      if (!row.value.empty()) out_.list.push_back({std::string(row.name), std::string(row.value), reason(row)});
    } else if (row.accepts(variable->value)) {
      for (Assignment& assignment : out_.list)
        if (assignment.name == row.name) assignment.why = "given in the input: " + reason(row);
    } else {
      report(*variable, row.severity, row.rule,
             row.value.empty() ? fmt::format("`{}` is set to a value that upstream does not want", row.name)
                               : fmt::format("`{}` should be {}", row.name, row.value),
             fmt::format("{} ({})", row.why, row.source));
    }
  }

  static std::string reason(const Row& row) {
    if (row.rule.empty()) return std::string(row.why);
    return fmt::format("{} [{}, {}]", row.why, row.rule, row.source);
  }

  /// As many as exchange over NVLink: EP, or what a domain holds.
  void add_ranks_per_domain() {
    if (!facts_.hybrid_ep || given(kRanksPerDomain) != nullptr) return;
    constexpr std::int64_t kSmall = 8, kLarge = 72;
    if (facts_.small_domain() == Applies::Unknown)
      out_.undecided.push_back(fmt::format("{}: gpu_arch is not known", kRanksPerDomain));
    else
      out_.list.push_back(
          {std::string(kRanksPerDomain),
           fmt::format("{}", std::min(facts_.ep, facts_.small_domain() == Applies::Yes ? kSmall : kLarge)),
           "HybridEP: the ranks of an expert group that NVLink connects"});
  }

  /// Of the rule that `check` has for it; its id where there is none.
  static std::string_view code_of(std::string_view rule) {
    for (const Rule* row : all_rules())
      if (row->id == rule) return row->code;
    return rule;
  }

  void report(const Variable& variable, Severity severity, std::string_view rule, std::string message,
              std::string note) {
    out_.problems.push_back({.severity = severity,
                             .phase = severity == Severity::Error ? Phase::Startup : Phase::Silent,
                             .code = code_of(rule),
                             .rule = rule,
                             .message = std::move(message),
                             .primary = {"", variable.place, fmt::format("`{}` here", variable.value)},
                             .related = {},
                             .notes = {std::move(note)},
                             .help = "leave it out, or set the value that the job needs",
                             .fix = {}});
  }

  const Config& config_;
  JobFacts facts_;
  Environment out_;
};

}  // namespace

Environment make_environment(const Config& config, const Derivation& derivation) {
  return EnvironmentMaker(config, derivation).make();
}

}  // namespace gtp::cli
