// Lengths and shapes that follow from a sharded weight but are not those of its shard: bias, output and tied weights.
#pragma once

#include <cstdint>

#include "kernels/shard_layout.hpp"

namespace gtp {

struct WeightShape {
  std::int64_t rows = 0;
  std::int64_t cols = 0;

  friend constexpr bool operator==(const WeightShape&, const WeightShape&) = default;
};

/// Of the materialized weight without padding: what a model sees.
constexpr WeightShape unsharded_shape(const ShardLayout& layout) noexcept { return {layout.rows(), layout.cols()}; }

/// A bias is added to the output of the whole weight and is replicated over GTP_remat: one value for each logical row.
constexpr std::int64_t bias_length(const ShardLayout& layout) noexcept { return unsharded_shape(layout).rows; }

/// Whether a weight that another layer lends (tied embeddings) has the shape this layer expects. Shapes of shards say
/// nothing: two different weights can have equal shards.
constexpr bool supplied_weight_fits(const ShardLayout& supplied, WeightShape expected) noexcept {
  return unsharded_shape(supplied) == expected;
}

}  // namespace gtp
