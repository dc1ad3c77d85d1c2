// Counts of groups against counting rank by rank, orders of hosts, and advice.
#include "planner/placement.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <vector>

#include <gtp/check.hpp>

#include "tests/support/config.hpp"

using namespace gtp;
using namespace gtp::planner;

namespace {

struct Counts {
  std::int64_t in_host = 0, in_domain = 0, crossing = 0;
  friend bool operator==(const Counts&, const Counts&) = default;
};

Counts counts_of(const FamilyPlacement& placement) {
  CHECK(placement.in_host + placement.in_domain + placement.crossing == placement.groups);
  return {placement.in_host, placement.in_domain, placement.crossing};
}

/// Asks each rank for its group, and looks up its host.
Counts counted_by_rank(const Topology& topology, const GroupFamilyRow& row, const std::vector<PlacedHost>& hosts) {
  const GroupFamily family = make_group_family(topology, row);
  std::vector<std::size_t> host_of;
  for (std::size_t host = 0; host < hosts.size(); ++host)
    host_of.insert(host_of.end(), static_cast<std::size_t>(hosts[host].ranks), host);
  std::vector<std::set<std::size_t>> group_hosts(static_cast<std::size_t>(family.count()));
  std::vector<std::set<std::uint32_t>> group_domains(group_hosts.size());
  for (std::int64_t rank = 0; rank < topology.world_size; ++rank) {
    const std::optional<GroupPlace> place = family.group_of(rank);
    if (!place) continue;
    const std::size_t host = host_of.at(static_cast<std::size_t>(rank)), group = static_cast<std::size_t>(place->group);
    group_hosts[group].insert(host);
    group_domains[group].insert(hosts[host].domain);
  }
  Counts counts;
  for (std::size_t group = 0; group < group_hosts.size(); ++group)
    ++(group_hosts[group].size() == 1     ? counts.in_host
       : group_domains[group].size() == 1 ? counts.in_domain
                                          : counts.crossing);
  return counts;
}

std::int64_t pick(std::mt19937& random, std::initializer_list<std::int64_t> sizes) {
  return sizes.begin()[random() % sizes.size()];
}

std::optional<Topology> random_topology(std::mt19937& random) {
  const std::int64_t tp = pick(random, {1, 2, 3, 4, 8}), etp = pick(random, {1, 1, 2, 4});
  auto result = make_topology({.world_size = pick(random, {12, 16, 48, 64, 72, 96, 144, 192, 256}),
                               .tensor_model_parallel_size = tp,
                               .tensor_parallel_num_weight_shards = tp * pick(random, {1, 2, 3, 4, 8}),
                               .context_parallel_size = pick(random, {1, 1, 2, 3}),
                               .pipeline_model_parallel_size = pick(random, {1, 2, 3, 4}),
                               .expert_model_parallel_size = pick(random, {1, 2, 3, 4, 8, 16}),
                               .expert_tensor_parallel_size = etp,
                               .expert_tensor_parallel_num_weight_shards = etp * pick(random, {1, 1, 2}),
                               .use_tp_pp_dp_mapping = random() % 2 == 0});
  if (!result) return std::nullopt;
  Topology topology = *result;
  topology.cp_before_gtp_remat = random() % 4 == 0;
  return topology;
}

std::vector<PlacedHost> random_hosts(std::mt19937& random, std::int64_t world_size) {
  const bool uneven = random() % 3 == 0;
  const std::int64_t ranks = pick(random, {1, 2, 4, 5, 8}), domains = pick(random, {1, 2, 3, 8});
  const bool runs = random() % 2 == 0;
  std::vector<PlacedHost> hosts;
  for (std::int64_t room = 0; room < world_size; room += hosts.back().ranks) {
    const auto at = static_cast<std::int64_t>(hosts.size());
    const std::int64_t domain = runs ? at / domains : static_cast<std::int64_t>(random()) % domains;
    hosts.push_back({uneven ? pick(random, {1, 3, 8}) : ranks, static_cast<std::uint32_t>(domain)});
  }
  return hosts;
}

Topology topology_of(TopologyOptions options) {
  const TopologyResult result = make_topology(options);
  REQUIRE(result);
  return *result;
}

std::int64_t crossing(const Topology& topology, std::string_view family, const Cluster& cluster,
                      const std::vector<std::size_t>& order = {}) {
  const LayoutResult layout = make_layout(cluster, topology.world_size, std::nullopt, order);
  REQUIRE(layout.layout);
  return count_placement(topology, *find_group_family(family), *layout.layout).crossing;
}

/// Hosts of 4 GPUs; a letter for the domain of each.
Cluster cluster_of(std::string_view domains, std::int64_t gpus = 4) {
  Cluster cluster;
  for (const char domain : domains)
    cluster.hosts.push_back(
        {"n" + std::to_string(cluster.hosts.size()), gpus, std::string(1, domain), std::vector<std::string>{}});
  return cluster;
}

}  // namespace

