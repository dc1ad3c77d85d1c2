#include <chrono>

#include "rig.hpp"

using namespace gtp;
using namespace gtp::test;

TEST_CASE("T35 runtimes are built again and live side by side without sharing anything") {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    HostWorld world({.ranks = 2, .seed = seed});
    run_all(world, [](std::int64_t, HostBackend& backend) {
      std::int64_t allocations = 0;
      for (int generation = 0; generation < 3; ++generation) {
        Rig one(backend, plan(2), poisoned());
        Rig two(backend, plan(2), poisoned({.prefetch_depth = 2, .calculate_per_token_loss = true}));
        for (int i = 0; i < 3; ++i) {
          one.add("w" + std::to_string(i));
          two.add("w" + std::to_string(i));
        }
        for (std::uint64_t round = 0; round < 2; ++round) {
          for (Held& held : one.weights) one.read(held);
          for (Held& held : two.weights) two.read(held);
          for (std::size_t i = 3; i-- > 0;) {
            one.reduce(one.weights[i], round);
            two.reduce(two.weights[i], round);
          }
          one.gtp->fence_grads(one.compute);
          two.gtp->fence_grads(two.compute);
        }
        one.finish();
        two.finish();
        CHECK(one.wrong_grads(2, 0.5F) == 0);
        CHECK(two.wrong_grads(2, 1.0F) == 0);
        CHECK(one.mismatches + two.mismatches == 0);
        CHECK(one.gtp->chains()[0]->order(false).size() == 3);
        if (generation == 0) allocations = one.counters().buffer_allocations;
        CHECK(one.counters().buffer_allocations == allocations);
        CHECK(one.counters().buffer_bytes < two.counters().buffer_bytes);
      }
    });
    CHECK(world.live_bytes() == 0);
  }
}

TEST_CASE("T38 a rank that is killed ends every other with an error that names rank, operation, group and weight") {
  for (const char* operation : {"all-gather", "reduce-scatter"}) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      HostWorld world({.ranks = 4, .seed = seed, .time_limit = std::chrono::milliseconds(400)});
      world.inject(
          {.action = InjectedAction::kKill, .rank = 1, .operation = operation, .weight = "w1", .occurrence = 1});
      const auto begin = std::chrono::steady_clock::now();
      const auto outcomes = world.run([](std::int64_t rank, HostBackend& backend) {
        Rig rig(backend, plan(2, 2), poisoned());
        for (int i = 0; i < 3; ++i) rig.add("w" + std::to_string(i));
        std::size_t in_use = 0;
        try {
          for (std::uint64_t round = 0;; ++round) {  // those of the other group go on until the time limit
            rig.microbatch(round);
            rig.gtp->fence_grads(rig.compute);
            in_use = rig.gtp->buffers().in_use();
            rig.finish();
          }
        } catch (const RuntimeError& first) {
          in_use = rig.gtp->buffers().in_use();
          std::string again;
          try {
            rig.gtp->materialize(*rig.weights[0].weight, Use::kForward, rig.compute);
          } catch (const RuntimeError& second) {
            again = second.text();
          }
          CHECK((again == first.text() || rank == 1));
          CHECK(rig.gtp->buffers().in_use() == in_use);
          throw;
        }
      });
      CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
      for (std::size_t rank = 0; rank < 4; ++rank) {
        INFO(outcomes[rank].text);
        if (rank == 1) {
          CHECK(outcomes[rank].killed);
          continue;
        }
        CHECK(outcomes[rank].threw);
        CHECK(outcomes[rank].status == RuntimeStatus::kTimeout);
        CHECK(outcomes[rank].text.find("waits for rank 1, which is gone") != std::string::npos);
        CHECK((outcomes[rank].text.find("all-gather of `w") != std::string::npos ||
               outcomes[rank].text.find("reduce-scatter of `w") != std::string::npos));
        CHECK(outcomes[rank].text.find("over group gtp_remat (ranks 0,1)") != std::string::npos);
      }
    }
  }
}

