#include "gtp/grid.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "../support/data.hpp"
#include "../support/rank_groups.hpp"

namespace {

using gtp::Axis;
using gtp::AxisOrder;
using gtp::AxisOrderText;
using gtp::Grid;

static_assert(AxisOrderText(gtp::dense_order(false)).view() == "tp-gtp_remat-cp-ep-dp-pp");
static_assert(AxisOrderText(gtp::expert_order(true)).view() == "tp-cp-ep-gtp_remat-pp-dp");
static_assert(AxisOrder::parse("tp-pp-dp")->axes().size() == 3);

// tp, gtp_remat, cp, ep, dp, pp
constexpr gtp::AxisValues kSizes{2, 3, 5, 1, 7, 4};
constexpr Grid kGrid = *Grid::make(gtp::dense_order(false), kSizes);
static_assert(kGrid.world_size() == 840);
static_assert(*kGrid.rank({1, 2, 4, 0, 6, 3}) == 839);

}  // namespace

TEST_CASE("both orders of both grids are those of upstream") {
  CHECK(AxisOrderText(gtp::dense_order(false)).view() == "tp-gtp_remat-cp-ep-dp-pp");
  CHECK(AxisOrderText(gtp::dense_order(true)).view() == "tp-gtp_remat-cp-ep-pp-dp");
  CHECK(AxisOrderText(gtp::expert_order(false)).view() == "tp-cp-ep-gtp_remat-dp-pp");
  CHECK(AxisOrderText(gtp::expert_order(true)).view() == "tp-cp-ep-gtp_remat-pp-dp");
}

TEST_CASE("the recorded orders are derived for every accepted topology") {
  const nlohmann::json rows = gtp::test::read_json(gtp::test::project_data("rank_groups.json"));
  for (const nlohmann::json& row : rows) {
    if (!row.contains("derived")) continue;
    const bool pp_before_dp = row.at("topology").at("use_tp_pp_dp_mapping");
    CHECK(AxisOrderText(gtp::dense_order(pp_before_dp)).view() == row["derived"]["dense_order"].get<std::string>());
    CHECK(AxisOrderText(gtp::expert_order(pp_before_dp)).view() == row["derived"]["expert_order"].get<std::string>());
  }
}

TEST_CASE("the remat axis is behind TP, or behind CP since pull request 6868") {
  CHECK(AxisOrderText(gtp::dense_order(false, true)).view() == "tp-cp-gtp_remat-ep-dp-pp");
  CHECK(AxisOrderText(gtp::expert_order(false)).view() == "tp-cp-ep-gtp_remat-dp-pp");
  gtp::Topology topology{.world_size = 12, .tp = 2, .gtp_remat = 3, .cp = 2, .etp = 2, .edp = 6};
  CHECK(gtp::dense_grid(topology).rank({0, 1, 0, 0, 0, 0}) == 2);
  topology.cp_before_gtp_remat = true;
  CHECK(gtp::dense_grid(topology).rank({0, 1, 0, 0, 0, 0}) == 4);
}

TEST_CASE("the remat axis falls back to after tp, then to the front, and is never moved") {
  const auto injected = [](const char* text, Axis after) {
    return std::string(AxisOrderText(AxisOrder::parse(text)->with_gtp_remat_after(after)).view());
  };
  CHECK(injected("tp-dp-pp", Axis::kEp) == "tp-gtp_remat-dp-pp");
  CHECK(injected("cp-dp-pp", Axis::kEp) == "gtp_remat-cp-dp-pp");
  CHECK(injected("tp-cp-dp-gtp_remat-pp", Axis::kTp) == "tp-cp-dp-gtp_remat-pp");
}

TEST_CASE("an order with an unknown, empty or repeated axis is not an order") {
  for (const char* text : {"", "-", "tp-", "-tp", "tp--dp", "tp-xp", "tp-tp", "TP", "tp dp", "gtp_rema"}) {
    INFO(text);
    CHECK_FALSE(AxisOrder::parse(text).has_value());
  }
  CHECK(AxisOrder::parse("tp-gtp_remat-cp-ep-dp-pp") == gtp::dense_order(false));
  CHECK_FALSE(gtp::find_axis("etp").has_value());
}

