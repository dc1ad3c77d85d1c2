// Ranks as threads on one GPU: collectives against host arithmetic, and whole runs of the runtime on real streams.
#include <atomic>
#include <numeric>

#include <functional>
#include "device_rig.hpp"
#include "kernels/cuda/loopback_world.hpp"

using namespace gtp;
using namespace gtp::test;

namespace {

using RankFunction = std::function<void(std::int64_t, CudaBackend&)>;

void run_all(std::int64_t ranks, const RankFunction& function) {
  LoopbackWorld world({.ranks = ranks});
  for (const RankOutcome& outcome : world.run(function)) {
    INFO(outcome.text);
    REQUIRE(outcome.ok());
  }
}

CommunicatorSpec everybody(std::int64_t ranks, std::int64_t rank) {
  CommunicatorSpec spec{"all", std::vector<std::int64_t>(static_cast<std::size_t>(ranks)), rank,
                        CommunicatorPurpose::kReduce};
  std::iota(spec.ranks.begin(), spec.ranks.end(), 0);
  return spec;
}

std::vector<float> ramp(std::int64_t rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = wgrad_value(rank, 1, 0, static_cast<std::int64_t>(i));
  return values;
}

}  // namespace

TEST_CASE("collectives move and add what each rank sent, all parts of a call") {
  for (const std::int64_t ranks : {2, 4}) {
    run_all(ranks, [ranks](std::int64_t rank, CudaBackend& backend) {
      const auto n = static_cast<std::size_t>(ranks);
      constexpr std::size_t kCount = 1000;
      const Communicator all = backend.create_communicator(everybody(ranks, rank));
      const Stream stream = backend.create_stream("comm", StreamPriority::kHighest);
      const DeviceArray<float> own(ramp(rank, kCount * n));
      const DeviceArray<std::uint16_t> own16(bf16_of(ramp(rank, kCount * n)));
      const DeviceArray<float> gathered(kCount * n);
      const DeviceArray<float> gathered2(10 * n);
      const DeviceArray<float> exchanged(kCount * n);
      const DeviceArray<std::uint16_t> reduced(kCount);
      const DeviceArray<float> summed(ramp(rank, kCount));
      const CollectivePart gather[] = {{own.data(), gathered.data(), kCount}, {own.data(), gathered2.data(), 10}};
      const CollectivePart exchange{own.data(), exchanged.data(), kCount};
      const CollectivePart reduce{own16.data(), reduced.data(), kCount};
      const CollectivePart in_place{summed.data(), summed.data(), kCount};
      for (int repeat = 0; repeat < 3; ++repeat) {
        backend.all_gather(gather, ElementType::kFloat32, all, stream, {"w", ""});
        backend.all_to_all({&exchange, 1}, ElementType::kFloat32, all, stream, {"w", ""});
        backend.reduce_scatter({&reduce, 1}, ElementType::kBFloat16, all, stream, {"w", ""});
      }
      backend.all_reduce({&in_place, 1}, ElementType::kFloat32, all, stream, {"w", ""});
      backend.synchronize(stream, kLimit);
      const std::vector<float> whole = gathered.get();
      const std::vector<float> small = gathered2.get();
      const std::vector<float> pieces = exchanged.get();
      const std::vector<std::uint16_t> sum = reduced.get();
      const std::vector<float> total = summed.get();
      std::int64_t wrong = 0;
      for (std::size_t i = 0; i < kCount; ++i) {
        float scattered = 0;
        float all_sum = 0;
        for (std::size_t peer = 0; peer < n; ++peer) {
          const std::vector<float>& theirs = ramp(static_cast<std::int64_t>(peer), kCount * n);
          if (i > 3 && i < kCount - 3) break;  // ends are enough for what costs the host this much
          const std::size_t mine = static_cast<std::size_t>(rank) * kCount + i;
          if (whole[peer * kCount + i] != theirs[i]) ++wrong;
          if (i < 10 && small[peer * 10 + i] != theirs[i]) ++wrong;
          if (pieces[peer * kCount + i] != theirs[mine]) ++wrong;
          scattered += theirs[mine];
          all_sum += theirs[i];
        }
        if (i > 3 && i < kCount - 3) continue;
        if (from_bf16(sum[i]) != scattered) ++wrong;
        if (total[i] != all_sum) ++wrong;
      }
      CHECK(wrong == 0);
      backend.destroy_communicator(all);
      backend.destroy_stream(stream);
    });
  }
}

