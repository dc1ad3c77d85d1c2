// Upstream's orders of axes keep GTP_remat and EP innermost, so that no order of axes brings them closer together: what
// is left is the order of the hosts and smaller sizes.
#include <gtp/check.hpp>

#include "planner/placement.hpp"

namespace gtp::planner {

namespace {

using namespace gtp::literals;

/// Divisors of `size` between 1 and itself, both left out, the largest first. Sizes beyond a host's or a domain's GPUs
/// are of no use, so no more than `most` are looked at.
std::vector<std::int64_t> smaller_sizes(std::int64_t size, std::int64_t most) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t divisor = std::min(size / 2, most); divisor > 1; --divisor)
    if (size % divisor == 0) sizes.push_back(divisor);
  return sizes;
}

class Adviser {
 public:
  Adviser(const Config& config, const Topology& topology, const HostLayout& layout, const HostLayout* reordered)
      : config_(config), topology_(topology), layout_(layout), reordered_(reordered) {}

  std::vector<PlacementAdvice> advise() {
    std::vector<PlacementAdvice> advice;
    for (const std::string_view family : {"gtp_remat", "ep"}) {
      const FamilyPlacement count = count_placement(topology_, *find_group_family(family), layout_);
      if (count.crossing == 0) continue;
      PlacementAdvice item{family, count.groups, count.crossing, crossing_reordered(*count.family, count.crossing), {}};
      if (item.crossing_reordered != 0) item.sizes = family == "ep" ? better_ep() : better_gtp_remat();
      if (item.crossing_reordered || !item.sizes.empty()) advice.push_back(std::move(item));
    }
    return advice;
  }

 private:
  [[nodiscard]] std::optional<std::int64_t> crossing_reordered(const GroupFamilyRow& row, std::int64_t crossing) const {
    if (reordered_ == nullptr) return std::nullopt;
    const std::int64_t better = count_placement(topology_, row, *reordered_).crossing;
    return better < crossing ? std::optional(better) : std::nullopt;
  }

  /// With these changes every rule is kept and no group of the family crosses.
  [[nodiscard]] bool helps(std::string_view family, const std::vector<SizeChange>& changes) const {
    Config changed = config_;
    for (const SizeChange& change : changes)
      if (const auto option = find_option(change.option)) changed.set(*option, change.value);
    const Report report = check(changed);
    if (has_errors(report.diagnostics) || !report.derivation.topology) return false;
    const Topology& topology = *report.derivation.topology;
    return topology.world_size == topology_.world_size &&
           count_placement(topology, *find_group_family(family), layout_).crossing == 0;
  }

  [[nodiscard]] std::vector<SizeChange> better_gtp_remat() const {
    for (const std::int64_t size : smaller_sizes(topology_.gtp_remat, layout_.widest_domain())) {
      std::vector<SizeChange> changes{{"tensor_parallel_num_weight_shards", topology_.tp * size}};
      if (helps("gtp_remat", changes)) return changes;
    }
    return {};
  }

  /// Expert shards follow ETP, which they are a multiple of.
  [[nodiscard]] std::vector<SizeChange> better_ep() const {
    if (topology_.etp > 1) {
      std::vector<SizeChange> changes{{"expert_tensor_parallel_size", 1}};
      if (config_.given("expert_tensor_parallel_num_weight_shards"_opt) != nullptr)
        changes.push_back({"expert_tensor_parallel_num_weight_shards", topology_.egtp_remat});
      if (helps("ep", changes)) return changes;
    }
    for (const std::int64_t size : smaller_sizes(topology_.ep, layout_.widest_domain())) {
      std::vector<SizeChange> changes{{"expert_model_parallel_size", size}};
      if (helps("ep", changes)) return changes;
    }
    return {};
  }

  const Config& config_;
  const Topology& topology_;
  const HostLayout& layout_;
  const HostLayout* reordered_;
};

}  // namespace

std::vector<PlacementAdvice> advise_placement(const Config& config, const Topology& topology, const HostLayout& layout,
                                              const HostLayout* reordered) {
  return Adviser(config, topology, layout, reordered).advise();
}

}  // namespace gtp::planner
