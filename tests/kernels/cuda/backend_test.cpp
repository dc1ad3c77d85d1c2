// Streams, events, memory, graphs and failures of a CudaBackend, on one GPU and without peers.
#include <set>
#include <thread>

#include "device_rig.hpp"
#include "kernels/cuda/loopback_world.hpp"
#include "kernels/cuda/operation_tracker.hpp"

using namespace gtp;
using namespace gtp::test;

namespace {

constexpr std::size_t kBytes = 1 << 20;

/// A backend with two streams and two buffers.
struct Bench {
  Bench() : backend(world.backend(0)), memory(kBytes), seen(kBytes) {
    first = backend.create_stream("first", StreamPriority::kNormal);
    second = backend.create_stream("second", StreamPriority::kHighest);
    memory.set(std::vector<std::uint8_t>(kBytes, 0));
  }
  ~Bench() {
    backend.abort_capture();
    backend.destroy_stream(first);
    backend.destroy_stream(second);
  }
  void delay(std::int64_t milliseconds, Stream stream) {
    backend.host_function(sleep_milliseconds, reinterpret_cast<void*>(milliseconds), stream, {"delay", ""});
  }
  void fill(std::uint8_t byte, Stream stream) { backend.fill(memory.data(), byte, kBytes, stream, {"w", ""}); }
  void look(Stream stream) {
    backend.copy(seen.data(), ElementType::kByte, memory.data(), ElementType::kByte, kBytes, stream, {"w", ""});
  }
  /// Of all bytes that `look` saw, once the streams are done.
  std::set<int> values() {
    backend.synchronize(first, kLimit);
    backend.synchronize(second, kLimit);
    const std::vector<std::uint8_t> bytes = seen.get();
    return {bytes.begin(), bytes.end()};
  }

  LoopbackWorld world{LoopbackOptions{}};
  CudaBackend& backend;
  DeviceArray<std::uint8_t> memory;
  DeviceArray<std::uint8_t> seen;
  Stream first{};
  Stream second{};
};

}  // namespace

TEST_CASE("streams of highest priority have the device's highest priority") {
  Bench bench;
  int lowest = 0;
  int highest = 0;
  REQUIRE(cudaDeviceGetStreamPriorityRange(&lowest, &highest) == cudaSuccess);
  int priority = 0;
  REQUIRE(cudaStreamGetPriority(CudaBackend::native(bench.second), &priority) == cudaSuccess);
  CHECK(priority == highest);
  REQUIRE(cudaStreamGetPriority(CudaBackend::native(bench.first), &priority) == cudaSuccess);
  CHECK(priority == 0);
}

TEST_CASE("an event orders two streams, and one that was never recorded orders nothing") {
  Bench bench;
  const Event event = bench.backend.create_event(EventKind::kInternal);
  bench.delay(50, bench.first);
  bench.backend.wait(bench.second, event);
  bench.look(bench.second);
  bench.backend.synchronize(bench.second, std::chrono::milliseconds(40));
  bench.fill(7, bench.first);
  bench.backend.record(event, bench.first);
  bench.backend.wait(bench.second, event);
  bench.look(bench.second);
  CHECK(bench.values() == std::set<int>{7});
  bench.backend.destroy_event(event);
}

TEST_CASE("waiting for a stream ends at its limit, and the backend is none the worse") {
  Bench bench;
  bench.delay(300, bench.first);
  const auto begin = std::chrono::steady_clock::now();
  const Refusal late = refusal([&] { bench.backend.synchronize(bench.first, std::chrono::milliseconds(50)); });
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(200));
  CHECK(late.status == RuntimeStatus::kTimeout);
  CHECK(late.text == "rank 0: stream first was not done within 50 ms");
  CHECK_FALSE(bench.backend.synchronize_all(std::chrono::milliseconds(20)));
  CHECK(bench.backend.failure() == nullptr);
  CHECK(bench.backend.synchronize_all(kLimit));
}

TEST_CASE("draining the device covers streams of the caller's") {
  Bench bench;
  const cuda::UniqueStream own = cuda::make_stream();
  bench.delay(100, CudaBackend::stream_of(own.get()));
  CHECK(bench.backend.synchronize_all(kLimit));
  CHECK(cudaStreamQuery(own.get()) == cudaSuccess);
}

