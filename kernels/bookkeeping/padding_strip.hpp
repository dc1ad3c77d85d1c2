// Which bytes of a gathered component remain when the pad rows are cut off, so that what is left is what a weight
// without padding would store.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/format/scale_layout.hpp"
#include "kernels/shard_layout.hpp"

namespace gtp {

/// `lines` lines, of each the first `kept_bytes` of `stride_bytes`. A plain prefix if both are equal.
struct KeptBytes {
  std::int64_t lines = 0;
  std::int64_t kept_bytes = 0;
  std::int64_t stride_bytes = 0;

  constexpr std::int64_t total() const noexcept { return lines * kept_bytes; }
  friend constexpr bool operator==(const KeptBytes&, const KeptBytes&) = default;
};

namespace detail {

/// Lines of compact scales that run along `inner` (rows and NVFP4 columns) or along `outer` (MXFP8 columns).
constexpr KeptBytes kept_scales(const ScaleGrid& kept, const ScaleGrid& gathered) noexcept {
  if (kept.compact_runs_along_outer) return {kept.padded_inner(), kept.padded_outer(), gathered.padded_outer()};
  return {kept.padded_outer(), kept.padded_inner(), gathered.padded_inner()};
}

constexpr KeptBytes kept_of_mxfp8(const ShardLayout& layout, Component component) noexcept {
  const std::int64_t rows = layout.rows(), padded = layout.padded_rows(), cols = layout.cols();
  switch (component) {
    case Component::kRowData:
    case Component::kColData:
      return {rows, cols, cols};
    case Component::kRowScale:
      return kept_scales(mxfp8_row_scales(rows, cols), mxfp8_row_scales(padded, cols));
    case Component::kColScale:  // A last block that is part padding keeps its scale: rows / 32 is rounded up.
      return kept_scales(mxfp8_col_scales(rows, cols), mxfp8_col_scales(padded, cols));
    case Component::kAmax:
      return {};
  }
  return {};
}

constexpr KeptBytes kept_of_nvfp4(const ShardLayout& layout, Component component) noexcept {
  const std::int64_t rows = layout.rows(), padded = layout.padded_rows(), cols = layout.cols();
  switch (component) {
    case Component::kRowData:
      return {rows, cols / 2, cols / 2};
    case Component::kColData:  // Transposed: padding is at the end of each line. Rows are even, see kNvfp4OddPadding.
      return {cols, rows / 2, padded / 2};
    case Component::kRowScale:
      return kept_scales(nvfp4_row_scales(rows, cols), nvfp4_row_scales(padded, cols));
    case Component::kColScale:
      return kept_scales(nvfp4_col_scales(rows, cols), nvfp4_col_scales(padded, cols));
    case Component::kAmax:
      return {1, kAmaxBytes, kAmaxBytes};
  }
  return {};
}

}  // namespace detail

/// generalized_tensor_parallelism.py:1270, which rounds MXFP8 column blocks down and so loses the last partial one.
constexpr KeptBytes kept_without_padding(const ShardLayout& layout, Component component) noexcept {
  switch (layout.format()) {
    case WeightFormat::kBf16:
      if (component != Component::kRowData) return {};
      return {layout.rows(), 2 * layout.cols(), 2 * layout.cols()};
    case WeightFormat::kMxfp8:
      return detail::kept_of_mxfp8(layout, component);
    case WeightFormat::kNvfp4:
      return detail::kept_of_nvfp4(layout, component);
  }
  return {};
}

/// Copies the kept bytes out. False, with nothing written, unless `gathered` has the component's gathered bytes and
/// `stripped` exactly the kept ones.
inline bool strip_padding(const ShardLayout& layout, Component component, ConstBytes gathered, Bytes stripped) {
  const KeptBytes kept = kept_without_padding(layout, component);
  if (gathered.size() != static_cast<std::size_t>(layout.extent(component).gathered_bytes) ||
      stripped.size() != static_cast<std::size_t>(kept.total())) {
    return false;
  }
  for (std::int64_t line = 0; line < kept.lines; ++line) {
    std::copy_n(gathered.begin() + line * kept.stride_bytes, kept.kept_bytes,
                stripped.begin() + line * kept.kept_bytes);
  }
  return true;
}

}  // namespace gtp
