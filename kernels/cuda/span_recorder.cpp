#include "kernels/cuda/span_recorder.hpp"

namespace gtp::cuda {

namespace {

UniqueEvent timed_event() {
  cudaEvent_t event = nullptr;
  cuda_check(cudaEventCreate(&event), "creating an event for a trace");
  return UniqueEvent(event);
}

}  // namespace

void SpanRecorder::attach(TraceSink* sink) {
  if (sink_ != nullptr) report();
  spans_.clear();
  sink_ = sink;
  if (sink == nullptr) return;
  clock_ = make_stream();
  origin_ = timed_event();
  cuda_check(cudaEventRecord(origin_.get(), clock_.get()), "starting a trace");
}

UniqueEvent SpanRecorder::event() {
  if (spare_.empty()) return timed_event();
  UniqueEvent event = std::move(spare_.back());
  spare_.pop_back();
  return event;
}

void SpanRecorder::begin(std::string_view lane, std::string_view operation, std::string_view weight,
                         std::string_view group, cudaStream_t stream) {
  Span& span = spans_.emplace_back();
  span.start = event();
  span.stop = event();
  span.lane = lane;
  span.operation = operation;
  span.weight = weight;
  span.group = group;
  cuda_check(cudaEventRecord(span.start.get(), stream), "tracing");
}

void SpanRecorder::end(cudaStream_t stream) {
  if (spans_.empty() || spans_.back().ended) return;
  cuda_check(cudaEventRecord(spans_.back().stop.get(), stream), "tracing");
  spans_.back().ended = true;
}

std::int64_t SpanRecorder::microseconds(const UniqueEvent& event) const {
  float milliseconds = 0;
  cuda_check(cudaEventElapsedTime(&milliseconds, origin_.get(), event.get()), "reading a trace");
  return static_cast<std::int64_t>(static_cast<double>(milliseconds) * 1000.0);
}

void SpanRecorder::report() {
  while (sink_ != nullptr && !spans_.empty()) {
    Span& span = spans_.front();
    const cudaError_t state = span.ended ? cudaEventQuery(span.stop.get()) : cudaSuccess;
    if (state == cudaErrorNotReady) {
      cudaGetLastError();
      return;
    }
    cuda_check(state, "reading a trace");
    if (span.ended) {
      sink_->span({rank_, span.lane, span.operation, span.weight, span.group, microseconds(span.start),
                   microseconds(span.stop)});
    }
    spare_.push_back(std::move(span.start));
    spare_.push_back(std::move(span.stop));
    spans_.pop_front();
  }
}

}  // namespace gtp::cuda
