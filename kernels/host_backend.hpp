// Ranks as threads of one process, streams as queues: the whole runtime without a GPU, for tests and examples.
// Operations run one at a time, picked at random (from a seed) among those that may run, so that every legal
// interleaving can happen and each can be repeated. It models order and memory, not time or bandwidth.
//
//   HostWorld world({.ranks = 2, .seed = 7});
//   for (const RankOutcome& end : world.run([&](std::int64_t rank, HostBackend& backend) { ... })) REQUIRE(end.ok());
//
// Hazards end the run with an error that names both operations: two accesses of which one writes and that no event,
// stream or collective orders (whatever the interleaving was); a read of bytes nobody wrote, or that were poisoned;
// memory freed under pending work; ranks that issue different collectives; a deadlock. A rank's thread must not wait
// for another rank other than through this header: use HostBackend::barrier.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/trace.hpp"

namespace gtp {

class HostBackend;
namespace host {
class Device;
class World;
}  // namespace host

struct HostWorldOptions {
  std::int64_t ranks = 1;
  std::uint64_t seed = 0;
  /// After which a rank that neither calls nor ends, or a collective whose peer is gone, ends the run.
  std::chrono::milliseconds time_limit{30000};
  /// Off: only the random interleavings show hazards. Memory that kernels do not declare is never checked.
  bool detect_races = true;
};

/// Names of operations, as they appear in errors, traces and injections.
namespace host_op {
inline constexpr std::string_view kAllGather = "all-gather";
inline constexpr std::string_view kReduceScatter = "reduce-scatter";
inline constexpr std::string_view kAllToAll = "all-to-all";
inline constexpr std::string_view kAllReduce = "all-reduce";
inline constexpr std::string_view kFill = "fill";
inline constexpr std::string_view kCopy = "copy";
inline constexpr std::string_view kScale = "scale";
inline constexpr std::string_view kAdd = "add";
inline constexpr std::string_view kSumChunks = "sum-chunks";
inline constexpr std::string_view kKernel = "kernel";
inline constexpr std::string_view kHostFunction = "host-function";
inline constexpr std::string_view kRecord = "record";
inline constexpr std::string_view kWait = "wait";
}  // namespace host_op

enum class InjectedAction : std::uint8_t {
  kDelay,  ///< Held back while `steps` other operations run, or for as long as anything else can.
  kFail,   ///< The operation reports an error.
  kKill,   ///< The rank stops: its pending operations never run, its next call throws, its peers are not told.
};

/// Applies to the `occurrence`-th operation (from 0; -1: each) that matches every member that is set.
struct Injection {
  InjectedAction action = InjectedAction::kDelay;
  std::int64_t rank = -1;
  std::string operation{};
  std::string weight{};
  std::string stream{};
  std::int64_t occurrence = -1;
  std::uint64_t steps = ~std::uint64_t{0};
};

/// Evidence that an injection met the situation it was made for.
struct InjectionReport {
  std::int64_t hits = 0;
  std::int64_t held_steps = 0;  ///< Operations that ran while a hit was held back.
  std::int64_t waiters = 0;     ///< Times that a stream was seen waiting for an event behind a held operation.
};

/// How a rank's function ended.
struct RankOutcome {
  bool killed = false;
  bool threw = false;
  RuntimeStatus status{};  ///< If it threw a RuntimeError.
  std::string text;
  bool ok() const noexcept { return !killed && !threw; }
};

class HostWorld {
 public:
  explicit HostWorld(HostWorldOptions options);
  ~HostWorld();
  HostWorld(const HostWorld&) = delete;
  HostWorld& operator=(const HostWorld&) = delete;

  /// Runs `function` once per rank, each on a thread, until all have ended; then whatever is still pending. May be
  /// called again if all ended well. A rank whose function throws takes the others down with a kAborted error.
  std::vector<RankOutcome> run(const std::function<void(std::int64_t, HostBackend&)>& function);

  /// In a world of one rank this may be used without run(), from one thread.
  HostBackend& backend(std::int64_t rank);

  /// Before run(). The number of the injection, for `report`.
  std::size_t inject(Injection injection);
  InjectionReport report(std::size_t injection) const;

