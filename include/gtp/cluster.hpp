// The hardware that a job is planned for, as values: hosts in order, their GPUs, NVLink domains, switches, NUMA nodes
// and NICs. Where the values come from is the readers' matter, which ranks go where is planner/placement.hpp's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gtp {

/// More hosts are not listed one by one: no cluster is near it, and a short text could ask for any number.
inline constexpr std::size_t kMostClusterHosts = std::size_t{1} << 17U;
/// GPUs of one host; more is a slip.
inline constexpr std::int64_t kMostGpusPerHost = 1024;

struct ClusterHost {
  std::string name;
  std::optional<std::int64_t> gpus{};
  /// NVLink domain (a block of Slurm's block topology, or clusterUUID and cliqueId of NVML); hosts with the same text
  /// are in one domain. Empty: not known.
  std::string domain{};
  /// From the leaf switch up. Empty: not known.
  std::vector<std::string> switches{};
};

/// A network interface of every host. The place in the list of NICs is its rail.
struct ClusterNic {
  std::string name;
  std::optional<std::int64_t> numa{};
  /// The GPUs that reach it through PCIe bridges only.
  std::vector<std::int64_t> gpus{};
};

struct Cluster {
  std::string name{};
  /// `hopper`, `blackwell`, ...; empty: not known.
  std::string gpu_arch{};
  std::optional<double> gpu_memory_gib{};
  std::optional<std::int64_t> gpus_per_host{};
  /// Hosts whose domain is not known are taken to fill domains of so many, in their order.
  std::optional<std::int64_t> hosts_per_domain{};
  /// NUMA node of each GPU of a host. Empty: not known.
  std::vector<std::int64_t> gpu_numa{};
  std::vector<ClusterNic> nics{};
  /// In the order in which ranks fill them. Empty: as many as the job needs, all alike.
  std::vector<ClusterHost> hosts{};
};

/// A kind of machine that is sold in this shape; nothing about how many of them there are.
struct ClusterPreset {
  std::string_view name;
  /// What a cluster file may call the GPU.
  std::string_view gpu;
  std::string_view gpu_arch;
  /// What CUDA reports as the device's total, rounded down: less than the GB of the data sheet.
  double gpu_memory_gib;
  std::int64_t gpus_per_host;
  std::int64_t hosts_per_domain;
};

/// NVLink domains of 8 (one host) and 72 (18 hosts of 4), as Megatron-Bridge counts them for these GPUs.
inline constexpr std::array<ClusterPreset, 5> kClusterPresets{{
    {"h100-8", "h100", "hopper", 79, 8, 1},
    {"h200-8", "h200", "hopper", 139, 8, 1},
    {"b200-8", "b200", "blackwell", 178, 8, 1},
    {"gb200-nvl72", "gb200", "blackwell", 184, 4, 18},
    {"gb300-nvl72", "gb300", "blackwell", 276, 4, 18},
}};

/// By the preset's name; nullptr for an unknown one.
[[nodiscard]] constexpr const ClusterPreset* find_cluster_preset(std::string_view name) noexcept {
  for (const ClusterPreset& preset : kClusterPresets)
    if (preset.name == name) return &preset;
  return nullptr;
}

/// By the name of its GPU; nullptr for an unknown one.
[[nodiscard]] constexpr const ClusterPreset* find_gpu(std::string_view gpu) noexcept {
  for (const ClusterPreset& preset : kClusterPresets)
    if (preset.gpu == gpu) return &preset;
  return nullptr;
}

[[nodiscard]] inline Cluster make_cluster(const ClusterPreset& preset) {
  Cluster cluster;
  cluster.name = preset.name;
  cluster.gpu_arch = preset.gpu_arch;
  cluster.gpu_memory_gib = preset.gpu_memory_gib;
  cluster.gpus_per_host = preset.gpus_per_host;
  cluster.hosts_per_domain = preset.hosts_per_domain;
  return cluster;
}

/// GPUs of one host, when that is known and the same for all.
[[nodiscard]] inline std::optional<std::int64_t> common_gpus_per_host(const Cluster& cluster) {
  if (cluster.hosts.empty()) return cluster.gpus_per_host;
  const auto of = [&](const ClusterHost& host) { return host.gpus ? host.gpus : cluster.gpus_per_host; };
  const std::optional<std::int64_t> first = of(cluster.hosts.front());
  for (const ClusterHost& host : cluster.hosts)
    if (of(host) != first) return std::nullopt;
  return first;
}

/// GPUs of all listed hosts, when known. Never overflows: hosts and their GPUs are bounded by the readers.
[[nodiscard]] inline std::optional<std::int64_t> total_gpus(const Cluster& cluster) {
  if (cluster.hosts.empty()) return std::nullopt;
  std::int64_t total = 0;
  for (const ClusterHost& host : cluster.hosts) {
    const std::optional<std::int64_t> gpus = host.gpus ? host.gpus : cluster.gpus_per_host;
    if (!gpus) return std::nullopt;
    total += *gpus;
  }
  return total;
}

}  // namespace gtp