TEST_CASE("counts on listed hosts are those of a count rank by rank") {
  std::mt19937 random(1);
  int compared = 0;
  while (compared < 300) {
    const std::optional<Topology> topology = random_topology(random);
    if (!topology) continue;
    const std::vector<PlacedHost> hosts = random_hosts(random, topology->world_size);
    const HostLayout layout = HostLayout::listed(hosts);
    for (const GroupFamilyRow& row : kGroupFamilies) {
      CAPTURE(row.name);
      REQUIRE(counts_of(count_placement(*topology, row, layout)) == counted_by_rank(*topology, row, hosts));
    }
    ++compared;
  }
}

TEST_CASE("hosts that are all alike count as if they were listed") {
  std::mt19937 random(2);
  int compared = 0;
  while (compared < 300) {
    const std::optional<Topology> topology = random_topology(random);
    if (!topology) continue;
    const std::int64_t ranks = pick(random, {1, 3, 4, 8, 16}), domain = pick(random, {1, 2, 18});
    std::vector<PlacedHost> hosts;
    for (std::int64_t host = 0; host * ranks < topology->world_size; ++host)
      hosts.push_back({ranks, static_cast<std::uint32_t>(host / domain)});
    const HostLayout alike = HostLayout::alike(ranks, domain), listed = HostLayout::listed(hosts);
    for (const GroupFamilyRow& row : kGroupFamilies) {
      CAPTURE(row.name);
      const FamilyPlacement count = count_placement(*topology, row, alike);
      REQUIRE(counts_of(count) == counted_by_rank(*topology, row, hosts));
      REQUIRE(count.one_rail == count_placement(*topology, row, listed).one_rail);
    }
    CHECK(alike.host_count(topology->world_size) == listed.host_count(topology->world_size));
    CHECK(alike.domain_count(topology->world_size) == listed.domain_count(topology->world_size));
    ++compared;
  }
}

