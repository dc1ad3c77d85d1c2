// Streams as threads of one process: each takes its operations in order and waits for events of the others. The queue,
// event and capture types are those of the host backend; the scheduler is the operating system, so nothing is repeated
// from a seed and no hazard is looked for. It knows nothing of how a collective moves its data.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kernels/host_capture.hpp"
#include "kernels/host_stream.hpp"
#include "kernels/trace.hpp"

namespace gtp {

struct WorkerStream : host::VirtualStream {
  bool stopping = false;
  std::thread thread;
};

/// All calls but `fail` and `failure` come from one thread at a time. Calls throw what `failure` says once it is set.
class StreamWorkers {
 public:
  explicit StreamWorkers(std::int64_t rank) : rank_(rank) {}
  /// What is pending will not run.
  ~StreamWorkers();
  StreamWorkers(const StreamWorkers&) = delete;
  StreamWorkers& operator=(const StreamWorkers&) = delete;

  host::VirtualStream& make_stream(std::string_view name);
  /// Precondition: drained, or failed.
  void destroy_stream(host::VirtualStream& stream) noexcept;

  /// `op` has a body, which may throw RuntimeError. A collective has a communicator too, whose operations run in the
  /// order of the pushes whatever their streams.
  void push(host::VirtualStream& stream, host::Op op);
  void record(host::HostEvent& event, host::VirtualStream& stream);
  void wait(host::VirtualStream& stream, host::HostEvent& event);

  void begin_capture(host::VirtualStream& stream);
  std::unique_ptr<host::HostGraph> end_capture(host::VirtualStream& stream);
  void abort_capture() noexcept { capture_.reset(); }
  bool is_capturing() const noexcept { return capture_ != nullptr; }
  void launch(host::HostGraph& graph, host::VirtualStream& stream);
  void destroy_graph(std::unique_ptr<host::HostGraph> graph) noexcept;

  /// Keeps the first failure only, and drops what is pending. Any thread.
  void fail(BackendFailure failure) noexcept;
  const BackendFailure* failure() const noexcept { return failed_.load(std::memory_order_acquire); }
  void check() const;
  /// Of one stream, or of all if null. False at `limit`. Throws on failure.
  bool drain(const host::VirtualStream* stream, std::chrono::milliseconds limit);

  void set_trace(TraceSink* sink);

 private:
  using Lock = std::unique_lock<std::mutex>;

  void work(WorkerStream& stream);
  /// The operation at the head of the queue, which it holds until done.
  void run_head(WorkerStream& stream, Lock& lock);
  void run_body(WorkerStream& stream, host::Op& op, Lock& lock);
  void enqueue(host::VirtualStream& stream, host::Op op);
  bool captures(const host::VirtualStream& stream) const noexcept { return capture_ && capture_->has(stream); }
  bool is_drained(const host::VirtualStream* stream) const;
  std::int64_t now() const;

  std::int64_t rank_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;  ///< Of queues, event records, sequences of communicators, the trace.
  std::condition_variable changed_;
  std::vector<std::unique_ptr<WorkerStream>> streams_;
  std::unique_ptr<host::Capture> capture_;
  std::uint64_t captures_ = 0;
  TraceSink* trace_ = nullptr;
  BackendFailure failure_;
  std::atomic<const BackendFailure*> failed_{nullptr};
};

}  // namespace gtp
