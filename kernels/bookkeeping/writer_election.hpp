// Who writes what into a checkpoint: exactly one rank for each piece of a tensor, and one file for each rank's own
// optimizer state. Decides only; no files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/bookkeeping/param_tags.hpp"

namespace gtp {

/// Megatron's replica_id without its first element, which pipeline and expert offsets make superfluous here: all zero
/// on the one rank that writes.
struct ReplicaId {
  std::int64_t model = 0;
  std::int64_t data = 0;

  constexpr bool writes() const noexcept { return model == 0 && data == 0; }
  friend constexpr bool operator==(const ReplicaId&, const ReplicaId&) = default;
};

/// Along an axis that shards the tensor each rank has a piece of its own, so only the other axes are replicas. TP peers
/// of a weight that GTP alone shards hold equal pieces, and one of them writes.
/// utils.py:1090, generalized_tensor_parallelism.py:2748
constexpr ReplicaId replica_id(const ParamTags& tags, const RankPlace& place) noexcept {
  const std::int64_t tp = tags.tp_sharded ? 0 : place.tp_rank;
  if (tags.gtp_sharded) return {tp, place.replica_rank};
  return {tp * place.gtp_size + place.gtp_rank, place.replica_rank};
}

/// File of a layer-wise optimizer's own state, in the folder of the rank's TP and PP place. Upstream numbers it by
/// replicate DP alone (training/checkpointing.py:755), so that GTP_remat and CP peers overwrite each other; this number
/// counts both. nullopt for a rank outside the world. Precondition: `topology` came from make_topology().
inline std::optional<std::string> sidecar_file_name(const Topology& topology, std::int64_t rank) {
  const GroupFamilyRow* family = find_group_family("gtp_remat_dp_cp");
  if (family == nullptr) return std::nullopt;
  const std::optional<GroupPlace> place = make_group_family(topology, *family).group_of(rank);
  if (!place) return std::nullopt;
  return "layer_wise_optimizer_" + std::to_string(place->position) + ".pt";
}

}  // namespace gtp
