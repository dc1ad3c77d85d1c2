#include <array>

#include "rig.hpp"

using namespace gtp;
using namespace gtp::test;

namespace {

constexpr std::uint64_t kSeeds = 12;

void on_ranks(
    std::int64_t ranks, const std::function<void(HostWorld&)>& arm,
    const std::function<void(std::int64_t, HostBackend&)>& run,
    const std::function<void(HostWorld&)>& after = [](HostWorld&) {}) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    HostWorld world({.ranks = ranks, .seed = seed});
    arm(world);
    run_all(world, run);
    after(world);
  }
}
void unarmed(HostWorld&) {}

/// Writes one value everywhere into grad_buffer, and reduces.
void reduce_value(Rig& rig, Held& held, float value) {
  for (const WgradView& view : rig.gtp->grad_buffer(*held.weight, rig.compute)) {
    const auto count = static_cast<std::size_t>(view.rows * view.cols);
    const Access touched[] = {{view.data, count * element_bytes(view.type), true}};
    rig.backend.enqueue(rig.compute, {held.weight->name(), ""}, std::span<const Access>(touched), [=] {
      for (std::size_t i = 0; i < count; ++i) Rig::store(view, i, value);
    });
  }
  rig.gtp->reduce_grad(*held.weight, rig.compute);
}

}  // namespace

TEST_CASE("T10 a second reduction of a weight completes the first before it takes its place") {
  for (const bool async : {true, false}) {
    std::size_t delay = 0;
    on_ranks(
        2,
        [&](HostWorld& world) {
          delay = world.inject({.operation = "reduce-scatter", .weight = "shared", .occurrence = 0, .steps = 50});
        },
        [&](std::int64_t, HostBackend& backend) {
          Rig rig(backend, plan(2), poisoned({.async_reduction = async}));
          int ready = 0;
          rig.add("w0");
          Held& shared = rig.add("shared", {.grad_ready = [&](ShardedWeight&, Stream) { ++ready; }});
          rig.microbatch(0);
          rig.reduce(shared, 1);
          rig.reduce(shared, 2);
          rig.reduce(rig.weights[0], 1);
          rig.reduce(rig.weights[0], 2);
          rig.gtp->fence_grads(rig.compute);
          rig.finish();
          CHECK(ready == 3);
          CHECK(rig.counters().finalizes == 6);
          CHECK(rig.wrong_grads(3, 0.5F) == 0);
        },
        [&](HostWorld& world) { CHECK(world.report(delay).held_steps > 0); });
  }
}

TEST_CASE("T11 a successor without a reduction is not finalized, and the head finalizes itself") {
  on_ranks(2, unarmed, [](std::int64_t, HostBackend& backend) {
    Rig rig(backend, plan(2), poisoned());
    for (int i = 0; i < 3; ++i) rig.add("w" + std::to_string(i));
    for (Held& held : rig.weights) rig.read(held);
    rig.reduce(rig.weights[1], 0);  // w2, its successor, has not begun
    CHECK(rig.counters().finalizes == 0);
    rig.reduce(rig.weights[2], 0);
    CHECK(rig.counters().finalizes == 0);
    rig.reduce(rig.weights[0], 0);  // w1 is due, and w0 has nobody behind it
    CHECK(rig.counters().finalizes == 2);
    CHECK(rig.counters().deferred_finalizes == 1);
    rig.gtp->fence_grads(rig.compute);
    CHECK(rig.counters().finalizes == 3);
    rig.gtp->fence_grads(rig.compute);
    CHECK(rig.counters().finalizes == 3);
    rig.finish();
    CHECK(rig.wrong_grads(1, 0.5F) == 0);
  });
}

