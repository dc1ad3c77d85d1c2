#include "kernels/bookkeeping/run_accounting.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "gtp/batch.hpp"

namespace {

using gtp::InitSeeds;
using gtp::SeedPlace;
using gtp::Topology;

Topology topology_of(const gtp::TopologyOptions& options) {
  const auto result = gtp::make_topology(options);
  REQUIRE(result);
  return *result;
}

InitSeeds seeds_of(std::int64_t seed, const Topology& topology, const SeedPlace& place) {
  const auto seeds = gtp::init_seeds(seed, topology, place);
  REQUIRE(seeds);
  return *seeds;
}

std::uint64_t first_draw(std::int64_t seed) { return std::mt19937_64(static_cast<std::uint64_t>(seed))(); }

const gtp::TopologyOptions kGtp4{.world_size = 16,
                                 .tensor_model_parallel_size = 2,
                                 .tensor_parallel_num_weight_shards = 8,
                                 .expert_model_parallel_size = 2,
                                 .expert_tensor_parallel_size = 1,
                                 .expert_tensor_parallel_num_weight_shards = 2};

}  // namespace

TEST_CASE("T34 initial shards differ per gtp rank and replicated parameters do not") {
  const Topology topology = topology_of(kGtp4);
  std::set<std::uint64_t> shards, expert_shards, replicated, tp_shards;
  for (std::int64_t rank = 0; rank < topology.gtp_remat; ++rank) {
    const InitSeeds seeds = seeds_of(1234, topology, {.gtp_rank = rank, .egtp_rank = rank % 2});
    shards.insert(first_draw(seeds.gtp_remat.value()));
    expert_shards.insert(first_draw(seeds.expert_gtp_remat.value()));
    replicated.insert(first_draw(seeds.data_parallel));
    tp_shards.insert(first_draw(seeds.model_parallel));
  }
  CHECK(shards.size() == 4);
  CHECK(expert_shards.size() == 2);
  CHECK(replicated.size() == 1);
  CHECK(tp_shards.size() == 1);
}

TEST_CASE("T34 seeds are upstream's, and states of an inactive axis are absent") {
  const InitSeeds seeds =
      seeds_of(1234, topology_of(kGtp4), {.tp_rank = 1, .ep_rank = 1, .etp_rank = 0, .gtp_rank = 3, .egtp_rank = 1});
  CHECK(seeds ==
        InitSeeds{1234, 1234 + 2718 + 1, 1234 + 1024 + 100, 1234 + 2719 + 65536 * 4, 1234 + 1124 + 32768 + 65536 * 2});
  const InitSeeds without = seeds_of(1234, topology_of({.world_size = 2}), {});
  CHECK(without == InitSeeds{1234, 3952, 2258, std::nullopt, std::nullopt});
  CHECK(gtp::kGtpRematRngTracker == "gtp-remat-rng");
  CHECK(gtp::kExpertGtpRematRngTracker == "egtp-remat-rng");
}

TEST_CASE("a seed that does not fit is absent") {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const Topology topology = topology_of(kGtp4);
  CHECK_FALSE(gtp::init_seeds(kMost, topology, {}));
  CHECK_FALSE(gtp::init_seeds(kMost - 40000, topology, {}));
  CHECK_FALSE(gtp::init_seeds(0, topology, {.gtp_rank = kMost}));
  CHECK_FALSE(gtp::init_seeds(0, topology, {.ep_rank = kMost}));
}

TEST_CASE("T34 a step reads micro batch x replicate DP x GTP_remat x microbatches samples") {
  const Topology topology = topology_of(kGtp4);
  CHECK(topology.dp == 2);
  CHECK(gtp::samples_of_step(3, topology, 5) == 3 * 2 * 4 * 5);
  CHECK_FALSE(gtp::samples_of_step(std::numeric_limits<std::int64_t>::max(), topology, 5));
  gtp::BatchOptions options;
  options.data_parallel_size = topology.dp;
  options.gtp_weight_remat_size = topology.gtp_remat;
  options.micro_batch_size = 3;
  options.global_batch_size = 120;
  gtp::BatchProblems problems;
  const auto plan = gtp::resolve_batch(options, gtp::EvalBatchRule::kDataDistribution, problems);
  REQUIRE(plan);
  CHECK(plan->eval_num_microbatches == 5);
  CHECK(gtp::samples_of_step(3, topology, gtp::num_microbatches(120, 3, plan->lanes)) == 120);
}

TEST_CASE("T34 an evaluation averages over replicate DP x GTP_remat") {
  const Topology topology = topology_of(kGtp4);
  const std::vector<double> of_lanes{1, 2, 3, 4, 5, 6, 7, 16};
  CHECK(gtp::evaluation_loss(of_lanes, topology) == 5.5);
  CHECK_FALSE(gtp::evaluation_loss(std::vector<double>{1, 2}, topology));
}
