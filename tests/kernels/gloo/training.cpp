// Whole training runs between processes: every bit is that of the run on threads.
#include "../training/runs.hpp"
#include "examples/train/train_over_gloo.hpp"
#include "job.hpp"

namespace gtp::test {

namespace {

void compare_with_threads(const train::PlanValues& plan, const train::ModelShape& shape) {
  const train::TrainLog log = train::train_over_gloo(plan, shape, {});
  const WorldRun threads = run_on_threads(plan, shape);
  CHECK(losses_of(log) == losses_of(threads.ranks[0]));
  CHECK(log.steps.size() == static_cast<std::size_t>(plan.train_iters));
  CHECK_FALSE(log.pieces.empty());
  for (const train::WeightPiece& piece : log.pieces) {
    const std::vector<float>& whole = threads.weights.at(piece.tensor);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < piece.where.size(); ++i) {
      wrong += std::memcmp(&whole[piece.where[i]], &piece.values[i], sizeof(float)) != 0;
    }
    INFO(piece.tensor);
    CHECK(wrong == 0);
  }
}

train::PlanValues moe_plan() {
  return plan_of(R"("world_size": 4, "num_experts": 4, "expert_model_parallel_size": 2,
      "expert_tensor_parallel_size": 1, "expert_tensor_parallel_num_weight_shards": 2,
      "tensor_parallel_num_weight_shards": 2, "global_batch_size": 8, "calculate_per_token_loss": true)");
}

}  // namespace

TEST_CASE("child dense training" * doctest::skip()) { compare_with_threads(dense_plan(4, 2, 4, 4), {}); }
TEST_CASE("child moe training" * doctest::skip()) { compare_with_threads(moe_plan(), {.experts = 4}); }
TEST_CASE("child other world" * doctest::skip()) {
  CHECK_THROWS_WITH(train::train_over_gloo(dense_plan(4, 1, 4, 4), {}, {}),
                    doctest::Contains("the job has 2 processes, but the plan is for a world of 4"));
}

TEST_CASE("four processes train a dense model as four threads do") {
  CHECK(run_job("child dense training", 4) == "0 0 0 0");
}

TEST_CASE("four processes train experts over EP and EGTP as four threads do") {
  CHECK(run_job("child moe training", 4) == "0 0 0 0");
}

TEST_CASE("a job of another size than the plan's world is refused") { CHECK(run_job("child other world", 2) == "0 0"); }

}  // namespace gtp::test
