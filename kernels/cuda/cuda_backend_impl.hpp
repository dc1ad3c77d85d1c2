// What a CudaBackend holds. Private to cuda_backend*.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/cuda/annotate.hpp"
#include "kernels/cuda/bounded.hpp"
#include "kernels/cuda/capture.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/marker_events.hpp"
#include "kernels/cuda/span_recorder.hpp"
#include "kernels/cuda/transport.hpp"

namespace gtp::cuda {

/// What an Event points at.
struct BackendEvent {
  MarkerEvent event;
  EventKind kind = EventKind::kInternal;
  bool recorded = false;
  std::uint64_t capture = 0;  ///< In which an internal event was recorded last; 0: outside.
};

/// What a Graph points at.
struct BackendGraph {
  UniqueGraphExec exec;
  std::string summary;  ///< "" without collectives.
};

struct NamedStream {
  UniqueStream stream;
  std::string name;
};

}  // namespace gtp::cuda

namespace gtp {

struct CudaBackend::Impl {
  Impl(CudaBackendOptions given, std::shared_ptr<cuda::FailureCell> cell, std::unique_ptr<cuda::Transport> carrier);

  bool captures(cudaStream_t stream) const noexcept { return capture.active() && capture.has(stream); }
  std::string_view name_of(cudaStream_t stream) const noexcept;
  /// Runs `body`, which enqueues one operation, with what surrounds every operation: the check for failure, profiler
  /// ranges, traces, and errors that say what was tried.
  template <class Body>
  void operation(std::string_view name, OpLabel label, std::string_view group, cudaStream_t stream, Body&& body);
  [[noreturn]] void operation_failed(std::string_view name, OpLabel label, std::string_view group, bool captured,
                                     const RuntimeError& error);
  void collective(cuda::CollectiveKind kind, std::span<const CollectivePart> parts, ElementType type,
                  Communicator communicator, Stream stream, OpLabel label);
  /// The first failure wins; peers are told, and the device gets some seconds to come to rest.
  void give_up(RuntimeStatus status, std::string text) noexcept;
  bool streams_idle() noexcept;
  /// Whether driver calls that wait for the device will come back.
  bool may_free() noexcept;
  void come_to_rest() noexcept;
  /// Also covers streams that the backend does not know. Spends at most `limit`.
  bool drain_device(std::chrono::milliseconds limit);

  CudaBackendOptions options;
  std::shared_ptr<cuda::FailureCell> failure;
  cuda::StreamCapture capture;
  std::string captured_summary;  ///< Of the collectives in the capture under way.
  std::int64_t captured_collectives = 0;
  std::vector<cuda::NamedStream> streams;
  cuda::SpanRecorder spans;
  std::int64_t abandoned = 0;
  bool tried_to_rest = false;
  bool rests_after_failure = false;
  std::unique_ptr<cuda::Transport> transport;  ///< Last: uses streams and memory of the device until it goes.
};

template <class Body>
void CudaBackend::Impl::operation(std::string_view name, OpLabel label, std::string_view group, cudaStream_t stream,
                                  Body&& body) {
  failure->check();
  const bool captured = captures(stream);
  try {
    if (!options.annotate && !spans.active()) {
      body(captured);
      return;
    }
    const cuda::ProfilerRange range(name, label);
    const bool traced = spans.active() && !captured;
    if (traced) spans.begin(name_of(stream), name, label.weight, group, stream);
    body(captured);
    if (traced) spans.end(stream);
  } catch (const RuntimeError& error) {
    operation_failed(name, label, group, captured, error);
  }
}

}  // namespace gtp