TEST_CASE("a sum of bf16 is made in fp32 and rounded once") {
  run_all(8, [](std::int64_t rank, CudaBackend& backend) {
    const Communicator all = backend.create_communicator(everybody(8, rank));
    const Stream stream = backend.create_stream("comm", StreamPriority::kHighest);
    const DeviceArray<std::uint16_t> own(bf16_of(std::vector<float>(8, rank == 0 ? 256.0F : 1.0F)));
    const DeviceArray<std::uint16_t> reduced(1);
    const CollectivePart part{own.data(), reduced.data(), 1};
    backend.reduce_scatter({&part, 1}, ElementType::kBFloat16, all, stream, {"w", ""});
    backend.synchronize(stream, kLimit);
    CHECK(from_bf16(reduced.get()[0]) == 264.0F);
    backend.destroy_communicator(all);
    backend.destroy_stream(stream);
  });
}

TEST_CASE("a collective starts after the work before it on every rank, and its inputs may be rewritten after it") {
  run_all(4, [](std::int64_t rank, CudaBackend& backend) {
    constexpr std::size_t kCount = 1 << 20;
    const Communicator all = backend.create_communicator(everybody(4, rank));
    const Stream stream = backend.create_stream("comm", StreamPriority::kHighest);
    const DeviceArray<std::uint8_t> own(std::vector<std::uint8_t>(kCount, 0));
    const DeviceArray<std::uint8_t> whole(kCount * 4);
    const CollectivePart part{own.data(), whole.data(), kCount};
    for (std::uint8_t round = 1; round <= 5; ++round) {
      backend.host_function(sleep_milliseconds, reinterpret_cast<void*>((rank * 7 + round * 3) % 11), stream, {});
      backend.fill(own.data(), static_cast<std::uint8_t>(round * 10 + rank), kCount, stream, {});
      backend.all_gather({&part, 1}, ElementType::kByte, all, stream, {"w", ""});
      backend.fill(own.data(), 0xEE, kCount, stream, {});
      backend.synchronize(stream, kLimit);
      const std::vector<std::uint8_t> seen = whole.get();
      std::int64_t wrong = 0;
      for (std::size_t i = 0; i < seen.size(); ++i) wrong += seen[i] != round * 10 + static_cast<int>(i / kCount);
      CHECK(wrong == 0);
    }
    backend.destroy_communicator(all);
    backend.destroy_stream(stream);
  });
}

TEST_CASE("different collectives, a missing rank and a rank that fails end the job with a reason") {
  {
    LoopbackWorld world({.ranks = 2});
    const auto ends = world.run([](std::int64_t rank, CudaBackend& backend) {
      const Communicator all = backend.create_communicator(everybody(2, rank));
      const Stream stream = backend.create_stream("comm", StreamPriority::kHighest);
      const DeviceArray<float> memory(64);
      const CollectivePart part{memory.data(), memory.data() + 32, rank == 0 ? std::size_t{8} : std::size_t{4}};
      backend.all_gather({&part, 1}, ElementType::kFloat32, all, stream, {"w1", ""});
    });
    CHECK(ends[0].threw);
    CHECK(ends[0].text.find("all-gather of `w1` over group all") != std::string::npos);
    CHECK(ends[1].threw);
  }
  {
    LoopbackWorld world({.ranks = 2, .time_limit = std::chrono::milliseconds(300)});
    const auto ends = world.run([](std::int64_t rank, CudaBackend& backend) {
      const Communicator all = backend.create_communicator(everybody(2, rank));
      if (rank == 1) return;
      const Stream stream = backend.create_stream("comm", StreamPriority::kHighest);
      const DeviceArray<float> memory(64);
      const CollectivePart part{memory.data(), memory.data() + 32, 8};
      backend.all_gather({&part, 1}, ElementType::kFloat32, all, stream, {"w1", ""});
    });
    CHECK(ends[0].status == RuntimeStatus::kTimeout);
    CHECK(ends[0].text.find("ranks 1 of group all did not make this call within 300 ms") != std::string::npos);
    CHECK(ends[1].ok());
  }
  {
    LoopbackWorld world({.ranks = 2});
    const auto ends = world.run([&](std::int64_t rank, CudaBackend&) {
      if (rank == 1) throw std::runtime_error("out of luck");
      world.barrier(rank);
    });
    CHECK(ends[0].status == RuntimeStatus::kAborted);
    CHECK(ends[0].text == "rank 1 failed: out of luck");
  }
}

TEST_CASE("the runtime gathers the right bytes, padding included, ahead of slow readers") {
  for (const std::int64_t ranks : {2, 4}) {
    run_all(ranks, [ranks](std::int64_t, CudaBackend& backend) {
      for (const std::uint32_t depth : {0U, 1U, 2U}) {
        DeviceRig rig(backend, plan(ranks), {.prefetch_depth = depth, .poison_free_buffers = depth == 2});
        for (int i = 0; i < 5; ++i) rig.add("w" + std::to_string(i));
        for (int pass = 0; pass < 3; ++pass) {
          for (Held& held : rig.weights) {
            rig.delay(2, rig.compute);  // readers run late, so that a gather could overtake them
            rig.read(held);
          }
          for (std::size_t i = 5; i-- > 0;) rig.read(rig.weights[i], Use::kDgrad);
          rig.gtp->fence_grads(rig.compute);
        }
        CHECK(rig.finish() == 0);
        if (depth > 0) CHECK(rig.gtp->counters().on_demand_gathers == 0);
        CHECK(rig.gtp->counters().buffer_allocations == (depth == 0 ? 1 : depth + 1));
      }
    });
  }
}

