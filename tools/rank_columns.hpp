// Where a rank stands on both grids: the columns that a table of ranks and the rank map of a launch have.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <gtp/grid.hpp>
#include <gtp/topology.hpp>

namespace gtp::cli {

struct RankColumn {
  std::string_view name;
  GridKind grid;
  Axis axis;

  /// The cell of a rank with these coordinates.
  [[nodiscard]] std::int64_t of(const AxisValues& dense, const AxisValues& expert) const {
    return (grid == GridKind::kDense ? dense : expert)[axis_index(axis)];
  }
};

inline constexpr std::array<RankColumn, 9> kRankColumns{{{"tp", GridKind::kDense, Axis::kTp},
                                                         {"gtp", GridKind::kDense, Axis::kGtpRemat},
                                                         {"cp", GridKind::kDense, Axis::kCp},
                                                         {"dp", GridKind::kDense, Axis::kDp},
                                                         {"pp", GridKind::kDense, Axis::kPp},
                                                         {"etp", GridKind::kExpert, Axis::kTp},
                                                         {"ep", GridKind::kExpert, Axis::kEp},
                                                         {"egtp", GridKind::kExpert, Axis::kGtpRemat},
                                                         {"edp", GridKind::kExpert, Axis::kDp}}};

}  // namespace gtp::cli
