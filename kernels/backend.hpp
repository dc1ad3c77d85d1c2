// What the runtime needs from a device: streams, events, memory, communicators, a few kernels, graphs. One Backend
// serves one rank (one device) and is called from one thread at a time. It decides nothing about schedules or buffers.
//
// Every call that takes a stream only enqueues and returns; `synchronize` alone waits, and never without a limit.
// A call that fails throws RuntimeError. An operation that fails later is found by `failure()`.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/element_type.hpp"
#include "kernels/error.hpp"

namespace gtp {

class TraceSink;

/// Handles of the backend: `cudaStream_t`, `cudaEvent_t`, `ncclComm_t`, `cudaGraphExec_t` or a host object. A copy
/// refers to the same object; whoever created one destroys it.
struct Stream {
  void* handle = nullptr;
  friend constexpr bool operator==(Stream, Stream) = default;
};
struct Event {
  void* handle = nullptr;
  friend constexpr bool operator==(Event, Event) = default;
};
struct Communicator {
  void* handle = nullptr;
  friend constexpr bool operator==(Communicator, Communicator) = default;
};
struct Graph {
  void* handle = nullptr;
  friend constexpr bool operator==(Graph, Graph) = default;
};

enum class StreamPriority : std::uint8_t { kNormal, kHighest };

/// An external event crosses the border of a graph: recorded or awaited during capture it becomes a node of the graph
/// that touches the event at each replay. An internal event recorded during capture is an edge of that graph only.
enum class EventKind : std::uint8_t { kInternal, kExternal };

enum class MemoryKind : std::uint8_t {
  kPlain,   ///< cudaMalloc
  kWindow,  ///< ncclMemAlloc: may be registered as a symmetric window.
};

/// What an operation is for, in errors and traces. The text must outlive the operation.
struct OpLabel {
  std::string_view weight;
  std::string_view note;
};

/// One tensor of a collective. `count` is in elements: per rank sent (all-gather), per rank received (reduce-scatter),
/// per peer (all-to-all), in all (all-reduce).
struct CollectivePart {
  const void* send = nullptr;
  void* receive = nullptr;
  std::size_t count = 0;
};

enum class CommunicatorPurpose : std::uint8_t { kGather, kReduce };

struct CommunicatorSpec {
  std::string group;                ///< For errors: `gtp_remat`, `expt_gtp_remat`...
  std::vector<std::int64_t> ranks;  ///< World ranks in member order, the same list on every member.
  std::int64_t position = 0;        ///< Of this rank in `ranks`.
  CommunicatorPurpose purpose = CommunicatorPurpose::kGather;
};

/// Why the device, or the job around it, cannot go on.
struct BackendFailure {
  RuntimeStatus status = RuntimeStatus::kCollectiveFailed;
  std::string text;
};

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  /// `name` becomes the lane of traces and errors; it is copied.
  virtual Stream create_stream(std::string_view name, StreamPriority priority) = 0;
  /// Precondition: drained, or the backend was aborted.
  virtual void destroy_stream(Stream stream) noexcept = 0;

  virtual Event create_event(EventKind kind) = 0;
  virtual void destroy_event(Event event) noexcept = 0;
  virtual void record(Event event, Stream stream) = 0;
  /// Later work of `stream` waits for the latest `record` before this call; none yet: no wait. Awaiting an internal
  /// event that was recorded outside the running capture throws kCaptureFailed.
  virtual void wait(Stream stream, Event event) = 0;

  /// nullptr if there is not enough. At least 256-byte aligned; the contents are unspecified. Throws during capture.
  virtual void* allocate(std::size_t bytes, MemoryKind kind) = 0;
  /// Precondition: no enqueued work still touches it.
  virtual void deallocate(void* data, std::size_t bytes, MemoryKind kind) noexcept = 0;

  /// Collective over `spec.ranks`: every member makes its communicators in the same order.
  virtual Communicator create_communicator(const CommunicatorSpec& spec) = 0;
  virtual void destroy_communicator(Communicator communicator) noexcept = 0;
  /// Collective; before any capture. nullptr: this memory or link cannot be registered, which is not an error.
  virtual void* register_window(Communicator communicator, void* data, std::size_t bytes) = 0;
  virtual void deregister_window(Communicator communicator, void* window) noexcept = 0;

  /// The collectives of one communicator run in the order of the calls; all parts of a call are one grouped operation.
  /// Send and receive ranges must not overlap. Reductions sum; bf16 may round at every hop.
  virtual void all_gather(std::span<const CollectivePart> parts, ElementType type, Communicator communicator,
                          Stream stream, OpLabel label) = 0;
  virtual void reduce_scatter(std::span<const CollectivePart> parts, ElementType type, Communicator communicator,
                              Stream stream, OpLabel label) = 0;
  virtual void all_to_all(std::span<const CollectivePart> parts, ElementType type, Communicator communicator,
                          Stream stream, OpLabel label) = 0;
  virtual void all_reduce(std::span<const CollectivePart> parts, ElementType type, Communicator communicator,
                          Stream stream, OpLabel label) = 0;

  virtual void fill(void* data, std::uint8_t byte, std::size_t bytes, Stream stream, OpLabel label) = 0;
  /// destination[i] = source[i], rounded to the destination's type.
  virtual void copy(void* destination, ElementType destination_type, const void* source, ElementType source_type,
                    std::size_t count, Stream stream, OpLabel label) = 0;
  virtual void scale(void* data, ElementType type, std::size_t count, float factor, Stream stream, OpLabel label) = 0;
  /// destination[i] += factor * source[i], computed in fp32, rounded once.
  virtual void add_into(void* destination, ElementType destination_type, const void* source, ElementType source_type,
                        std::size_t count, float factor, Stream stream, OpLabel label) = 0;
  /// destination[i] += factor * (sum over c < chunks of source[c * count + i]), summed in fp32 in order of c, rounded
  /// once.
  virtual void sum_chunks_into(void* destination, ElementType destination_type, const void* source,
                               ElementType source_type, std::size_t count, std::size_t chunks, float factor,
                               Stream stream, OpLabel label) = 0;
  /// Calls `function(argument)` on a thread of the backend, in stream order. It must not call the backend, nor throw.
  virtual void host_function(void (*function)(void*), void* argument, Stream stream, OpLabel label) = 0;

  /// Work enqueued on `stream`, and on every stream that waits for an event recorded in the capture, is recorded
  /// instead of run. One capture at a time; ended from the thread that began it.
  virtual void begin_capture(Stream stream) = 0;
  /// Throws kCaptureFailed, with the capture over, if a stream that joined was not joined back into `stream`.
  virtual Graph end_capture(Stream stream) = 0;
  virtual void abort_capture() noexcept = 0;
  virtual void launch(Graph graph, Stream stream) = 0;
  virtual void destroy_graph(Graph graph) noexcept = 0;

  /// nullptr while all is well; otherwise stays set. A load or two: the runtime polls it at every call.
  virtual const BackendFailure* failure() const noexcept = 0;
  /// Waits for everything enqueued on `stream`. Throws what `failure()` says, or kTimeout.
  virtual void synchronize(Stream stream, std::chrono::milliseconds limit) = 0;
  /// As `synchronize`, for all streams of the device. True if drained; never throws.
  virtual bool synchronize_all(std::chrono::milliseconds limit) noexcept = 0;
  /// Gives up: pending operations will not run, peers learn `reason` within their time limit. Idempotent.
  virtual void abort(std::string_view reason) noexcept = 0;

  /// Reports every operation that has run since, until called with nullptr. Not owned.
  virtual void set_trace(TraceSink* sink) = 0;
};

}  // namespace gtp
