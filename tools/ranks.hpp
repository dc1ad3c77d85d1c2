// What `gtplan ranks` writes: all ranks, all groups, or everything about one rank. All of it is streamed: memory does
// not grow with the world.
#pragma once

#include <gtp/groups.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/placement.hpp"
#include "tools/file.hpp"
#include "tools/input.hpp"

namespace gtp::cli {

/// A larger world is not listed: nobody could use the gigabytes.
inline constexpr std::int64_t kLargestListedWorld = 16'777'216;

/// A valid configuration and what is to be said about it.
struct RankMap {
  const Report& report;
  const Topology& topology;
  std::optional<std::int64_t> gpus_per_node;
  std::vector<const GroupFamilyRow*> families;
  /// Those that the ranks fill, in order. Empty: no cluster lists them.
  std::vector<std::string> hosts{};
};

enum class TableStyle : std::uint8_t { Aligned, Csv, Tsv };

/// A row for each rank: host, coordinates on both grids.
void write_rank_table(const RankMap& map, TableStyle style, Output& output);
/// A row for each member of each group.
void write_group_table(const RankMap& map, TableStyle style, Output& output);
/// A row for each family.
void write_digest_table(const RankMap& map, TableStyle style, Output& output);

/// The lists of ranks of each family, or the SHA-256 of their compact JSON.
void write_groups_json(const RankMap& map, bool digest, Output& output);

/// Coordinates, host and groups of one rank. Precondition: the rank is in the world.
void write_one_rank_text(const RankMap& map, std::int64_t rank, Output& output);
void write_one_rank_json(const RankMap& map, std::int64_t rank, Output& output);

/// A host a line, in the order of ranks (SLURM_HOSTFILE). Precondition: `gpus_per_node` is known.
void write_slurm_hostfile(const RankMap& map, Output& output);
/// Open MPI's rankfile. Precondition: `gpus_per_node` is known.
void write_mpi_rankfile(const RankMap& map, Output& output);

/// How the groups lie on a cluster. The order of its hosts is changed for a better one when `place` says so.
class RankPlacement {
 public:
  /// Throws CouldNotRun when the ranks do not fit onto the cluster.
  RankPlacement(const Cluster& cluster, const RankMap& map, bool place);

  /// Names in the order in which ranks fill them; empty when the cluster lists none.
  [[nodiscard]] std::vector<std::string> hosts() const;
  /// For a person, about families that leave their NVLink domain though they need not.
  [[nodiscard]] std::vector<std::string> warnings() const;
  /// What changing the order of hosts changes, a line for each family that it changes.
  [[nodiscard]] std::string changes() const;

  void write_table(TableStyle style, Output& output) const;
  void write_json(Output& output) const;

 private:
  [[nodiscard]] bool shown(const planner::FamilyPlacement& count) const;

  const Cluster& cluster_;
  const RankMap& map_;
  std::vector<std::size_t> better_;  ///< order of hosts; empty: there is no better one
  bool placed_;
  std::optional<planner::HostLayout> layout_;
  std::vector<planner::FamilyPlacement> before_, counts_;
  std::vector<planner::PlacementAdvice> advice_;
};

/// SHA-256, as lower-case hexadecimal, of a family's compact JSON.
[[nodiscard]] std::string digest_of(const GroupFamily& family);

}  // namespace gtp::cli
