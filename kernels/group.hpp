// The ranks that share out a weight, with one communicator for gathers and one for reductions: on a single one, the
// reduce-scatter of weight i would delay the all-gather of weight i - 1.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gtp/topology.hpp"
#include "kernels/backend.hpp"

namespace gtp {

struct GroupSpec {
  std::string name;
  std::vector<std::int64_t> ranks;  ///< World ranks in member order.
  std::int64_t rank = 0;            ///< World rank of the caller, a member.
};

/// Owns both communicators; a group of one has none. Keep the backend alive longer. Creation is collective over the
/// members, in the same order on all of them. A moved-from Group may only be destroyed.
class Group {
 public:
  /// Throws kInvalidPlan if `spec.rank` is no member or a rank is repeated.
  Group(Backend& backend, GroupSpec spec);
  Group(Group&& other) noexcept;
  Group& operator=(Group&&) = delete;
  ~Group();

  const std::string& name() const noexcept { return name_; }
  std::span<const std::int64_t> ranks() const noexcept { return ranks_; }
  std::int64_t size() const noexcept { return static_cast<std::int64_t>(ranks_.size()); }
  /// Of the caller among the members.
  std::int64_t position() const noexcept { return position_; }
  /// Null handles in a group of one.
  Communicator gather_comm() const noexcept { return gather_comm_; }
  Communicator reduce_comm() const noexcept { return reduce_comm_; }

 private:
  Backend* backend_;
  std::string name_;
  std::vector<std::int64_t> ranks_;
  std::int64_t position_ = 0;
  Communicator gather_comm_;
  Communicator reduce_comm_;
};

/// The group of `rank` in a family of gtp/groups.hpp (`gtp_remat`, `expt_gtp_remat`, `dp_cp`, `ep_dp`...). Throws
/// kInvalidPlan for an unknown family, a rank outside the world, or a topology whose sizes do not make up its world.
GroupSpec group_of_plan(const Topology& topology, std::string_view family, std::int64_t rank);

/// The topology for these options; throws kInvalidPlan with upstream's rule if it is refused.
Topology require_topology(const TopologyOptions& options);

/// Throws kInvalidPlan unless every size is positive and both grids make up the world.
void require_consistent(const Topology& topology);

}  // namespace gtp
