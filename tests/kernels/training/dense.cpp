// A dense GPT on plans with GTP_remat, TP and replicate DP against the unsharded run.
#include "runs.hpp"

using namespace gtp;
using namespace gtp::test;
using namespace gtp::train;

TEST_CASE("with GTP_remat 2 losses and weights are those of the unsharded run bit for bit") {
  const WorldRun run = require_equal_to_reference(dense_plan(2, 1, 2, 8), {});
  const Counters& counters = run.ranks[0].counters;
  CHECK(counters.gathers > 0);
  CHECK(counters.reduce_scatters > 0);
  CHECK(counters.on_demand_gathers == 0);
  CHECK(counters.prefetched_gathers > counters.head_gathers);
  CHECK(counters.replicated_reductions == 4);  // one a step
  CHECK(run.ranks[0].calls.replicate == 0);
}

TEST_CASE("with GTP_remat 4 losses and weights are those of the unsharded run bit for bit") {
  require_equal_to_reference(dense_plan(4, 1, 4, 8), {});
}

TEST_CASE("with TP 2 and GTP_remat 2 losses and weights are those of the unsharded run bit for bit") {
  const WorldRun run = require_equal_to_reference(dense_plan(4, 2, 4, 4), {});
  CHECK(run.ranks[0].calls.tensor_parallel > 0);
  CHECK(run.ranks[0].counters.gathers > 0);
}

TEST_CASE("with GTP_remat 2 and replicate DP 2 losses and weights are those of the unsharded run bit for bit") {
  const WorldRun run = require_equal_to_reference(dense_plan(4, 1, 2, 8), {});
  CHECK(run.ranks[0].calls.replicate > 0);
}

TEST_CASE("with TP 2, GTP_remat 2 and replicate DP 2 all is as in the unsharded run bit for bit") {
  require_equal_to_reference(dense_plan(8, 2, 4, 8), {}, {.steps = 2});
}

TEST_CASE("token losses sum up over all ranks and are divided once") {
  const PlanValues plan = dense_plan(4, 1, 2, 8, "\"adam_beta2\": 0.95, \"calculate_per_token_loss\": true");
  const WorldRun sums = require_equal_to_reference(plan, {});
  const WorldRun means = run_on_threads(dense_plan(4, 1, 2, 8), {});
  CHECK(differing(sums.weights, means.weights) == 0);  // all factors are powers of two
}

TEST_CASE("one microbatch a lane equals the plan of a single rank bit for bit") {
  const WorldRun sharded = run_on_threads(dense_plan(4, 1, 4, 4), {});
  const WorldRun single = run_on_threads(dense_plan(1, 1, 1, 4), {});
  CHECK(differing(sharded.weights, single.weights) == 0);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(sharded.ranks[0].steps[i].loss == doctest::Approx(single.ranks[0].steps[i].loss).epsilon(1e-14));
    CHECK(sharded.ranks[0].steps[i].grad_norm == single.ranks[0].steps[i].grad_norm);
  }
}

TEST_CASE("other orders of addition stay within fp32 tolerance of the plan of a single rank") {
  const WorldRun single = run_on_threads(dense_plan(1, 1, 1, 8), {});
  for (const auto& [world, tp, shards] : {std::array{4, 1, 2}, std::array{4, 2, 4}, std::array{2, 1, 2}}) {
    const WorldRun sharded = run_on_threads(dense_plan(world, tp, shards, 8), {});
    CHECK(distance(sharded.weights, single.weights) < 1e-4);
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(sharded.ranks[0].steps[i].loss == doctest::Approx(single.ranks[0].steps[i].loss).epsilon(1e-4));
    }
  }
}

TEST_CASE("weights do not depend on how streams interleave") {
  const PlanValues plan = dense_plan(4, 1, 2, 8);
  const WorldRun first = run_on_threads(plan, {}, {.steps = 2}, 1);
  const WorldRun second = run_on_threads(plan, {}, {.steps = 2}, 99);
  CHECK(differing(first.weights, second.weights) == 0);
}

TEST_CASE("steps may follow each other without the host ever waiting") {
  require_equal_to_reference(dense_plan(4, 1, 2, 8), {}, {.log_interval = 100});
  require_equal_to_reference(dense_plan(4, 2, 4, 4), {}, {.log_interval = 100});
}

TEST_CASE("prefetch depth, synchronous reductions and poisoned buffers change no bit") {
  const PlanValues plan = dense_plan(2, 1, 2, 4);
  const WorldRun plain = run_on_threads(plan, {}, {.steps = 2});
  TrainOptions other{.steps = 2};
  other.runtime.prefetch_depth = 3;
  other.runtime.async_reduction = false;
  other.runtime.poison_free_buffers = true;
  CHECK(differing(plain.weights, run_on_threads(plan, {}, other).weights) == 0);
  other.runtime.prefetch_depth = 0;
  CHECK(differing(plain.weights, run_on_threads(plan, {}, other).weights) == 0);
}

TEST_CASE("gradients on a bf16 wire stay close to those on an fp32 wire") {
  const PlanValues plan = dense_plan(4, 1, 4, 8);
  const WorldRun exact = run_on_threads(plan, {});
  const WorldRun rounded = run_on_threads(plan, {}, {.wire = ElementType::kBFloat16});
  CHECK(differing(exact.weights, rounded.weights) > 0);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(rounded.ranks[0].steps[i].loss == doctest::Approx(exact.ranks[0].steps[i].loss).epsilon(2e-3));
    CHECK(rounded.ranks[0].steps[i].grad_norm == doctest::Approx(exact.ranks[0].steps[i].grad_norm).epsilon(2e-2));
  }
}

TEST_CASE("bf16 gradients may be summed in fp32 after an all-to-all") {
  const PlanValues plan = dense_plan(4, 1, 4, 4,
                                     "\"bf16\": true, \"grad_reduce_in_bf16\": true, "
                                     "\"gtp_remat_reduce_scatter_with_fp32_accumulation\": true");
  const WorldRun run = run_on_threads(plan, {}, {.steps = 2, .wire = ElementType::kBFloat16});
  CHECK(run.ranks[0].counters.fp32_reduce_scatters == run.ranks[0].counters.reduce_scatters);
  CHECK(run.ranks[0].counters.reduce_scatters > 0);
}

TEST_CASE("training lowers the loss") {
  const WorldRun run = run_on_threads(dense_plan(2, 1, 2, 8, "\"lr\": 0.02, \"train_iters\": 40"), {.layers = 1});
  CHECK(run.ranks[0].steps.back().loss < 0.75 * run.ranks[0].steps.front().loss);
}
