// Whole steps as one graph, replayed: every bit is that of the eager run.
#include "moe_plans.hpp"
#include "runs.hpp"

using namespace gtp;
using namespace gtp::test;
using namespace gtp::train;

namespace {

WorldRun check_graph_equals_eager(const PlanValues& plan, const ModelShape& shape, TrainOptions options = {}) {
  const WorldRun eager = run_on_threads(plan, shape, options);
  options.graph = true;
  WorldRun graph = run_on_threads(plan, shape, options);
  CHECK(differing(graph.weights, eager.weights) == 0);
  for (std::size_t rank = 0; rank < graph.ranks.size(); ++rank) {
    CHECK(losses_of(graph.ranks[rank]) == losses_of(eager.ranks[rank]));
  }
  return graph;
}

}  // namespace

TEST_CASE("a dense step replayed as a graph changes no bit of losses and weights") {
  const WorldRun run = check_graph_equals_eager(dense_plan(4, 1, 2, 8), {});
  CHECK(run.ranks[0].counters.captures == 1);
  CHECK(run.ranks[0].counters.replays == 4);
  check_graph_equals_eager(dense_plan(4, 2, 4, 4), {.layers = 1});
  check_graph_equals_eager(dense_plan(2, 1, 1, 4), {.layers = 1});
}

TEST_CASE("a step of experts replayed as a graph changes no bit of losses and weights") {
  check_graph_equals_eager(moe_plan(4, 2, 2, 2, 8), {.layers = 2, .ffn = 24, .experts = 4});
}

TEST_CASE("graphs and evaluations take turns") {
  const PlanValues plan = dense_plan(2, 1, 2, 4, R"("eval_iters": 1, "eval_interval": 1, "eval_global_batch_size": 2)");
  const WorldRun run = check_graph_equals_eager(plan, {}, {.log_interval = 100});
  CHECK(run.ranks[0].evaluations.size() == 5);
}

TEST_CASE("each number of microbatches has a graph of its own") {
  const PlanValues plan = plan_of(R"("world_size": 2, "tensor_model_parallel_size": 1,
      "tensor_parallel_num_weight_shards": 2, "expert_tensor_parallel_size": 1,
      "step_batch_size_schedule": "0:4 8:8", "eval_global_batch_size": 2)");
  const WorldRun run = check_graph_equals_eager(plan, {.layers = 1});
  CHECK(run.ranks[0].counters.captures == 2);
  CHECK(run.ranks[0].counters.replays == 4);
}

TEST_CASE("quantized weights are gathered in graphs too") {
  TrainOptions options{.steps = 3};
  for (const WeightFormat format : {WeightFormat::kMxfp8, WeightFormat::kNvfp4}) {
    options.weight_format = format;
    check_graph_equals_eager(dense_plan(2, 1, 2, 2), {.layers = 1, .hidden = 64, .ffn = 64, .seq = 4}, options);
  }
}
