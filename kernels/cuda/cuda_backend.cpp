// Streams, events, operations and graphs. Memory, waiting and giving up are in cuda_backend_life.cpp.
#include "kernels/cuda/cuda_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/cuda/cuda_backend_impl.hpp"
#include "kernels/cuda/reduce_kernels.hpp"

namespace gtp {

namespace {

using cuda::BackendEvent;
using cuda::BackendGraph;
using cuda::CollectiveKind;
using cuda::cuda_check;

cudaStream_t in(Stream stream) noexcept { return static_cast<cudaStream_t>(stream.handle); }
BackendEvent& in(Event event) noexcept { return *static_cast<BackendEvent*>(event.handle); }
BackendGraph& in(Graph graph) noexcept { return *static_cast<BackendGraph*>(graph.handle); }

std::int64_t elements(std::size_t count) noexcept { return static_cast<std::int64_t>(count); }

[[noreturn]] void refuse_capture(std::string text) {
  throw RuntimeError(RuntimeStatus::kCaptureFailed, std::move(text));
}

/// Some statuses leave the backend as it was: the caller asked for what cannot be.
bool is_refusal(RuntimeStatus status) noexcept {
  return status == RuntimeStatus::kInvalidUse || status == RuntimeStatus::kInvalidPlan ||
         status == RuntimeStatus::kOutOfMemory || status == RuntimeStatus::kCaptureFailed;
}

}  // namespace

std::string_view CudaBackend::Impl::name_of(cudaStream_t stream) const noexcept {
  const auto known = std::ranges::find_if(streams, [&](const auto& each) { return each.stream.get() == stream; });
  return known != streams.end() ? std::string_view(known->name) : std::string_view("caller's");
}

void CudaBackend::Impl::operation_failed(std::string_view name, OpLabel label, std::string_view group, bool captured,
                                         const RuntimeError& error) {
  failure->check();
  const std::string over = group.empty() ? "" : fmt::format(" over group {}", group);
  std::string text = fmt::format("rank {}: {} of `{}`{}: {}", options.rank, name, label.weight, over, error.text());
  if (captured) {
    capture.note_error(text);
    refuse_capture(std::move(text));
  }
  if (!is_refusal(error.status())) give_up(error.status(), text);
  throw RuntimeError(error.status(), std::move(text));
}

Stream CudaBackend::create_stream(std::string_view name, StreamPriority priority) {
  const cuda::DeviceScope scope(impl_->options.device);
  int lowest = 0;
  int highest = 0;
  cuda_check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "asking for stream priorities");
  impl_->streams.push_back({cuda::make_stream(priority == StreamPriority::kHighest ? highest : 0), std::string(name)});
  return {impl_->streams.back().stream.get()};
}

void CudaBackend::destroy_stream(Stream stream) noexcept {
  impl_->transport->flush();
  std::erase_if(impl_->streams, [&](const auto& each) { return each.stream.get() == in(stream); });
}

Event CudaBackend::create_event(EventKind kind) {
  const cuda::DeviceScope scope(impl_->options.device);
  auto made = std::make_unique<BackendEvent>();
  made->event = cuda::make_marker();
  made->kind = kind;
  return {made.release()};
}

void CudaBackend::destroy_event(Event event) noexcept { delete static_cast<BackendEvent*>(event.handle); }

void CudaBackend::record(Event handle, Stream stream) {
  BackendEvent& event = in(handle);
  const bool captured = impl_->captures(in(stream));
  unsigned flags = cudaEventRecordDefault;
  if (captured) {
    if (event.kind == EventKind::kExternal) flags = cudaEventRecordExternal;
    // To ask a captured event would end the capture: whoever keeps this one shall not meet it there.
    if (event.event.use_count() > 1) event.event = cuda::make_marker();
  }
  const cudaError_t error = event.event->record(in(stream), flags);
  if (error != cudaSuccess) [[unlikely]] {
    impl_->operation("record", {}, "", in(stream), [&](bool) { cuda_check(error, "recording an event"); });
  }
  event.capture = captured && event.kind == EventKind::kInternal ? impl_->capture.number() : 0;
  event.recorded = true;
  if (!captured) impl_->transport->recorded(event.event, in(stream));
}

void CudaBackend::wait(Stream stream, Event handle) {
  const BackendEvent& event = in(handle);
  const bool internal = event.kind == EventKind::kInternal;
  unsigned flags = cudaEventWaitDefault;
  if (impl_->capture.active()) {
    const bool captured_here = internal && event.capture == impl_->capture.number();
    const bool captures = captured_here || impl_->capture.has(in(stream));
    if (captures && internal && event.recorded && !captured_here) {
      refuse_capture(fmt::format("stream {} waits in a capture for an internal event that was recorded outside it",
                                 impl_->name_of(in(stream))));
    }
    if (captures && !internal) flags = cudaEventWaitExternal;
    if (captured_here) impl_->capture.note_joined(in(stream), impl_->name_of(in(stream)));
    if (captures && internal && !event.recorded) return;
  } else if (event.capture != 0) {
    refuse_capture(fmt::format("stream {} waits for an internal event that was recorded in a capture",
                               impl_->name_of(in(stream))));
  }
  const cudaError_t error = cudaStreamWaitEvent(in(stream), event.event->event.get(), flags);
  if (error != cudaSuccess) [[unlikely]] {
    impl_->operation("wait", {}, "", in(stream), [&](bool) { cuda_check(error, "waiting for an event"); });
  }
}

