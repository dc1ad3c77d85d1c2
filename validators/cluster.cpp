#include "validators/cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "validators/cluster_reading.hpp"
#include "validators/reading.hpp"

namespace gtp::readers {

namespace {

/// The first word of a line tells Slurm's formats apart from a list of hosts.
bool some_line_starts_with(std::string_view text, std::string_view start) {
  for (std::size_t at = 0; at < text.size();) {
    std::string_view line = trimmed(next_line(text, at));
    if (line.starts_with("export ")) line = trimmed(line.substr(7));
    if (line.starts_with(start)) return true;
  }
  return false;
}

bool read_detected(ClusterReading& reading, const Source& source) {
  const std::size_t first = reading.text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return reading.fail(0, 0, "nothing is in it");
  if (reading.text[first] == '{') return read_cluster_json(reading, source);
  if (reading.text[first] == '<') return read_nccl_topology(reading);
  for (const std::string_view start : {"SwitchName=", "BlockName="})
    if (some_line_starts_with(reading.text, start)) return read_slurm_topology(reading);
  if (some_line_starts_with(reading.text, "SLURM_")) return read_slurm_variables(reading, source);
  if (some_line_starts_with(reading.text, "GPU0")) return read_nvidia_smi_topology(reading);
  return read_host_file(reading);
}

template <class T>
void fill(T& to, T&& from) {
  if (to == T{}) to = std::forward<T>(from);
}

}  // namespace

std::string without_escapes(std::string text) {
  for (std::size_t at = text.find('\x1B'); at != std::string::npos; at = text.find('\x1B', at)) {
    std::size_t end = at + 1;
    if (end < text.size() && text[end] == '[') {
      ++end;
      while (end < text.size() && (text[end] == ';' || (text[end] >= '0' && text[end] <= '9'))) ++end;
      if (end < text.size() && text[end] == 'm') ++end;
    }
    std::fill(text.begin() + static_cast<std::ptrdiff_t>(at), text.begin() + static_cast<std::ptrdiff_t>(end), ' ');
  }
  return text;
}

std::optional<Cluster> read_cluster(const Source& source, std::uint32_t index, Diagnostics& out) {
  ClusterReading reading(source.text, index, out);
  if (!read_detected(reading, source)) return std::nullopt;
  if (reading.cluster.hosts.size() > kMostClusterHosts) {
    reading.fail(0, 0, fmt::format("more than {} hosts are listed", kMostClusterHosts));
    return std::nullopt;
  }
  return std::move(reading.cluster);
}

void add_missing(Cluster& cluster, Cluster other) {
  fill(cluster.name, std::move(other.name));
  fill(cluster.gpu_arch, std::move(other.gpu_arch));
  fill(cluster.gpu_memory_gib, std::move(other.gpu_memory_gib));
  fill(cluster.gpus_per_host, std::move(other.gpus_per_host));
  fill(cluster.hosts_per_domain, std::move(other.hosts_per_domain));
  fill(cluster.gpu_numa, std::move(other.gpu_numa));
  if (cluster.nics.empty()) cluster.nics = std::move(other.nics);
  if (cluster.hosts.empty()) {
    cluster.hosts = std::move(other.hosts);
    return;
  }
  std::unordered_map<std::string_view, ClusterHost*> others;
  for (ClusterHost& host : other.hosts) others.try_emplace(host.name, &host);
  for (ClusterHost& host : cluster.hosts) {
    const auto at = others.find(host.name);
    if (at == others.end()) continue;
    fill(host.gpus, std::move(at->second->gpus));
    fill(host.domain, std::move(at->second->domain));
    fill(host.switches, std::move(at->second->switches));
  }
}

}  // namespace gtp::readers
