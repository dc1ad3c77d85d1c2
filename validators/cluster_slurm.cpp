// What Slurm says of a cluster: `scontrol show topology` (and topology.conf, which has the same lines), and the
// variables that it sets for a job.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include <gtp/assign.hpp>

#include "validators/cluster_reading.hpp"
#include "validators/env_file.hpp"

namespace gtp::readers {

namespace {

/// The value of `Key=` in a line; empty when there is none.
std::string_view value_of(std::string_view line, std::string_view key) {
  for (std::size_t at = line.find(key); at != std::string_view::npos; at = line.find(key, at + 1)) {
    if (at != 0 && line[at - 1] != ' ' && line[at - 1] != '\t') continue;
    const std::string_view rest = line.substr(at + key.size());
    return rest.substr(0, std::min(rest.find_first_of(" \t"), rest.size()));
  }
  return {};
}

class SlurmTopology {
 public:
  explicit SlurmTopology(ClusterReading& reading) : reading_(reading) {}

  bool read() {
    for (std::size_t at = 0; at < reading_.text.size();) {
      const std::string_view line = trimmed(next_line(reading_.text, at));
      if (line.empty() || line.starts_with('#')) continue;
      if (!read_line(line)) return false;
    }
    if (reading_.cluster.hosts.empty()) return reading_.fail(0, 0, "no switch or block lists a host");
    for (ClusterHost& host : reading_.cluster.hosts) add_parents(host);
    return true;
  }

 private:
  bool read_line(std::string_view line) {
    if (line.starts_with("SwitchName=")) return read_switch(line);
    if (line.starts_with("BlockName="))
      return read_hosts(line, value_of(line, "BlockName="), &SlurmTopology::set_domain);
    if (line.starts_with("AggregatedBlock="))
      return read_hosts(line, value_of(line, "AggregatedBlock="), &SlurmTopology::set_switch);
    return true;  // `BlockSizes=` and what later versions add
  }

  bool expect_name(std::string_view name, std::string_view line) {
    if (!name.empty() && name.size() <= kLongestSwitchName) return true;
    return reading_.fail(name.empty() ? line : name, "expected a name of up to 64 bytes");
  }

  bool expand(std::string_view list, std::vector<std::string>& names) {
    return reading_.expand(list, static_cast<std::size_t>(list.data() - reading_.text.data()), names);
  }

  /// Switches above others list all hosts below them, too: the leaves say which host is where.
  bool read_switch(std::string_view line) {
    const std::string_view name = value_of(line, "SwitchName="), below = value_of(line, "Switches=");
    if (below.empty()) return read_hosts(line, name, &SlurmTopology::set_switch);
    if (!expect_name(name, line)) return false;
    std::vector<std::string> switches;
    if (!expand(below, switches)) return false;
    for (std::string& lower : switches) parents_.try_emplace(std::move(lower), name);
    return true;
  }

  bool read_hosts(std::string_view line, std::string_view name,
                  void (SlurmTopology::*set)(ClusterHost&, std::string_view)) {
    if (!expect_name(name, line)) return false;
    const std::string_view list = value_of(line, "Nodes=");
    std::vector<std::string> names;
    if (list.empty()) return true;
    if (!expand(list, names)) return false;
    for (std::string& host : names) (this->*set)(reading_.host(std::move(host)), name);
    return reading_.cluster.hosts.size() <= kMostClusterHosts || reading_.fail(list, "these are too many hosts");
  }

  void set_domain(ClusterHost& host, std::string_view block) {
    if (host.domain.empty()) host.domain = block;
  }
  void set_switch(ClusterHost& host, std::string_view leaf) {
    if (host.switches.empty()) host.switches.emplace_back(leaf);
  }
  void add_parents(ClusterHost& host) const {
    while (!host.switches.empty() && host.switches.size() < kMostSwitchLevels) {
      const auto parent = parents_.find(host.switches.back());
      if (parent == parents_.end()) return;
      host.switches.emplace_back(parent->second);
    }
  }

  ClusterReading& reading_;
  std::unordered_map<std::string, std::string_view> parents_{};
};

class SlurmVariables {
 public:
  SlurmVariables(ClusterReading& reading, const Source& source) : reading_(reading) {
    Diagnostics ignored;  // other lines of `env` are no matter of ours
    variables_ = read_env_file(source, reading.source(), ignored);
  }

