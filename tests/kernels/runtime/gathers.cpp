#include <algorithm>
#include <array>

#include "kernels/prefetch_chain.hpp"
#include "rig.hpp"

using namespace gtp;
using namespace gtp::test;

namespace {

constexpr std::uint64_t kSeeds = 12;

/// Every promise here must hold in many interleavings.
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

}  // namespace

TEST_CASE("T2 a weight consumed k times a pass is gathered k times, k - 1 of them on demand") {
  on_two_ranks(unarmed, [](std::int64_t, HostBackend& backend) {
    Rig rig(backend, plan(2), poisoned());
    Held& embedding = rig.add("embedding", {.needs_dgrad = false});
    Held& layer = rig.add("layer");
    Held& output = rig.add("output");
    const auto pass = [&] {
      for (Held* held : {&embedding, &layer, &embedding, &output, &output, &output}) rig.read(*held);
      for (Held* held : {&output, &output, &output, &layer}) rig.read(*held, Use::kDgrad);
    };
    pass();  // recorded
    const Counters before = rig.counters();
    pass();
    const Counters after = rig.counters();
    CHECK(after.consumes - before.consumes == 10);
    CHECK(after.gathers - before.gathers == 10);
    CHECK(after.on_demand_gathers - before.on_demand_gathers == (2 - 1) + (3 - 1) + (3 - 1));
    CHECK(after.head_gathers - before.head_gathers == 2);
    CHECK(after.prefetched_gathers - before.prefetched_gathers == 3);
    CHECK(rig.gtp->chains().size() == 1);
    CHECK(rig.gtp->chains()[0]->order(false).size() == 3);
    rig.finish();
    CHECK(rig.readings == 20);
    CHECK(rig.mismatches == 0);
  });
}

TEST_CASE("T2 a buffer nobody gathered into is refused to its reader") {
  HostWorld world({});
  BufferCache cache(world.backend(0), {});
  const Ticket ticket = cache.reserve({}, 0, 64);
  CHECK_THROWS_AS(cache.get(ticket), RuntimeError);
  cache.acquire(ticket);
  CHECK(cache.get(ticket).bytes == 64);
  CHECK_THROWS_AS(cache.acquire(ticket), RuntimeError);
  cache.release(ticket, {}, 0);
  CHECK_THROWS_AS(cache.get(ticket), RuntimeError);
}

TEST_CASE("T3 a publish between prefetch and consume makes the runtime gather again") {
  std::size_t delay = 0;
  on_two_ranks(
      [&](HostWorld& world) { delay = world.inject({.operation = "kernel", .weight = "w1", .stream = "optimizer"}); },
      [](std::int64_t, HostBackend& backend) {
        Rig rig(backend, plan(2), poisoned());
        Held& first = rig.add("w0");
        Held& second = rig.add("w1");
        ShardedWeight* const order[] = {first.weight, second.weight};
        rig.gtp->declare_chain(order);
        const Stream optimizer = backend.create_stream("optimizer", StreamPriority::kNormal);
        rig.read(first);  // prefetches w1
        CHECK(rig.counters().prefetched_gathers == 1);
        rig.gtp->fence_grads(optimizer);
        rig.update(second, 1, optimizer);
        rig.gtp->publish(*second.weight, optimizer);
        const GatheredView view = rig.read(second, Use::kForward, 1);
        CHECK(view.version == second.weight->version());
        CHECK(rig.counters().stale_gathers == 1);
        CHECK(rig.counters().on_demand_gathers == 1);
        rig.finish();
        CHECK(rig.mismatches == 0);
      },
      [&](HostWorld& world) {
        CHECK(world.report(delay).hits == 2);
        CHECK(world.report(delay).waiters > 0);
      });
}