TEST_CASE("T38 an operation that fails is reported at the next call of every rank") {
  HostWorld world({.ranks = 2});
  world.inject({.action = InjectedAction::kFail, .rank = 1, .operation = "reduce-scatter", .weight = "w0"});
  const auto outcomes = world.run([](std::int64_t, HostBackend& backend) {
    Rig rig(backend, plan(2));
    rig.add("w0");
    rig.microbatch(0);
    rig.finish();
    rig.gtp->fence_grads(rig.compute);
    rig.finish();
  });
  CHECK(outcomes[1].status == RuntimeStatus::kCollectiveFailed);
  CHECK(outcomes[1].text ==
        "rank 1: reduce-scatter of `w0` over group gtp_remat (ranks 0,1) on stream reduce gtp_remat "
        "ungraphed of rank 1 failed");
  CHECK(outcomes[0].status == RuntimeStatus::kAborted);
  CHECK(outcomes[0].text.find("gave up: reduce-scatter of `w0`") != std::string::npos);
}

TEST_CASE("T38 a rank whose program throws takes the others down") {
  HostWorld world({.ranks = 2});
  const auto outcomes = world.run([](std::int64_t rank, HostBackend& backend) {
    Rig rig(backend, plan(2));
    rig.add("w0");
    if (rank == 1) throw std::runtime_error("out of patience");
    rig.microbatch(0);
    rig.finish();
  });
  CHECK(outcomes[1].text == "out of patience");
  CHECK(outcomes[0].threw);
  CHECK(outcomes[0].text.find("rank 1") == std::string::npos);
  CHECK(outcomes[0].text.find("out of patience") != std::string::npos);
}

TEST_CASE("a runtime refuses a plan it cannot run, and says why") {
  HostWorld world({});
  HostBackend& backend = world.backend(0);
  const auto why = [&](const Topology& topology, std::int64_t rank, RuntimeOptions options = {}) {
    try {
      Runtime(backend, topology, rank, options);
    } catch (const RuntimeError& error) {
      CHECK(error.status() == RuntimeStatus::kInvalidPlan);
      return error.text();
    }
    return std::string("accepted");
  };
  Topology wrong = plan(1);
  wrong.dp = 3;
  CHECK(why(wrong, 0) == "the dense grid tp 1 x gtp_remat 1 x cp 1 x dp 3 x pp 1 is not the world of 1 ranks");
  wrong.dp = 0;
  CHECK(why(wrong, 0).find("dense grid") != std::string::npos);
  CHECK(why(plan(1), 1) == "rank 1 is outside the world of 1 ranks");
  CHECK(why(plan(1), 0, {.prefetch_depth = 17}).find("prefetch_depth 17") != std::string::npos);
  CHECK(why(plan(1), 0) == "accepted");
  TopologyOptions options;
  options.world_size = 8;
  options.tensor_model_parallel_size = 4;
  options.tensor_parallel_num_weight_shards = 6;
  CHECK_THROWS_WITH(require_topology(options), "the plan is invalid: dense-shards-multiple-of-tp");
}

TEST_CASE("a weight that does not fit its group is refused by name") {
  HostWorld world({});
  Runtime runtime(world.backend(0), plan(1), 0);
  const auto layout = make_shard_layout({8, 4, WeightFormat::kBf16, 16, 2});
  std::vector<std::uint16_t> shard(64);
  CHECK_THROWS_WITH(runtime.add_weight({.name = "fc1", .layout = *layout, .shards = {{{shard.data()}, nullptr}}}),
                    "weight `fc1` is laid out for 2 ranks, but group gtp_remat has 1");
  const auto single = make_shard_layout({8, 4, WeightFormat::kBf16, 16, 1});
  CHECK_THROWS_WITH(runtime.add_weight({.name = "fc1", .layout = *single, .shards = {}}), "weight `fc1` has no shard");
  CHECK_THROWS_WITH(runtime.add_weight({.name = "fc1", .layout = *single, .shards = {{}}}),
                    "weight `fc1` lacks the memory of component 0");
  ShardedWeight& frozen =
      runtime.add_weight({.name = "frozen", .layout = *single, .shards = {{{shard.data()}, nullptr}}});
  CHECK_THROWS_WITH(runtime.grad_buffer(frozen, {}), "`frozen` is frozen and has no gradient");
}
