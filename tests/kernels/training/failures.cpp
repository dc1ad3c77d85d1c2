// A run that cannot go on must end on every rank, with a reason, and without touching what is gone.
#include "runs.hpp"

using namespace gtp;
using namespace gtp::test;
using namespace gtp::train;

namespace {

std::vector<RankOutcome> run_with(HostWorld& world, const PlanValues& plan, const TrainOptions& options = {}) {
  return world.run([&](std::int64_t rank, HostBackend& backend) {
    HostLauncher launcher(backend);
    train::train(plan, {}, options, {backend, launcher, rank});
  });
}

}  // namespace

TEST_CASE("a reduction that fails ends the run on every rank and is named") {
  HostWorld world({.ranks = 4, .seed = 5});
  const std::size_t injection = world.inject({.action = InjectedAction::kFail,
                                              .rank = 1,
                                              .operation = std::string(host_op::kReduceScatter),
                                              .weight = "layers.0.qkv"});
  const auto ends = run_with(world, dense_plan(4, 1, 2, 8), {.log_interval = 100});
  CHECK(world.report(injection).hits > 0);
  for (const RankOutcome& end : ends) CHECK_FALSE(end.ok());
  CHECK(ends[1].text.find("layers.0.qkv") != std::string::npos);
}

TEST_CASE("a rank that dies takes the others down within the time limit") {
  HostWorld world({.ranks = 2, .seed = 5, .time_limit = std::chrono::milliseconds(300)});
  world.inject({.action = InjectedAction::kKill, .rank = 1, .weight = "optimizer", .occurrence = 1});
  const auto ends = run_with(world, dense_plan(2, 1, 2, 4));
  CHECK(ends[1].killed);
  CHECK_FALSE(ends[0].ok());
}

TEST_CASE("a model that does not fit the plan is refused before anything is sent") {
  HostWorld world({.ranks = 1, .seed = 1});
  HostLauncher launcher(world.backend(0));
  const auto refused = [&] {
    train::train(dense_plan(1, 1, 1, 4), {.layers = 0}, {}, {world.backend(0), launcher, 0});
  };
  CHECK_THROWS_WITH(refused(), "the model has no layers or no tokens");
}

TEST_CASE("a learning rate beyond all reason ends the run instead of training on") {
  HostWorld world({.ranks = 2, .seed = 1});
  const PlanValues plan = dense_plan(2, 1, 2, 4, "\"lr\": 1e38, \"lr_warmup_iters\": 0");
  for (const RankOutcome& end : run_with(world, plan)) CHECK_FALSE(end.ok());
}
