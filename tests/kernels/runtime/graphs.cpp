#include <array>

#include "rig.hpp"

using namespace gtp;
using namespace gtp::test;

namespace {

constexpr std::uint64_t kSeeds = 12;

void on_two_ranks(
    const std::function<void(HostWorld&)>& arm, const std::function<void(std::int64_t, HostBackend&)>& run,
    const std::function<void(HostWorld&)>& after = [](HostWorld&) {}) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    HostWorld world({.ranks = 2, .seed = seed});
    arm(world);
    run_all(world, run);
    after(world);
  }
}
void unarmed(HostWorld&) {}

Held& add_graphed(Rig& rig, int index, ReadyBucket bucket = ReadyBucket::kNone) {
  return rig.add("w" + std::to_string(index),
                 {.rows = 7, .pad_for_alignment = 2, .chain = {.graphed = true}, .bucket = bucket});
}

/// Eager passes for allocations and chains, which leave no trace in the gradients.
void warm_up(Rig& rig) {
  rig.gtp->begin_warmup(rig.compute);
  for (std::uint64_t round = 0; round < 2; ++round) rig.microbatch(90 + round);
  rig.gtp->end_warmup(rig.compute);
}

GraphScope& capture(Rig& rig, std::string name, const std::function<void()>& body) {
  GraphScope& scope = rig.gtp->begin_capture(std::move(name), rig.compute);
  body();
  rig.gtp->end_capture(scope);
  return scope;
}

RuntimeStatus refusal(const std::function<void()>& call, std::string& text) {
  try {
    call();
  } catch (const RuntimeError& error) {
    text = error.text();
    return error.status();
  }
  text = "nothing was thrown";
  return RuntimeStatus::kInvalidPlan;
}

}  // namespace

TEST_CASE("T5 readiness is not asked for in a capture, but before each replay for exactly the weights read forward") {
  std::size_t delay = 0;
  on_two_ranks([&](HostWorld& world) { delay = world.inject({.operation = "kernel", .stream = "ddp"}); },
               [](std::int64_t, HostBackend& backend) {
                 Rig rig(backend, plan(2));
                 const Stream ddp = backend.create_stream("ddp", StreamPriority::kNormal);
                 const Event gathered = backend.create_event(EventKind::kInternal);
                 std::array<int, 3> calls{};
                 std::array<ReadyBucket, 3> buckets{};
                 for (std::size_t i = 0; i < 3; ++i) {
                   buckets[i] = rig.gtp->add_ready_bucket([&, i](Stream stream) {
                     ++calls[i];
                     backend.wait(stream, gathered);
                   });
                 }
                 for (std::size_t i = 0; i < 3; ++i) add_graphed(rig, static_cast<int>(i), buckets[i]);
                 warm_up(rig);
                 rig.gtp->begin_warmup(rig.compute);
                 rig.read(rig.weights[0]);
                 rig.read(rig.weights[2], Use::kDgrad);
                 rig.gtp->end_warmup(rig.compute);
                 std::vector<ShardedWeight*> all;
                 for (Held& held : rig.weights) all.push_back(held.weight);
                 const auto announce = [&](std::uint64_t version) {
                   rig.gtp->fence_grads(ddp);
                   rig.gtp->publish(all, rig.compute);
                   for (Held& held : rig.weights) rig.update(held, version, ddp);
                   backend.record(gathered, ddp);
                 };
                 announce(1);
                 calls = {};
                 GraphScope& forward = capture(rig, "forward", [&] {
                   rig.read(rig.weights[0], Use::kForward, 1);
                   rig.read(rig.weights[2], Use::kDgrad, 1);
                 });
                 CHECK(calls == std::array<int, 3>{0, 0, 0});
                 rig.gtp->replay(forward, rig.compute);
                 CHECK(calls == std::array<int, 3>{1, 1, 0});  // w1 is gathered ahead in the graph
                 rig.gtp->replay(forward, rig.compute);
                 CHECK(calls == std::array<int, 3>{1, 1, 0});
                 rig.finish();
                 backend.synchronize(ddp, kLimit);
                 CHECK(rig.mismatches == 0);
                 backend.destroy_event(gathered);
               },
               [&](HostWorld& world) { CHECK(world.report(delay).waiters > 0); });
}

