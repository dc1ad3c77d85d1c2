#include "kernels/group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "gtp/checked.hpp"
#include "gtp/groups.hpp"

namespace gtp {

namespace {

[[noreturn]] void refuse(std::string text) { throw RuntimeError(RuntimeStatus::kInvalidPlan, std::move(text)); }

bool makes_up(std::int64_t world, std::initializer_list<std::int64_t> sizes) {
  for (const std::int64_t size : sizes) {
    if (size <= 0) return false;
  }
  return checked_product(sizes) == world;
}

}  // namespace

Group::Group(Backend& backend, GroupSpec spec)
    : backend_(&backend), name_(std::move(spec.name)), ranks_(std::move(spec.ranks)) {
  const auto place = std::ranges::find(ranks_, spec.rank);
  if (place == ranks_.end()) refuse(fmt::format("rank {} is no member of group {}", spec.rank, name_));
  if (std::set<std::int64_t>(ranks_.begin(), ranks_.end()).size() != ranks_.size()) {
    refuse(fmt::format("group {} names a rank twice", name_));
  }
  position_ = place - ranks_.begin();
  if (size() == 1) return;
  gather_comm_ = backend.create_communicator({name_, ranks_, position_, CommunicatorPurpose::kGather});
  try {
    reduce_comm_ = backend.create_communicator({name_, ranks_, position_, CommunicatorPurpose::kReduce});
  } catch (...) {
    backend.destroy_communicator(gather_comm_);
    throw;
  }
}

Group::Group(Group&& other) noexcept
    : backend_(other.backend_),
      name_(std::move(other.name_)),
      ranks_(std::move(other.ranks_)),
      position_(other.position_),
      gather_comm_(std::exchange(other.gather_comm_, {})),
      reduce_comm_(std::exchange(other.reduce_comm_, {})) {}

Group::~Group() {
  if (reduce_comm_.handle != nullptr) backend_->destroy_communicator(reduce_comm_);
  if (gather_comm_.handle != nullptr) backend_->destroy_communicator(gather_comm_);
}

void require_consistent(const Topology& t) {
  if (!makes_up(t.world_size, {t.tp, t.gtp_remat, t.cp, t.dp, t.pp})) {
    refuse(fmt::format("the dense grid tp {} x gtp_remat {} x cp {} x dp {} x pp {} is not the world of {} ranks", t.tp,
                       t.gtp_remat, t.cp, t.dp, t.pp, t.world_size));
  }
  if (!makes_up(t.world_size, {t.etp, t.ep, t.egtp_remat, t.edp, t.pp})) {
    refuse(fmt::format("the expert grid etp {} x ep {} x egtp_remat {} x edp {} x pp {} is not the world of {} ranks",
                       t.etp, t.ep, t.egtp_remat, t.edp, t.pp, t.world_size));
  }
}

GroupSpec group_of_plan(const Topology& topology, std::string_view family, std::int64_t rank) {
  require_consistent(topology);
  const GroupFamilyRow* row = find_group_family(family);
  if (row == nullptr) refuse(fmt::format("there is no group family `{}`", family));
  if (rank < 0 || rank >= topology.world_size) {
    refuse(fmt::format("rank {} is outside the world of {} ranks", rank, topology.world_size));
  }
  const GroupFamily groups = make_group_family(topology, *row);
  const std::optional<GroupPlace> place = groups.group_of(rank);
  if (!place) refuse(fmt::format("rank {} is in no group of family `{}`", rank, family));
  GroupSpec spec{std::string(family), {}, rank};
  const std::optional<GroupView> group = groups.group(place->group);
  for (const std::int64_t member : *group) spec.ranks.push_back(member);
  return spec;
}

Topology require_topology(const TopologyOptions& options) {
  const TopologyResult result = make_topology(options);
  if (!result) refuse(fmt::format("the plan is invalid: {}", topology_error_row(*result.error).rule));
  return *result;
}

}  // namespace gtp
