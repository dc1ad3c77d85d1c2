#include <nlohmann/json.hpp>

#include "counting_new.hpp"
#include "noop_model.hpp"
#include "rig.hpp"

using namespace gtp;
using namespace gtp::test;

TEST_CASE("after warm-up a step allocates nothing, on the host or on the device") {
  for (const std::uint32_t depth : {0U, 1U, 2U}) {
    NoopModel model(16, {.prefetch_depth = depth});
    for (int step = 0; step < 2; ++step) model.step();
    const std::int64_t before = host_allocations();
    const std::int64_t buffers = model.gtp->counters().buffer_allocations;
    for (int step = 0; step < 3; ++step) model.step();
    CHECK(host_allocations() == before);
    CHECK(model.gtp->counters().buffer_allocations == buffers);
    CHECK(model.gtp->counters().consumes == 5 * 32);
  }
}

TEST_CASE("counters add up") {
  NoopModel model(8);
  for (int step = 0; step < 4; ++step) model.step();
  const Counters& counters = model.gtp->counters();
  CHECK(counters.consumes == 4 * 16);
  CHECK(counters.gathers == counters.consumes);
  CHECK(counters.gathers ==
        counters.prefetched_gathers + counters.head_gathers + counters.recording_gathers + counters.on_demand_gathers);
  CHECK(counters.recording_gathers == 8);
  CHECK(counters.head_gathers == 4 + 3);
  CHECK(counters.on_demand_gathers == 0);
  CHECK(counters.gathered_bytes == counters.gathers * 32 * 32 * 2);
  CHECK(counters.reduce_scatters == 4 * 8);
  CHECK(counters.finalizes == 4 * 8);
  CHECK(counters.deferred_finalizes == 4 * 7);
  CHECK(counters.reduced_bytes == 4 * 8 * 64 * 32 * 4);
}

TEST_CASE("the chain table shows every weight with its shape and buffer slot") {
  NoopModel model(2);
  model.step();
  const std::string table = model.gtp->chain_table();
  CHECK(table ==
        "GTP_remat_ungraphed: 2 weights, depth 1, sealed\n"
        "     #  weight                                    shape  format experts  slot  group\n"
        "     0  w0                                        64x32  BF16         1     0  gtp_remat\n"
        "     1  w1                                        64x32  BF16         1     1  gtp_remat\n");
}

TEST_CASE("a step is traced as Chrome JSON with one lane a stream") {
  HostWorld world({.ranks = 2});
  ChromeTrace trace;
  world.backend(0).set_trace(&trace);
  run_all(world, [](std::int64_t, HostBackend& backend) {
    Rig rig(backend, plan(2));
    rig.add("odd \"name\"\n\x80");
    rig.add("w1");
    for (std::uint64_t round = 0; round < 2; ++round) rig.microbatch(round);
    rig.gtp->fence_grads(rig.compute);
    rig.finish();
  });
  std::string text;
  trace.write([&](std::string_view part) { text += part; });
  const auto json = nlohmann::json::parse(text);
  std::set<std::string> lanes;
  std::set<std::string> names;
  std::int64_t complete = 0;
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") == "M" && event.at("name") == "thread_name") lanes.insert(event.at("args").at("name"));
    if (event.at("ph") != "X") continue;
    ++complete;
    names.insert(event.at("name"));
    CHECK(event.at("dur").get<std::int64_t>() >= 1);
    CHECK(event.at("pid").get<std::int64_t>() < 2);
  }
  CHECK(lanes == std::set<std::string>{"compute", "gather gtp_remat ungraphed", "reduce gtp_remat ungraphed"});
  CHECK(names.contains("all-gather w1"));
  CHECK(names.contains("reduce-scatter w1"));
  CHECK(names.contains("add w1"));
  CHECK(complete == static_cast<std::int64_t>(trace.size()));
}

TEST_CASE("the host backend finds what no interleaving shows") {
  const auto outcome = [](const std::function<void(HostBackend&, Stream, Stream, std::span<float>)>& program) {
    HostWorld world({});
    return world.run([&](std::int64_t, HostBackend& backend) {
      const Stream one = backend.create_stream("one", StreamPriority::kNormal);
      const Stream two = backend.create_stream("two", StreamPriority::kNormal);
      auto* data = static_cast<float*>(backend.allocate(64, MemoryKind::kPlain));
      const std::span<float> memory(data, 16);
      program(backend, one, two, memory);
      backend.synchronize(one, kLimit);
      backend.synchronize(two, kLimit);
      backend.deallocate(data, 64, MemoryKind::kPlain);
    })[0];
  };
  const auto write = [](HostBackend& backend, Stream stream, std::span<float> memory) {
    backend.fill(memory.data(), 0, memory.size_bytes(), stream, {"memory", ""});
  };
  const auto read = [](HostBackend& backend, Stream stream, std::span<float> memory) {
    backend.enqueue(stream, {"memory", ""}, {reads(memory)}, [] {});
  };
  CHECK(outcome([&](HostBackend& backend, Stream one, Stream two, std::span<float> memory) {
          write(backend, one, memory);
          backend.synchronize(one, kLimit);
          write(backend, one, memory);
          read(backend, two, memory);
        }).text.find("nothing orders the two") != std::string::npos);
  CHECK(outcome([&](HostBackend& backend, Stream one, Stream two, std::span<float> memory) {
          const Event written = backend.create_event(EventKind::kInternal);
          write(backend, one, memory);
          backend.record(written, one);
          backend.wait(two, written);
          read(backend, two, memory);
          backend.destroy_event(written);
        }).ok());
  CHECK(outcome([&](HostBackend& backend, Stream one, Stream two, std::span<float> memory) {
          write(backend, one, memory);
          backend.synchronize(one, kLimit);  // the host orders them
          read(backend, two, memory);
        }).ok());
  CHECK(outcome([&](HostBackend& backend, Stream one, Stream, std::span<float> memory) {
          read(backend, one, memory);
        }).text.find("never written") != std::string::npos);
  CHECK(outcome([&](HostBackend& backend, Stream one, Stream, std::span<float> memory) {
          write(backend, one, memory);
          backend.deallocate(memory.data(), memory.size_bytes(), MemoryKind::kPlain);
        }).text.find("freed under a pending fill") != std::string::npos);
  CHECK(outcome([&](HostBackend& backend, Stream one, Stream, std::span<float> memory) {
          backend.fill(memory.data(), 0, memory.size_bytes() + 4, one, {"memory", ""});
        }).text.find("beyond its buffer") != std::string::npos);
}

TEST_CASE("ranks that issue different collectives are told which") {
  HostWorld world({.ranks = 2});
  const auto outcomes = world.run([](std::int64_t rank, HostBackend& backend) {
    Rig rig(backend, plan(2));
    rig.add("w0");
    rig.add("w1");
    rig.read(rig.weights[rank == 0 ? 0 : 1]);
    rig.finish();
  });
  for (const RankOutcome& outcome : outcomes) {
    CHECK(outcome.threw);
    CHECK(outcome.text.find("all-gather of `w1`") != std::string::npos);
    CHECK(outcome.text.find("met all-gather of `w0`") != std::string::npos);
  }
}