TEST_CASE("T4 a prefetch asks for the parameters of its bucket first, once, and only in forward") {
  std::size_t delay = 0;
  on_two_ranks([&](HostWorld& world) { delay = world.inject({.operation = "kernel", .stream = "ddp"}); },
               [](std::int64_t, HostBackend& backend) {
                 Rig rig(backend, plan(2), poisoned());
                 const Stream ddp = backend.create_stream("ddp", StreamPriority::kNormal);
                 const Event gathered = backend.create_event(EventKind::kInternal);
                 int calls = 0;
                 const ReadyBucket bucket = rig.gtp->add_ready_bucket([&](Stream stream) {
                   ++calls;
                   backend.wait(stream, gathered);
                 });
                 Held& first = rig.add("w0");
                 Held& second = rig.add("w1", {.bucket = bucket});
                 Held& third = rig.add("w2", {.bucket = bucket});
                 ShardedWeight* const order[] = {first.weight, second.weight, third.weight};
                 rig.gtp->declare_chain(order);
                 ShardedWeight* const in_bucket[] = {second.weight, third.weight};
                 for (std::uint64_t step = 1; step <= 2; ++step) {
                   rig.gtp->publish(in_bucket, rig.compute);  // announced: the bucket's own gather comes later
                   rig.update(second, step, ddp);
                   rig.update(third, step, ddp);
                   backend.record(gathered, ddp);
                   calls = 0;
                   rig.read(first);
                   CHECK(calls == 1);
                   rig.read(second);
                   rig.read(third);
                   CHECK(calls == 1);
                   for (Held* held : {&third, &second, &first}) rig.read(*held, Use::kDgrad);
                   for (Held* held : {&second, &third}) rig.read(*held, Use::kRecompute);
                   CHECK(calls == 1);
                   rig.gtp->fence_grads(rig.compute);
                   rig.finish();
                   backend.synchronize(ddp, kLimit);
                   CHECK(rig.mismatches == 0);
                 }
                 rig.gtp->publish(in_bucket, rig.compute);
                 rig.read(second, Use::kDgrad);
                 rig.read(second, Use::kRecompute);
                 CHECK(calls == 1);
                 CHECK(rig.counters().param_ready_calls == 2);
                 rig.finish();
                 backend.destroy_event(gathered);
               },
               [&](HostWorld& world) { CHECK(world.report(delay).waiters > 0); });
}

TEST_CASE("T6 neighbours of one shape alternate between depth + 1 buffers") {
  std::size_t delay = 0;
  on_two_ranks([&](HostWorld& world) { delay = world.inject({.operation = "kernel", .weight = "w0", .steps = 40}); },
               [](std::int64_t, HostBackend& backend) {
                 // Poisoning also puts the gather stream behind readers, so the hazard must show without it too.
                 for (const auto& [depth, poison] : {std::pair{1U, false}, {2U, false}, {1U, true}}) {
                   RuntimeOptions options{.prefetch_depth = depth};
                   options.poison_free_buffers = poison;
                   Rig rig(backend, plan(2), options);
                   std::vector<ShardedWeight*> order;
                   for (int i = 0; i < 5; ++i) order.push_back(rig.add("w" + std::to_string(i)).weight);
                   rig.gtp->declare_chain(order);
                   for (const Use use : {Use::kForward, Use::kDgrad, Use::kForward}) {
                     std::vector<const void*> at(5);
                     for (std::size_t i = 0; i < 5; ++i) {
                       const std::size_t which = use == Use::kDgrad ? 4 - i : i;
                       at[which] = rig.read(rig.weights[which], use).row_data();
                     }
                     for (std::size_t i = 1; i < 5; ++i) CHECK(at[i] != at[i - 1]);
                     for (std::size_t i = depth + 1; i < 5; ++i) CHECK(at[i] == at[i - depth - 1]);
                   }
                   CHECK(rig.counters().buffer_allocations == depth + 1);
                   CHECK(rig.counters().buffer_spills == 0);
                   CHECK(rig.counters().on_demand_gathers == 0);
                   rig.finish();
                   CHECK(rig.mismatches == 0);
                 }
               },
               [&](HostWorld& world) { CHECK(world.report(delay).waiters > 0); });
}

TEST_CASE("T6 neighbours of different shapes need one buffer each") {
  on_two_ranks(unarmed, [](std::int64_t, HostBackend& backend) {
    Rig rig(backend, plan(2), poisoned());
    std::vector<ShardedWeight*> order;
    for (int i = 0; i < 4; ++i) {
      order.push_back(rig.add("w" + std::to_string(i), {.rows = i % 2 == 0 ? 8 : 16}).weight);
    }
    rig.gtp->declare_chain(order);
    for (Held& held : rig.weights) rig.read(held);
    CHECK(rig.counters().buffer_allocations == 2);
    rig.finish();
    CHECK(rig.mismatches == 0);
  });
}

