// A backend that passes every call on to a CudaBackend, times those a gather consists of, and knows which streams and
// communicators the runtime has: to see where the time of a consume goes, and to do the same by hand on the same
// objects.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_backend.hpp"

namespace cuda_bench {

using HostClock = std::chrono::steady_clock;

/// The host times of one call, made again and again.
struct CallTimes {
  std::vector<double> microseconds;
  void add(HostClock::time_point from) {
    microseconds.push_back(std::chrono::duration<double, std::micro>(HostClock::now() - from).count());
  }
};

/// Of one gather.
struct GatherCalls {
  CallTimes record_reader, wait_reader, gather, record_ready, wait_ready;
};

class TimedBackend final : public gtp::Backend {
 public:
  explicit TimedBackend(gtp::CudaBackend& inner) : inner_(inner) {}

  /// Into which calls are timed from now on; nullptr: none are.
  void time_into(GatherCalls* calls) noexcept { calls_ = calls; }
  gtp::Stream gather_stream() const noexcept { return gather_stream_; }
  gtp::Communicator gather_communicator() const noexcept { return gather_communicator_; }

  gtp::Stream create_stream(std::string_view name, gtp::StreamPriority priority) override {
    const gtp::Stream made = inner_.create_stream(name, priority);
    if (gather_stream_.handle == nullptr && name.starts_with("gather gtp_remat")) gather_stream_ = made;
    return made;
  }
  void destroy_stream(gtp::Stream stream) noexcept override { inner_.destroy_stream(stream); }
  gtp::Event create_event(gtp::EventKind kind) override { return inner_.create_event(kind); }
  void destroy_event(gtp::Event event) noexcept override { inner_.destroy_event(event); }
  void record(gtp::Event event, gtp::Stream stream) override {
    if (calls_ == nullptr) return inner_.record(event, stream);
    CallTimes& times = stream == gather_stream_ ? calls_->record_ready : calls_->record_reader;
    timed(times, [&] { inner_.record(event, stream); });
  }
  void wait(gtp::Stream stream, gtp::Event event) override {
    if (calls_ == nullptr) return inner_.wait(stream, event);
    CallTimes& times = stream == gather_stream_ ? calls_->wait_reader : calls_->wait_ready;
    timed(times, [&] { inner_.wait(stream, event); });
  }
  void* allocate(std::size_t bytes, gtp::MemoryKind kind) override { return inner_.allocate(bytes, kind); }
  void deallocate(void* data, std::size_t bytes, gtp::MemoryKind kind) noexcept override {
    inner_.deallocate(data, bytes, kind);
  }
  gtp::Communicator create_communicator(const gtp::CommunicatorSpec& spec) override {
    const gtp::Communicator made = inner_.create_communicator(spec);
    const bool gathers = spec.purpose == gtp::CommunicatorPurpose::kGather && spec.group == "gtp_remat";
    if (gathers) gather_communicator_ = made;
    return made;
  }
  void destroy_communicator(gtp::Communicator over) noexcept override { inner_.destroy_communicator(over); }
  void* register_window(gtp::Communicator over, void* data, std::size_t bytes) override {
    return inner_.register_window(over, data, bytes);
  }
  void deregister_window(gtp::Communicator over, void* window) noexcept override {
    inner_.deregister_window(over, window);
  }
  void all_gather(std::span<const gtp::CollectivePart> parts, gtp::ElementType type, gtp::Communicator over,
                  gtp::Stream stream, gtp::OpLabel label) override {
    if (calls_ == nullptr) return inner_.all_gather(parts, type, over, stream, label);
    timed(calls_->gather, [&] { inner_.all_gather(parts, type, over, stream, label); });
  }
  void reduce_scatter(std::span<const gtp::CollectivePart> parts, gtp::ElementType type, gtp::Communicator over,
                      gtp::Stream stream, gtp::OpLabel label) override {
    inner_.reduce_scatter(parts, type, over, stream, label);
  }
  void all_to_all(std::span<const gtp::CollectivePart> parts, gtp::ElementType type, gtp::Communicator over,
                  gtp::Stream stream, gtp::OpLabel label) override {
    inner_.all_to_all(parts, type, over, stream, label);
  }
  void all_reduce(std::span<const gtp::CollectivePart> parts, gtp::ElementType type, gtp::Communicator over,
                  gtp::Stream stream, gtp::OpLabel label) override {
    inner_.all_reduce(parts, type, over, stream, label);
  }
  void fill(void* data, std::uint8_t byte, std::size_t bytes, gtp::Stream stream, gtp::OpLabel label) override {
    inner_.fill(data, byte, bytes, stream, label);
  }
  void copy(void* to, gtp::ElementType to_type, const void* from, gtp::ElementType from_type, std::size_t count,
            gtp::Stream stream, gtp::OpLabel label) override {
    inner_.copy(to, to_type, from, from_type, count, stream, label);
  }
  void scale(void* data, gtp::ElementType type, std::size_t count, float factor, gtp::Stream stream,
             gtp::OpLabel label) override {
    inner_.scale(data, type, count, factor, stream, label);
  }
  void add_into(void* to, gtp::ElementType to_type, const void* from, gtp::ElementType from_type, std::size_t count,
                float factor, gtp::Stream stream, gtp::OpLabel label) override {
    inner_.add_into(to, to_type, from, from_type, count, factor, stream, label);
  }
  void sum_chunks_into(void* to, gtp::ElementType to_type, const void* from, gtp::ElementType from_type,
                       std::size_t count, std::size_t chunks, float factor, gtp::Stream stream,
                       gtp::OpLabel label) override {
    inner_.sum_chunks_into(to, to_type, from, from_type, count, chunks, factor, stream, label);
  }
  void host_function(void (*function)(void*), void* argument, gtp::Stream stream, gtp::OpLabel label) override {
    inner_.host_function(function, argument, stream, label);
  }
  void begin_capture(gtp::Stream stream) override { inner_.begin_capture(stream); }
  gtp::Graph end_capture(gtp::Stream stream) override { return inner_.end_capture(stream); }
  void abort_capture() noexcept override { inner_.abort_capture(); }
  void launch(gtp::Graph graph, gtp::Stream stream) override { inner_.launch(graph, stream); }
  void destroy_graph(gtp::Graph graph) noexcept override { inner_.destroy_graph(graph); }
  const gtp::BackendFailure* failure() const noexcept override { return inner_.failure(); }
  void synchronize(gtp::Stream stream, std::chrono::milliseconds limit) override { inner_.synchronize(stream, limit); }
  bool synchronize_all(std::chrono::milliseconds limit) noexcept override { return inner_.synchronize_all(limit); }
  void abort(std::string_view reason) noexcept override { inner_.abort(reason); }
  void set_trace(gtp::TraceSink* sink) override { inner_.set_trace(sink); }

 private:
  template <class Call>
  static void timed(CallTimes& times, const Call& call) {
    const auto from = HostClock::now();
    call();
    times.add(from);
  }

  gtp::CudaBackend& inner_;
  GatherCalls* calls_ = nullptr;
  gtp::Stream gather_stream_{};
  gtp::Communicator gather_communicator_{};
};

}  // namespace cuda_bench