TEST_CASE("T12 grad_ready comes after the additions of all experts, for work on the stream it names") {
  std::size_t delay = 0;
  on_ranks(
      2, [&](HostWorld& world) { delay = world.inject({.operation = "add", .weight = "experts", .steps = 30}); },
      [](std::int64_t, HostBackend& backend) {
        Rig rig(backend, plan(2), poisoned());
        const Stream ddp = backend.create_stream("ddp", StreamPriority::kNormal);
        const Event ready = backend.create_event(EventKind::kInternal);
        std::vector<double> sums;
        Held* experts = nullptr;
        rig.add("w0");
        experts = &rig.add("experts", {.shards = 3, .grad_ready = [&](ShardedWeight& weight, Stream stream) {
                                         backend.record(ready, stream);
                                         backend.wait(ddp, ready);
                                         std::vector<Access> touched;
                                         for (const auto& memory : experts->main_grads) {
                                           touched.push_back({memory.data(), memory.size(), false});
                                         }
                                         backend.enqueue(ddp, {weight.name(), "ddp"}, touched, [&] {
                                           double sum = 0;
                                           for (std::size_t shard = 0; shard < 3; ++shard) {
                                             for (std::int64_t i = 0; i < 16; ++i) sum += experts->main_grad(shard, i);
                                           }
                                           sums.push_back(sum);
                                         });
                                       }});
        double expected = 0;
        for (std::size_t shard = 0; shard < 3; ++shard) {
          for (std::int64_t i = 0; i < 16; ++i) {
            expected += static_cast<double>(rig.expected_grad(*experts, shard, i, 1, 0.5F));
          }
        }
        rig.microbatch(0);
        rig.gtp->fence_grads(rig.compute);
        rig.finish();
        backend.synchronize(ddp, kLimit);
        CHECK(sums == std::vector<double>{expected});
        CHECK(rig.wrong_grads(1, 0.5F) == 0);
        backend.destroy_event(ready);
      },
      [&](HostWorld& world) { CHECK(world.report(delay).waiters > 0); });
}

TEST_CASE("T13 gradients travel in the type of main_grad, and fp32 ones need no fp32 accumulation") {
  HostWorld world({.ranks = 4});
  run_all(world, [](std::int64_t, HostBackend& backend) {
    Rig rig(backend, plan(4), {.gtp_remat_reduce_scatter_with_fp32_accumulation = true});
    Held& fp32 = rig.add("fp32");
    Held& bf16 = rig.add("bf16", {.main_grad_type = ElementType::kBFloat16});
    reduce_value(rig, fp32, 1);
    CHECK(fp32.weight->wire_type() == ElementType::kFloat32);
    CHECK(rig.counters().fp32_reduce_scatters == 0);
    CHECK(rig.counters().reduced_bytes == 8 * 4 * 4);
    reduce_value(rig, bf16, 1);
    CHECK(bf16.weight->wire_type() == ElementType::kBFloat16);
    CHECK(rig.counters().fp32_reduce_scatters == 1);
    CHECK(rig.counters().reduced_bytes == 8 * 4 * 4 + 8 * 4 * 2);
    rig.gtp->fence_grads(rig.compute);
    CHECK(rig.gtp->grad_buffer(*fp32.weight, rig.compute)[0].type == ElementType::kFloat32);
    CHECK(rig.gtp->grad_buffer(*bf16.weight, rig.compute)[0].type == ElementType::kBFloat16);
    rig.finish();
    CHECK(fp32.main_grad(0, 0) == 1.0F);
    CHECK(bf16.main_grad(0, 0) == 1.0F);
  });
}

TEST_CASE("T14 a poisoned dummy gradient does not reach main_grad") {
  on_ranks(2, unarmed, [](std::int64_t, HostBackend& backend) {
    Rig rig(backend, plan(2), poisoned());
    Held& held = rig.add("w", {.zero_out_wgrad = true});
    const std::size_t bytes = 16 * sizeof(float);
    for (std::uint64_t round = 0; round < 2; ++round) {
      rig.microbatch(round);
      rig.gtp->fence_grads(rig.compute);
      void* dummy = rig.gtp->dummy_wgrad(*held.weight, rig.compute);
      backend.add_into(held.main_grads[0].data(), ElementType::kFloat32, dummy, ElementType::kFloat32, 16, 1.0F,
                       rig.compute, {"framework", ""});
      backend.fill(dummy, 0xFF, bytes, rig.compute, {"framework", ""});
    }
    rig.finish();
    CHECK(std::isfinite(held.main_grad(0, 0)));
    CHECK(rig.wrong_grads(2, 0.5F) == 0);
  });
}

