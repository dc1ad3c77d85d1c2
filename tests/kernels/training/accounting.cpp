// Groups, batches, learning rates and evaluations of a run against what the engine says of the plan.
#include "gtp/batch.hpp"
#include "gtp/groups.hpp"
#include "moe_plans.hpp"

using namespace gtp;
using namespace gtp::test;
using namespace gtp::train;

namespace {

struct NamedSize {
  std::string_view family;
  const Group* group;
};

void require_groups_of_plan(const Topology& topology, Rank& rank) {
  const Groups& g = rank.groups();
  const std::array groups{NamedSize{"tp", &g.tp},
                          NamedSize{"dp_cp", &g.dp_cp},
                          NamedSize{"ep_dp", &g.ep_dp},
                          NamedSize{"ep", &g.ep},
                          NamedSize{"mp", &g.mp},
                          NamedSize{"tp_ep_gtp_remat_pp", &g.tp_ep_gtp_remat_pp},
                          NamedSize{"gtp_remat_dp", &g.gtp_remat_dp},
                          NamedSize{"gtp_remat", &rank.gtp().group(WeightDomain::kDense)},
                          NamedSize{"expt_gtp_remat", &rank.gtp().group(WeightDomain::kExpert)}};
  for (const NamedSize& named : groups) {
    INFO(named.family);
    const GroupFamily family = make_group_family(topology, *find_group_family(named.family));
    const auto place = family.group_of(rank.index());
    REQUIRE(place);
    CHECK(named.group->size() == family.size());
    CHECK(named.group->position() == place->position);
    for (std::int64_t i = 0; i < family.size(); ++i) {
      CHECK(named.group->ranks()[static_cast<std::size_t>(i)] == family.rank(place->group, i));
    }
  }
}

void require_batches_of_plan(const PlanValues& plan, const TrainLog& log) {
  BatchRows rows(plan.batch, plan.batch_options);
  for (const StepLog& step : log.steps) {
    const BatchRow row = *rows.next();
    CHECK(step.iteration == row.iteration);
    CHECK(step.num_microbatches == row.num_microbatches);
    CHECK(step.global_batch_size == row.global_batch_size);
    CHECK(step.lr_increment_samples == row.lr_increment_samples);
    CHECK(step.consumed_train_samples == row.consumed_train_samples);
    CHECK(step.skipped == row.skipped);
  }
}

}  // namespace

TEST_CASE("every rank's groups are those of the plan") {
  const PlanValues plan = plan_of(R"("world_size": 8, "tensor_model_parallel_size": 1,
      "tensor_parallel_num_weight_shards": 2, "expert_tensor_parallel_size": 1, "expert_model_parallel_size": 2,
      "expert_tensor_parallel_num_weight_shards": 2, "num_experts": 4, "global_batch_size": 8)");
  HostWorld world({.ranks = 8, .seed = 1});
  const auto ends = world.run([&](std::int64_t index, HostBackend& backend) {
    HostLauncher launcher(backend);
    Rank rank({backend, launcher, index}, plan.topology, {});
    require_groups_of_plan(plan.topology, rank);
  });
  for (const RankOutcome& end : ends) CHECK(end.ok());
}

TEST_CASE("microbatches, samples and LR increments are those of the plan, skipped iterations included") {
  const PlanValues plan = dense_plan(4, 1, 2, 8, "\"train_iters\": 5, \"iterations_to_skip\": [2]");
  const WorldRun run = require_equal_to_reference(plan, {});
  REQUIRE(run.ranks[0].steps.size() == 5);
  for (const TrainLog& log : run.ranks) require_batches_of_plan(plan, log);
  CHECK(run.ranks[0].steps[1].skipped);
  CHECK(run.ranks[0].steps[4].consumed_train_samples == 40);
}

TEST_CASE("the learning rate follows consumed samples through warmup and decay") {
  const PlanValues plan = dense_plan(2, 1, 2, 4, "\"lr_warmup_iters\": 2, \"lr_decay_style\": \"linear\"");
  const WorldRun run = run_on_threads(plan, {});
  const auto& steps = run.ranks[1].steps;
  CHECK(steps[0].learning_rate == 0.0);
  CHECK(steps[1].learning_rate == doctest::Approx(0.005));
  CHECK(steps[2].learning_rate == doctest::Approx(0.01));
  CHECK(steps[3].learning_rate == doctest::Approx(0.0055));
  CHECK(learning_rate(plan, 16) == doctest::Approx(0.001));
  CHECK(learning_rate(plan, 17) == 0.001);
}

