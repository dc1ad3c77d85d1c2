// What the readers of clusters share, and the readers themselves, a function for each format.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <gtp/cluster.hpp>
#include <gtp/diagnostic.hpp>
#include <gtp/rules/form.hpp>

#include "validators/hostlist.hpp"
#include "validators/source.hpp"

namespace gtp::readers {

/// Levels of switches above a host, and the length of their names and of those of domains, so that a small text cannot
/// make each of many hosts large.
inline constexpr std::size_t kMostSwitchLevels = 8;
inline constexpr std::size_t kLongestSwitchName = 64;

/// A text being read into a cluster.
class ClusterReading {
 public:
  ClusterReading(std::string_view bytes, std::uint32_t source, Diagnostics& out)
      : text(bytes), source_(source), out_(out) {}

  const std::string_view text;
  Cluster cluster{};

  /// Says why the text cannot be read; false, so that a reader can return it.
  bool fail(Place place, std::string label) {
    out_.push_back(rules::at_place(rules::kUnreadable, "", place, std::move(label)));
    out_.back().help = "correct the description of the cluster at the place shown";
    return false;
  }
  /// Beyond the text means its end.
  bool fail(std::size_t begin, std::size_t end, std::string label) {
    return fail(place(std::min(begin, text.size()), std::min(end, text.size())), std::move(label));
  }
  /// At a part of `text`.
  bool fail(std::string_view part, std::string label) {
    const auto begin = static_cast<std::size_t>(part.data() - text.data());
    return fail(begin, begin + part.size(), std::move(label));
  }
  void warn(Place place, std::string label) {
    out_.push_back(rules::at_place(rules::kNotUnderstood, "", place, std::move(label)));
  }
  [[nodiscard]] Place place(std::size_t begin, std::size_t end) const {
    return {source_, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
  }
  [[nodiscard]] std::uint32_t source() const { return source_; }
  [[nodiscard]] Diagnostics& out() { return out_; }

  /// The host of this name, added if it is new.
  ClusterHost& host(std::string name) {
    const auto [at, is_new] = numbers_.try_emplace(name, cluster.hosts.size());
    if (is_new) cluster.hosts.push_back({std::move(name)});
    return cluster.hosts[at->second];
  }

  /// Names of hosts or switches. `at`: where the list's first byte is in the source. False after a `fail`.
  bool expand(std::string_view list, std::size_t at, std::vector<std::string>& names) {
    const std::optional<HostlistProblem> problem = expand_hostlist(list, budget_, names);
    return !problem || fail(at + problem->offset, at + problem->offset + 1, problem->what);
  }

 private:
  std::uint32_t source_;
  Diagnostics& out_;
  std::unordered_map<std::string, std::size_t> numbers_;
  /// Every level of switches lists its hosts again.
  std::size_t budget_ = kMostSwitchLevels * kMostClusterHosts;
};

/// The next line of `text` from `at`, without its end, and `at` after it.
inline std::string_view next_line(std::string_view text, std::size_t& at) {
  const std::size_t end = std::min(text.find('\n', at), text.size());
  std::string_view line = text.substr(at, end - at);
  at = std::min(end + 1, text.size());
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

inline std::string_view trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t\r\f\v"), text.size());
  const std::size_t end = text.find_last_not_of(" \t\r\f\v") + 1;
  return begin < end ? text.substr(begin, end - begin) : std::string_view();
}

/// Each returns false after a `fail`.
[[nodiscard]] bool read_cluster_json(ClusterReading& reading, const Source& source);
[[nodiscard]] bool read_nccl_topology(ClusterReading& reading);
[[nodiscard]] bool read_nvidia_smi_topology(ClusterReading& reading);
[[nodiscard]] bool read_slurm_topology(ClusterReading& reading);
[[nodiscard]] bool read_slurm_variables(ClusterReading& reading, const Source& source);
[[nodiscard]] bool read_host_file(ClusterReading& reading);

}  // namespace gtp::readers