TEST_CASE("T19 gradients are means over replicate DP x GTP_remat, or sums per token") {
  for (const bool per_token : {false, true}) {
    on_ranks(4, unarmed, [&](std::int64_t, HostBackend& backend) {
      const Topology topology = plan(2, 2);
      Rig rig(backend, topology, poisoned({.calculate_per_token_loss = per_token}));
      std::vector<float> norm(3, static_cast<float>(backend.rank() + 1));
      rig.gtp->add_replicated({"norm", WeightDomain::kDense, norm.data(), ElementType::kFloat32, norm.size()});
      Held& held = rig.add("w");
      Group replicas(backend, group_of_plan(topology, "dp_cp", backend.rank()));
      rig.microbatch(0);
      rig.gtp->fence_grads(rig.compute);
      rig.gtp->reduce_replicated_grads(rig.compute);
      void* shard = held.main_grads[0].data();
      const CollectivePart parts[] = {{shard, shard, 16}, {norm.data(), norm.data(), norm.size()}};
      const float share = rig.gtp->gradient_scaling_factor(WeightDomain::kDense);
      CHECK(share == (per_token ? 1.0F : 0.5F));
      for (const CollectivePart& part : parts) {
        backend.scale(part.receive, ElementType::kFloat32, part.count, share, rig.compute, {"ddp", ""});
      }
      backend.all_reduce(parts, ElementType::kFloat32, replicas.reduce_comm(), rig.compute, {"ddp", ""});
      rig.finish();
      const float factor = per_token ? 1.0F : 0.25F;
      for (std::int64_t i = 0; i < 16; ++i) {
        float sum = 0;
        for (std::int64_t rank = 0; rank < 4; ++rank) {
          sum += wgrad_value(rank, held.key(0), 0, held.weight->group().position() * 16 + i);
        }
        CHECK(held.main_grad(0, i) == sum * factor);
      }
      CHECK(norm == std::vector<float>(3, (1 + 2 + 3 + 4) * factor));
    });
  }
}

TEST_CASE("T20 replicated gradients are completed over their own domain's group, and only they") {
  on_ranks(4, unarmed, [](std::int64_t rank, HostBackend& backend) {
    TopologyOptions options;
    options.world_size = 4;
    options.tensor_parallel_num_weight_shards = 4;
    options.expert_tensor_parallel_num_weight_shards = 2;  // EP 1, EGTP_remat 2
    const Topology topology = require_topology(options);
    Rig rig(backend, topology, poisoned());
    float norm = static_cast<float>(1 << rank);
    std::uint16_t router = bits_of(to_bf16(static_cast<float>(1 << rank)));
    rig.gtp->add_replicated({"norm", WeightDomain::kDense, &norm, ElementType::kFloat32, 1});
    rig.gtp->add_replicated({"router", WeightDomain::kExpert, &router, ElementType::kBFloat16, 1});
    Held& held = rig.add("w");
    rig.microbatch(0);
    rig.gtp->fence_grads(rig.compute);
    rig.gtp->reduce_replicated_grads(rig.compute);
    rig.finish();
    CHECK(norm == 15.0F / 4);
    const auto group = rig.gtp->group(WeightDomain::kExpert).ranks();
    CHECK(group.size() == 2);
    CHECK(to_float(Bf16{router}) == static_cast<float>((1 << group[0]) + (1 << group[1])) / 2);
    CHECK(rig.wrong_grads(1, 0.25F) == 0);
    CHECK(held.weight->group().size() == 4);
    CHECK(rig.counters().replicated_reductions == 2);
  });
}