TEST_CASE("T7 recompute gathers have buffers of their own, and neighbours among them differ") {
  std::size_t delay = 0;
  on_two_ranks(
      [&](HostWorld& world) {
        delay = world.inject({.operation = "kernel", .weight = "w1", .steps = 40});
        world.inject({.operation = "all-gather", .weight = "w0", .steps = 10});
      },
      [](std::int64_t, HostBackend& backend) {
        Rig rig(backend, plan(2), poisoned());
        for (int i = 0; i < 3; ++i) rig.add("w" + std::to_string(i), {.shards = 2});
        for (std::uint64_t round = 0; round < 3; ++round) {
          std::vector<const void*> ahead(3);
          std::vector<const void*> again(3);
          std::vector<const void*> other_expert(3);
          for (std::size_t i = 0; i < 3; ++i) ahead[i] = rig.read(rig.weights[i]).row_data();
          for (std::size_t i = 3; i-- > 0;) {
            // the block is recomputed while the dgrad gather of w1, then of w0, is in flight
            if (i == 1) {
              for (const std::size_t k : {0U, 1U, 2U}) {
                const auto views = rig.gtp->materialize(*rig.weights[k].weight, Use::kRecompute, rig.compute);
                rig.compare(rig.weights[k], 0, views[0], 0, rig.compute);
                rig.compare(rig.weights[k], 1, views[1], 0, rig.compute);
                again[k] = views[0].row_data();
                other_expert[k] = views[1].row_data();
              }
            }
            rig.read(rig.weights[i], Use::kDgrad);
            rig.reduce(rig.weights[i], round);
          }
          CHECK(again[0] != again[1]);
          CHECK(again[1] != again[2]);
          CHECK(other_expert[0] != other_expert[1]);
          for (const void* one : again) {
            for (const void* two : ahead) CHECK(one != two);
            for (const void* two : other_expert) CHECK(one != two);
          }
          rig.gtp->fence_grads(rig.compute);
        }
        const Counters counters = rig.counters();
        CHECK(counters.on_demand_gathers == 0);
        rig.finish();
        CHECK(rig.mismatches == 0);
        CHECK(rig.wrong_grads(3, 0.5F) == 0);  // those of a run without recompute
      },
      [&](HostWorld& world) { CHECK(world.report(delay).waiters > 0); });
}

TEST_CASE("T8 grouped experts are gathered one block ahead, fc1 and fc2 apart, on one stream") {
  struct Lanes final : TraceSink {
    std::set<std::string> gathers;
    void span(const TraceSpan& span) override {
      if (span.operation == "all-gather") gathers.insert(std::string(span.lane));
    }
  };
  Lanes lanes;
  std::size_t delay = 0;
  on_two_ranks(
      [&](HostWorld& world) {
        world.backend(0).set_trace(&lanes);
        delay = world.inject({.operation = "kernel", .weight = "fc1.0", .steps = 60});
      },
      [](std::int64_t, HostBackend& backend) {
        Rig rig(backend, plan(2), poisoned());
        std::vector<Held*> fc1;
        std::vector<Held*> fc2;
        for (int block = 0; block < 4; ++block) {
          const WeightDomain expert = WeightDomain::kExpert;
          fc1.push_back(&rig.add("fc1." + std::to_string(block),
                                 {.shards = 2, .chain = {.role = ChainRole::kExpertFc1}, .domain = expert}));
          fc2.push_back(&rig.add("fc2." + std::to_string(block),
                                 {.shards = 2, .chain = {.role = ChainRole::kExpertFc2}, .domain = expert}));
        }
        for (int pass = 0; pass < 2; ++pass) {
          std::vector<const void*> at1;
          std::vector<const void*> at2;
          for (std::size_t block = 0; block < 4; ++block) {
            const Counters before = rig.counters();
            at1.push_back(rig.read(*fc1[block]).row_data());
            at2.push_back(rig.read(*fc2[block]).row_data());
            if (pass == 1) {
              const Counters after = rig.counters();
              CHECK(after.prefetched_gathers - before.prefetched_gathers == (block < 3 ? 2 : 0));
              CHECK(after.head_gathers - before.head_gathers == (block == 0 ? 2 : 0));
            }
          }
          for (std::size_t block = 1; block < 4; ++block) {
            CHECK(at1[block] != at1[block - 1]);
            CHECK(at2[block] != at2[block - 1]);
          }
          CHECK(at1[2] == at1[0]);
          CHECK(at2[3] == at2[1]);
          for (const void* one : at1) CHECK(std::ranges::find(at2, one) == at2.end());
          rig.gtp->fence_grads(rig.compute);
        }
        CHECK(rig.gtp->chains().size() == 2);
        CHECK(rig.counters().buffer_allocations == 2 * 2 * 2);  // roles, experts, buffers
        rig.finish();
        CHECK(rig.mismatches == 0);
      },
      [&](HostWorld& world) { CHECK(world.report(delay).waiters > 0); });
  CHECK(lanes.gathers == std::set<std::string>{"gather expt_gtp_remat ungraphed"});
}

