// Collectives, steps and graphs over NCCL. Every rank runs all test cases, in one order: launch.sh N nccl_test
#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdio>
#include <numeric>

#include "../runtime/counting_new.hpp"
#include "device_rig.hpp"
#include "kernels/trace.hpp"
#include "nccl_job.hpp"

using namespace gtp;
using namespace gtp::test;

namespace {

NcclWorld* world = nullptr;

std::size_t ranks() { return static_cast<std::size_t>(world->size()); }

std::vector<float> ramp(std::size_t rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = wgrad_value(static_cast<std::int64_t>(rank), 1, 0, static_cast<std::int64_t>(i));
  }
  return values;
}

/// Sums of what all ranks have at `begin`...
std::vector<float> sum_of_ramps(std::size_t whole, std::size_t begin, std::size_t count) {
  std::vector<float> sum(count, 0.0F);
  for (std::size_t peer = 0; peer < ranks(); ++peer) {
    const std::vector<float> theirs = ramp(peer, whole);
    for (std::size_t i = 0; i < count; ++i) sum[i] += theirs[begin + i];
  }
  return sum;
}

/// A communicator of the whole world, a stream, and arrays of one type.
class Collectives {
 public:
  explicit Collectives(ElementType type) : type_(type), backend_(world->backend()) {
    CommunicatorSpec spec{"all", std::vector<std::int64_t>(ranks()), world->rank(), CommunicatorPurpose::kReduce};
    std::iota(spec.ranks.begin(), spec.ranks.end(), 0);
    all_ = backend_.create_communicator(spec);
    stream_ = backend_.create_stream("comm", StreamPriority::kHighest);
  }
  ~Collectives() {
    backend_.destroy_communicator(all_);
    backend_.destroy_stream(stream_);
  }
  DeviceArray<std::uint8_t> array(const std::vector<float>& values) const {
    std::vector<std::uint8_t> bytes(values.size() * element_bytes(type_));
    const std::vector<std::uint16_t> halves = bf16_of(values);
    const void* source = type_ == ElementType::kFloat32 ? static_cast<const void*>(values.data()) : halves.data();
    std::memcpy(bytes.data(), source, bytes.size());
    return DeviceArray<std::uint8_t>(bytes);
  }
  std::vector<float> values(const DeviceArray<std::uint8_t>& array) const {
    backend_.synchronize(stream_, kLimit);
    const std::vector<std::uint8_t> bytes = array.get();
    std::vector<float> result(bytes.size() / element_bytes(type_));
    for (std::size_t i = 0; i < result.size(); ++i) {
      if (type_ == ElementType::kFloat32) {
        std::memcpy(&result[i], bytes.data() + i * 4, 4);
      } else {
        std::uint16_t bits = 0;
        std::memcpy(&bits, bytes.data() + i * 2, 2);
        result[i] = from_bf16(bits);
      }
    }
    return result;
  }

  ElementType type_;
  CudaBackend& backend_;
  Communicator all_{};
  Stream stream_{};
};

constexpr std::size_t kCount = 70000;

void warm_up(DeviceRig& rig) {
  rig.gtp->begin_warmup(rig.compute);
  for (std::uint64_t round = 0; round < 2; ++round) rig.microbatch(90 + round);
  rig.gtp->end_warmup(rig.compute);
}

void whole_step(DeviceRig& rig, std::uint64_t round) {
  rig.microbatch(round);
  rig.gtp->fence_grads(rig.compute);
}

float mean() { return 1.0F / static_cast<float>(ranks()); }

}  // namespace

TEST_CASE("an all-gather brings every part of every rank") {
  for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat32}) {
    Collectives over(type);
    const auto own = over.array(ramp(static_cast<std::size_t>(world->rank()), kCount));
    const auto first = over.array(std::vector<float>(kCount * ranks()));
    const auto second = over.array(std::vector<float>(8 * ranks()));
    const CollectivePart parts[] = {{own.data(), first.data(), kCount}, {own.data(), second.data(), 8}};
    over.backend_.all_gather(parts, type, over.all_, over.stream_, {"w", ""});
    std::vector<float> expected;
    std::vector<float> small;
    for (std::size_t peer = 0; peer < ranks(); ++peer) {
      const std::vector<float> theirs = ramp(peer, kCount);
      expected.insert(expected.end(), theirs.begin(), theirs.end());
      small.insert(small.end(), theirs.begin(), theirs.begin() + 8);
    }
    CHECK((over.values(first) == expected));
    CHECK((over.values(second) == small));
  }
}