TEST_CASE("T22 fp32 accumulation keeps what a bf16 ring loses, and is left out where it cannot matter") {
  const auto first_sum = [](std::int64_t ranks, bool fp32, bool windows, std::size_t experts) {
    std::vector<float> result(static_cast<std::size_t>(ranks));
    std::array<std::size_t, 2> delays{};
    on_ranks(
        ranks,
        [&](HostWorld& world) {
          delays[0] = world.inject({.operation = "sum-chunks", .weight = "w1", .steps = 40});
          delays[1] = world.inject({.operation = "all-to-all", .weight = "w1", .steps = 10});
        },
        [&](std::int64_t rank, HostBackend& backend) {
          RuntimeOptions options = poisoned({.calculate_per_token_loss = true});
          options.gtp_remat_reduce_scatter_with_fp32_accumulation = fp32;
          options.gtp_remat_nccl_ub = windows;
          Rig rig(backend, plan(ranks), options);
          Held& below = rig.add("w0", {.shards = experts, .main_grad_type = ElementType::kBFloat16});
          Held& held = rig.add("w1", {.shards = experts, .main_grad_type = ElementType::kBFloat16});
          for (Held* each : {&below, &held}) rig.read(*each);
          reduce_value(rig, held, rank == 0 ? 256.0F : 1.0F);
          reduce_value(rig, below, rank == 0 ? 256.0F : 1.0F);
          const bool all_to_all = fp32 && !windows && ranks > 2;
          CHECK(rig.counters().fp32_reduce_scatters == (all_to_all ? 2 : 0));
          CHECK(rig.counters().reduce_scatters == 2);
          rig.gtp->fence_grads(rig.compute);
          rig.finish();
          for (std::size_t shard = 0; shard < experts; ++shard) {
            for (const Held* each : {&below, &held}) CHECK(each->main_grad(shard, 3) == held.main_grad(0, 0));
          }
          result[static_cast<std::size_t>(rank)] = held.main_grad(0, 0);
        },
        [&](HostWorld& world) {
          if (fp32 && !windows && ranks > 2) CHECK(world.report(delays[0]).held_steps > 0);
        });
    for (const float value : result) CHECK(value == result[0]);
    return result[0];
  };
  CHECK(first_sum(8, true, false, 1) == 264.0F);   // 263 in fp32
  CHECK(first_sum(8, true, false, 2) == 264.0F);   // grouped
  CHECK(first_sum(8, false, false, 1) == 256.0F);  // every + 1 rounds away
  CHECK(first_sum(2, true, false, 1) == 256.0F);   // 257: one addition, the same rounding
  CHECK(first_sum(8, true, true, 1) == 264.0F);    // in the switch
}

TEST_CASE("T23 a symmetric pool goes before fp32 accumulation, and its padding is zero on every send") {
  on_ranks(4, unarmed, [](std::int64_t, HostBackend& backend) {
    RuntimeOptions options = poisoned({.gtp_remat_nccl_ub = true});
    options.gtp_remat_reduce_scatter_with_fp32_accumulation = true;
    Rig rig(backend, plan(4), options);
    for (int i = 0; i < 3; ++i) {
      rig.add("w" + std::to_string(i), {.rows = 6, .pad_for_alignment = 4, .main_grad_type = ElementType::kBFloat16});
    }
    rig.add("expert", {.domain = WeightDomain::kExpert, .main_grad_type = ElementType::kBFloat16});
    for (std::uint64_t round = 0; round < 3; ++round) {
      rig.microbatch(round);
      rig.gtp->fence_grads(rig.compute);
    }
    rig.finish();
    CHECK(rig.counters().fp32_reduce_scatters == 3);  // of the expert group, which has no pool
    CHECK(rig.wrong_grads(3, 0.25F) == 0);            // pad rows included: any NaN of a recycled buffer would show
    CHECK(rig.weights[0].weight->layout().pad_length() == 10);
  });
}

TEST_CASE("T23 a gradient from elsewhere is copied into the send buffer") {
  on_ranks(2, unarmed, [](std::int64_t rank, HostBackend& backend) {
    Rig rig(backend, plan(2), poisoned({.gtp_remat_nccl_ub = true}));
    Held& held = rig.add("w", {.rows = 5, .pad_for_alignment = 4});
    std::vector<float> elsewhere(20);
    for (std::size_t i = 0; i < 20; ++i) elsewhere[i] = wgrad_value(rank, held.key(0), 0, static_cast<std::int64_t>(i));
    const ForeignWgrad foreign[] = {{elsewhere.data(), ElementType::kFloat32}};
    rig.gtp->reduce_grad(*held.weight, foreign, rig.compute);
    rig.gtp->fence_grads(rig.compute);
    rig.finish();
    CHECK(rig.counters().copied_wgrads == 1);
    CHECK(rig.wrong_grads(1, 0.5F) == 0);
    CHECK_THROWS_AS(rig.gtp->reduce_grad(*held.weight, {}, rig.compute), RuntimeError);
  });
}

