// How the process groups of a topology lie on a cluster, which order of hosts suits them better, and what else would
// help a group that leaves its NVLink domain. Pure functions; nothing is estimated, only counted.
#pragma once

#include <gtp/cluster.hpp>
#include <gtp/config.hpp>
#include <gtp/groups.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/host_layout.hpp"

namespace gtp::planner {

/// Groups of one family. `in_host + in_domain + crossing == groups`.
struct FamilyPlacement {
  const GroupFamilyRow* family = nullptr;
  std::int64_t groups = 0;
  /// Ranks of each group.
  std::int64_t size = 0;
  /// All ranks on one host.
  std::int64_t in_host = 0;
  /// On several hosts of one NVLink domain.
  std::int64_t in_domain = 0;
  /// In several domains.
  std::int64_t crossing = 0;
  /// Each group has the same local rank on every host, so that what leaves a host stays on one rail.
  bool one_rail = false;
};

/// Precondition: the layout has room for the family's world.
[[nodiscard]] FamilyPlacement count_placement(const Topology& topology, const GroupFamilyRow& row,
                                              const HostLayout& layout);

/// All 22 families. Time is linear in groups and hosts, and what lies wider apart than a domain costs nothing.
[[nodiscard]] std::vector<FamilyPlacement> count_placements(const Topology& topology, const HostLayout& layout);

/// The numbers of all of the cluster's hosts in an order that suits the topology at least as well as theirs; theirs
/// when none is better. Preconditions: `make_layout` succeeds in the hosts' own order, and hosts are listed.
[[nodiscard]] std::vector<std::size_t> reorder_hosts(const Cluster& cluster, const Topology& topology,
                                                     std::optional<std::int64_t> gpus_per_node);

/// One change of an option.
struct SizeChange {
  std::string_view option;
  std::int64_t value = 0;
};

/// A family that leaves its NVLink domain although something legal would keep it inside.
struct PlacementAdvice {
  std::string_view family;
  std::int64_t groups = 0;
  std::int64_t crossing = 0;
  /// Groups that cross in the better order of hosts, when there is one.
  std::optional<std::int64_t> crossing_reordered{};
  /// The nearest sizes with which no group crosses and every rule is kept. Empty: none, or none is needed.
  std::vector<SizeChange> sizes{};
};

/// Looks at dense GTP_remat and at EP. `config` is the valid configuration that the topology is from; `reordered` is
/// the layout with a better order of hosts, or null.
[[nodiscard]] std::vector<PlacementAdvice> advise_placement(const Config& config, const Topology& topology,
                                                            const HostLayout& layout,
                                                            const HostLayout* reordered = nullptr);

}  // namespace gtp::planner