TEST_CASE("reductions add what all ranks sent") {
  for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat32}) {
    Collectives over(type);
    const auto self = static_cast<std::size_t>(world->rank());
    const auto own = over.array(ramp(self, kCount * ranks()));
    const auto part = over.array(std::vector<float>(kCount));
    const auto sum = over.array(ramp(self, kCount));
    const CollectivePart scatter{own.data(), part.data(), kCount};
    const CollectivePart in_place{sum.data(), sum.data(), kCount};
    over.backend_.reduce_scatter({&scatter, 1}, type, over.all_, over.stream_, {"w", ""});
    over.backend_.all_reduce({&in_place, 1}, type, over.all_, over.stream_, {"w", ""});
    CHECK((over.values(part) == sum_of_ramps(kCount * ranks(), self * kCount, kCount)));
    CHECK((over.values(sum) == sum_of_ramps(kCount, 0, kCount)));
  }
}

TEST_CASE("an all-to-all transposes chunks between ranks, all parts of a call") {
  Collectives over(ElementType::kBFloat16);
  const auto self = static_cast<std::size_t>(world->rank());
  const auto own = over.array(ramp(self, kCount * ranks()));
  const auto first = over.array(std::vector<float>(kCount * ranks()));
  const auto second = over.array(std::vector<float>(16 * ranks()));
  const CollectivePart parts[] = {{own.data(), first.data(), kCount}, {own.data(), second.data(), 16}};
  over.backend_.all_to_all(parts, ElementType::kBFloat16, over.all_, over.stream_, {"w", ""});
  std::vector<float> expected;
  for (std::size_t peer = 0; peer < ranks(); ++peer) {
    const std::vector<float> theirs = ramp(peer, kCount * ranks());
    const auto begin = theirs.begin() + static_cast<std::ptrdiff_t>(self * kCount);
    expected.insert(expected.end(), begin, begin + kCount);
  }
  CHECK((over.values(first) == expected));
  const std::vector<float> small = over.values(second);
  CHECK(small[0] == ramp(0, self * 16 + 1)[self * 16]);
}

TEST_CASE("steps of the runtime gather the right bytes and reduce to the mean") {
  for (const bool fp32 : {true, false}) {
    RuntimeOptions options{.poison_free_buffers = true};
    options.gtp_remat_reduce_scatter_with_fp32_accumulation = !fp32;
    DeviceRig rig(world->backend(), plan(world->size()), options);
    for (int i = 0; i < 4; ++i) {
      rig.add("w" + std::to_string(i), {.wire_type = fp32 ? std::nullopt : std::optional(ElementType::kBFloat16)});
    }
    for (std::uint64_t round = 0; round < 4; ++round) {
      rig.delay(static_cast<std::int64_t>(round) * world->rank(), rig.compute);
      rig.microbatch(round);
    }
    rig.gtp->fence_grads(rig.compute);
    CHECK(rig.finish() == 0);
    CHECK(rig.wrong_grads({0, 1, 2, 3}, mean()) == 0);
  }
}

TEST_CASE("after warm-up a step allocates no more than NCCL does for its collectives") {
  const ncclComm_t raw = raw_communicator(job_environment(), "raw");
  DeviceRig rig(world->backend(), plan(world->size()));
  for (int i = 0; i < 4; ++i) rig.add("w" + std::to_string(i), {.rows = 64, .cols = 64});
  rig.prepare(0);
  const DeviceArray<std::uint8_t> memory(64 + 64 * ranks());
  const auto bare = [&] {
    for (int i = 0; i < 12; ++i) {
      ncclAllGather(memory.data(), memory.data() + 64, 64, ncclUint8, raw, CudaBackend::native(rig.compute));
    }
  };
  const auto step = [&] {
    for (Held& held : rig.weights) rig.gtp->materialize(*held.weight, Use::kForward, rig.compute);
    for (std::size_t i = 4; i-- > 0;) {
      rig.gtp->materialize(*rig.weights[i].weight, Use::kDgrad, rig.compute);
      rig.reduce(rig.weights[i], 0);
    }
    rig.gtp->fence_grads(rig.compute);
  };
  const auto allocations = [&](const auto& body) {
    for (int warm = 0; warm < 3; ++warm) body();
    rig.finish();
    const std::int64_t before = host_allocations();
    for (int repeat = 0; repeat < 10; ++repeat) body();
    const std::int64_t after = host_allocations();
    rig.finish();
    return after - before;
  };
  const std::int64_t own = allocations(bare);
  for (int warm = 0; warm < 3; ++warm) step();
  const std::int64_t buffers = rig.gtp->counters().buffer_allocations;
  const std::int64_t steps = allocations(step);
  CHECK(rig.gtp->counters().buffer_allocations == buffers);
  MESSAGE("calls of operator new in 120 collectives: ", own, " bare, ", steps, " in steps");
  CHECK(steps <= own + 40);  // the watchdog asks the store a few times a second
  ncclCommDestroy(raw);
}

