// From one valid configuration to the files that start its job. Values in, values out: nothing here touches a file, and
// nothing of an input is ever executed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/input.hpp"
#include "tools/launch/arguments.hpp"

namespace gtp::cli {

enum class Launcher : std::uint8_t { Torchrun, Slurm, SlurmNative, Kubernetes, Local };
enum class KubernetesKind : std::uint8_t { TrainJob, JobSet, PyTorchJob };

inline constexpr std::int64_t kDefaultMasterPort = 29500;

struct LaunchOptions {
  LaunchFramework framework = LaunchFramework::MegatronLm;
  Launcher launcher = Launcher::Torchrun;
  KubernetesKind kubernetes_kind = KubernetesKind::TrainJob;
  std::string script{};  ///< empty: the framework's own
  std::string recipe{};  ///< of Megatron-Bridge; empty: to be given when the job starts
  std::string image = "nvcr.io/nvidia/nemo:26.06";
  std::string job_name{};  ///< empty: `gtp-` and the world size
  std::int64_t master_port = kDefaultMasterPort;
};

struct OutputFile {
  std::string path;  ///< a name within the folder; no input decides it
  std::string text;
  bool executable = false;
};

struct Launch {
  std::vector<OutputFile> files;  ///< the one that starts the job comes first; none when there are errors
  Diagnostics problems;
  std::vector<std::string> remarks;  ///< what else a person should know, each one line
};

/// Preconditions: the configuration is valid, its topology is known, and the texts of `options` are UTF-8 without
/// control characters. Throws CouldNotRun for what the launcher cannot do at all.
[[nodiscard]] Launch make_launch(const Checked& checked, const LaunchOptions& options);

}  // namespace gtp::cli