TEST_CASE("evaluations are as many, and read as many samples, as the plan says") {
  const PlanValues plan = dense_plan(4, 1, 2, 4,
                                     R"("train_iters": 4, "eval_iters": 3, "eval_interval": 2, "start_eval_at_iter": 3,
                                        "eval_global_batch_size": 8, "eval_micro_batch_size": 2)");
  const WorldRun run = run_on_threads(plan, {});
  for (const TrainLog& log : run.ranks) {
    std::int64_t iterations = 0;
    for (const EvalLog& evaluation : log.evaluations) {
      iterations += evaluation.eval_iters;
      CHECK(evaluation.samples == plan.batch.eval_samples);
      CHECK(evaluation.loss > 0.0);
    }
    CHECK(iterations == plan.evaluation.eval_iters);
    CHECK(log.consumed_valid_samples == plan.evaluation.eval_samples);
  }
  CHECK(plan.evaluation.eval_samples == 48);
}

TEST_CASE("an evaluation averages over GTP_remat and replicas alike") {
  const std::string more = R"("train_iters": 1, "lr_warmup_iters": 0, "eval_iters": 2, "eval_interval": 1,
      "eval_global_batch_size": 4)";
  const WorldRun sharded = run_on_threads(dense_plan(4, 1, 2, 4, more), {});
  const WorldRun single = run_on_threads(dense_plan(1, 1, 1, 4, more), {});
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(sharded.ranks[3].evaluations[i].loss == doctest::Approx(single.ranks[0].evaluations[i].loss).epsilon(1e-5));
  }
}

TEST_CASE("evaluation leaves training as it was") {
  const WorldRun with =
      run_on_threads(dense_plan(2, 1, 2, 4, R"("eval_iters": 1, "eval_interval": 1, "eval_global_batch_size": 2)"), {});
  const WorldRun without = run_on_threads(dense_plan(2, 1, 2, 4), {});
  CHECK(with.ranks[0].evaluations.size() == 5);
  CHECK(differing(with.weights, without.weights) > 0);  // adam_beta2 differs
  const WorldRun same = run_on_threads(
      dense_plan(2, 1, 2, 4, R"("adam_beta2": 0.95, "eval_iters": 1, "eval_interval": 1, "eval_global_batch_size": 2)"),
      {});
  CHECK(differing(same.weights, without.weights) == 0);
}

TEST_CASE("a run of no steps evaluates the initial weights") {
  const std::string more = R"("adam_beta2": 0.95, "eval_iters": 1, "eval_interval": 1, "eval_global_batch_size": 2)";
  const WorldRun run = run_on_threads(dense_plan(2, 1, 2, 4, more), {}, {.steps = 0});
  CHECK(run.ranks[0].steps.empty());
  REQUIRE(run.ranks[0].evaluations.size() == 1);
  CHECK(run.ranks[0].evaluations[0].loss > 3.0);  // about the logarithm of 32 tokens
}

TEST_CASE("the gradient norm counts every parameter once, whatever is sharded") {
  const WorldRun single = run_on_threads(dense_plan(1, 1, 1, 4), {}, {.steps = 1});
  const double norm = single.ranks[0].steps[0].grad_norm;
  CHECK(norm > 0.5);  // so that clipping is at work
  CHECK(run_on_threads(dense_plan(4, 1, 4, 4), {}, {.steps = 1}).ranks[2].steps[0].grad_norm == norm);
  CHECK(run_on_threads(dense_plan(4, 2, 4, 4), {}, {.steps = 1}).ranks[3].steps[0].grad_norm ==
        doctest::Approx(norm).epsilon(1e-5));
}

TEST_CASE("an invalid plan is refused with the messages of its diagnostics") {
  PlanValues plan;
  const PlanProblem problem = read_plan("test", plan_text(R"("world_size": 4, "tensor_model_parallel_size": 2,
      "tensor_parallel_num_weight_shards": 3, "global_batch_size": 8)"),
                                        plan);
  CHECK(problem.text.find("GTP") != std::string::npos);
}

TEST_CASE("a plan or a model that the example has no code for is refused with a reason") {
  CHECK(refusal(dense_plan(4, 2, 4, 4), {.heads = 3, .ffn = 32}) == "hidden 16 cannot be split by 3");
  CHECK(refusal(dense_plan(4, 4, 4, 4), {.hidden = 18, .heads = 6}) == "heads 6 cannot be split by 4");
  CHECK(refusal(dense_plan(4, 2, 4, 4), {.experts = 4}).find("tensor_model_parallel_size is 2") == 0);
  CHECK(refusal(moe_plan(1, 1, 1, 1, 4), {.experts = 4, .topk = 5}) == "topk 5 is not within 1 to 4 experts");
  CHECK(refusal(dense_plan(1, 1, 1, 4), {}).empty());
}
