#include "planner/placement.hpp"

namespace gtp::planner {

namespace {

/// Members of a group never decrease, nor do the first members of groups, so that cursors do instead of searches.
class FamilyCounter {
 public:
  FamilyCounter(const HostLayout& layout, FamilyPlacement& count)
      : layout_(layout), count_(count), first_(layout), last_(layout) {}

  void add(const GroupView& group, std::int64_t span) {
    const HostLayout::Cursor at_first = first_;
    const std::int64_t first = first_.host_of(group.front()), last = last_.host_of(group.front() + span);
    if (first == last)
      ++count_.in_host;
    else if (layout_.one_domain(first, last) || one_domain(group, at_first, first, last))
      ++count_.in_domain;
    else
      ++count_.crossing;
  }

 private:
  /// For a domain whose hosts do not follow each other.
  [[nodiscard]] bool one_domain(const GroupView& group, HostLayout::Cursor cursor, std::int64_t first,
                                std::int64_t last) const {
    const std::uint64_t domain = layout_.domain_of_host(first);
    if (layout_.domain_of_host(last) != domain) return false;
    for (const std::int64_t rank : group)
      if (layout_.domain_of_host(cursor.host_of(rank)) != domain) return false;
    return true;
  }

  const HostLayout& layout_;
  FamilyPlacement& count_;
  HostLayout::Cursor first_, last_;
};

/// Members differ by the same offsets in every group, so that one group tells.
bool keeps_to_one_rail(const GroupFamily& family, const HostLayout& layout) {
  const std::optional<std::int64_t> ranks = layout.ranks_per_host();
  if (!ranks || family.size() == 1) return family.size() == 1;
  const GroupView first = *family.group(0);
  for (const std::int64_t rank : first)
    if (rank % *ranks != 0) return false;
  return true;
}

}  // namespace

FamilyPlacement count_placement(const Topology& topology, const GroupFamilyRow& row, const HostLayout& layout) {
  const GroupFamily family = make_group_family(topology, row);
  FamilyPlacement count{&row, family.count(), family.size(), 0, 0, 0, keeps_to_one_rail(family, layout)};
  const std::int64_t span = *family.rank(0, family.size() - 1);
  if (span == 0) {
    count.in_host = count.groups;
  } else if (span >= layout.widest_domain()) {
    count.crossing = count.groups;
  } else {
    FamilyCounter counter(layout, count);
    for (const GroupView group : family) counter.add(group, span);
  }
  return count;
}

std::vector<FamilyPlacement> count_placements(const Topology& topology, const HostLayout& layout) {
  std::vector<FamilyPlacement> counts;
  for (const GroupFamilyRow& row : kGroupFamilies) counts.push_back(count_placement(topology, row, layout));
  return counts;
}

}  // namespace gtp::planner