TEST_CASE("T15 a replay writes a gradient slot only after the reduction of the graph before has read it") {
  std::size_t delay = 0;
  on_two_ranks(
      [&](HostWorld& world) {
        delay =
            world.inject({.operation = "reduce-scatter", .stream = "reduce gtp_remat graphed (graph)", .steps = 30});
      },
      [](std::int64_t, HostBackend& backend) {
        Rig rig(backend, plan(2), {.graph_wgrad_ring_size = 1});
        for (int i = 0; i < 3; ++i) add_graphed(rig, i);
        warm_up(rig);
        std::vector<GraphScope*> backward;
        for (std::size_t i = 3; i-- > 0;) {
          backward.push_back(&capture(rig, "backward " + std::to_string(i), [&] {
            rig.read(rig.weights[i], Use::kDgrad);
            rig.reduce(rig.weights[i], 0);
          }));
        }
        for (const GraphScope* scope : backward) CHECK(scope->slots.size() == 1);
        CHECK(backward[0]->slots[0].data == backward[1]->slots[0].data);
        const Stream runners[] = {backend.create_stream("runner 0", StreamPriority::kNormal),
                                  backend.create_stream("runner 1", StreamPriority::kNormal)};
        const Event warm = backend.create_event(EventKind::kInternal);
        backend.record(warm, rig.compute);
        for (const Stream runner : runners) backend.wait(runner, warm);
        for (int step = 0; step < 2; ++step) {
          for (std::size_t i = 0; i < backward.size(); ++i) rig.gtp->replay(*backward[i], runners[i % 2]);
        }
        rig.gtp->fence_grads(rig.compute);
        rig.finish();
        CHECK(rig.mismatches == 0);
        // both steps were captured as round 0
        for (const Held& held : rig.weights) {
          for (std::int64_t i = 0; i < 16; ++i) CHECK(held.main_grad(0, i) == rig.expected_grad(held, 0, i, 1, 1.0F));
        }
        backend.destroy_event(warm);
      },
      [&](HostWorld& world) { CHECK(world.report(delay).waiters > 0); });
}

TEST_CASE("T15 two weights on one gradient slot of one graph are refused with the limit that was hit") {
  HostWorld world({.ranks = 2});
  run_all(world, [](std::int64_t, HostBackend& backend) {
    Rig rig(backend, plan(2), {.graph_wgrad_ring_size = 1});
    for (int i = 0; i < 2; ++i) add_graphed(rig, i);
    warm_up(rig);
    GraphScope& scope = rig.gtp->begin_capture("backward", rig.compute);
    std::string text;
    const RuntimeStatus status = refusal(
        [&] {
          for (std::size_t i = 2; i-- > 0;) rig.reduce(rig.weights[i], 0);
        },
        text);
    CHECK(status == RuntimeStatus::kCaptureFailed);
    CHECK(text.find("graph_wgrad_ring_size is 1") != std::string::npos);
    CHECK(text.find("`w1` and `w0`") != std::string::npos);
    rig.gtp->abort_capture(scope);
    rig.microbatch(0);
    rig.gtp->fence_grads(rig.compute);
    rig.finish();
    CHECK(rig.wrong_grads(1, 0.5F) == 0);
  });
}

TEST_CASE("T16 a consumer in another graph waits for the external event of the gather") {
  std::size_t delay = 0;
  on_two_ranks(
      [&](HostWorld& world) {
        delay = world.inject(
            {.operation = "all-gather", .weight = "w1", .stream = "gather gtp_remat graphed (graph)", .steps = 30});
      },
      [](std::int64_t, HostBackend& backend) {
        Rig rig(backend, plan(2));
        for (int i = 0; i < 2; ++i) add_graphed(rig, i);
        rig.add("expert", {.chain = {.graphed = true}, .domain = WeightDomain::kExpert, .needs_dgrad = false});
        for (int pass = 0; pass < 2; ++pass) {
          rig.gtp->begin_warmup(rig.compute);
          for (std::size_t i = 0; i < 2; ++i) rig.read(rig.weights[i]);
          rig.gtp->end_warmup(rig.compute);
        }
        GraphScope& producer = capture(rig, "layer 0", [&] { rig.read(rig.weights[0]); });
        GraphScope& consumer = capture(rig, "layer 1", [&] { rig.read(rig.weights[1]); });
        CHECK(consumer.gathered.empty());
        CHECK(producer.joined.size() == 1);  // not the streams of the expert group
        CHECK(consumer.joined.empty());
        // Launched bare: nothing but the event in the graph orders the two.
        const Stream runner = backend.create_stream("runner", StreamPriority::kNormal);
        backend.launch(producer.graph, rig.compute);
        backend.launch(consumer.graph, runner);
        rig.finish();
        backend.synchronize(runner, kLimit);
        CHECK(rig.mismatches == 0);
      },
      [&](HostWorld& world) { CHECK(world.report(delay).waiters > 0); });
}

