// `nvidia-smi topo -m`: one host's GPUs, their NUMA nodes, and which NICs they reach through PCIe bridges alone. It
// says nothing of what is between hosts.
#include <fmt/format.h>

#include <algorithm>

#include <gtp/assign.hpp>

#include "validators/cluster_reading.hpp"

namespace gtp::readers {

namespace {

/// Cells are apart by tabs, which come in any number, or in a copy from a terminal by two blanks or more.
std::vector<std::string_view> cells_of(std::string_view line) {
  const bool tabs = line.find('\t') != std::string_view::npos;
  std::vector<std::string_view> cells;
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t end = std::min(line.find(tabs ? "\t" : "  ", at), line.size());
    const std::string_view cell = trimmed(line.substr(at, end - at));
    if (!cell.empty()) cells.push_back(cell);
    at = end + (tabs ? 1 : 2);
  }
  return cells;
}

bool is_gpu(std::string_view cell) {
  return cell.starts_with("GPU") && cell.size() > 3 &&
         std::all_of(cell.begin() + 3, cell.end(), [](char c) { return c >= '0' && c <= '9'; });
}

class TopologyMatrix {
 public:
  explicit TopologyMatrix(ClusterReading& reading) : reading_(reading) {}

  bool read() {
    bool legend = false;
    for (std::size_t at = 0; at < reading_.text.size();) {
      const std::string_view line = next_line(reading_.text, at);
      const std::vector<std::string_view> cells = cells_of(line);
      if (cells.empty()) continue;
      if (gpus_ == 0) {
        if (!read_header(cells)) return false;
      } else if (cells.front() == "NIC Legend:") {
        legend = true;
      } else if (legend) {
        read_legend(trimmed(line));
      } else if (is_gpu(cells.front()) && !read_row(cells)) {
        return false;
      }
    }
    return finish();
  }

 private:
  bool read_header(const std::vector<std::string_view>& cells) {
    for (const std::string_view cell : cells) {
      if (is_gpu(cell) && nics_.empty())
        ++gpus_;
      else if (cell.find(' ') != std::string_view::npos)
        rest_.push_back(cell);
      else if (rest_.empty())
        nics_.push_back({std::string(cell.substr(0, kLongestSwitchName)), {}, {}});
    }
    if (gpus_ == 0) nics_.clear();
    if (gpus_ > static_cast<std::size_t>(kMostGpusPerHost) || nics_.size() > static_cast<std::size_t>(kMostGpusPerHost))
      return reading_.fail(cells.front(), "these are too many GPUs or NICs for one host");
    if (gpus_ == 0) rest_.clear();
    return true;
  }

  bool read_row(const std::vector<std::string_view>& cells) {
    const std::size_t gpu = rows_++, matrix = 1 + gpus_ + nics_.size();
    if (gpu >= gpus_) return reading_.fail(cells.front(), "this GPU has no column");
    if (cells.size() < matrix)
      return reading_.fail(cells.back(),
                           fmt::format("this row has {} cells, and the header has {}", cells.size() - 1, matrix - 1));
    for (std::size_t nic = 0; nic < nics_.size(); ++nic) {
      const std::string_view link = cells[1 + gpus_ + nic];
      if (link == "PIX" || link == "PXB") nics_[nic].gpus.push_back(static_cast<std::int64_t>(gpu));
    }
    const auto numa = std::find(rest_.begin(), rest_.end(), "NUMA Affinity");
    const auto at = matrix + static_cast<std::size_t>(numa - rest_.begin());
    if (numa == rest_.end() || cells.size() != matrix + rest_.size()) return true;  // a column may be empty
    const std::optional<std::int64_t> node = parse_int(cells[at]).value;
    if (node && *node >= 0 && *node <= kMostGpusPerHost) numa_.push_back(*node);
    return true;
  }

  /// `NIC0: mlx5_0`.
  void read_legend(std::string_view line) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return;
    const std::string_view name = trimmed(line.substr(colon + 1)).substr(0, kLongestSwitchName);
    for (ClusterNic& nic : nics_)
      if (nic.name == line.substr(0, colon) && !name.empty()) {
        nic.name = name;
        return;
      }
  }

  bool finish() {
    if (rows_ != gpus_)
      return reading_.fail(0, 0, fmt::format("the header has {} GPUs, and {} have a row", gpus_, rows_));
    Cluster& cluster = reading_.cluster;
    cluster.gpus_per_host = static_cast<std::int64_t>(gpus_);
    if (numa_.size() == gpus_) cluster.gpu_numa = std::move(numa_);
    for (ClusterNic& nic : nics_)
      if (!nic.gpus.empty() && !cluster.gpu_numa.empty())
        nic.numa = cluster.gpu_numa[static_cast<std::size_t>(nic.gpus.front())];
    cluster.nics = std::move(nics_);
    return true;
  }

  ClusterReading& reading_;
  std::size_t gpus_ = 0, rows_ = 0;
  std::vector<ClusterNic> nics_{};
  std::vector<std::string_view> rest_{};  // columns after the matrix
  std::vector<std::int64_t> numa_{};
};

}  // namespace

bool read_nvidia_smi_topology(ClusterReading& reading) { return TopologyMatrix(reading).read(); }

}  // namespace gtp::readers