  bool read() {
    const Variable* list = find({"SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_STEP_NODELIST"});
    if (list == nullptr) return reading_.fail(0, 0, "no SLURM_JOB_NODELIST is in it");
    std::vector<std::string> names;
    if (!reading_.expand(list->value, list->place.begin, names)) return false;
    if (names.size() > kMostClusterHosts) return reading_.fail(list->place, "these are too many hosts");
    for (std::string& name : names) reading_.host(std::move(name));
    return check_count(*list) && set_gpus() && set_segment();
  }

 private:
  /// The last setting of the first variable that is set.
  [[nodiscard]] const Variable* find(std::initializer_list<std::string_view> names) const {
    for (const std::string_view name : names) {
      const auto at = std::find_if(variables_.rbegin(), variables_.rend(),
                                   [&](const Variable& v) { return v.name == name && !v.value.empty(); });
      if (at != variables_.rend()) return &*at;
    }
    return nullptr;
  }

  bool number(const Variable& variable, std::string_view text, std::int64_t most, std::int64_t& value) {
    const std::optional<std::int64_t> parsed = parse_int(text).value;
    if (!parsed || *parsed < 1 || *parsed > most)
      return reading_.fail(variable.place, fmt::format("expected a number from 1 to {}", most));
    value = *parsed;
    return true;
  }

  bool check_count(const Variable& list) {
    const Variable* count = find({"SLURM_JOB_NUM_NODES", "SLURM_NNODES"});
    std::int64_t nodes = 0;
    if (count == nullptr) return true;
    if (!number(*count, count->value, static_cast<std::int64_t>(kMostClusterHosts), nodes)) return false;
    const std::size_t listed = reading_.cluster.hosts.size();
    return listed == static_cast<std::size_t>(nodes) ||
           reading_.fail(list.place, fmt::format("{} hosts are listed, and {} says {}", listed, count->name, nodes));
  }

  /// GPUs where Slurm says them (`8`, `h100:8`), else processes if there is more than one on a host: one for each GPU.
  bool set_gpus() {
    std::int64_t gpus = 0;
    if (const Variable* variable = find({"SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"})) {
      const std::string_view value = variable->value;
      const std::size_t colon = value.rfind(':');
      if (!number(*variable, value.substr(colon == std::string_view::npos ? 0 : colon + 1), kMostGpusPerHost, gpus))
        return false;
      reading_.cluster.gpus_per_host = gpus;
      return true;
    }
    const Variable* tasks = find({"SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"});
    return tasks == nullptr || set_tasks(*tasks);
  }

  /// `4(x16)`, `2(x3),1`.
  bool set_tasks(const Variable& variable) {
    std::vector<std::int64_t> tasks;
    std::string_view rest = variable.value;
    const std::size_t hosts = reading_.cluster.hosts.size();
    while (!rest.empty()) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      std::string_view item = rest.substr(0, comma);
      rest.remove_prefix(std::min(comma + 1, rest.size()));
      std::int64_t count = 0, times = 1;
      const std::size_t repeat = item.find("(x");
      if (repeat != std::string_view::npos && item.ends_with(')')) {
        if (!number(variable, item.substr(repeat + 2, item.size() - repeat - 3), static_cast<std::int64_t>(hosts),
                    times))
          return false;
        item = item.substr(0, repeat);
      }
      if (!number(variable, item, kMostGpusPerHost, count)) return false;
      if (tasks.size() + static_cast<std::size_t>(times) > hosts)
        return reading_.fail(variable.place, fmt::format("it counts more than the {} hosts that are listed", hosts));
      tasks.insert(tasks.end(), static_cast<std::size_t>(times), count);
    }
    if (tasks.size() != hosts)
      return reading_.fail(variable.place, fmt::format("it counts {} hosts, and {} are listed", tasks.size(), hosts));
    if (*std::max_element(tasks.begin(), tasks.end()) == 1) return true;
    for (std::size_t i = 0; i < hosts; ++i) reading_.cluster.hosts[i].gpus = tasks[i];
    return true;
  }

  /// Hosts come in segments, each from one block.
  bool set_segment() {
    const Variable* segment = find({"SLURM_JOB_SEGMENT_SIZE"});
    std::int64_t size = 0;
    if (segment == nullptr) return true;
    if (!number(*segment, segment->value, static_cast<std::int64_t>(kMostClusterHosts), size)) return false;
    reading_.cluster.hosts_per_domain = size;
    return true;
  }

  ClusterReading& reading_;
  std::vector<Variable> variables_{};
};

}  // namespace

bool read_slurm_topology(ClusterReading& reading) { return SlurmTopology(reading).read(); }

bool read_slurm_variables(ClusterReading& reading, const Source& source) {
  return SlurmVariables(reading, source).read();
}

}  // namespace gtp::readers