TEST_CASE("a captured step replays as one launch, bit for bit what eager steps give, step after step") {
  const int steps = ranks() == 2 ? 100 : 20;  // more ranks on one GPU take turns on it
  std::vector<std::vector<float>> results[2];
  for (const bool graphed : {false, true}) {
    RuntimeOptions options{.graph_wgrad_ring_size = 3};
    DeviceRig rig(world->backend(), plan(world->size()), options);
    for (int i = 0; i < 3; ++i) rig.add("w" + std::to_string(i), {.graphed = true});
    for (const std::uint64_t round : {0, 90, 91}) rig.prepare(round);
    warm_up(rig);
    CHECK(rig.finish() == 0);
    if (graphed) {
      GraphScope& scope = rig.gtp->begin_capture("iteration", rig.compute);
      whole_step(rig, 0);
      rig.gtp->end_capture(scope);
      const std::int64_t buffers = rig.gtp->counters().buffer_allocations;
      for (int step = 0; step < steps; ++step) rig.gtp->replay(scope, rig.compute);
      CHECK(rig.gtp->counters().replays == steps);
      CHECK(rig.gtp->counters().buffer_allocations == buffers);
      rig.gtp->fence_grads(rig.compute);
    } else {
      for (int step = 0; step < steps; ++step) {
        rig.forget();
        whole_step(rig, 0);
      }
    }
    CHECK(rig.finish() == 0);
    CHECK(rig.wrong_grads(std::vector<std::uint64_t>(static_cast<std::size_t>(steps), 0), mean()) == 0);
    for (const Held& held : rig.weights) results[graphed ? 1 : 0].push_back(rig.main_grad(held));
  }
  CHECK((results[0] == results[1]));
}

TEST_CASE("a graph's launch is one call that a trace sees as one span") {
  struct Spans final : TraceSink {
    void span(const TraceSpan& span) override { operations.emplace_back(span.operation); }
    std::vector<std::string> operations;
  };
  DeviceRig rig(world->backend(), plan(world->size()), {.graph_wgrad_ring_size = 3});
  for (int i = 0; i < 3; ++i) rig.add("w" + std::to_string(i), {.graphed = true});
  for (const std::uint64_t round : {0, 90, 91}) rig.prepare(round);
  warm_up(rig);
  GraphScope& scope = rig.gtp->begin_capture("iteration", rig.compute);
  whole_step(rig, 0);
  rig.gtp->end_capture(scope);
  rig.finish();
  Spans spans;
  rig.backend.set_trace(&spans);
  rig.gtp->replay(scope, rig.compute);
  rig.finish();
  rig.backend.set_trace(nullptr);
  CHECK(spans.operations == std::vector<std::string>{"graph"});
}

TEST_CASE("a capture that fails on every rank leaves the runtime usable") {
  DeviceRig rig(world->backend(), plan(world->size()), {.graph_wgrad_ring_size = 3});
  for (int i = 0; i < 2; ++i) rig.add("w" + std::to_string(i), {.graphed = true});
  for (const std::uint64_t round : {0, 1, 90, 91}) rig.prepare(round);
  warm_up(rig);
  CHECK(rig.finish() == 0);
  const Stream stray = rig.backend.create_stream("stray", StreamPriority::kNormal);
  const Event fork = rig.backend.create_event(EventKind::kInternal);
  const DeviceArray<std::uint8_t> memory(64);
  GraphScope& failed = rig.gtp->begin_capture("iteration", rig.compute);
  rig.read(rig.weights[0]);
  rig.backend.record(fork, rig.compute);
  rig.backend.wait(stray, fork);
  rig.backend.fill(memory.data(), 0, 64, stray, {"stray", ""});
  const Refusal end = refusal([&] { rig.gtp->end_capture(failed); });
  CHECK(end.status == RuntimeStatus::kCaptureFailed);
  CHECK(end.text.find("stray") != std::string::npos);
  rig.forget();
  CHECK(refusal([&] { rig.gtp->replay(failed, rig.compute); }).status == RuntimeStatus::kCaptureFailed);

  whole_step(rig, 0);
  GraphScope& scope = rig.gtp->begin_capture("iteration", rig.compute);
  whole_step(rig, 1);
  rig.gtp->end_capture(scope);
  rig.gtp->replay(scope, rig.compute);
  rig.gtp->fence_grads(rig.compute);
  CHECK(rig.finish() == 0);
  CHECK(rig.wrong_grads({0, 1}, mean()) == 0);
  rig.backend.destroy_event(fork);
  rig.backend.destroy_stream(stray);
}

