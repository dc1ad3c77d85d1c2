// Tries few orders and keeps the best: hosts of a domain together, taken from each domain in whole blocks of the sizes
// in which ranks belong together, what is left of the domains last.
#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include <gtp/checked.hpp>

#include "planner/placement.hpp"

namespace gtp::planner {

namespace {

using Order = std::vector<std::size_t>;

/// The families that talk most, in the order in which crossing hurts: within a layer, around each GEMM, around each
/// layer, then all others together.
constexpr std::array<std::string_view, 8> kMostTalkative{"tp", "ep_tp",          "gtp_remat", "ep",
                                                         "cp", "expt_gtp_remat", "tp_ep_mp",  "tp_cp"};

struct Score {
  std::array<std::int64_t, kMostTalkative.size()> crossing{};
  std::int64_t other = 0;
  /// Domains in use: fewer leave whole ones to other jobs.
  std::int64_t domains = 0;

  friend auto operator<=>(const Score&, const Score&) = default;
};

Score score_of(const Topology& topology, const HostLayout& layout) {
  Score score;
  for (const GroupFamilyRow& row : kGroupFamilies) {
    const FamilyPlacement count = count_placement(topology, row, layout);
    const auto at = std::find(kMostTalkative.begin(), kMostTalkative.end(), row.name);
    if (at == kMostTalkative.end())
      score.other += count.crossing;
    else
      score.crossing.at(static_cast<std::size_t>(at - kMostTalkative.begin())) = count.crossing;
  }
  score.domains = layout.domain_count(topology.world_size);
  return score;
}

/// Hosts of each domain, neighbours on a switch side by side, likewise the domains.
std::vector<Order> hosts_by_domain(const Cluster& cluster) {
  const std::vector<std::uint32_t> domains = domains_of_hosts(cluster);
  std::vector<Order> hosts(domains.empty() ? 0 : *std::max_element(domains.begin(), domains.end()) + std::size_t{1});
  for (std::size_t i = 0; i < domains.size(); ++i) hosts[domains[i]].push_back(i);
  const auto under_lower_switch = [&](std::size_t left, std::size_t right) {
    const auto &a = cluster.hosts[left].switches, &b = cluster.hosts[right].switches;
    return std::lexicographical_compare(a.rbegin(), a.rend(), b.rbegin(), b.rend());
  };
  for (Order& domain : hosts) std::stable_sort(domain.begin(), domain.end(), under_lower_switch);
  std::stable_sort(hosts.begin(), hosts.end(),
                   [&](const Order& a, const Order& b) { return under_lower_switch(a.front(), b.front()); });
  return hosts;
}

/// Numbers of hosts that hold whole blocks of both grids' axes, and what two of them have in common, up to `most`.
std::set<std::int64_t> block_sizes(const Topology& topology, std::int64_t ranks_per_host, std::int64_t most) {
  std::set<std::int64_t> single{1};
  const auto add = [&](std::set<std::int64_t>& sizes, std::int64_t a, std::int64_t b) {
    const std::optional<std::int64_t> common = checked_multiply(a / std::gcd(a, b), b);
    if (common && *common / ranks_per_host <= most) sizes.insert(*common / ranks_per_host);
  };
  for (const GridKind kind : {GridKind::kDense, GridKind::kExpert}) {
    const Grid grid = make_grid(kind, topology);
    for (const GridAxis& axis : grid.axes()) add(single, axis.stride * axis.size, ranks_per_host);
  }
  std::set<std::int64_t> sizes = single;
  for (const std::int64_t a : single)
    for (const std::int64_t b : single) add(sizes, a * ranks_per_host, b * ranks_per_host);
  return sizes;
}

Order in_blocks(std::span<const Order> domains, std::int64_t block) {
  Order order, rest;
  for (const Order& domain : domains) {
    const std::size_t whole = domain.size() - domain.size() % static_cast<std::size_t>(block);
    const auto end_of_whole = domain.begin() + static_cast<std::ptrdiff_t>(whole);
    order.insert(order.end(), domain.begin(), end_of_whole);
    rest.insert(rest.end(), end_of_whole, domain.end());
  }
  order.insert(order.end(), rest.begin(), rest.end());
  return order;
}

class Search {
 public:
  Search(const Cluster& cluster, const Topology& topology, std::optional<std::int64_t> gpus_per_node)
      : cluster_(cluster), topology_(topology), gpus_per_node_(gpus_per_node), best_(cluster.hosts.size()) {
    std::iota(best_.begin(), best_.end(), std::size_t{0});
    if (const auto score = score_if_possible(best_)) best_score_ = *score;
  }

  void offer(Order order) {
    const std::optional<Score> score = score_if_possible(order);
    if (!score || !(*score < best_score_)) return;
    best_score_ = *score;
    best_ = std::move(order);
  }

  Order result() { return std::move(best_); }

 private:
  [[nodiscard]] std::optional<Score> score_if_possible(const Order& order) const {
    const LayoutResult result = make_layout(cluster_, topology_.world_size, gpus_per_node_, order);
    if (!result.layout) return std::nullopt;
    return score_of(topology_, *result.layout);
  }

  const Cluster& cluster_;
  const Topology& topology_;
  std::optional<std::int64_t> gpus_per_node_;
  Order best_;
  Score best_score_{};
};

}  // namespace

std::vector<std::size_t> reorder_hosts(const Cluster& cluster, const Topology& topology,
                                       std::optional<std::int64_t> gpus_per_node) {
  std::vector<Order> domains = hosts_by_domain(cluster);
  std::size_t most = 1;
  for (const Order& domain : domains) most = std::max(most, domain.size());
  const std::optional<std::int64_t> ranks_per_host = gpus_per_node ? gpus_per_node : common_gpus_per_host(cluster);
  const std::set<std::int64_t> blocks = ranks_per_host
                                            ? block_sizes(topology, *ranks_per_host, static_cast<std::int64_t>(most))
                                            : std::set<std::int64_t>{1};
  Search search(cluster, topology, gpus_per_node);
  for (const std::int64_t block : blocks) search.offer(in_blocks(domains, block));
  std::stable_sort(domains.begin(), domains.end(), [](const Order& a, const Order& b) { return a.size() > b.size(); });
  for (const std::int64_t block : blocks) search.offer(in_blocks(domains, block));
  return search.result();
}

}  // namespace gtp::planner