TEST_CASE("T8 a captured MoE layer joins the graphed chain") {
  const ChainKey captured = effective_chain_key({.graphed = true, .role = ChainRole::kExpertFc1});
  CHECK(captured == ChainKey{.graphed = true});
  CHECK(effective_chain_key({.role = ChainRole::kExpertFc2}).role == ChainRole::kExpertFc2);
  HostWorld world({.ranks = 2});
  run_all(world, [](std::int64_t, HostBackend& backend) {
    Rig rig(backend, plan(2));
    rig.add("dense", {.chain = {.graphed = true}});
    rig.add("fc1", {.chain = {.graphed = true, .role = ChainRole::kExpertFc1}, .domain = WeightDomain::kExpert});
    for (int pass = 0; pass < 2; ++pass) {
      for (Held& held : rig.weights) rig.read(held);
      rig.gtp->fence_grads(rig.compute);
    }
    CHECK(rig.gtp->chains().size() == 1);
    CHECK(rig.gtp->chains()[0]->name() == "GTP_remat_graphed");
    CHECK(rig.counters().prefetched_gathers == 1);
    rig.finish();
    CHECK(rig.mismatches == 0);
  });
}

TEST_CASE("T9 equal shapes on both sides of the capture border, or in two groups, never share a buffer") {
  std::size_t delay = 0;
  on_two_ranks(
      [&](HostWorld& world) { delay = world.inject({.operation = "all-gather", .weight = "eager", .steps = 30}); },
      [](std::int64_t, HostBackend& backend) {
        Rig rig(backend, plan(2), poisoned());
        std::vector<Held*> all{&rig.add("eager"), &rig.add("graphed", {.chain = {.graphed = true}}),
                               &rig.add("expert", {.chain = {.model_chunk = 1}, .domain = WeightDomain::kExpert}),
                               &rig.add("graphed expert", {.chain = {.model_chunk = 1, .graphed = true},
                                                           .domain = WeightDomain::kExpert})};
        const Stream other = backend.create_stream("other", StreamPriority::kNormal);
        for (int pass = 0; pass < 3; ++pass) {
          std::set<const void*> at;
          for (Held* held : all) {
            at.insert(rig.read(*held, Use::kForward, 0, pass % 2 == 0 ? rig.compute : other).row_data());
          }
          CHECK(at.size() == all.size());
        }
        rig.finish();
        backend.synchronize(other, kLimit);
        CHECK(rig.mismatches == 0);
      },
      [&](HostWorld& world) { CHECK(world.report(delay).waiters > 0); });
}