TEST_CASE("T16 a gather left over from eager work is refused, and a warm-up leaves none") {
  HostWorld world({.ranks = 2});
  run_all(world, [](std::int64_t, HostBackend& backend) {
    Rig rig(backend, plan(2));
    for (int i = 0; i < 2; ++i) add_graphed(rig, i);
    warm_up(rig);
    rig.read(rig.weights[0]);  // w1 is on its way
    std::string text;
    CHECK(refusal([&] { rig.gtp->begin_capture("forward", rig.compute); }, text) == RuntimeStatus::kCaptureFailed);
    CHECK(text.find("`w1`") != std::string::npos);
    rig.gtp->begin_warmup(rig.compute);
    rig.read(rig.weights[0]);
    rig.gtp->end_warmup(rig.compute);
    GraphScope& scope = capture(rig, "forward", [&] { rig.read(rig.weights[0]); });
    CHECK(scope.graph.handle != nullptr);
    rig.reduce(rig.weights[1], 0);
    CHECK(refusal([&] { rig.gtp->begin_capture("backward", rig.compute); }, text) == RuntimeStatus::kCaptureFailed);
    CHECK(text.find("a reduction of `w1` is outstanding") != std::string::npos);
    CHECK(refusal([&] { rig.gtp->begin_warmup(rig.compute); }, text) == RuntimeStatus::kInvalidUse);
    rig.gtp->fence_grads(rig.compute);
    rig.finish();
    CHECK(rig.mismatches == 0);
  });
}

TEST_CASE("T17 a whole iteration is captured with every side stream joined, and replays bit for bit") {
  std::size_t delay = 0;
  on_two_ranks(
      [&](HostWorld& world) {
        delay =
            world.inject({.operation = "reduce-scatter", .stream = "reduce gtp_remat graphed (graph)", .steps = 20});
      },
      [](std::int64_t, HostBackend& backend) {
        Rig rig(backend, plan(2), {.graph_wgrad_ring_size = 3});
        for (int i = 0; i < 3; ++i) add_graphed(rig, i);
        warm_up(rig);
        GraphScope& scope = capture(rig, "iteration", [&] {
          rig.microbatch(0);
          rig.gtp->fence_grads(rig.compute);
        });
        const Counters before = rig.counters();
        for (int step = 0; step < 3; ++step) rig.gtp->replay(scope, rig.compute);
        rig.gtp->fence_grads(rig.compute);
        rig.finish();
        CHECK(rig.counters().buffer_allocations == before.buffer_allocations);
        CHECK(rig.counters().replays == 3);
        CHECK(rig.mismatches == 0);
        for (const Held& held : rig.weights) {
          for (std::int64_t i = 0; i < 16; ++i) CHECK(held.main_grad(0, i) == rig.expected_grad(held, 0, i, 1, 1.5F));
        }
      },
      [&](HostWorld& world) { CHECK(world.report(delay).held_steps > 0); });
}