TEST_CASE("a million ranks are counted without a list of them") {
  const Topology topology = topology_of({.world_size = 1'048'576,
                                         .tensor_model_parallel_size = 2,
                                         .tensor_parallel_num_weight_shards = 8,
                                         .pipeline_model_parallel_size = 4,
                                         .expert_model_parallel_size = 64,
                                         .expert_tensor_parallel_size = 1});
  const std::vector<FamilyPlacement> counts = count_placements(topology, HostLayout::alike(4, 16));
  REQUIRE(counts.size() == 22);
  CHECK(counts_of(counts[0]) == Counts{0, 131'072 * 2, 0});
  CHECK(counts[0].family->name == "gtp_remat");
  CHECK(counts_of(count_placement(topology, *find_group_family("ep"), HostLayout::alike(4, 16))) ==
        Counts{0, 16'384, 0});
  CHECK(counts_of(count_placement(topology, *find_group_family("dp"), HostLayout::alike(8, 1))).crossing == 8 * 4);
  CHECK(count_placement(topology, *find_group_family("dp"), HostLayout::alike(8, 1)).one_rail);
}

TEST_CASE("a layout needs room for the world and GPUs on every host") {
  const Cluster cluster = cluster_of("aab");
  CHECK(make_layout(cluster, 12, std::nullopt).layout);
  CHECK(make_layout(cluster, 13, std::nullopt).problem ==
        "the cluster has room for 12 ranks on 3 hosts, and the world has 13");
  CHECK(make_layout(cluster, 8, 8).problem == "the job uses 8 GPUs of a host, and `n0` has 4");
  CHECK(make_layout(cluster, 6, 2).layout->host_count(6) == 3);
  CHECK(make_layout(Cluster{}, 6, std::nullopt).problem == "it is not known how many GPUs a host has");
  CHECK(make_layout(make_cluster(*find_cluster_preset("gb200-nvl72")), 144, std::nullopt).layout->domain_count(144) ==
        2);
}

TEST_CASE("hosts whose domain is not known fill domains in their order") {
  Cluster cluster = cluster_of("aabb");
  for (ClusterHost& host : cluster.hosts) host.domain.clear();
  CHECK(domains_of_hosts(cluster) == std::vector<std::uint32_t>{0, 1, 2, 3});
  cluster.hosts_per_domain = 2;
  CHECK(domains_of_hosts(cluster) == std::vector<std::uint32_t>{0, 0, 1, 1});
  cluster.hosts[1].domain = "x";
  CHECK(domains_of_hosts(cluster) == std::vector<std::uint32_t>{0, 1, 0, 2});
}

TEST_CASE("interleaved hosts are reordered by domain") {
  const Topology topology = topology_of({.world_size = 32, .tensor_parallel_num_weight_shards = 16});
  const Cluster cluster = cluster_of("abababab");
  const std::vector<std::size_t> order = reorder_hosts(cluster, topology, std::nullopt);
  CHECK(order == std::vector<std::size_t>{0, 2, 4, 6, 1, 3, 5, 7});
  CHECK(crossing(topology, "gtp_remat", cluster) == 2);
  CHECK(crossing(topology, "gtp_remat", cluster, order) == 0);
}

TEST_CASE("whole blocks come from each domain and what is left comes last") {
  // 18 hosts of 4 a domain, as in an NVL72 rack, and groups of 64: two hosts of each rack are of no use to them.
  const Cluster cluster = cluster_of(std::string(18, 'a') + std::string(18, 'b'));
  const Topology topology = topology_of({.world_size = 128, .tensor_parallel_num_weight_shards = 64});
  const std::vector<std::size_t> order = reorder_hosts(cluster, topology, std::nullopt);
  REQUIRE(order.size() == 36);
  CHECK(order[15] == 15);
  CHECK(order[16] == 18);
  CHECK(order[32] == 16);
  CHECK(crossing(topology, "gtp_remat", cluster) == 1);
  CHECK(crossing(topology, "gtp_remat", cluster, order) == 0);
}

TEST_CASE("an order that nothing improves stays") {
  const Topology topology = topology_of({.world_size = 16, .tensor_parallel_num_weight_shards = 2});
  CHECK(reorder_hosts(cluster_of("abab"), topology, std::nullopt) == std::vector<std::size_t>{0, 1, 2, 3});
}

TEST_CASE("no family that talks more is given up for one that talks less") {
  constexpr std::array<std::string_view, 3> kFirst{"tp", "ep_tp", "gtp_remat"};
  std::mt19937 random(3);
  int compared = 0;
  while (compared < 100) {
    const std::optional<Topology> topology = random_topology(random);
    if (!topology) continue;
    std::string domains;
    for (std::int64_t room = 0; room < topology->world_size + 8; room += 4)
      domains += static_cast<char>('a' + random() % 4);
    const Cluster cluster = cluster_of(domains);
    const std::vector<std::size_t> order = reorder_hosts(cluster, *topology, std::nullopt);
    CHECK(std::set<std::size_t>(order.begin(), order.end()).size() == cluster.hosts.size());
    std::array<std::int64_t, 3> before{}, after{};
    for (std::size_t i = 0; i < kFirst.size(); ++i) {
      before[i] = crossing(*topology, kFirst[i], cluster);
      after[i] = crossing(*topology, kFirst[i], cluster, order);
    }
    CHECK(after <= before);
    ++compared;
  }
}

TEST_CASE("advice names the largest legal sizes that fit") {
  Diagnostics diagnostics;
  const Config config = test::make_config({{"world_size", "64"},
                                           {"gpus_per_node", "8"},
                                           {"tensor_model_parallel_size", "2"},
                                           {"tensor_parallel_num_weight_shards", "16"},
                                           {"expert_model_parallel_size", "8"},
                                           {"sequence_parallel", "true"},
                                           {"num_experts", "16"}},
                                          diagnostics);
  REQUIRE(diagnostics.empty());
  const Report report = check(config);
  REQUIRE(report.derivation.topology);
  const auto advice = advise_placement(config, *report.derivation.topology, HostLayout::alike(8, 1));
  REQUIRE(advice.size() == 2);
  CHECK(advice[0].family == "gtp_remat");
  CHECK(advice[0].crossing == 8);
  REQUIRE(advice[0].sizes.size() == 1);
  CHECK(advice[0].sizes[0].option == "tensor_parallel_num_weight_shards");
  CHECK(advice[0].sizes[0].value == 8);
  CHECK(advice[1].family == "ep");
  REQUIRE(advice[1].sizes.size() == 1);
  CHECK(advice[1].sizes[0].option == "expert_tensor_parallel_size");
  CHECK(advice[1].sizes[0].value == 1);
  CHECK(advise_placement(config, *report.derivation.topology, HostLayout::alike(8, 9)).empty());
}

TEST_CASE("advice prefers another order of hosts to other sizes") {
  Diagnostics diagnostics;
  const Config config =
      test::make_config({{"world_size", "32"}, {"tensor_parallel_num_weight_shards", "16"}}, diagnostics);
  const Report report = check(config);
  REQUIRE(report.derivation.topology);
  const Cluster cluster = cluster_of("abababab");
  const std::vector<std::size_t> order = reorder_hosts(cluster, *report.derivation.topology, std::nullopt);
  const LayoutResult layout = make_layout(cluster, 32, std::nullopt),
                     better = make_layout(cluster, 32, std::nullopt, order);
  const auto advice = advise_placement(config, *report.derivation.topology, *layout.layout, &*better.layout);
  REQUIRE(advice.size() == 1);
  CHECK(advice[0].crossing_reordered == 0);
  CHECK(advice[0].sizes.empty());
}

TEST_CASE("there is no advice where nothing legal fits") {
  Diagnostics diagnostics;
  const Config config = test::make_config({{"world_size", "64"},
                                           {"gpus_per_node", "8"},
                                           {"tensor_model_parallel_size", "8"},
                                           {"tensor_parallel_num_weight_shards", "16"}},
                                          diagnostics);
  const Report report = check(config);
  REQUIRE(report.derivation.topology);
  CHECK(advise_placement(config, *report.derivation.topology, HostLayout::alike(8, 1)).empty());
}
