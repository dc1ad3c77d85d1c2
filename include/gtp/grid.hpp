// Ordered rank grids: which axis moves fastest, and the way between a rank and its coordinates.
// Process groups are cut out of a grid in groups.hpp.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

#include "gtp/checked.hpp"
#include "gtp/topology.hpp"

namespace gtp {

/// The parallel dimensions of a grid. `kTp` is TP on the dense grid and ETP on the expert grid, and so on.
enum class Axis : std::uint8_t { kTp, kGtpRemat, kCp, kEp, kDp, kPp };

inline constexpr std::size_t kAxisCount = 6;

/// Upstream's order tokens, indexed by `Axis`.
inline constexpr std::array<std::string_view, kAxisCount> kAxisTokens{"tp", "gtp_remat", "cp", "ep", "dp", "pp"};

constexpr std::size_t axis_index(Axis axis) noexcept { return static_cast<std::size_t>(axis); }

constexpr std::string_view axis_token(Axis axis) noexcept { return kAxisTokens[axis_index(axis)]; }

constexpr std::optional<Axis> find_axis(std::string_view token) noexcept {
  for (std::size_t index = 0; index < kAxisCount; ++index) {
    if (kAxisTokens[index] == token) return static_cast<Axis>(index);
  }
  return std::nullopt;
}

/// One number per axis, indexed by `axis_index`: sizes of a grid or coordinates of a rank.
using AxisValues = std::array<std::int64_t, kAxisCount>;

/// Distinct axes from the smallest stride (adjacent ranks) to the largest. Text form: tokens joined by `-`.
class AxisOrder {
 public:
  constexpr AxisOrder() noexcept = default;

  /// Precondition: the axes differ.
  constexpr AxisOrder(std::initializer_list<Axis> axes) noexcept {
    for (const Axis axis : axes) insert(count_, axis);
  }

  /// nullopt for an unknown, empty or repeated token.
  static constexpr std::optional<AxisOrder> parse(std::string_view text) noexcept;

  constexpr std::span<const Axis> axes() const noexcept { return {axes_.data(), count_}; }
  constexpr bool contains(Axis axis) const noexcept { return position(axis) < count_; }

  /// The number of axes if `axis` is not among them.
  constexpr std::size_t position(Axis axis) const noexcept {
    std::size_t at = 0;
    while (at < count_ && axes_[at] != axis) ++at;
    return at;
  }

  /// This order with GTP_remat placed after `anchor`, else after TP, else first; unchanged if it is already placed
  /// (megatron/core/parallel_state.py:582).
  constexpr AxisOrder with_gtp_remat_after(Axis anchor) const noexcept {
    AxisOrder order = *this;
    if (contains(Axis::kGtpRemat)) return order;
    const Axis found = contains(anchor) ? anchor : Axis::kTp;
    order.insert(contains(found) ? position(found) + 1 : 0, Axis::kGtpRemat);
    return order;
  }

  friend constexpr bool operator==(const AxisOrder& left, const AxisOrder& right) noexcept {
    return left.count_ == right.count_ && left.axes_ == right.axes_;
  }

 private:
  constexpr void insert(std::size_t at, Axis axis) noexcept {
    assert(count_ < kAxisCount && at <= count_ && !contains(axis));
    for (std::size_t moved = count_; moved > at; --moved) axes_[moved] = axes_[moved - 1];
    axes_[at] = axis;
    ++count_;
  }

  std::array<Axis, kAxisCount> axes_{};
  std::size_t count_ = 0;
};

constexpr std::optional<AxisOrder> AxisOrder::parse(std::string_view text) noexcept {
  AxisOrder order;
  while (true) {
    const std::size_t dash = text.find('-');
    const std::optional<Axis> axis = find_axis(text.substr(0, dash));
    if (!axis || order.contains(*axis)) return std::nullopt;
    order.insert(order.count_, *axis);
    if (dash == std::string_view::npos) return order;
    text.remove_prefix(dash + 1);
  }
}

/// The text of an order without allocation, e.g. `tp-gtp_remat-cp-ep-dp-pp`.
class AxisOrderText {
 public:
  constexpr explicit AxisOrderText(const AxisOrder& order) noexcept {
    for (const Axis axis : order.axes()) {
      if (size_ != 0) text_[size_++] = '-';
      for (const char letter : axis_token(axis)) text_[size_++] = letter;
    }
  }
  /// Valid while this object lives.
  constexpr std::string_view view() const noexcept { return {text_.data(), size_}; }

