// How one weight is padded, cut into dim-0 shards and stored: a pure value from shape, format, alignment and group
// size. It owns no memory, knows no rank of its own and moves nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "gtp/checked.hpp"

namespace gtp {

enum class WeightFormat : std::uint8_t { kBf16, kMxfp8, kNvfp4 };

/// The parts a materialized weight consists of. BF16 has row data only; NVFP4 keeps its column copy transposed.
enum class Component : std::uint8_t { kRowData, kRowScale, kColData, kColScale, kAmax };
inline constexpr std::size_t kComponentCount = 5;
inline constexpr std::array<Component, kComponentCount> kComponents = {
    Component::kRowData, Component::kRowScale, Component::kColData, Component::kColScale, Component::kAmax};

/// The copy that a use of the weight reads: forward reads rows, dgrad reads columns.
enum class CopyDirection : std::uint8_t { kRow, kCol };

inline constexpr std::int64_t kMxfp8BlockSize = 32;
inline constexpr std::int64_t kNvfp4BlockSize = 16;
/// Scales are stored, and swizzled, in tiles of 128 outer by 4 inner bytes.
inline constexpr std::int64_t kScaleTileOuter = 128;
inline constexpr std::int64_t kScaleTileInner = 4;
inline constexpr std::int64_t kScaleTileBytes = kScaleTileOuter * kScaleTileInner;
inline constexpr std::int64_t kAmaxBytes = 4;

/// Upstream's choice per precision. generalized_tensor_parallelism.py:499
constexpr std::int64_t default_pad_for_alignment(WeightFormat format) noexcept {
  switch (format) {
    case WeightFormat::kBf16:
    case WeightFormat::kNvfp4:
      return 16;
    case WeightFormat::kMxfp8:
      return 32;
  }
  return 16;
}

enum class LayoutProblem : std::uint8_t {
  kNone,
  kRowsNotPositive,
  kColsNotPositive,
  kGroupSizeNotPositive,
  kAlignmentNegative,
  kRowsNotDivisible,  ///< pad_for_alignment is 0 and the rows do not divide evenly.
  kMxfp8ShardRows,    ///< A 32-row block would straddle two shards.
  kMxfp8Cols,         ///< The columns are no whole number of 32-value blocks.
  kNvfp4OddPadding,   ///< The column copy holds two rows a byte: an odd number of pad rows cannot be stripped.
  kNvfp4ShardRows,    ///< A 16 x 16 tile would straddle two shards.
  kNvfp4Cols,         ///< The columns are no whole number of 16-value blocks.
  kTooLarge,          ///< A size in bytes does not fit 63 bits.
};

/// One line that stands alone; empty for kNone.
constexpr std::string_view describe(LayoutProblem problem) noexcept {
  switch (problem) {
    case LayoutProblem::kNone:
      return "";
    case LayoutProblem::kRowsNotPositive:
      return "rows must be positive";
    case LayoutProblem::kColsNotPositive:
      return "columns must be positive";
    case LayoutProblem::kGroupSizeNotPositive:
      return "the group size must be positive";
    case LayoutProblem::kAlignmentNegative:
      return "pad_for_alignment must not be negative";
    case LayoutProblem::kRowsNotDivisible:
      return "without padding the rows must be a multiple of the group size";
    case LayoutProblem::kMxfp8ShardRows:
      return "rows of an MXFP8 shard must be a multiple of 32";
    case LayoutProblem::kMxfp8Cols:
      return "columns of an MXFP8 weight must be a multiple of 32";
    case LayoutProblem::kNvfp4OddPadding:
      return "pad rows of an NVFP4 weight must be even";
    case LayoutProblem::kNvfp4ShardRows:
      return "rows of an NVFP4 shard must be a multiple of 16";
    case LayoutProblem::kNvfp4Cols:
      return "columns of an NVFP4 weight must be a multiple of 16";
    case LayoutProblem::kTooLarge:
      return "the weight does not fit a 63-bit byte count";
  }
  return "";
}

/// Why there is no layout. `value` is the size at fault (shard rows, pad rows, columns...), `unit` what it must be a
/// multiple of, or 0.
struct LayoutRefusal {
  LayoutProblem problem = LayoutProblem::kNone;
  std::int64_t value = 0;
  std::int64_t unit = 0;

