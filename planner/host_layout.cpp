#include "planner/host_layout.hpp"

#include <fmt/format.h>

#include <map>
#include <numeric>
#include <string_view>
#include <unordered_set>

#include <gtp/checked.hpp>

namespace gtp::planner {

namespace {

/// GPUs of a host that the job uses; nothing, and the problem, when that cannot be.
std::optional<std::int64_t> ranks_on(const Cluster& cluster, const ClusterHost& host,
                                     std::optional<std::int64_t> gpus_per_node, std::string& problem) {
  const std::optional<std::int64_t> gpus = host.gpus ? host.gpus : cluster.gpus_per_host;
  if (!gpus && !gpus_per_node) {
    problem = fmt::format("it is not known how many GPUs the host `{}` has", host.name);
    return std::nullopt;
  }
  if (gpus && gpus_per_node && *gpus_per_node > *gpus) {
    problem = fmt::format("the job uses {} GPUs of a host, and `{}` has {}", *gpus_per_node, host.name, *gpus);
    return std::nullopt;
  }
  return gpus_per_node ? gpus_per_node : gpus;
}

LayoutResult layout_of_alike(const Cluster& cluster, std::optional<std::int64_t> gpus_per_node) {
  const std::optional<std::int64_t> ranks = gpus_per_node ? gpus_per_node : cluster.gpus_per_host;
  if (!ranks) return {std::nullopt, "it is not known how many GPUs a host has"};
  if (cluster.gpus_per_host && *ranks > *cluster.gpus_per_host)
    return {std::nullopt, fmt::format("the job uses {} GPUs of a host, and the cluster's hosts have {}", *ranks,
                                      *cluster.gpus_per_host)};
  return {HostLayout::alike(*ranks, cluster.hosts_per_domain.value_or(1)), {}};
}

}  // namespace

HostLayout HostLayout::alike(std::int64_t ranks_per_host, std::int64_t hosts_per_domain) {
  HostLayout layout;
  layout.ranks_per_host_ = ranks_per_host;
  layout.hosts_per_domain_ = hosts_per_domain;
  layout.widest_domain_ =
      checked_multiply(ranks_per_host, hosts_per_domain).value_or(std::numeric_limits<std::int64_t>::max());
  return layout;
}

HostLayout HostLayout::listed(std::span<const PlacedHost> hosts) {
  HostLayout layout;
  layout.starts_.assign(1, 0);
  std::map<std::uint32_t, std::int64_t> first_ranks;
  for (const PlacedHost& host : hosts) {
    const std::int64_t start = layout.starts_.back(), end = start + host.ranks;
    const std::int64_t first = first_ranks.try_emplace(host.domain, start).first->second;
    layout.widest_domain_ = std::max(layout.widest_domain_, end - first);
    layout.starts_.push_back(end);
    layout.domains_.push_back(host.domain);
  }
  layout.run_ends_.resize(hosts.size());
  for (std::size_t i = hosts.size(); i-- > 0;) {
    const bool continues = i + 1 < hosts.size() && hosts[i].domain == hosts[i + 1].domain;
    layout.run_ends_[i] = continues ? layout.run_ends_[i + 1] : static_cast<std::int64_t>(i) + 1;
  }
  const bool even = std::all_of(hosts.begin(), hosts.end(),
                                [&](const PlacedHost& host) { return host.ranks == hosts.front().ranks; });
  if (even && !hosts.empty()) layout.ranks_per_host_ = hosts.front().ranks;
  return layout;
}

std::int64_t HostLayout::host_count(std::int64_t world_size) const { return Cursor(*this).host_of(world_size - 1) + 1; }

std::int64_t HostLayout::domain_count(std::int64_t world_size) const {
  const std::int64_t hosts = host_count(world_size);
  if (starts_.empty()) return (hosts - 1) / hosts_per_domain_ + 1;
  const auto end = domains_.begin() + static_cast<std::ptrdiff_t>(hosts);
  return static_cast<std::int64_t>(std::unordered_set<std::uint32_t>(domains_.begin(), end).size());
}

std::vector<std::uint32_t> domains_of_hosts(const Cluster& cluster) {
  std::map<std::string_view, std::uint32_t> numbers;
  std::vector<std::uint32_t> domains;
  std::uint32_t next = 0, unnamed = 0;
  std::int64_t left = 0;  // hosts that the domain `unnamed` still takes
  for (const ClusterHost& host : cluster.hosts) {
    if (!host.domain.empty()) {
      const auto [at, is_new] = numbers.try_emplace(host.domain, next);
      next += is_new ? 1 : 0;
      domains.push_back(at->second);
      continue;
    }
    if (left == 0) {
      unnamed = next++;
      left = cluster.hosts_per_domain.value_or(1);
    }
    --left;
    domains.push_back(unnamed);
  }
  return domains;
}

LayoutResult make_layout(const Cluster& cluster, std::int64_t world_size, std::optional<std::int64_t> gpus_per_node,
                         std::span<const std::size_t> order) {
  if (cluster.hosts.empty()) return layout_of_alike(cluster, gpus_per_node);
  std::vector<std::size_t> as_listed(order.empty() ? cluster.hosts.size() : 0);
  std::iota(as_listed.begin(), as_listed.end(), std::size_t{0});
  const std::vector<std::uint32_t> domains = domains_of_hosts(cluster);
  std::vector<PlacedHost> hosts;
  LayoutResult result;
  std::int64_t room = 0;
  for (const std::size_t number : order.empty() ? std::span<const std::size_t>(as_listed) : order) {
    const auto ranks = ranks_on(cluster, cluster.hosts[number], gpus_per_node, result.problem);
    if (!ranks) return result;
    hosts.push_back({*ranks, domains[number]});
    room += *ranks;  // cannot overflow: hosts and GPUs of a host are bounded
    if (room >= world_size) break;
  }
  if (room < world_size)
    result.problem = fmt::format("the cluster has room for {} ranks on {} hosts, and the world has {}", room,
                                 hosts.size(), world_size);
  else
    result.layout = HostLayout::listed(hosts);
  return result;
}

}  // namespace gtp::planner
