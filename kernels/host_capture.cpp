#include "kernels/host_capture.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gtp::host {

void Capture::add(VirtualStream& stream, Op op) {
  step(stream);
  graph_->nodes.push_back({&stream, std::move(op), nullptr, 0, false});
}

void Capture::record(HostEvent& event, VirtualStream& stream) {
  Op op;
  op.type = OpType::kRecord;
  op.name = host_op::kRecord;
  if (event.kind == EventKind::kExternal) {
    step(stream);
    graph_->nodes.push_back({&stream, std::move(op), &event, 0, false});
    return;
  }
  event.capture = number_;
  event.captured_record = graph_->edges;
  event.captured_only = true;
  edges_.push_back(places_[&stream]);
  graph_->nodes.push_back({&stream, std::move(op), nullptr, graph_->edges++, true});
}

void Capture::wait(VirtualStream& stream, HostEvent& event) {
  Op op;
  op.type = OpType::kWait;
  op.name = host_op::kWait;
  if (event.kind == EventKind::kExternal) {
    step(stream);
    graph_->nodes.push_back({&stream, std::move(op), &event, 0, false});
    return;
  }
  if (event.capture != number_ || !event.captured_only) {
    throw RuntimeError(
        RuntimeStatus::kCaptureFailed,
        fmt::format("stream {} waits in a capture for an internal event that was recorded outside it", stream.name));
  }
  join(stream);
  Progress& place = places_[&stream];
  for (const auto& [other, count] : edges_[event.captured_record]) {
    std::size_t& known = place[other];
    known = std::max(known, count);
  }
  graph_->nodes.push_back({&stream, std::move(op), nullptr, event.captured_record, true});
}

std::unique_ptr<HostGraph> Capture::finish() {
  const Progress& origin = places_[origin_];
  for (const auto& [stream, place] : places_) {
    const auto own = place.find(stream);
    if (stream == origin_ || own == place.end()) continue;
    const auto known = origin.find(stream);
    if (known == origin.end() || known->second < own->second) {
      throw RuntimeError(RuntimeStatus::kCaptureFailed,
                         fmt::format("stream {} joined the capture and was not joined back", stream->name));
    }
  }
  return std::move(graph_);
}

}  // namespace gtp::host