TEST_CASE("the small kernels compute as the interface says") {
  Bench bench;
  const std::vector<float> start{1.0F, -2.0F, 3.5F, 0.0F};
  const std::vector<float> chunks{1, 2, 3, 4, 10, 20, 30, 40};
  const DeviceArray<float> target(start);
  const DeviceArray<float> source(chunks);
  bench.backend.sum_chunks_into(target.data(), ElementType::kFloat32, source.data(), ElementType::kFloat32, 4, 2, 0.5F,
                                bench.first, {"w", ""});
  bench.backend.add_into(target.data(), ElementType::kFloat32, source.data(), ElementType::kFloat32, 4, 2.0F,
                         bench.first, {"w", ""});
  bench.backend.scale(target.data(), ElementType::kFloat32, 4, 4.0F, bench.first, {"w", ""});
  const DeviceArray<std::uint16_t> rounded(4);
  bench.backend.copy(rounded.data(), ElementType::kBFloat16, target.data(), ElementType::kFloat32, 4, bench.first,
                     {"w", ""});
  bench.backend.synchronize(bench.first, kLimit);
  CHECK(target.get() == std::vector<float>{34, 52, 104, 120});
  CHECK(rounded.get() == bf16_of({34, 52, 104, 120}));
}

TEST_CASE("a capture records instead of running, and replays in order") {
  Bench bench;
  const Event fork = bench.backend.create_event(EventKind::kInternal);
  const Event join = bench.backend.create_event(EventKind::kInternal);
  bench.backend.begin_capture(bench.first);
  bench.fill(3, bench.first);
  bench.backend.record(fork, bench.first);
  bench.backend.wait(bench.second, fork);
  bench.look(bench.second);
  bench.backend.record(join, bench.second);
  bench.backend.wait(bench.first, join);
  bench.fill(9, bench.first);
  const Graph graph = bench.backend.end_capture(bench.first);
  bench.look(bench.first);
  CHECK(bench.values() == std::set<int>{0});
  for (int replay = 0; replay < 2; ++replay) {
    bench.backend.launch(graph, bench.first);
    CHECK(bench.values() == std::set<int>{3});
    bench.look(bench.first);
    CHECK(bench.values() == std::set<int>{9});
  }
  bench.backend.destroy_graph(graph);
  bench.backend.destroy_event(fork);
  bench.backend.destroy_event(join);
}

TEST_CASE("an external event in a graph orders eager work at every replay, both ways") {
  Bench bench;
  const Event before = bench.backend.create_event(EventKind::kExternal);
  const Event after = bench.backend.create_event(EventKind::kExternal);
  bench.backend.begin_capture(bench.first);
  bench.backend.wait(bench.first, before);
  bench.look(bench.first);
  bench.backend.record(after, bench.first);
  const Graph graph = bench.backend.end_capture(bench.first);
  for (int replay = 1; replay <= 3; ++replay) {
    bench.delay(20, bench.second);
    bench.fill(static_cast<std::uint8_t>(replay), bench.second);
    bench.backend.record(before, bench.second);
    bench.backend.launch(graph, bench.first);
    bench.backend.wait(bench.second, after);
    bench.fill(99, bench.second);
    CHECK(bench.values() == std::set<int>{replay});
  }
  bench.backend.destroy_graph(graph);
  bench.backend.destroy_event(before);
  bench.backend.destroy_event(after);
}

TEST_CASE("an internal event of outside is refused to a capture, and one of a capture to the outside") {
  Bench bench;
  const Event outside = bench.backend.create_event(EventKind::kInternal);
  bench.backend.record(outside, bench.second);
  bench.backend.begin_capture(bench.first);
  const Refusal in = refusal([&] { bench.backend.wait(bench.first, outside); });
  CHECK(in.status == RuntimeStatus::kCaptureFailed);
  CHECK(in.text == "stream first waits in a capture for an internal event that was recorded outside it");
  bench.backend.record(outside, bench.first);
  bench.fill(1, bench.first);
  bench.backend.destroy_graph(bench.backend.end_capture(bench.first));  // a refusal spoils nothing
  const Refusal out = refusal([&] { bench.backend.wait(bench.second, outside); });
  CHECK(out.status == RuntimeStatus::kCaptureFailed);
  CHECK(bench.backend.failure() == nullptr);
  bench.backend.destroy_event(outside);
}

