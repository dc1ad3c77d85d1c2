#include "gtp/topology.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <limits>
#include <string>

#include "../support/data.hpp"
#include "../support/rank_groups.hpp"

namespace {

using gtp::make_topology;
using gtp::TopologyError;
using gtp::TopologyOptions;

constexpr std::int64_t kAbsurd = 1'000'000'000'000'000'000;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

constexpr TopologyOptions kGtpAndExperts{.world_size = 64,
                                         .tensor_model_parallel_size = 2,
                                         .tensor_parallel_num_weight_shards = 8,
                                         .context_parallel_size = 2,
                                         .pipeline_model_parallel_size = 2,
                                         .expert_model_parallel_size = 4,
                                         .expert_tensor_parallel_size = 1,
                                         .expert_tensor_parallel_num_weight_shards = 2};

static_assert(make_topology(kGtpAndExperts)->gtp_remat == 4);
static_assert(make_topology(kGtpAndExperts)->dp == 2);
static_assert(make_topology(kGtpAndExperts)->edp == 4);
static_assert(make_topology(TopologyOptions{}).topology == gtp::Topology{});
static_assert(gtp::remat_size(std::nullopt, 4) == 1);
static_assert(gtp::replicate_size(48, {2, 3, 1, 2}) == 4);

TopologyError first_error(const TopologyOptions& options) {
  const gtp::TopologyResult result = make_topology(options);
  REQUIRE(result.error.has_value());
  CHECK_FALSE(result.topology.has_value());
  return *result.error;
}

}  // namespace

TEST_CASE("weight shards decide the remat sizes and the rest of the world is replicas") {
  const gtp::TopologyResult result = make_topology(kGtpAndExperts);
  REQUIRE(result);
  CHECK(*result == gtp::Topology{64, 2, 4, 2, 2, 2, 1, 4, 2, 4, false});
  CHECK(result->data_distribution_size() == 8);
}

TEST_CASE("an absent expert tensor size is the tensor size") {
  const gtp::TopologyResult result =
      make_topology({.world_size = 16, .tensor_model_parallel_size = 4, .expert_model_parallel_size = 2});
  REQUIRE(result);
  CHECK(result->etp == 4);
  CHECK(result->edp == 2);
  CHECK(
      first_error({.world_size = 16, .tensor_model_parallel_size = 4, .expert_tensor_parallel_num_weight_shards = 2}) ==
      TopologyError::kExpertShardsBelowEtp);
}

TEST_CASE("the upstream rules refuse with their own identifiers") {
  for (std::size_t index = 0; index < gtp::kTopologyErrors.size(); ++index) {
    CHECK(static_cast<std::size_t>(gtp::kTopologyErrors[index].error) == index);
  }
  CHECK(gtp::topology_error_row(TopologyError::kNonPpLastNeedsEqualDp).rule == "non-pp-last-needs-equal-dp");
  CHECK(gtp::topology_error_row(TopologyError::kExpertShardsBelowEtp).rule == "expert-shards-below-etp");
}

TEST_CASE("of several faults the one that Megatron core meets first is named") {
  TopologyOptions options{.world_size = 13,
                          .tensor_model_parallel_size = 4,
                          .tensor_parallel_num_weight_shards = 3,
                          .pipeline_model_parallel_size = 2,
                          .expert_model_parallel_size = 16,
                          .expert_tensor_parallel_size = 2,
                          .expert_tensor_parallel_num_weight_shards = 1,
                          .use_tp_pp_dp_mapping = true};
  CHECK(first_error(options) == TopologyError::kDenseShardsBelowTp);
  options.tensor_parallel_num_weight_shards = 6;
  CHECK(first_error(options) == TopologyError::kDenseShardsMultipleOfTp);
  options.tensor_parallel_num_weight_shards = 8;
  CHECK(first_error(options) == TopologyError::kExpertShardsBelowEtp);
  options.expert_tensor_parallel_num_weight_shards = 5;
  CHECK(first_error(options) == TopologyError::kExpertShardsMultipleOfEtp);
  options.expert_tensor_parallel_num_weight_shards = 2;
  CHECK(first_error(options) == TopologyError::kWorldDivisibleByDenseGrid);
  options.world_size = 48;
  CHECK(first_error(options) == TopologyError::kWorldDivisibleByExpertGrid);
  options.expert_model_parallel_size = 2;
  CHECK(first_error(options) == TopologyError::kNonPpLastNeedsEqualDp);
  options.use_tp_pp_dp_mapping = false;
  CHECK(make_topology(options));
}

