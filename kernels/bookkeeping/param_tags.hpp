// What gradient and checkpoint bookkeeping must know of a parameter, where a rank stands on that parameter's grid, and
// what follows for gradient norm and gradient reduction. Decides only; no communication, no arithmetic on gradients.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gtp/grid.hpp"
#include "gtp/groups.hpp"
#include "gtp/topology.hpp"

namespace gtp {

struct ParamTags {
  bool gtp_sharded = false;  ///< Each rank of the GTP_remat axis holds other rows; else all hold the same values.
  bool tp_sharded = false;   ///< The same along TP, or ETP for an expert parameter.
  bool expert = false;       ///< Belongs to an expert, whatever the size of EP: its grid is the expert grid.
  std::int64_t pad_length = 0;

  friend constexpr bool operator==(const ParamTags&, const ParamTags&) = default;
};

/// Coordinates of a rank on the grid of a parameter.
struct RankPlace {
  std::int64_t tp_rank = 0;
  std::int64_t gtp_rank = 0;
  std::int64_t gtp_size = 1;
  /// Among the ranks that hold the same shard: DP x CP without GTP_remat, for experts expert DP.
  std::int64_t replica_rank = 0;

  friend constexpr bool operator==(const RankPlace&, const RankPlace&) = default;
};

constexpr GridKind grid_of(const ParamTags& tags) noexcept {
  return tags.expert ? GridKind::kExpert : GridKind::kDense;
}

/// The family of gtp/groups.hpp along whose members a parameter is sharded or replicated by GTP.
constexpr std::string_view gtp_group_family(const ParamTags& tags) noexcept {
  return tags.expert ? "expt_gtp_remat" : "gtp_remat";
}

/// The family of the ranks that hold the same shard. GTP_remat peers are not in it: they hold other shards.
/// generalized_tensor_parallelism.py:2647
constexpr std::string_view shard_replica_family(const ParamTags& tags) noexcept {
  return tags.expert ? "ep_dp" : "dp_cp";
}

/// nullopt for a rank outside the world. Precondition: `topology` came from make_topology().
constexpr std::optional<RankPlace> place_of(const ParamTags& tags, const Topology& topology,
                                            std::int64_t rank) noexcept {
  const std::optional<AxisValues> at = make_grid(grid_of(tags), topology).coordinates(rank);
  const GroupFamilyRow* replicas = find_group_family(shard_replica_family(tags));
  if (!at || replicas == nullptr) return std::nullopt;
  const std::optional<GroupPlace> replica = make_group_family(topology, *replicas).group_of(rank);
  if (!replica) return std::nullopt;
  return RankPlace{(*at)[axis_index(Axis::kTp)], (*at)[axis_index(Axis::kGtpRemat)],
                   tags.expert ? topology.egtp_remat : topology.gtp_remat, replica->position};
}

/// Whether this rank adds a gradient to the norm, of the ranks along TP and GTP_remat: a shard counts on every rank, a
/// replicated gradient on the first only. layers.py:123
constexpr bool counted_in_grad_norm(const ParamTags& tags, const RankPlace& place) noexcept {
  const bool first_of_gtp = tags.gtp_sharded || place.gtp_rank == 0;
  const bool first_of_tp = tags.tp_sharded || place.tp_rank == 0;
  return first_of_gtp && first_of_tp;
}

enum class AxisReduction : std::uint8_t { kNone, kAverage, kSum };

/// What is left to do along the GTP_remat axis when backward is over.
struct ReplicatedReduction {
  AxisReduction reduction = AxisReduction::kNone;
  std::string_view group_family;  ///< Empty for kNone.

  friend constexpr bool operator==(const ReplicatedReduction&, const ReplicatedReduction&) = default;
};

/// Gradients of replicated parameters differ along the axis, whose ranks read different samples. The mean goes with
/// losses already averaged per rank, the sum with `calculate_per_token_loss`. finalize_model_grads.py:494
constexpr ReplicatedReduction replicated_reduction(const ParamTags& tags, const RankPlace& place,
                                                   bool calculate_per_token_loss) noexcept {
  if (tags.gtp_sharded || place.gtp_size <= 1) return {};
  return {calculate_per_token_loss ? AxisReduction::kSum : AxisReduction::kAverage, gtp_group_family(tags)};
}

/// The fp32 copy of a parameter that the optimizer updates.
struct MasterParam {
  ParamTags tags;
  std::vector<float> values;
};

/// Tags come along: without them every rank would count a replicated gradient. layers.py:113
inline MasterParam make_master(const ParamTags& tags, std::span<const float> values) {
  return {tags, std::vector<float>(values.begin(), values.end())};
}

}  // namespace gtp