  friend constexpr bool operator==(const LayoutRefusal&, const LayoutRefusal&) = default;
};

struct LayoutRequest {
  std::int64_t rows = 0;  ///< Logical output rows of this TP rank, before the GTP cut.
  std::int64_t cols = 0;
  WeightFormat format = WeightFormat::kBf16;
  std::int64_t pad_for_alignment = default_pad_for_alignment(WeightFormat::kBf16);  ///< 0 turns padding off.
  std::int64_t group_size = 1;
};

/// Sizes of one component in bytes; all 0 where the format has no such component.
struct ComponentExtent {
  std::int64_t shard_bytes = 0;     ///< Resident on each rank, with the scale padding of a tensor of shard_rows.
  std::int64_t gathered_bytes = 0;  ///< Of the whole, pad rows and scale padding included.
  /// What one rank contributes to an all-gather: rank r's part lies at r * wire_bytes of the gathered component, and
  /// what follows the last part is scale padding, zero. 0 for a component that is not gathered: NVFP4 columns are
  /// transposed locally, and the NVFP4 amax is the same on all ranks (MAX-reduced, 4 bytes; see amax_wire_bytes).
  std::int64_t wire_bytes = 0;

  friend constexpr bool operator==(const ComponentExtent&, const ComponentExtent&) = default;
};

/// A weight of which every rank of a GTP_remat group holds `shard_rows` rows. Made by make_shard_layout() only, so
/// every size in it is consistent and fits. Pad rows are the last of the whole and may span several ranks.
class ShardLayout {
 public:
  constexpr std::int64_t rows() const noexcept { return rows_; }
  constexpr std::int64_t cols() const noexcept { return cols_; }
  constexpr WeightFormat format() const noexcept { return format_; }
  constexpr std::int64_t group_size() const noexcept { return group_size_; }
  constexpr std::int64_t shard_rows() const noexcept { return shard_rows_; }
  constexpr std::int64_t padded_rows() const noexcept { return rows_ + pad_length_; }
  constexpr std::int64_t pad_length() const noexcept { return pad_length_; }
  /// First row of a rank's shard in the padded whole. `rank` in [0, group_size).
  constexpr std::int64_t row_begin(std::int64_t rank) const noexcept { return rank * shard_rows_; }
  /// Rows of a rank's shard that are not padding; 0 for a shard that is all padding.
  constexpr std::int64_t local_rows(std::int64_t rank) const noexcept {
    return std::clamp<std::int64_t>(rows_ - row_begin(rank), 0, shard_rows_);
  }
  constexpr std::int64_t local_pad(std::int64_t rank) const noexcept { return shard_rows_ - local_rows(rank); }
  constexpr const ComponentExtent& extent(Component component) const noexcept {
    return extents_[static_cast<std::size_t>(component)];
  }
  /// Whether a gather in this direction moves the component (NVFP4 and BF16 always gather rows).
  constexpr bool gathers(CopyDirection direction, Component component) const noexcept {
    if (extent(component).wire_bytes == 0) return false;
    const bool is_row = component == Component::kRowData || component == Component::kRowScale;
    return is_row == (direction == CopyDirection::kRow || format_ != WeightFormat::kMxfp8);
  }
  /// What one rank contributes to a gather in this direction, amax included; a ring all-gather sends this
  /// group_size - 1 times.
  constexpr std::int64_t wire_bytes(CopyDirection direction) const noexcept {
    std::int64_t bytes = amax_wire_bytes();
    for (const Component component : kComponents) {
      if (gathers(direction, component)) bytes += extent(component).wire_bytes;
    }
    return bytes;
  }
  constexpr std::int64_t amax_wire_bytes() const noexcept { return format_ == WeightFormat::kNvfp4 ? kAmaxBytes : 0; }
  /// Elements a weight gradient of this layout has on each rank before (whole) and after (shard) its reduce-scatter.
  constexpr std::int64_t gathered_elements() const noexcept { return padded_rows() * cols_; }
  constexpr std::int64_t shard_elements() const noexcept { return shard_rows_ * cols_; }
  /// Whether shards of swizzled row scales, put side by side, are the swizzled scales of the whole.
  constexpr bool swizzled_row_scales_concatenate() const noexcept { return shard_rows_ % kScaleTileOuter == 0; }