TEST_CASE("pipeline stages inside replicas need equal replicate sizes only if there are stages") {
  CHECK(gtp::pipeline_groups_agree(true, 1, 2, 4));
  CHECK(gtp::pipeline_groups_agree(false, 2, 2, 4));
  CHECK(gtp::pipeline_groups_agree(true, 2, 4, 4));
  CHECK_FALSE(gtp::pipeline_groups_agree(true, 2, 2, 4));
}

TEST_CASE("a size that is not positive is refused wherever it stands") {
  for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
    CHECK(first_error({.world_size = bad}) == TopologyError::kSizesMustBePositive);
    CHECK(first_error({.tensor_model_parallel_size = bad}) == TopologyError::kSizesMustBePositive);
    CHECK(first_error({.context_parallel_size = bad}) == TopologyError::kSizesMustBePositive);
    CHECK(first_error({.pipeline_model_parallel_size = bad}) == TopologyError::kSizesMustBePositive);
    CHECK(first_error({.expert_model_parallel_size = bad}) == TopologyError::kSizesMustBePositive);
    CHECK(first_error({.expert_tensor_parallel_size = bad}) == TopologyError::kSizesMustBePositive);
    CHECK(first_error({.tensor_parallel_num_weight_shards = bad}) == TopologyError::kDenseShardsBelowTp);
    CHECK(first_error({.expert_tensor_parallel_num_weight_shards = bad}) == TopologyError::kExpertShardsBelowEtp);
  }
}

TEST_CASE("worlds of a quintillion ranks are derived or refused without overflow") {
  const gtp::TopologyResult huge = make_topology({.world_size = kAbsurd, .tensor_model_parallel_size = kAbsurd / 2});
  REQUIRE(huge);
  CHECK(huge->dp == 2);
  CHECK(first_error({.world_size = kAbsurd,
                     .tensor_model_parallel_size = kAbsurd,
                     .context_parallel_size = kAbsurd,
                     .pipeline_model_parallel_size = kAbsurd}) == TopologyError::kWorldDivisibleByDenseGrid);
  CHECK(first_error({.world_size = kMost,
                     .expert_model_parallel_size = kMost,
                     .expert_tensor_parallel_size = kMost,
                     .expert_tensor_parallel_num_weight_shards = kMost}) == TopologyError::kWorldDivisibleByExpertGrid);
}

TEST_CASE("single derivation steps tolerate sizes nobody has checked yet") {
  CHECK(gtp::remat_size(12, 4) == 3);
  CHECK_FALSE(gtp::remat_size(12, 0));
  CHECK_FALSE(gtp::remat_size(-4, 4));
  CHECK_FALSE(gtp::remat_size(0, 4));
  CHECK(gtp::shards_below(3, 4));
  CHECK_FALSE(gtp::shards_below(4, 4));
  CHECK_FALSE(gtp::shards_below(std::nullopt, 4));
  CHECK(gtp::shards_not_multiple(6, 4));
  CHECK_FALSE(gtp::shards_not_multiple(3, 4));
  CHECK_FALSE(gtp::shards_not_multiple(8, 4));
  CHECK_FALSE(gtp::replicate_size(0, {1}));
  CHECK_FALSE(gtp::replicate_size(8, {-2, -2}));
  CHECK_FALSE(gtp::replicate_size(8, {3}));
  CHECK_FALSE(gtp::replicate_size(8, {kAbsurd, kAbsurd}));
  CHECK(gtp::replicate_size(8, {}) == 8);
}

TEST_CASE("all recorded topologies are derived or refused as upstream does") {
  const nlohmann::json rows = gtp::test::read_json(gtp::test::project_data("rank_groups.json"));
  REQUIRE(rows.size() == 300);
  int refused = 0;
  for (const nlohmann::json& row : rows) {
    INFO(row.at("topology").dump());
    const gtp::TopologyResult result = make_topology(gtp::test::topology_options(row.at("topology")));
    if (row.contains("error")) {
      ++refused;
      REQUIRE(result.error.has_value());
      CHECK(gtp::topology_error_row(*result.error).rule == row.at("error").get<std::string>());
      continue;
    }
    REQUIRE(result);
    const nlohmann::json& derived = row.at("derived");
    CHECK(result->gtp_remat == derived.at("gtp_weight_remat_size"));
    CHECK(result->egtp_remat == derived.at("expert_gtp_weight_remat_size"));
    CHECK(result->dp == derived.at("data_parallel_size"));
    CHECK(result->edp == derived.at("expert_data_parallel_size"));
    CHECK(result->data_distribution_size() == derived.at("data_distribution_size"));
  }
  CHECK(refused == 75);
}