TEST_CASE("a stream that is not joined back fails the capture and is named, and the next capture works") {
  Bench bench;
  const Event fork = bench.backend.create_event(EventKind::kInternal);
  bench.backend.begin_capture(bench.first);
  bench.backend.record(fork, bench.first);
  bench.backend.wait(bench.second, fork);
  bench.fill(1, bench.second);
  const Refusal unjoined = refusal([&] { bench.backend.end_capture(bench.first); });
  CHECK(unjoined.status == RuntimeStatus::kCaptureFailed);
  CHECK(unjoined.text == "stream second joined the capture and was not joined back");
  bench.backend.begin_capture(bench.first);
  bench.fill(5, bench.first);
  const Graph graph = bench.backend.end_capture(bench.first);
  bench.backend.launch(graph, bench.first);
  bench.look(bench.first);
  CHECK(bench.values() == std::set<int>{5});
  bench.backend.destroy_graph(graph);
  bench.backend.destroy_event(fork);
}

TEST_CASE("memory and communicators are refused during a capture, which goes on") {
  Bench bench;
  bench.backend.begin_capture(bench.first);
  CHECK(refusal([&] { bench.backend.allocate(64, MemoryKind::kPlain); }).status == RuntimeStatus::kCaptureFailed);
  CHECK(refusal([&] {
          bench.backend.create_communicator({"g", {0}, 0, CommunicatorPurpose::kGather});
        }).status == RuntimeStatus::kCaptureFailed);
  CHECK(refusal([&] { bench.backend.synchronize(bench.first, kLimit); }).status == RuntimeStatus::kCaptureFailed);
  CHECK(refusal([&] { bench.backend.begin_capture(bench.second); }).status == RuntimeStatus::kCaptureFailed);
  bench.fill(4, bench.first);
  const Graph graph = bench.backend.end_capture(bench.first);
  bench.backend.launch(graph, bench.first);
  bench.look(bench.first);
  CHECK(bench.values() == std::set<int>{4});
  bench.backend.destroy_graph(graph);
}

TEST_CASE("a call that CUDA does not allow in a capture ends it with an error, and the backend stays usable") {
  Bench bench;
  bench.backend.begin_capture(bench.first);
  bench.fill(1, bench.first);
  CHECK(cudaStreamSynchronize(CudaBackend::native(bench.first)) != cudaSuccess);
  CHECK(refusal([&] { bench.fill(2, bench.first); }).status == RuntimeStatus::kCaptureFailed);
  CHECK(refusal([&] { bench.backend.end_capture(bench.first); }).status == RuntimeStatus::kCaptureFailed);
  CHECK(bench.backend.failure() == nullptr);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  bench.fill(6, bench.first);
  bench.look(bench.first);
  CHECK(bench.values() == std::set<int>{6});
}

TEST_CASE("a capture that is aborted leaves nothing behind, and the null stream cannot begin one") {
  Bench bench;
  bench.backend.begin_capture(bench.first);
  bench.fill(1, bench.first);
  bench.backend.abort_capture();
  bench.backend.abort_capture();
  bench.look(bench.first);
  CHECK(bench.values() == std::set<int>{0});
  const Refusal null = refusal([&] { bench.backend.begin_capture({}); });
  CHECK(null.status == RuntimeStatus::kCaptureFailed);
  CHECK(null.text.find("null stream") != std::string::npos);
}

TEST_CASE("collectives between threads refuse to be captured and say why") {
  Bench bench;
  const Communicator one = bench.backend.create_communicator({"g", {0}, 0, CommunicatorPurpose::kGather});
  const CollectivePart part{bench.memory.data(), bench.seen.data(), kBytes};
  bench.backend.begin_capture(bench.first);
  const Refusal refused = refusal([&] {
    bench.backend.all_gather({&part, 1}, ElementType::kByte, one, bench.first, {"w7", ""});
  });
  CHECK(refused.status == RuntimeStatus::kCaptureFailed);
  CHECK(refused.text.find("all-gather of `w7` over group g: collectives between threads") != std::string::npos);
  bench.backend.abort_capture();
  bench.backend.destroy_communicator(one);
}

TEST_CASE("memory is aligned, and more than there is gives nothing") {
  Bench bench;
  for (const MemoryKind kind : {MemoryKind::kPlain, MemoryKind::kWindow}) {
    void* data = bench.backend.allocate(100, kind);
    CHECK(reinterpret_cast<std::uintptr_t>(data) % 256 == 0);
    bench.backend.deallocate(data, 100, kind);
    CHECK(bench.backend.allocate(std::size_t{1} << 46, kind) == nullptr);
  }
  bench.fill(8, bench.first);
  bench.look(bench.first);
  CHECK(bench.values() == std::set<int>{8});
}

