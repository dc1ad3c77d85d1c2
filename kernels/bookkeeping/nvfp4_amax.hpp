// The one amax that every shard of an NVFP4 weight is quantized with: over which ranks it is taken, and from what.
#pragma once

#include <span>
#include <string_view>

#include "kernels/bookkeeping/param_tags.hpp"
#include "kernels/format/ieee.hpp"

namespace gtp {

/// The family over which amax is MAX-reduced: replicas, which may each have only a part of the shard's master, and
/// GTP_remat peers, which hold the other rows. Upstream's optimizer reduces over the replicas only
/// (distrib_optimizer.py:2855), so its shards of one weight may differ in scale.
constexpr std::string_view amax_group_family(const ParamTags& tags) noexcept {
  return tags.expert ? "ep_gtp_remat_dp" : "gtp_remat_dp_cp";
}

/// The MAX of the members' amaxes; a NaN does not count.
constexpr float reduce_amax(std::span<const float> of_members) noexcept {
  float amax = 0.0F;
  for (const float value : of_members) amax = max_magnitude(amax, value);
  return amax;
}

}  // namespace gtp
