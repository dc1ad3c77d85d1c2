// Which host and which NVLink domain a rank is in: hosts in the order in which ranks fill them. Hosts that are all
// alike are computed, so that nothing grows with the world.
#pragma once

#include <gtp/cluster.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gtp::planner {

struct PlacedHost {
  /// Ranks on this host; positive.
  std::int64_t ranks = 1;
  /// Hosts with the same number are in one NVLink domain.
  std::uint32_t domain = 0;
};

class HostLayout {
 public:
  /// As many hosts as it takes, all of them full. Preconditions: both numbers are positive and their product fits into
  /// 64 bits.
  [[nodiscard]] static HostLayout alike(std::int64_t ranks_per_host, std::int64_t hosts_per_domain);
  [[nodiscard]] static HostLayout listed(std::span<const PlacedHost> hosts);

  /// Ranks that there is room for.
  [[nodiscard]] std::int64_t capacity() const {
    return starts_.empty() ? std::numeric_limits<std::int64_t>::max() : starts_.back();
  }
  [[nodiscard]] std::uint64_t domain_of_host(std::int64_t host) const {
    return starts_.empty() ? static_cast<std::uint64_t>(host / hosts_per_domain_)
                           : domains_[static_cast<std::size_t>(host)];
  }
  /// Hosts `first` to `last` are all in one domain. Precondition: `first <= last`.
  [[nodiscard]] bool one_domain(std::int64_t first, std::int64_t last) const {
    if (starts_.empty()) return first / hosts_per_domain_ == last / hosts_per_domain_;
    return run_ends_[static_cast<std::size_t>(first)] > last;
  }
  /// No domain has two ranks that are further apart.
  [[nodiscard]] std::int64_t widest_domain() const { return widest_domain_; }
  /// Ranks on every host, where that is the same for all.
  [[nodiscard]] std::optional<std::int64_t> ranks_per_host() const { return ranks_per_host_; }

  /// Of the first `world_size` ranks. Precondition: 0 < `world_size` <= capacity().
  [[nodiscard]] std::int64_t host_count(std::int64_t world_size) const;
  [[nodiscard]] std::int64_t domain_count(std::int64_t world_size) const;

  /// Finds the hosts of ranks that never decrease, without a search.
  class Cursor {
   public:
    explicit Cursor(const HostLayout& layout) : layout_(&layout), end_(layout.end_of(0)) {}
    /// Precondition: not less than the rank before, and below capacity().
    std::int64_t host_of(std::int64_t rank) {
      if (rank >= end_) move_to(rank);
      return host_;
    }

   private:
    void move_to(std::int64_t rank) {
      if (layout_->starts_.empty()) {
        host_ = rank / *layout_->ranks_per_host_;
      } else {
        while (rank >= layout_->end_of(host_)) ++host_;
      }
      end_ = layout_->end_of(host_);
    }

    const HostLayout* layout_;
    std::int64_t host_ = 0;
    std::int64_t end_;
  };

 private:
  /// The first rank beyond a host.
  [[nodiscard]] std::int64_t end_of(std::int64_t host) const {
    if (!starts_.empty()) return starts_[static_cast<std::size_t>(host) + 1];
    const std::int64_t ranks = *ranks_per_host_, all = std::numeric_limits<std::int64_t>::max();
    return host + 1 > all / ranks ? all : (host + 1) * ranks;
  }

  std::optional<std::int64_t> ranks_per_host_{};
  std::int64_t hosts_per_domain_ = 1;
  std::int64_t widest_domain_ = 0;
  std::vector<std::int64_t> starts_{};    // of each host, then the capacity; empty: all hosts are alike
  std::vector<std::uint32_t> domains_{};  // of each host
  std::vector<std::int64_t> run_ends_{};  // of each host: the first one after it that is in another domain
};

/// Exactly one of the two is there; the problem says why there is no layout, for a person.
struct LayoutResult {
  std::optional<HostLayout> layout{};
  std::string problem{};
};

/// The domain of each listed host, as a number.
[[nodiscard]] std::vector<std::uint32_t> domains_of_hosts(const Cluster& cluster);

/// The ranks of a job on a cluster. `gpus_per_node`: GPUs that the job uses of each host; nothing: all of them.
/// `order`: numbers of hosts of `cluster.hosts`, each at most once; empty: as they are listed.
[[nodiscard]] LayoutResult make_layout(const Cluster& cluster, std::int64_t world_size,
                                       std::optional<std::int64_t> gpus_per_node,
                                       std::span<const std::size_t> order = {});

}  // namespace gtp::planner