TEST_CASE("T17 a capture that fails leaves the runtime usable") {
  on_two_ranks(unarmed, [](std::int64_t, HostBackend& backend) {
    Rig rig(backend, plan(2), {.graph_wgrad_ring_size = 2});
    for (int i = 0; i < 2; ++i) add_graphed(rig, i);
    Held& eager = rig.add("eager");
    warm_up(rig);
    std::string text;
    const Stream stray = backend.create_stream("stray", StreamPriority::kNormal);
    const Event fork = backend.create_event(EventKind::kInternal);
    GraphScope& failed = rig.gtp->begin_capture("iteration", rig.compute);
    CHECK(refusal([&] { rig.read(eager); }, text) == RuntimeStatus::kInvalidUse);
    CHECK(text.find("`eager` is on an ungraphed chain") != std::string::npos);
    rig.read(rig.weights[0]);
    backend.record(fork, rig.compute);
    backend.wait(stray, fork);
    backend.enqueue(stray, {"stray", ""}, {}, [] {});
    CHECK(refusal([&] { rig.gtp->end_capture(failed); }, text) == RuntimeStatus::kCaptureFailed);
    CHECK(text == "stream stray joined the capture and was not joined back");
    CHECK(refusal([&] { rig.gtp->replay(failed, rig.compute); }, text) == RuntimeStatus::kCaptureFailed);

    rig.microbatch(0);
    rig.gtp->fence_grads(rig.compute);
    GraphScope& scope = capture(rig, "iteration", [&] {
      for (std::size_t i = 0; i < 2; ++i) rig.read(rig.weights[i]);
      for (std::size_t i = 2; i-- > 0;) {
        rig.read(rig.weights[i], Use::kDgrad);
        rig.reduce(rig.weights[i], 1);
      }
    });
    rig.gtp->replay(scope, rig.compute);
    rig.reduce(eager, 1);
    rig.gtp->fence_grads(rig.compute);
    rig.finish();
    CHECK(rig.mismatches == 0);
    CHECK(rig.wrong_grads(2, 0.5F) == 0);
    backend.destroy_event(fork);
  });
}

TEST_CASE("T18 warm-up and capture leave finished gradients as they are, bit for bit") {
  on_two_ranks(unarmed, [](std::int64_t, HostBackend& backend) {
    Rig rig(backend, plan(2));
    int ready = 0;
    for (int i = 0; i < 2; ++i) add_graphed(rig, i);
    rig.add("w2", {.chain = {.graphed = true}, .grad_ready = [&](ShardedWeight&, Stream) { ++ready; }});
    rig.microbatch(0);
    rig.gtp->fence_grads(rig.compute);
    rig.finish();
    std::vector<std::vector<std::byte>> finished;
    for (const Held& held : rig.weights) finished.push_back(held.main_grads[0]);
    CHECK(ready == 1);

    // The module of w1: its backward also completes w2 of the next module.
    rig.gtp->begin_warmup(rig.compute);
    rig.read(rig.weights[1]);
    rig.reduce(rig.weights[2], 7);
    rig.read(rig.weights[1], Use::kDgrad);
    rig.reduce(rig.weights[1], 7);
    rig.gtp->end_warmup(rig.compute);
    capture(rig, "backward of w1", [&] {
      rig.read(rig.weights[1], Use::kDgrad);
      rig.reduce(rig.weights[1], 7);
    });
    rig.finish();
    for (std::size_t i = 0; i < finished.size(); ++i) CHECK(rig.weights[i].main_grads[0] == finished[i]);
    CHECK(ready == 1);
    rig.microbatch(1);
    rig.gtp->fence_grads(rig.compute);
    rig.finish();
    CHECK(rig.wrong_grads(2, 0.5F) == 0);
    CHECK(ready == 2);
  });
}

TEST_CASE("eager passes and replays of one graphed chain keep each other's buffers in order") {
  on_two_ranks(unarmed, [](std::int64_t, HostBackend& backend) {
    Rig rig(backend, plan(2), {.graph_wgrad_ring_size = 3});
    for (int i = 0; i < 3; ++i) add_graphed(rig, i);
    warm_up(rig);
    GraphScope& scope = capture(rig, "iteration", [&] { rig.microbatch(0); });
    const Stream runner = backend.create_stream("runner", StreamPriority::kNormal);
    const Event turn = backend.create_event(EventKind::kInternal);
    for (std::uint64_t step = 0; step < 3; ++step) {
      rig.microbatch(1);
      backend.record(turn, rig.compute);
      backend.wait(runner, turn);
      rig.gtp->replay(scope, runner);
    }
    rig.gtp->fence_grads(rig.compute);
    rig.finish();
    CHECK(rig.mismatches == 0);
    for (const Held& held : rig.weights) {
      for (std::int64_t i = 0; i < 16; ++i) CHECK(held.main_grad(0, i) == rig.expected_grad(held, 0, i, 2, 1.5F));
    }
    backend.destroy_event(turn);
  });
}
