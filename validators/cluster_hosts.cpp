// Host files of MPI and of Slurm: a host a line, with its slots, or as often as it has ranks.
#include <fmt/format.h>

#include <algorithm>

#include <gtp/assign.hpp>

#include "validators/cluster_reading.hpp"

namespace gtp::readers {

namespace {

class HostFileReader {
 public:
  explicit HostFileReader(ClusterReading& reading) : reading_(reading) {}

  bool read() {
    for (std::size_t at = 0; at < reading_.text.size();) {
      std::string_view line = next_line(reading_.text, at);
      line = trimmed(line.substr(0, std::min(line.find('#'), line.size())));
      if (!line.empty() && !read_line(line)) return false;
    }
    if (reading_.cluster.hosts.empty()) return reading_.fail(0, 0, "no host is named");
    const bool repeated = std::any_of(lines_.begin(), lines_.end(), [](std::int64_t n) { return n > 1; });
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      std::optional<std::int64_t>& gpus = reading_.cluster.hosts[i].gpus;
      if (repeated && !gpus) gpus = lines_[i];
      if (gpus.value_or(0) > kMostGpusPerHost)
        return reading_.fail(0, 0, fmt::format("the host `{}` has too many slots", reading_.cluster.hosts[i].name));
    }
    return true;
  }

 private:
  bool read_line(std::string_view line) {
    std::size_t end = std::min(line.find_first_of(" \t"), line.size());
    std::string_view name = line.substr(0, end);
    const std::size_t colon = name.find(':');
    std::optional<std::string_view> slots;
    if (colon != std::string_view::npos) {
      slots = name.substr(colon + 1);
      name = name.substr(0, colon);
    }
    if (!is_host_name(name))
      return reading_.fail(line.substr(0, std::max<std::size_t>(end, 1)), "expected a host's name");
    while (end < line.size()) {
      const std::size_t begin = std::min(line.find_first_not_of(" \t", end), line.size());
      end = std::min(line.find_first_of(" \t", begin), line.size());
      const std::string_view word = line.substr(begin, end - begin);
      if (word.starts_with("slots="))
        slots = word.substr(6);
      else if (word.find('=') == std::string_view::npos)
        return reading_.fail(word, "expected `slots=` and a number");
    }
    return add(name, slots);
  }

  bool add(std::string_view name, std::optional<std::string_view> slots) {
    ClusterHost& host = reading_.host(std::string(name));
    if (reading_.cluster.hosts.size() > kMostClusterHosts) return reading_.fail(name, "these are too many hosts");
    lines_.resize(reading_.cluster.hosts.size());
    ++lines_[static_cast<std::size_t>(&host - reading_.cluster.hosts.data())];
    if (!slots) return true;
    const std::optional<std::int64_t> count = parse_int(*slots).value;
    if (!count || *count < 1 || *count > kMostGpusPerHost)
      return reading_.fail(*slots, fmt::format("expected a number of slots from 1 to {}", kMostGpusPerHost));
    host.gpus = host.gpus.value_or(0) + *count;
    return true;
  }

  ClusterReading& reading_;
  std::vector<std::int64_t> lines_{};  // that name each host
};

}  // namespace

bool read_host_file(ClusterReading& reading) { return HostFileReader(reading).read(); }

}  // namespace gtp::readers