TEST_CASE("T36 another order than the sealed chain is served on demand with the right bits") {
  on_two_ranks(unarmed, [](std::int64_t, HostBackend& backend) {
    Rig rig(backend, plan(2), poisoned());
    std::vector<ShardedWeight*> order;
    for (int i = 0; i < 4; ++i) order.push_back(rig.add("w" + std::to_string(i)).weight);
    rig.gtp->declare_chain(order);
    const auto visit = [&](std::initializer_list<std::size_t> which) {
      const Counters before = rig.counters();
      for (const std::size_t i : which) rig.read(rig.weights[i]);
      return rig.counters().on_demand_gathers - before.on_demand_gathers;
    };
    CHECK(visit({0, 1, 2, 3}) == 0);
    CHECK(visit({0, 2, 1, 3}) == 1);  // w2; w1 was gathered ahead for itself
    rig.gtp->fence_grads(rig.compute);
    for (Held& held : rig.weights) rig.update(held, 1, rig.compute);
    rig.gtp->publish(order, rig.compute);
    CHECK(visit({0, 3, 1, 2}) >= 1);
    CHECK(visit({3, 2, 1, 0}) >= 2);
    CHECK(visit({0, 1, 2, 3}) <= 1);
    CHECK(visit({0, 1, 2, 3}) == 0);
    CHECK(rig.gtp->chains()[0]->order(false)[2] == order[2]);  // never linked again
    rig.finish();
    CHECK(rig.readings == 24);
    CHECK(rig.mismatches == 0);
  });
}

TEST_CASE("T37 in a group of one every call is an alias") {
  struct NoCollective final : TraceSink {
    std::int64_t collectives = 0;
    void span(const TraceSpan& span) override { collectives += span.group.empty() ? 0 : 1; }
  };
  HostWorld world({.ranks = 2});
  NoCollective trace;
  world.backend(0).set_trace(&trace);
  run_all(world, [](std::int64_t, HostBackend& backend) {
    Rig rig(backend, plan(1, 2), poisoned());
    int ready = 0;
    Held& held =
        rig.add("w", {.rows = 7, .pad_for_alignment = 16, .grad_ready = [&](ShardedWeight&, Stream) { ++ready; }});
    rig.gtp->add_replicated({"norm", WeightDomain::kDense, held.main_grads[0].data(), ElementType::kFloat32, 1});
    for (std::uint64_t round = 0; round < 3; ++round) {
      CHECK(rig.read(held).row_data() == held.shards[0].data());
      rig.read(held, Use::kDgrad);
      rig.reduce(held, round);
    }
    rig.gtp->fence_grads(rig.compute);
    rig.gtp->reduce_replicated_grads(rig.compute);
    rig.gtp->publish(*held.weight, rig.compute);
    rig.finish();
    CHECK(ready == 3);
    CHECK(rig.mismatches == 0);
    CHECK(rig.wrong_grads(3, 1.0F) == 0);
    Counters expected;
    expected.grad_ready_calls = 3;
    CHECK(rig.counters() == expected);
  });
  CHECK(trace.collectives == 0);
  CHECK(world.live_bytes() == 0);
}

TEST_CASE("a view that is held stays whole until it is released") {
  std::size_t delay = 0;
  on_two_ranks([&](HostWorld& world) { delay = world.inject({.operation = "kernel", .weight = "w0", .steps = 60}); },
               [](std::int64_t, HostBackend& backend) {
                 Rig rig(backend, plan(2), poisoned());
                 for (int i = 0; i < 4; ++i) rig.add("w" + std::to_string(i));
                 for (int pass = 0; pass < 3; ++pass) {
                   const GatheredView view = rig.read(rig.weights[0]);
                   rig.gtp->hold(*rig.weights[0].weight, Use::kForward);
                   for (std::size_t i = 1; i < 4; ++i) CHECK(rig.read(rig.weights[i]).row_data() != view.row_data());
                   rig.compare(rig.weights[0], 0, view, 0, rig.compute);
                   rig.gtp->release(*rig.weights[0].weight, Use::kForward, rig.compute);
                   rig.gtp->fence_grads(rig.compute);
                 }
                 rig.finish();
                 CHECK(rig.mismatches == 0);
               },
               [&](HostWorld& world) { CHECK(world.report(delay).held_steps > 0); });
}