TEST_CASE("every rank has its own coordinates, and they lead back to it") {
  std::int64_t expected = 0;
  for (std::int64_t pp = 0; pp < 4; ++pp) {
    for (std::int64_t dp = 0; dp < 7; ++dp) {
      for (std::int64_t cp = 0; cp < 5; ++cp) {
        for (std::int64_t remat = 0; remat < 3; ++remat) {
          for (std::int64_t tp = 0; tp < 2; ++tp) {
            const gtp::AxisValues coordinates{tp, remat, cp, 0, dp, pp};
            REQUIRE(kGrid.coordinates(expected) == coordinates);
            REQUIRE(kGrid.rank(coordinates) == expected);
            ++expected;
          }
        }
      }
    }
  }
  CHECK(expected == kGrid.world_size());
}

TEST_CASE("ranks and coordinates outside the grid have no answer") {
  CHECK_FALSE(kGrid.coordinates(-1).has_value());
  CHECK_FALSE(kGrid.coordinates(840).has_value());
  CHECK_FALSE(kGrid.rank({2, 0, 0, 0, 0, 0}).has_value());
  CHECK_FALSE(kGrid.rank({0, 0, 0, 1, 0, 0}).has_value());
  CHECK_FALSE(kGrid.rank({0, -1, 0, 0, 0, 0}).has_value());
  CHECK(Grid().coordinates(0) == gtp::AxisValues{});
}

TEST_CASE("the axes of a grid are listed from the smallest stride on") {
  std::int64_t stride = 1;
  for (const gtp::GridAxis& axis : kGrid.axes()) {
    CHECK(axis.stride == stride);
    stride *= axis.size;
  }
  CHECK(kGrid.axes()[1].axis == Axis::kGtpRemat);
  CHECK(kGrid.axes()[5].axis == Axis::kPp);
  CHECK(kGrid.axes()[5].stride == 210);
}

TEST_CASE("only an axis of size one may be missing from the order, and it comes last") {
  const AxisOrder order = *AxisOrder::parse("dp-tp");
  const std::optional<Grid> grid = Grid::make(order, {2, 1, 1, 1, 3, 1});
  REQUIRE(grid.has_value());
  CHECK(grid->rank({1, 0, 0, 0, 2, 0}) == 5);
  CHECK(grid->axes()[0].axis == Axis::kDp);
  CHECK(grid->axes()[2].axis == Axis::kGtpRemat);
  CHECK(grid->axes()[2].stride == 6);
  CHECK_FALSE(Grid::make(order, {2, 1, 2, 1, 3, 1}).has_value());
}

TEST_CASE("a grid beyond 64 bits or with an empty axis cannot be made") {
  constexpr std::int64_t kBillion = 1'000'000'000;
  const AxisOrder order = gtp::dense_order(false);
  CHECK(Grid::make(order, {kBillion, kBillion, 1, 1, 1, 9})->world_size() == 9 * kBillion * kBillion);
  CHECK_FALSE(Grid::make(order, {kBillion, kBillion, 1, 1, 1, 10}).has_value());
  CHECK_FALSE(Grid::make(order, {2, 0, 1, 1, 1, 1}).has_value());
  CHECK_FALSE(Grid::make(order, {2, -1, 1, 1, 1, 1}).has_value());
}

TEST_CASE("the expert grid uses the expert sizes and no context parallelism") {
  const gtp::TopologyResult topology = gtp::make_topology({.world_size = 64,
                                                           .tensor_model_parallel_size = 2,
                                                           .context_parallel_size = 4,
                                                           .pipeline_model_parallel_size = 2,
                                                           .expert_model_parallel_size = 4,
                                                           .expert_tensor_parallel_size = 1,
                                                           .expert_tensor_parallel_num_weight_shards = 2});
  REQUIRE(topology);
  const Grid expert = gtp::make_grid(gtp::GridKind::kExpert, *topology);
  CHECK(expert.world_size() == 64);
  CHECK(expert.coordinates(63) == gtp::AxisValues{0, 1, 0, 3, 3, 1});
  const Grid dense = gtp::make_grid(gtp::GridKind::kDense, *topology);
  CHECK(dense.coordinates(63) == gtp::AxisValues{1, 0, 3, 0, 3, 1});
}
