// GTP_remat 1: the runtime must be the plain TP and DP path.
#include <mutex>
#include <set>

#include "runs.hpp"

using namespace gtp;
using namespace gtp::test;
using namespace gtp::train;

namespace {

constexpr std::array kCollectives{host_op::kAllGather, host_op::kReduceScatter, host_op::kAllToAll,
                                  host_op::kAllReduce};

/// Names of the groups that had a collective.
class CollectiveGroups final : public TraceSink {
 public:
  void span(const TraceSpan& span) override {
    if (std::find(kCollectives.begin(), kCollectives.end(), span.operation) == kCollectives.end()) return;
    const std::lock_guard lock(mutex_);
    names.insert(std::string(span.group));
  }
  std::set<std::string> names;

 private:
  std::mutex mutex_;
};

/// All that a runtime does in groups of one is hand out the caller's own memory.
void require_silent(const Counters& counters) { CHECK(counters == Counters{}); }

std::set<std::string> groups_of_run(const PlanValues& plan) {
  HostWorld world({.ranks = plan.topology.world_size, .seed = 3});
  CollectiveGroups seen;
  const auto ends = world.run([&](std::int64_t rank, HostBackend& backend) {
    backend.set_trace(&seen);
    HostLauncher launcher(backend);
    train::train(plan, {}, {.steps = 1}, {backend, launcher, rank});
    backend.set_trace(nullptr);
  });
  for (const RankOutcome& end : ends) REQUIRE(end.ok());
  return seen.names;
}

}  // namespace

TEST_CASE("without GTP_remat the run is the TP and DP path bit for bit and the runtime issues no collective") {
  const WorldRun run = require_equal_to_reference(dense_plan(4, 2, 2, 4), {});
  for (const TrainLog& log : run.ranks) require_silent(log.counters);
  CHECK(run.ranks[0].calls.tensor_parallel > 0);
  CHECK(run.ranks[0].calls.replicate > 0);
}

TEST_CASE("without any parallelism there is no collective at all") {
  CHECK(groups_of_run(dense_plan(1, 1, 1, 2)).empty());
  const WorldRun run = require_equal_to_reference(dense_plan(1, 1, 1, 2), {});
  require_silent(run.ranks[0].counters);
  CHECK(run.ranks[0].calls == CollectiveCalls{});
}

TEST_CASE("only GTP_remat brings collectives of the GTP_remat group") {
  CHECK(groups_of_run(dense_plan(4, 2, 2, 2)) == std::set<std::string>{"tp", "dp_cp", "mp", "gtp_remat_dp"});
  CHECK(groups_of_run(dense_plan(4, 2, 4, 2)) == std::set<std::string>{"tp", "gtp_remat", "mp", "gtp_remat_dp"});
}