TEST_CASE("chunks of a virtual pipeline have chains of their own, and share buffers in turn") {
  on_two_ranks(unarmed, [](std::int64_t, HostBackend& backend) {
    Rig rig(backend, plan(2), poisoned());
    for (std::uint32_t chunk = 0; chunk < 2; ++chunk) {
      for (int i = 0; i < 3; ++i) rig.add("w", {.chain = {.model_chunk = chunk}});
    }
    const auto forward = [&](std::size_t chunk) {
      for (std::size_t i = 0; i < 3; ++i) rig.read(rig.weights[chunk * 3 + i]);
    };
    const auto backward = [&](std::size_t chunk, std::uint64_t round) {
      for (std::size_t i = 3; i-- > 0;) {
        rig.read(rig.weights[chunk * 3 + i], Use::kDgrad);
        rig.reduce(rig.weights[chunk * 3 + i], round);
      }
    };
    for (std::uint64_t step = 0; step < 2; ++step) {  // interleaved 1F1B of two microbatches
      forward(0);
      forward(0);
      forward(1);
      backward(1, 2 * step);
      forward(1);
      backward(1, 2 * step + 1);
      backward(0, 2 * step);
      backward(0, 2 * step + 1);
      rig.gtp->fence_grads(rig.compute);
    }
    CHECK(rig.gtp->chains().size() == 2);
    CHECK(rig.gtp->chains()[1]->name() == "GTP_remat_ungraphed_chunk1");
    CHECK(rig.counters().on_demand_gathers == 0);
    CHECK(rig.counters().buffer_spills == 0);
    rig.finish();
    CHECK(rig.mismatches == 0);
    CHECK(rig.wrong_grads(4, 0.5F) == 0);
  });
}

TEST_CASE(
    "an MXFP8 weight is gathered by rows for forward and by columns for dgrad, scales and their padding included") {
  on_two_ranks(unarmed, [](std::int64_t rank, HostBackend& backend) {
    const auto layout = make_shard_layout({64, 64, WeightFormat::kMxfp8, 32, 2});
    REQUIRE(layout);
    const auto byte = [](std::int64_t owner, std::size_t component, std::size_t i) {
      return static_cast<std::uint8_t>(1 + (static_cast<std::size_t>(owner) * 101 + component * 37 + i * 3) % 250);
    };
    std::array<std::vector<std::uint8_t>, kComponentCount> shards;
    WeightSpec spec{.name = "fp8", .layout = *layout, .shards = {{}}};
    for (std::size_t c = 0; c < kComponentCount; ++c) {
      shards[c].resize(static_cast<std::size_t>(layout->extent(kComponents[c]).shard_bytes));
      for (std::size_t i = 0; i < shards[c].size(); ++i) shards[c][i] = byte(rank, c, i);
      if (!shards[c].empty()) spec.shards[0].data[c] = shards[c].data();
    }
    Runtime runtime(backend, plan(2), rank, poisoned());
    ShardedWeight& weight = runtime.add_weight(std::move(spec));
    const Stream compute = backend.create_stream("compute", StreamPriority::kNormal);
    std::int64_t wrong = 0;
    std::int64_t compared = 0;
    for (const Use use : {Use::kForward, Use::kDgrad, Use::kForward, Use::kRecompute}) {
      const GatheredView view = runtime.materialize(weight, use, compute)[0];
      const CopyDirection direction = use == Use::kDgrad ? CopyDirection::kCol : CopyDirection::kRow;
      for (std::size_t c = 0; c < kComponentCount; ++c) {
        const ComponentExtent extent = layout->extent(kComponents[c]);
        CHECK((view.data[c] != nullptr) == layout->gathers(direction, kComponents[c]));
        if (view.data[c] == nullptr) continue;
        const std::span<const std::uint8_t> memory(static_cast<const std::uint8_t*>(view.data[c]),
                                                   static_cast<std::size_t>(extent.gathered_bytes));
        backend.enqueue(compute, {"fp8", ""}, {reads(memory)}, [=, &wrong, &compared] {
          const auto sent = static_cast<std::size_t>(extent.wire_bytes);
          for (std::size_t i = 0; i < memory.size(); ++i) {
            ++compared;
            const std::uint8_t expected =
                i < 2 * sent ? byte(static_cast<std::int64_t>(i / sent), c, i % sent) : std::uint8_t{0};
            if (memory[i] != expected) ++wrong;
          }
        });
      }
    }
    backend.synchronize(compute, kLimit);
    CHECK(compared == 4 * (64 * 64 + 512));
    CHECK(wrong == 0);
    CHECK(runtime.counters().buffer_allocations == 3);  // rows, columns, recompute
  });
}