TEST_CASE("a plan for another number of ranks is refused before anything hangs") {
  const Refusal other = refusal([&] { world->require_plan(plan(world->size() * 2)); });
  CHECK(other.status == RuntimeStatus::kInvalidPlan);
  const Refusal place = refusal([&] {
    world->backend().create_communicator({"g", {(world->rank() + 1) % world->size()}, 0, CommunicatorPurpose::kGather});
  });
  CHECK(place.status == RuntimeStatus::kInvalidPlan);
  CHECK(place.text.find("the plan and the job disagree about ranks") != std::string::npos);
}

TEST_CASE("communicators of the caller's are used, and stay the caller's") {
  const JobEnvironment job = job_environment();
  const ncclComm_t gather = raw_communicator(job, "gather");
  const ncclComm_t reduce = raw_communicator(job, "reduce");
  {
    NcclWorld own = NcclWorld::from_communicators(job.rank, job.world_size,
                                                  {{"gtp_remat", CommunicatorPurpose::kGather, gather},
                                                   {"gtp_remat", CommunicatorPurpose::kReduce, reduce},
                                                   {"expt_gtp_remat", CommunicatorPurpose::kGather, gather},
                                                   {"expt_gtp_remat", CommunicatorPurpose::kReduce, reduce}},
                                                  job_options(job));
    DeviceRig rig(own.backend(), plan(own.size()));
    for (int i = 0; i < 2; ++i) rig.add("w" + std::to_string(i));
    rig.microbatch(0);
    rig.gtp->fence_grads(rig.compute);
    CHECK(rig.finish() == 0);
    CHECK(rig.wrong_grads({0}, mean()) == 0);
  }
  const DeviceArray<float> one(std::vector<float>{1.0F});
  CHECK(ncclAllReduce(one.data(), one.data(), 1, ncclFloat32, ncclSum, reduce, nullptr) == ncclSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(one.get()[0] == static_cast<float>(ranks()));
  CHECK(ncclCommDestroy(gather) == ncclSuccess);
  CHECK(ncclCommDestroy(reduce) == ncclSuccess);
}

TEST_CASE("a job can begin with an id that the caller has passed around") {
  const JobEnvironment job = job_environment();
  NcclWorld own = NcclWorld::from_unique_id(job.rank, job.world_size, share_id(job, "world"), job_options(job));
  CHECK(refusal([&] { own.barrier(); }).status == RuntimeStatus::kInvalidUse);
  DeviceRig rig(own.backend(), plan(own.size()));
  rig.add("w");
  rig.microbatch(0);
  rig.gtp->fence_grads(rig.compute);
  CHECK(rig.finish() == 0);
  CHECK(rig.wrong_grads({0}, mean()) == 0);
}

TEST_CASE("memory in windows gives the same results, whether or not it could be registered") {
  RuntimeOptions options{.gtp_remat_nccl_ub = true, .register_gather_outputs = true};
  DeviceRig rig(world->backend(), plan(world->size()), options);
  for (int i = 0; i < 3; ++i) rig.add("w" + std::to_string(i));
  for (std::uint64_t round = 0; round < 2; ++round) rig.microbatch(round);
  rig.gtp->fence_grads(rig.compute);
  CHECK(rig.finish() == 0);
  CHECK(rig.wrong_grads({0, 1}, mean()) == 0);
}

int main(int argc, char** argv) {
  try {
    const JobEnvironment job = job_environment();
    NcclWorld made = NcclWorld::from_job(job, job_options(job));
    world = &made;
    doctest::Context context(argc, argv);
    if (made.rank() != 0) context.setOption("minimal", true);
    const int result = context.run();
    if (const BackendFailure* failure = made.backend().failure()) {
      std::fprintf(stderr, "rank %d: %s\n", static_cast<int>(made.rank()), failure->text.c_str());
      return 1;
    }
    return result;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
