// A backend that does nothing but hand out memory and distinct handles: what is left when a runtime runs on it is the
// runtime's own host cost.
#pragma once

#include <cstdint>
#include <new>

#include "kernels/backend.hpp"

namespace gtp {

class NoopBackend final : public Backend {
  using Parts = std::span<const CollectivePart>;

 public:
  Stream create_stream(std::string_view, StreamPriority) override { return {next()}; }
  void destroy_stream(Stream) noexcept override {}
  Event create_event(EventKind) override { return {next()}; }
  void destroy_event(Event) noexcept override {}
  void record(Event, Stream) override { ++calls_; }
  void wait(Stream, Event) override { ++calls_; }
  void* allocate(std::size_t bytes, MemoryKind) override {
    return ::operator new (bytes, std::align_val_t{256}, std::nothrow);
  }
  void deallocate(void* data, std::size_t, MemoryKind) noexcept override {
    ::operator delete (data, std::align_val_t{256});
  }
  Communicator create_communicator(const CommunicatorSpec&) override { return {next()}; }
  void destroy_communicator(Communicator) noexcept override {}
  void* register_window(Communicator, void*, std::size_t) override { return next(); }
  void deregister_window(Communicator, void*) noexcept override {}
  void all_gather(Parts, ElementType, Communicator, Stream, OpLabel) override { ++calls_; }
  void reduce_scatter(Parts, ElementType, Communicator, Stream, OpLabel) override { ++calls_; }
  void all_to_all(Parts, ElementType, Communicator, Stream, OpLabel) override { ++calls_; }
  void all_reduce(Parts, ElementType, Communicator, Stream, OpLabel) override { ++calls_; }
  void fill(void*, std::uint8_t, std::size_t, Stream, OpLabel) override { ++calls_; }
  void copy(void*, ElementType, const void*, ElementType, std::size_t, Stream, OpLabel) override { ++calls_; }
  void scale(void*, ElementType, std::size_t, float, Stream, OpLabel) override { ++calls_; }
  void add_into(void*, ElementType, const void*, ElementType, std::size_t, float, Stream, OpLabel) override {
    ++calls_;
  }
  void sum_chunks_into(void*, ElementType, const void*, ElementType, std::size_t, std::size_t, float, Stream,
                       OpLabel) override {
    ++calls_;
  }
  void host_function(void (*)(void*), void*, Stream, OpLabel) override { ++calls_; }
  void begin_capture(Stream) override {}
  Graph end_capture(Stream) override { return {next()}; }
  void abort_capture() noexcept override {}
  void launch(Graph, Stream) override { ++calls_; }
  void destroy_graph(Graph) noexcept override {}
  const BackendFailure* failure() const noexcept override { return nullptr; }
  void synchronize(Stream, std::chrono::milliseconds) override {}
  bool synchronize_all(std::chrono::milliseconds) noexcept override { return true; }
  void abort(std::string_view) noexcept override {}
  void set_trace(TraceSink*) override {}

  /// Operations that were enqueued.
  std::uint64_t calls() const noexcept { return calls_; }

 private:
  /// Distinct and never dereferenced.
  void* next() noexcept { return reinterpret_cast<void*>(++handles_); }

  std::uintptr_t handles_ = 0;
  std::uint64_t calls_ = 0;
};

}  // namespace gtp
