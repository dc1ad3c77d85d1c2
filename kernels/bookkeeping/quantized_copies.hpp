// Which copies of a quantized shard the optimizer writes, what they are made from after a checkpoint was loaded, and
// which of them a gather moves.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/format/mxfp8.hpp"
#include "kernels/format/nvfp4.hpp"
#include "kernels/shard_layout.hpp"

namespace gtp {

/// A set of components.
class ComponentSet {
 public:
  constexpr ComponentSet() noexcept = default;
  constexpr void insert(Component component) noexcept { bits_ |= 1U << static_cast<unsigned>(component); }
  constexpr bool contains(Component component) const noexcept {
    return (bits_ >> static_cast<unsigned>(component) & 1U) != 0;
  }
  friend constexpr bool operator==(const ComponentSet&, const ComponentSet&) = default;

 private:
  unsigned bits_ = 0;
};

/// The copies of one shard. What a gather reads never narrows what the optimizer writes: a backward pass that asks for
/// columns must not freeze the row data of the next forward.
class ShardCopies {
 public:
  constexpr explicit ShardCopies(const ShardLayout& layout) noexcept : layout_(layout) {
    for (const Component component : kComponents) {
      if (layout.extent(component).shard_bytes != 0) refreshed_.insert(component);
    }
  }

  /// Everything that is stored, always.
  constexpr const ComponentSet& refreshed() const noexcept { return refreshed_; }

  constexpr ComponentSet gathered(CopyDirection direction) const noexcept {
    ComponentSet components;
    for (const Component component : kComponents) {
      if (layout_.gathers(direction, component)) components.insert(component);
    }
    return components;
  }

 private:
  ShardLayout layout_;
  ComponentSet refreshed_;
};

/// What a checkpoint gives back for a quantized shard. Checkpoints store decoded BF16 values; encoding them again does
/// not give the saved bytes, so the fp32 master, where there is one, is what the shard is made from.
struct RestoredShard {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::span<const float> master;  ///< Empty if the checkpoint holds no optimizer state (or it was not loaded).
  std::span<const Bf16> decoded;  ///< The model tensor.
};

/// The BF16 values to quantize; empty if neither source has rows * cols values. Masters are cast to BF16 first, as in
/// an optimizer step (tensor/utils.py:286).
inline std::vector<Bf16> values_to_quantize(const RestoredShard& shard) {
  const auto elements = shard.rows > 0 && shard.cols > 0 ? checked_multiply(shard.rows, shard.cols) : std::nullopt;
  if (!elements) return {};
  const auto size = static_cast<std::size_t>(*elements);
  std::vector<Bf16> values;
  if (shard.master.size() == size) {
    values.resize(size);
    std::transform(shard.master.begin(), shard.master.end(), values.begin(), to_bf16);
  } else if (shard.master.empty() && shard.decoded.size() == size) {
    values.assign(shard.decoded.begin(), shard.decoded.end());
  }
  return values;
}

/// False unless there are values to quantize and `copies` has the spans of a [rows, cols] shard.
inline bool restore_mxfp8_shard(const RestoredShard& shard, const Mxfp8Copies& copies) {
  const std::vector<Bf16> values = values_to_quantize(shard);
  return quantize_mxfp8({shard.rows, shard.cols, values}, copies);
}

/// `amax` is that of the whole weight; see nvfp4_amax.hpp.
inline bool restore_nvfp4_shard(const RestoredShard& shard, float amax, Bytes data, Bytes scales) {
  const std::vector<Bf16> values = values_to_quantize(shard);
  return quantize_nvfp4_rows({shard.rows, shard.cols, values}, amax, data, scales);
}

}  // namespace gtp