  friend constexpr bool operator==(const ShardLayout&, const ShardLayout&) = default;

 private:
  constexpr ShardLayout() = default;
  friend constexpr std::optional<ShardLayout> make_shard_layout(const LayoutRequest& request,
                                                                LayoutRefusal& refusal) noexcept;

  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  WeightFormat format_ = WeightFormat::kBf16;
  std::int64_t group_size_ = 1;
  std::int64_t shard_rows_ = 0;
  std::int64_t pad_length_ = 0;
  std::array<ComponentExtent, kComponentCount> extents_{};
};

namespace detail {

constexpr LayoutRefusal refuse_bad_sizes(const LayoutRequest& request) noexcept {
  if (request.rows <= 0) return {LayoutProblem::kRowsNotPositive, request.rows, 0};
  if (request.cols <= 0) return {LayoutProblem::kColsNotPositive, request.cols, 0};
  if (request.group_size <= 0) return {LayoutProblem::kGroupSizeNotPositive, request.group_size, 0};
  if (request.pad_for_alignment < 0) return {LayoutProblem::kAlignmentNegative, request.pad_for_alignment, 0};
  if (request.pad_for_alignment == 0 && !divides(request.group_size, request.rows)) {
    return {LayoutProblem::kRowsNotDivisible, request.rows, request.group_size};
  }
  return {};
}

/// TransformerEngine mxfp8_tensor.py:125, nvfp4_tensor.py:273
constexpr LayoutRefusal refuse_bad_blocks(WeightFormat format, std::int64_t shard_rows, std::int64_t pad_length,
                                          std::int64_t cols) noexcept {
  switch (format) {
    case WeightFormat::kBf16:
      return {};
    case WeightFormat::kMxfp8:
      if (shard_rows % kMxfp8BlockSize != 0) return {LayoutProblem::kMxfp8ShardRows, shard_rows, kMxfp8BlockSize};
      if (cols % kMxfp8BlockSize != 0) return {LayoutProblem::kMxfp8Cols, cols, kMxfp8BlockSize};
      return {};
    case WeightFormat::kNvfp4:
      if (pad_length % 2 != 0) return {LayoutProblem::kNvfp4OddPadding, pad_length, 2};
      if (shard_rows % kNvfp4BlockSize != 0) return {LayoutProblem::kNvfp4ShardRows, shard_rows, kNvfp4BlockSize};
      if (cols % kNvfp4BlockSize != 0) return {LayoutProblem::kNvfp4Cols, cols, kNvfp4BlockSize};
      return {};
  }
  return {};
}

/// The padded whole. Upstream wraps nothing in a group of one, so nothing is padded there.
/// generalized_tensor_parallelism.py:533, :825
constexpr std::optional<std::int64_t> padded_rows(const LayoutRequest& request) noexcept {
  if (request.pad_for_alignment == 0 || request.group_size == 1) return request.rows;
  const auto unit = checked_multiply(request.pad_for_alignment, request.group_size);
  return unit ? round_up_to_multiple(request.rows, *unit) : std::nullopt;
}

/// True if no size derived from the padded shape can overflow: the largest component is at most 16 bytes per element
/// of the shape rounded up to scale tiles.
constexpr bool fits(std::int64_t padded_rows, std::int64_t cols) noexcept {
  const auto outer_rows = round_up_to_multiple(padded_rows, kScaleTileOuter);
  const auto outer_cols = round_up_to_multiple(cols, kScaleTileOuter);
  return outer_rows && outer_cols && checked_product({*outer_rows, *outer_cols, 16});
}

constexpr std::int64_t up(std::int64_t value, std::int64_t unit) noexcept { return (value + unit - 1) / unit * unit; }

using Extents = std::array<ComponentExtent, kComponentCount>;

/// TransformerEngine mxfp8_tensor.py:139: column data is not transposed, its blocks run down the rows.
constexpr Extents mxfp8_extents(std::int64_t shard_rows, std::int64_t whole_rows, std::int64_t cols) noexcept {
  const std::int64_t row_scale_width = up(cols / kMxfp8BlockSize, kScaleTileInner);
  const std::int64_t col_scale_width = up(cols, kScaleTileOuter);
  const auto row_scales = [&](std::int64_t rows) { return up(rows, kScaleTileOuter) * row_scale_width; };
  const auto col_scales = [&](std::int64_t rows) {
    return up(rows / kMxfp8BlockSize, kScaleTileInner) * col_scale_width;
  };
  const ComponentExtent data{shard_rows * cols, whole_rows * cols, shard_rows * cols};
  return {{data,
           {row_scales(shard_rows), row_scales(whole_rows), shard_rows * row_scale_width},
           data,
           {col_scales(shard_rows), col_scales(whole_rows), shard_rows / kMxfp8BlockSize * col_scale_width},
           {}}};
}

/// TransformerEngine nvfp4_tensor.py:273. The column copy [cols, rows / 2] exists of the whole only: it is a lossless
/// transposition of the gathered rows.
constexpr Extents nvfp4_extents(std::int64_t shard_rows, std::int64_t whole_rows, std::int64_t cols) noexcept {
  const std::int64_t row_scale_width = up(cols / kNvfp4BlockSize, kScaleTileInner);
  const auto row_scales = [&](std::int64_t rows) { return up(rows, kScaleTileOuter) * row_scale_width; };
  const std::int64_t col_scales = up(cols, kScaleTileOuter) * up(whole_rows / kNvfp4BlockSize, kScaleTileInner);
  return {{{shard_rows * cols / 2, whole_rows * cols / 2, shard_rows * cols / 2},
           {row_scales(shard_rows), row_scales(whole_rows), shard_rows * row_scale_width},
           {0, whole_rows * cols / 2, 0},
           {0, col_scales, 0},
           {kAmaxBytes, kAmaxBytes, 0}}};
}

constexpr Extents extents(WeightFormat format, std::int64_t shard_rows, std::int64_t whole_rows,
                          std::int64_t cols) noexcept {
  switch (format) {
    case WeightFormat::kBf16:
      return {{{2 * shard_rows * cols, 2 * whole_rows * cols, 2 * shard_rows * cols}, {}, {}, {}, {}}};
    case WeightFormat::kMxfp8:
      return mxfp8_extents(shard_rows, whole_rows, cols);
    case WeightFormat::kNvfp4:
      return nvfp4_extents(shard_rows, whole_rows, cols);
  }
  return {};
}

}  // namespace detail

/// nullopt if there is no such layout; `refusal` then says why, and is untouched otherwise.
constexpr std::optional<ShardLayout> make_shard_layout(const LayoutRequest& request, LayoutRefusal& refusal) noexcept {
  const auto refuse = [&](LayoutRefusal why) {
    refusal = why;
    return std::nullopt;
  };
  if (const auto why = detail::refuse_bad_sizes(request); why.problem != LayoutProblem::kNone) return refuse(why);
  const std::optional<std::int64_t> padded = detail::padded_rows(request);
  if (!padded) return refuse({LayoutProblem::kTooLarge, request.rows, 0});
  const std::int64_t shard_rows = *padded / request.group_size;
  const std::int64_t pad_length = *padded - request.rows;
  const auto why = detail::refuse_bad_blocks(request.format, shard_rows, pad_length, request.cols);
  if (why.problem != LayoutProblem::kNone) return refuse(why);
  if (!detail::fits(*padded, request.cols)) return refuse({LayoutProblem::kTooLarge, *padded, 0});
  ShardLayout layout;
  layout.rows_ = request.rows;
  layout.cols_ = request.cols;
  layout.format_ = request.format;
  layout.group_size_ = request.group_size;
  layout.shard_rows_ = shard_rows;
  layout.pad_length_ = pad_length;
  layout.extents_ = detail::extents(request.format, shard_rows, *padded, request.cols);
  return layout;
}

constexpr std::optional<ShardLayout> make_shard_layout(const LayoutRequest& request) noexcept {
  LayoutRefusal ignored;
  return make_shard_layout(request, ignored);
}

}  // namespace gtp
