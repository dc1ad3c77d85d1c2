// What every file of a launch is made from, and the emitters, one a file.
#pragma once

#include <gtp/topology.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/launch/environment.hpp"
#include "tools/launch/launch.hpp"

namespace gtp::cli {

inline constexpr std::string_view kArgumentsFile = "train.args", kOverridesFile = "train.overrides",
                                  kEnvironmentFile = "env.sh", kCommunicatorsFile = "nccl_comm.yaml";

struct Job {
  LaunchOptions options;  ///< every text filled in, except `recipe`
  Target target;
  Topology topology;
  std::int64_t nodes = 1;
  std::int64_t processes_per_node = 1;
  std::vector<TrainerArgument> arguments;
  Environment environment;
  /// Groups whose communicators get high-priority streams; empty: the input names a file of its own, or there are none.
  StringList high_priority;
  /// Said at the top of every file; each one line.
  std::vector<std::string> warnings;
  /// The sizes that `gtplan check` needs beside the arguments.
  std::string size_words;

  [[nodiscard]] bool bridge() const { return options.framework == LaunchFramework::MegatronBridge; }
};

/// Comment lines: what the file is, of what job, and the warnings.
[[nodiscard]] std::string heading(const Job& job, std::string_view what);

/// The words of the arguments file, which `gtplan check` reads back.
[[nodiscard]] std::string arguments_file(const Job& job);
/// `export NAME=VALUE` lines with their reasons.
[[nodiscard]] std::string environment_file(const Job& job);
/// Precondition: there are high-priority groups.
[[nodiscard]] std::string communicators_file(const Job& job);
/// As `gtplan ranks --format tsv`.
[[nodiscard]] std::string rank_map(const Topology& topology, std::optional<std::int64_t> gpus_per_node);

[[nodiscard]] std::string torchrun_script(const Job& job);
[[nodiscard]] std::string slurm_script(const Job& job);
[[nodiscard]] std::string slurm_native_script(const Job& job);
[[nodiscard]] std::string local_script(const Job& job);
[[nodiscard]] std::string kubernetes_manifest(const Job& job);

}  // namespace gtp::cli