void CudaBackend::Impl::collective(CollectiveKind kind, std::span<const CollectivePart> parts, ElementType type,
                                   Communicator communicator, Stream stream, OpLabel label) {
  const std::string_view name = cuda::collective_name(kind);
  const std::string_view group = transport->group_of(communicator);
  operation(name, label, group, in(stream), [&](bool captured) {
    transport->run({kind, parts, type, communicator, in(stream), label, captured});
    if (!captured) return;
    if (captured_collectives++ == 0) captured_summary = fmt::format("{} of `{}` over {}", name, label.weight, group);
  });
}

void CudaBackend::all_gather(std::span<const CollectivePart> parts, ElementType type, Communicator communicator,
                             Stream stream, OpLabel label) {
  impl_->collective(CollectiveKind::kAllGather, parts, type, communicator, stream, label);
}
void CudaBackend::reduce_scatter(std::span<const CollectivePart> parts, ElementType type, Communicator communicator,
                                 Stream stream, OpLabel label) {
  impl_->collective(CollectiveKind::kReduceScatter, parts, type, communicator, stream, label);
}
void CudaBackend::all_to_all(std::span<const CollectivePart> parts, ElementType type, Communicator communicator,
                             Stream stream, OpLabel label) {
  impl_->collective(CollectiveKind::kAllToAll, parts, type, communicator, stream, label);
}
void CudaBackend::all_reduce(std::span<const CollectivePart> parts, ElementType type, Communicator communicator,
                             Stream stream, OpLabel label) {
  impl_->collective(CollectiveKind::kAllReduce, parts, type, communicator, stream, label);
}

void CudaBackend::fill(void* data, std::uint8_t byte, std::size_t bytes, Stream stream, OpLabel label) {
  impl_->operation("fill", label, "", in(stream),
                   [&](bool) { cuda_check(cudaMemsetAsync(data, byte, bytes, in(stream)), "cudaMemsetAsync"); });
}

void CudaBackend::copy(void* destination, ElementType destination_type, const void* source, ElementType source_type,
                       std::size_t count, Stream stream, OpLabel label) {
  impl_->operation("copy", label, "", in(stream), [&](bool) {
    cuda::copy(destination, destination_type, source, source_type, elements(count), in(stream));
  });
}

void CudaBackend::scale(void* data, ElementType type, std::size_t count, float factor, Stream stream, OpLabel label) {
  impl_->operation("scale", label, "", in(stream),
                   [&](bool) { cuda::scale(data, type, elements(count), factor, in(stream)); });
}

void CudaBackend::add_into(void* destination, ElementType destination_type, const void* source, ElementType source_type,
                           std::size_t count, float factor, Stream stream, OpLabel label) {
  impl_->operation("add", label, "", in(stream), [&](bool) {
    cuda::add_into(destination, destination_type, source, source_type, elements(count), factor, in(stream));
  });
}

void CudaBackend::sum_chunks_into(void* destination, ElementType destination_type, const void* source,
                                  ElementType source_type, std::size_t count, std::size_t chunks, float factor,
                                  Stream stream, OpLabel label) {
  impl_->operation("sum-chunks", label, "", in(stream), [&](bool) {
    cuda::sum_chunks_into(destination, destination_type, source, source_type, elements(count), elements(chunks), factor,
                          in(stream));
  });
}

void CudaBackend::host_function(void (*function)(void*), void* argument, Stream stream, OpLabel label) {
  impl_->operation("host-function", label, "", in(stream),
                   [&](bool) { cuda_check(cudaLaunchHostFunc(in(stream), function, argument), "cudaLaunchHostFunc"); });
}

void CudaBackend::begin_capture(Stream stream) {
  impl_->failure->check();
  impl_->transport->flush();
  impl_->capture.begin(in(stream));
  impl_->captured_summary.clear();
  impl_->captured_collectives = 0;
}

Graph CudaBackend::end_capture(Stream stream) {
  auto made = std::make_unique<BackendGraph>();
  made->exec = impl_->capture.end(in(stream));
  if (impl_->captured_collectives > 0) {
    made->summary =
        fmt::format("{} (and {} more in its graph)", impl_->captured_summary, impl_->captured_collectives - 1);
  }
  return {made.release()};
}

void CudaBackend::abort_capture() noexcept { impl_->capture.abort(); }

void CudaBackend::launch(Graph graph, Stream stream) {
  BackendGraph& replayed = in(graph);
  impl_->operation("graph", {replayed.summary, ""}, "", in(stream), [&](bool captured) {
    cuda_check(cudaGraphLaunch(replayed.exec.get(), in(stream)), "cudaGraphLaunch");
    if (!captured && !replayed.summary.empty()) impl_->transport->launched(replayed.summary, in(stream));
  });
}

void CudaBackend::destroy_graph(Graph graph) noexcept {
  const std::unique_ptr<BackendGraph> owner(static_cast<BackendGraph*>(graph.handle));
  if (owner == nullptr || impl_->may_free()) return;
  owner->exec.release();
  ++impl_->abandoned;
}

}  // namespace gtp
