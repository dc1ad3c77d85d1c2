// What `gtplan ranks` writes: all ranks, all groups, or everything about one rank. All of it is streamed: memory does
// not grow with the world.
#pragma once

#include <gtp/groups.hpp>

#include <cstdint>
#include <optional>
#include <vector>

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

/// SHA-256, as lower-case hexadecimal, of a family's compact JSON.
[[nodiscard]] std::string digest_of(const GroupFamily& family);

}  // namespace gtp::cli
