// A mixture of experts with EP and EGTP_remat against the unsharded run.
#include "moe_plans.hpp"

using namespace gtp;
using namespace gtp::test;
using namespace gtp::train;

namespace {

constexpr ModelShape kMoe{.layers = 2, .ffn = 24, .experts = 4, .topk = 2};

}  // namespace

TEST_CASE("with EGTP_remat 2 experts learn as in the unsharded run bit for bit") {
  const WorldRun run = require_equal_to_reference(moe_plan(2, 2, 1, 2, 4), kMoe);
  CHECK(run.ranks[0].calls.expert_exchange == 0);
  CHECK(run.ranks[0].counters.on_demand_gathers == 0);
}

TEST_CASE("with EP 2 experts learn as in the unsharded run bit for bit") {
  const WorldRun run = require_equal_to_reference(moe_plan(2, 1, 2, 1, 4), kMoe);
  CHECK(run.ranks[0].calls.expert_exchange > 0);
  CHECK(run.ranks[0].counters.gathers == 0);
}

TEST_CASE("with EGTP_remat 2 and EP 2 experts learn as in the unsharded run bit for bit") {
  const WorldRun run = require_equal_to_reference(moe_plan(4, 2, 2, 2, 8), kMoe, {.log_interval = 100});
  CHECK(run.ranks[0].counters.gathers > 0);
  CHECK(run.ranks[0].calls.expert_exchange > 0);
}

TEST_CASE("with EGTP_remat 2, EP 2 and expert replicas experts learn as in the unsharded run bit for bit") {
  require_equal_to_reference(moe_plan(8, 2, 2, 2, 8), kMoe, {.steps = 2});
}

TEST_CASE("without GTP_remat a mixture of experts issues no collective of the runtime") {
  const WorldRun run = require_equal_to_reference(moe_plan(4, 1, 2, 1, 4), kMoe);
  CHECK(run.ranks[0].counters.gathers + run.ranks[0].counters.reduce_scatters == 0);
  CHECK(run.ranks[0].counters.buffer_bytes == 0);
}

TEST_CASE("GTP_remat and EGTP_remat may differ when token losses are summed") {
  const PlanValues plan = moe_plan(4, 4, 2, 2, 4, "\"calculate_per_token_loss\": true");
  require_equal_to_reference(plan, kMoe);
  const WorldRun single = run_on_threads(moe_plan(1, 1, 1, 1, 4, "\"calculate_per_token_loss\": true"), kMoe);
  CHECK(distance(run_on_threads(plan, kMoe).weights, single.weights) < 1e-4);
}

TEST_CASE("experts on many ranks stay within fp32 tolerance of the plan of a single rank") {
  const WorldRun single = run_on_threads(moe_plan(1, 1, 1, 1, 8), kMoe);
  const WorldRun sharded = run_on_threads(moe_plan(4, 2, 2, 2, 8), kMoe);
  CHECK(distance(sharded.weights, single.weights) < 1e-4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(sharded.ranks[0].steps[i].loss == doctest::Approx(single.ranks[0].steps[i].loss).epsilon(1e-4));
    CHECK(sharded.ranks[0].steps[i].grad_norm == doctest::Approx(single.ranks[0].steps[i].grad_norm).epsilon(1e-4));
  }
}

TEST_CASE("the experts of one layer learn") {
  const WorldRun run =
      run_on_threads(moe_plan(2, 1, 2, 1, 8, "\"lr\": 0.02, \"train_iters\": 40"), {.layers = 1, .experts = 4});
  CHECK(run.ranks[0].steps.back().loss < 0.75 * run.ranks[0].steps.front().loss);
}