TEST_CASE("a trace names lanes, operations and weights, and counts microseconds") {
  struct Spans final : TraceSink {
    void span(const TraceSpan& span) override {
      texts.push_back(std::string(span.lane) + " " + std::string(span.operation) + " " + std::string(span.weight));
      lengths.push_back(span.end - span.start);
    }
    std::vector<std::string> texts;
    std::vector<std::int64_t> lengths;
  };
  Bench bench;
  Spans spans;
  bench.fill(1, bench.first);
  bench.backend.set_trace(&spans);
  bench.fill(2, bench.first);
  bench.delay(30, bench.second);
  bench.values();
  bench.backend.set_trace(nullptr);
  bench.fill(3, bench.first);
  REQUIRE(spans.texts == std::vector<std::string>{"first fill w", "second host-function delay"});
  CHECK(spans.lengths[1] >= 30000);
}

TEST_CASE("the oldest operation that is pending is known, past one whose event was recorded again") {
  Bench bench;
  const cudaStream_t stream = CudaBackend::native(bench.first);
  cuda::OperationTracker tracker(true);
  const cuda::MarkerEvent markers[] = {cuda::make_marker(), cuda::make_marker()};
  CHECK_FALSE(tracker.oldest());
  bench.delay(200, bench.first);
  for (const int i : {0, 1}) {
    REQUIRE(markers[i]->record(stream) == cudaSuccess);
    tracker.add("all-gather", i == 0 ? "w0" : "w1", markers[i]);
  }
  REQUIRE(tracker.oldest());
  CHECK(tracker.oldest()->weight == "w0");
  CHECK(tracker.oldest()->operation == "all-gather");
  REQUIRE(markers[0]->record(stream) == cudaSuccess);
  REQUIRE(tracker.oldest());
  CHECK(tracker.oldest()->weight == "w1");
  CHECK(tracker.last_seen()->weight == "w1");
  bench.backend.synchronize(bench.first, kLimit);
  CHECK_FALSE(tracker.oldest());
}

TEST_CASE("a hang is found behind more operations than are tracked") {
  Bench bench;
  const cudaStream_t stream = CudaBackend::native(bench.first);
  cuda::OperationTracker tracker(true);
  cuda::MarkerRing ring;
  ring.prepare(cuda::OperationTracker::kCapacity / 2);
  const auto run = [&](const char* weight) {
    const cuda::MarkerEvent& marker = ring.next();
    REQUIRE(marker->record(stream) == cudaSuccess);
    tracker.add("all-reduce", weight, marker);
  };
  for (int i = 0; i < 1000; ++i) run("done");
  bench.backend.synchronize(bench.first, kLimit);
  bench.delay(300, bench.first);
  run("stuck");
  run("behind");
  REQUIRE(tracker.oldest());
  CHECK(tracker.oldest()->weight == "stuck");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(tracker.oldest()->stalled >= std::chrono::milliseconds(20));
  bench.backend.synchronize(bench.first, kLimit);
  CHECK_FALSE(tracker.oldest());
}

TEST_CASE("a backend that gave up refuses everything, and is taken apart") {
  Bench bench;
  void* data = bench.backend.allocate(64, MemoryKind::kPlain);
  bench.backend.abort("the test says so");
  bench.backend.abort("and again");
  REQUIRE(bench.backend.failure() != nullptr);
  CHECK(bench.backend.failure()->text == "rank 0 gave up: the test says so");
  CHECK(refusal([&] { bench.fill(1, bench.first); }).status == RuntimeStatus::kAborted);
  CHECK(refusal([&] { bench.backend.synchronize(bench.first, kLimit); }).status == RuntimeStatus::kAborted);
  bench.backend.deallocate(data, 64, MemoryKind::kPlain);
  CHECK(bench.backend.abandoned() == 0);  // the device was at rest
}

TEST_CASE("giving up with a device that does not come to rest abandons memory instead of waiting") {
  Bench bench;
  void* data = bench.backend.allocate(64, MemoryKind::kPlain);
  bench.delay(5000, bench.first);
  const auto begin = std::chrono::steady_clock::now();
  bench.backend.abort("the test says so");
  bench.backend.deallocate(data, 64, MemoryKind::kPlain);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(4500));
  CHECK(bench.backend.abandoned() == 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(5000) - (std::chrono::steady_clock::now() - begin));
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
}