 private:
  static constexpr std::size_t kLongest = 24;  // all six tokens and five dashes
  std::array<char, kLongest> text_{};
  std::size_t size_ = 0;
};

/// Upstream's order before GTP_remat is put in (megatron/training/initialize.py:395).
constexpr AxisOrder base_order(bool pp_before_dp) noexcept {
  if (pp_before_dp) return {Axis::kTp, Axis::kCp, Axis::kEp, Axis::kPp, Axis::kDp};
  return {Axis::kTp, Axis::kCp, Axis::kEp, Axis::kDp, Axis::kPp};
}

/// GTP_remat comes after TP (megatron/core/parallel_state.py:857), or after CP since pull request 6868.
constexpr AxisOrder dense_order(bool pp_before_dp, bool cp_before_gtp_remat = false) noexcept {
  return base_order(pp_before_dp).with_gtp_remat_after(cp_before_gtp_remat ? Axis::kCp : Axis::kTp);
}

/// GTP_remat comes after EP (megatron/core/parallel_state.py:886).
constexpr AxisOrder expert_order(bool pp_before_dp) noexcept {
  return base_order(pp_before_dp).with_gtp_remat_after(Axis::kEp);
}

struct GridAxis {
  Axis axis = Axis::kTp;
  std::int64_t size = 1;
  std::int64_t stride = 1;
};

/// Ranks 0 .. world_size - 1 laid out over ordered axes. Always consistent: the default grid is that of one rank.
class Grid {
 public:
  constexpr Grid() noexcept {
    for (std::size_t index = 0; index < kAxisCount; ++index) axes_[index].axis = static_cast<Axis>(index);
  }

  /// Axes missing from `order` come last, as upstream has it (megatron/core/parallel_state.py:504-511). nullopt if a
  /// size is not positive, if a missing axis has a size other than 1, or if the world exceeds 64 bits.
  static constexpr std::optional<Grid> make(AxisOrder order, const AxisValues& sizes) noexcept;

  constexpr std::int64_t world_size() const noexcept { return world_size_; }

  /// All six axes, smallest stride first.
  constexpr std::span<const GridAxis, kAxisCount> axes() const noexcept { return axes_; }

  /// Indexed by `axis_index`; nullopt for a rank outside the world.
  constexpr std::optional<AxisValues> coordinates(std::int64_t rank) const noexcept {
    if (rank < 0 || rank >= world_size_) return std::nullopt;
    AxisValues coordinates{};
    for (const GridAxis& axis : axes_) coordinates[axis_index(axis.axis)] = rank / axis.stride % axis.size;
    return coordinates;
  }

  /// nullopt if a coordinate lies outside its axis.
  constexpr std::optional<std::int64_t> rank(const AxisValues& coordinates) const noexcept {
    std::int64_t rank = 0;
    for (const GridAxis& axis : axes_) {
      const std::int64_t coordinate = coordinates[axis_index(axis.axis)];
      if (coordinate < 0 || coordinate >= axis.size) return std::nullopt;
      rank += coordinate * axis.stride;
    }
    return rank;
  }

 private:
  std::array<GridAxis, kAxisCount> axes_{};
  std::int64_t world_size_ = 1;
};

constexpr std::optional<Grid> Grid::make(AxisOrder order, const AxisValues& sizes) noexcept {
  for (std::size_t index = 0; index < kAxisCount; ++index) {
    if (sizes[index] <= 0) return std::nullopt;
    if (sizes[index] != 1 && !order.contains(static_cast<Axis>(index))) return std::nullopt;
  }
  Grid grid;
  std::size_t filled = 0;
  for (const Axis axis : order.axes()) {
    grid.axes_[filled++] = {axis, sizes[axis_index(axis)], grid.world_size_};
    const std::optional<std::int64_t> product = checked_multiply(grid.world_size_, sizes[axis_index(axis)]);
    if (!product) return std::nullopt;
    grid.world_size_ = *product;
  }
  for (std::size_t index = 0; index < kAxisCount; ++index) {
    const Axis axis = static_cast<Axis>(index);
    if (!order.contains(axis)) grid.axes_[filled++] = {axis, 1, grid.world_size_};
  }
  return grid;
}

/// Which of the two grids: attention and dense layers, or experts.
enum class GridKind : std::uint8_t { kDense, kExpert };

namespace detail {

constexpr Grid grid_of_valid_topology(const AxisOrder& order, const AxisValues& sizes) noexcept {
  const std::optional<Grid> grid = Grid::make(order, sizes);
  assert(grid && "the topology did not come from make_topology");
  return grid.value_or(Grid());
}

}  // namespace detail

/// EP is 1 here. Precondition: `topology` came from `make_topology`.
constexpr Grid dense_grid(const Topology& topology) noexcept {
  return detail::grid_of_valid_topology(dense_order(topology.pp_before_dp, topology.cp_before_gtp_remat),
                                        {topology.tp, topology.gtp_remat, topology.cp, 1, topology.dp, topology.pp});
}

/// CP is 1 here, TP is ETP, DP is expert DP. Precondition: `topology` came from `make_topology`.
constexpr Grid expert_grid(const Topology& topology) noexcept {
  return detail::grid_of_valid_topology(expert_order(topology.pp_before_dp),
                                        {topology.etp, topology.egtp_remat, 1, topology.ep, topology.edp, topology.pp});
}

constexpr Grid make_grid(GridKind kind, const Topology& topology) noexcept {
  return kind == GridKind::kDense ? dense_grid(topology) : expert_grid(topology);
}

}  // namespace gtp