TEST_CASE("T23 an empty pool in a capture is an error, never an allocation") {
  HostWorld world({.ranks = 2});
  run_all(world, [](std::int64_t, HostBackend& backend) {
    int asked = 0;
    MemoryCallbacks memory;
    memory.allocate = [&](const MemoryRequest& request) {
      ++asked;
      return backend.allocate(request.bytes, request.kind);
    };
    memory.deallocate = [&](void* data, const MemoryRequest& request) {
      backend.deallocate(data, request.bytes, request.kind);
    };
    Rig rig(backend, plan(2), {.gtp_remat_nccl_ub = true}, memory);
    Held& held = rig.add("w", {.chain = {.graphed = true}});
    GraphScope& scope = rig.gtp->begin_capture("backward", rig.compute);
    try {
      rig.gtp->grad_buffer(*held.weight, rig.compute);
      FAIL("a capture allocated");
    } catch (const RuntimeError& error) {
      CHECK(error.status() == RuntimeStatus::kOutOfMemory);
      CHECK(error.text().find("weight gradient buffer [8, 4] of group gtp_remat") != std::string::npos);
    }
    rig.gtp->abort_capture(scope);
    CHECK(asked == 0);
    rig.microbatch(0);  // still usable
    rig.gtp->fence_grads(rig.compute);
    rig.finish();
    CHECK(asked == 3);
    CHECK(rig.wrong_grads(1, 0.5F) == 0);
  });
}

TEST_CASE("gradients accumulate over microbatches, one-step deferred, without waiting on the compute stream") {
  std::size_t delay = 0;
  on_ranks(
      4, [&](HostWorld& world) { delay = world.inject({.operation = "reduce-scatter", .weight = "w2", .steps = 40}); },
      [](std::int64_t, HostBackend& backend) {
        Rig rig(backend, plan(4), poisoned());
        for (int i = 0; i < 4; ++i) rig.add("w" + std::to_string(i), {.rows = 9, .pad_for_alignment = 4});
        for (std::uint64_t round = 0; round < 4; ++round) rig.microbatch(round);
        CHECK(rig.counters().deferred_finalizes == 4 * 3);
        CHECK(rig.counters().finalizes == 4 * 4);
        rig.gtp->fence_grads(rig.compute);
        rig.finish();
        CHECK(rig.wrong_grads(4, 0.25F) == 0);
      },
      [&](HostWorld& world) { CHECK(world.report(delay).held_steps > 0); });
}

TEST_CASE("calls out of order are refused and leave the runtime usable") {
  HostWorld world({.ranks = 2});
  run_all(world, [](std::int64_t, HostBackend& backend) {
    Rig rig(backend, plan(2));
    Held& held = rig.add("w");
    CHECK_THROWS_AS(rig.gtp->reduce_grad(*held.weight, rig.compute), RuntimeError);
    rig.gtp->grad_buffer(*held.weight, rig.compute);
    CHECK_THROWS_AS(rig.gtp->grad_buffer(*held.weight, rig.compute), RuntimeError);
    CHECK_THROWS_AS(rig.gtp->hold(*held.weight, Use::kForward), RuntimeError);
    const float zeros[32] = {};
    const ForeignWgrad foreign[] = {{zeros, ElementType::kFloat32}};
    rig.gtp->reduce_grad(*held.weight, foreign, rig.compute);  // takes the buffer that was handed out
    rig.microbatch(0);
    rig.gtp->fence_grads(rig.compute);
    rig.finish();
    CHECK(rig.wrong_grads(1, 0.5F) == 0);
  });
}
