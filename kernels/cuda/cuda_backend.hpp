// The runtime's device on NVIDIA GPUs: streams, events, memory, graphs and small kernels of one device. Collectives are
// a transport's: NcclWorld (nccl_world.hpp) or LoopbackWorld (loopback_world.hpp), which also make the backend.
//
// Handles. A Stream is a `cudaStream_t`: the caller's own may be used as well, and stay the caller's; the null stream
// can be used but not captured. Events are of this backend only. The calling thread's current device must be
// the backend's (`device`) whenever something is enqueued.
//
// Errors. A call that CUDA or NCCL refuses throws, and outside a capture the backend has then failed: `failure` stays,
// peers are told. Inside a capture it is kCaptureFailed, the capture is dead until end_capture or abort_capture, and
// the backend stays usable. Nothing waits for the device without a limit: after a failure, memory, graphs and
// communicators that a hung device may still use are left behind (`abandoned`) instead of freed.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "kernels/backend.hpp"
#include "kernels/cuda/failure_cell.hpp"

namespace gtp {

namespace cuda {
class Transport;
}

struct CudaBackendOptions {
  int device = 0;
  std::int64_t rank = 0;
  /// NVTX ranges around every operation; on anyway while a trace is attached.
  bool annotate = false;
};

class CudaBackend final : public Backend {
 public:
  /// `failure` is shared with the transport.
  CudaBackend(CudaBackendOptions options, std::shared_ptr<cuda::FailureCell> failure,
              std::unique_ptr<cuda::Transport> transport);
  ~CudaBackend() override;

  int device() const noexcept;
  std::int64_t rank() const noexcept;
  /// For kernels of the caller's that an event of the backend must order.
  static cudaStream_t native(Stream stream) noexcept { return static_cast<cudaStream_t>(stream.handle); }
  static Stream stream_of(cudaStream_t stream) noexcept { return {stream}; }
  /// Driver objects and allocations left behind so far.
  std::int64_t abandoned() const noexcept;

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
  /// Thread-local: see cuda/capture.hpp.
  void begin_capture(Stream stream) override;
  Graph end_capture(Stream stream) override;
  void abort_capture() noexcept override;
  void launch(Graph graph, Stream stream) override;
  void destroy_graph(Graph graph) noexcept override;
  const BackendFailure* failure() const noexcept override;
  void synchronize(Stream stream, std::chrono::milliseconds limit) override;
  /// Streams of the caller's included.
  bool synchronize_all(std::chrono::milliseconds limit) noexcept override;
  void abort(std::string_view reason) noexcept override;
  /// Operations in graphs are reported as one span a launch. Spans arrive from `synchronize` and `set_trace`.
  void set_trace(TraceSink* sink) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gtp