TEST_CASE("a publish between prefetch and consume is seen by the consumer") {
  run_all(2, [](std::int64_t, CudaBackend& backend) {
    DeviceRig rig(backend, plan(2), {.poison_free_buffers = true});
    for (int i = 0; i < 2; ++i) rig.add("w" + std::to_string(i));
    ShardedWeight* const order[] = {rig.weights[0].weight, rig.weights[1].weight};
    rig.gtp->declare_chain(order);
    const Stream optimizer = backend.create_stream("optimizer", StreamPriority::kNormal);
    for (std::uint64_t version = 1; version <= 4; ++version) {
      rig.read(rig.weights[0]);  // gathers w1 ahead
      rig.gtp->fence_grads(optimizer);
      rig.delay(10, optimizer);
      rig.update(rig.weights[1], version, optimizer);
      rig.gtp->publish(*rig.weights[1].weight, optimizer);
      rig.read(rig.weights[1]);
      rig.gtp->fence_grads(rig.compute);
    }
    CHECK(rig.finish() == 0);
    CHECK(rig.gtp->counters().stale_gathers == 4);
    backend.synchronize(optimizer, kLimit);
    backend.destroy_stream(optimizer);
  });
}

TEST_CASE("gradients are the mean over the group, over rounds, types, deferral and padding") {
  for (const std::int64_t ranks : {2, 4}) {
    run_all(ranks, [ranks](std::int64_t, CudaBackend& backend) {
      const float mean = 1.0F / static_cast<float>(ranks);
      for (const bool async : {true, false}) {
        for (const bool fp32 : {true, false}) {
          RuntimeOptions options{.async_reduction = async, .poison_free_buffers = true};
          options.gtp_remat_reduce_scatter_with_fp32_accumulation = !fp32;
          DeviceRig rig(backend, plan(ranks), options);
          for (int i = 0; i < 3; ++i) {
            rig.add("w" + std::to_string(i),
                    {.wire_type = fp32 ? std::nullopt : std::optional(ElementType::kBFloat16)});
          }
          for (std::uint64_t round = 0; round < 3; ++round) {
            rig.delay(3, rig.compute);
            rig.microbatch(round);
          }
          rig.gtp->fence_grads(rig.compute);
          CHECK(rig.finish() == 0);
          CHECK(rig.wrong_grads({0, 1, 2}, mean) == 0);
          CHECK(rig.gtp->counters().finalizes == 9);
          CHECK(rig.gtp->counters().fp32_reduce_scatters == (!fp32 && ranks > 2 ? 9 : 0));
        }
      }
    });
  }
}

TEST_CASE("without GTP a weight is its shard and a gradient goes straight to main_grad") {
  run_all(2, [](std::int64_t, CudaBackend& backend) {
    DeviceRig rig(backend, plan(1, 2));
    rig.add("w");
    rig.microbatch(0);
    rig.microbatch(1);
    rig.gtp->fence_grads(rig.compute);
    CHECK(rig.finish() == 0);
    CHECK(rig.wrong_grads({0, 1}, 1.0F) == 0);
    CHECK(rig.gtp->counters().gathers == 0);
    CHECK(rig.gtp->counters().buffer_allocations == 0);
  });
}

TEST_CASE("two runs give the same bits") {
  std::vector<std::vector<float>> results[2];
  for (auto& result : results) {
    result.resize(4);
    run_all(4, [&](std::int64_t rank, CudaBackend& backend) {
      DeviceRig rig(backend, plan(4), {.gtp_remat_reduce_scatter_with_fp32_accumulation = true});
      for (int i = 0; i < 2; ++i) rig.add("w" + std::to_string(i), {.wire_type = ElementType::kBFloat16});
      for (std::uint64_t round = 0; round < 5; ++round) rig.microbatch(round * 3);
      rig.gtp->fence_grads(rig.compute);
      CHECK(rig.finish() == 0);
      for (const Held& held : rig.weights) {
        const std::vector<float> grads = rig.main_grad(held);
        auto& mine = result[static_cast<std::size_t>(rank)];
        mine.insert(mine.end(), grads.begin(), grads.end());
      }
    });
  }
  CHECK(results[0] == results[1]);
}
