// One process per rank over Gloo (TCP), streams as threads: the runtime on CPUs of one or many hosts, started by
// torchrun or anything that sets the same variables. Sums are made in fp32 in order of rank and rounded once.
//
//   GlooWorld world = GlooWorld::from_environment();
//   Runtime gtp(world.backend(), topology, world.rank());
//
// Every wait has a limit. When a process dies, its peers' pending collectives fail with an error that names this rank,
// the operation, its group and who is gone.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>

#include "kernels/backend.hpp"
#include "kernels/host_backend.hpp"
#include "kernels/job_environment.hpp"

namespace gtp {

struct GlooConfig : JobEnvironment {
  /// Of each collective, and of each step of starting up.
  std::chrono::milliseconds time_limit{60000};
};

class GlooBackend;

/// The job as one of its processes sees it. All processes construct it; it returns when all have arrived.
class GlooWorld {
 public:
  /// Throws kInvalidPlan, or kTimeout naming the ranks that did not arrive.
  explicit GlooWorld(GlooConfig config);
  static GlooWorld from_environment(std::chrono::milliseconds time_limit = std::chrono::milliseconds(60000));
  GlooWorld(GlooWorld&&) noexcept;
  /// Rank 0 stays until its peers have left too, at most the time limit.
  ~GlooWorld();

  std::int64_t rank() const noexcept;
  std::int64_t size() const noexcept;
  std::int64_t local_rank() const noexcept;
  GlooBackend& backend() noexcept;

 private:
  friend class GlooBackend;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Owned by its world. `register_window` registers nothing.
class GlooBackend final : public Backend {
 public:
  explicit GlooBackend(GlooWorld::Impl& world);
  ~GlooBackend() override;

  /// A kernel, as HostBackend::enqueue; accesses are not checked.
  void enqueue(Stream stream, OpLabel label, std::initializer_list<Access> accesses, std::function<void()> body);
  void enqueue(Stream stream, OpLabel label, std::span<const Access> accesses, std::function<void()> body);
  /// Waits until every rank has called it as often; kTimeout at the time limit.
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
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gtp