  /// Operations executed so far, events not counted.
  std::uint64_t executed() const noexcept;
  /// Bytes that ranks have allocated and not freed.
  std::int64_t live_bytes() const noexcept;

 private:
  std::unique_ptr<host::World> world_;
  std::vector<std::unique_ptr<HostBackend>> backends_;
};

/// A range of memory that a kernel touches.
struct Access {
  const void* data = nullptr;
  std::size_t bytes = 0;
  bool write = false;
};
template <class T>
Access reads(std::span<T> range) {
  return {range.data(), range.size_bytes(), false};
}
template <class T>
Access writes(std::span<T> range) {
  return {range.data(), range.size_bytes(), true};
}

/// One rank of a HostWorld. `allocate` fills with NaN bytes; an OpLabel with the note `poison` marks what it fills as
/// never written.
class HostBackend final : public Backend {
 public:
  HostBackend(host::World& world, std::int64_t rank);
  ~HostBackend() override;

  /// A kernel: `body` runs in stream order on some thread, must declare what it touches, and must not call the
  /// backend. `label` is copied as two string_views: the text must outlive the operation.
  void enqueue(Stream stream, OpLabel label, std::initializer_list<Access> accesses, std::function<void()> body);
  void enqueue(Stream stream, OpLabel label, std::span<const Access> accesses, std::function<void()> body);
  /// Waits until every rank has called it.
  void barrier();
  std::int64_t rank() const noexcept;

  Stream create_stream(std::string_view name, StreamPriority priority) override;
  void destroy_stream(Stream stream) noexcept override;
  Event create_event(EventKind kind) override;
  void destroy_event(Event event) noexcept override;
  void record(Event event, Stream stream) override;
  void wait(Stream stream, Event event) override;
  void* allocate(std::size_t bytes, MemoryKind kind) override;
  void deallocate(void* data, std::size_t bytes, MemoryKind kind) noexcept override;
  Communicator create_communicator(const CommunicatorSpec& spec) override;
  void destroy_communicator(Communicator communicator) noexcept override;
  void* register_window(Communicator communicator, void* data, std::size_t bytes) override;
  void deregister_window(Communicator communicator, void* window) noexcept override;
  void all_gather(std::span<const CollectivePart> parts, ElementType type, Communicator communicator, Stream stream,
                  OpLabel label) override;
  void reduce_scatter(std::span<const CollectivePart> parts, ElementType type, Communicator communicator, Stream stream,
                      OpLabel label) override;
  void all_to_all(std::span<const CollectivePart> parts, ElementType type, Communicator communicator, Stream stream,
                  OpLabel label) override;
  void all_reduce(std::span<const CollectivePart> parts, ElementType type, Communicator communicator, Stream stream,
                  OpLabel label) override;
  void fill(void* data, std::uint8_t byte, std::size_t bytes, Stream stream, OpLabel label) override;
  void copy(void* destination, ElementType destination_type, const void* source, ElementType source_type,
            std::size_t count, Stream stream, OpLabel label) override;
  void scale(void* data, ElementType type, std::size_t count, float factor, Stream stream, OpLabel label) override;
  void add_into(void* destination, ElementType destination_type, const void* source, ElementType source_type,
                std::size_t count, float factor, Stream stream, OpLabel label) override;
  void sum_chunks_into(void* destination, ElementType destination_type, const void* source, ElementType source_type,
                       std::size_t count, std::size_t chunks, float factor, Stream stream, OpLabel label) override;
  void host_function(void (*function)(void*), void* argument, Stream stream, OpLabel label) override;
  void begin_capture(Stream stream) override;
  Graph end_capture(Stream stream) override;
  void abort_capture() noexcept override;
  void launch(Graph graph, Stream stream) override;
  void destroy_graph(Graph graph) noexcept override;
  const BackendFailure* failure() const noexcept override;
  void synchronize(Stream stream, std::chrono::milliseconds limit) override;
  bool synchronize_all(std::chrono::milliseconds limit) noexcept override;
  void abort(std::string_view reason) noexcept override;
  void set_trace(TraceSink* sink) override;

 private:
  host::World& world_;
  std::unique_ptr<host::Device> device_;
};

}  // namespace gtp
