// Stream capture of the host backend: which streams joined, what they recorded, and the graph that results. It enforces
// what CUDA does: no dependency on work outside, and every joined stream joined back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/host_stream.hpp"

namespace gtp::host {

/// One recorded operation. Records and waits of internal events are edges, numbered by the record.
struct GraphNode {
  VirtualStream* stream = nullptr;
  Op op;
  HostEvent* external = nullptr;
  std::size_t edge = 0;
  bool is_edge = false;
};

struct HostGraph {
  std::vector<GraphNode> nodes;
  std::size_t edges = 0;
  /// A stream of the graph's own for each one that was captured.
  std::map<VirtualStream*, VirtualStream*> lanes;
};

class Capture {
 public:
  Capture(std::uint64_t number, VirtualStream& origin) : number_(number), origin_(&origin) { join(origin); }

  std::uint64_t number() const noexcept { return number_; }
  const VirtualStream& origin() const noexcept { return *origin_; }
  bool has(const VirtualStream& stream) const noexcept { return places_.contains(&stream); }
  std::vector<GraphNode>& nodes() noexcept { return graph_->nodes; }

  void add(VirtualStream& stream, Op op);
  void record(HostEvent& event, VirtualStream& stream);
  /// Throws kCaptureFailed for an internal event from outside.
  void wait(VirtualStream& stream, HostEvent& event);
  /// Throws kCaptureFailed, naming a stream that was not joined back.
  std::unique_ptr<HostGraph> finish();

 private:
  /// How far each stream has got, as known to one of them.
  using Progress = std::map<const VirtualStream*, std::size_t>;

  void join(VirtualStream& stream) { places_[&stream]; }
  void step(VirtualStream& stream) { ++places_[&stream][&stream]; }

  std::uint64_t number_;
  VirtualStream* origin_;
  std::unique_ptr<HostGraph> graph_ = std::make_unique<HostGraph>();
  std::map<const VirtualStream*, Progress> places_;
  std::vector<Progress> edges_;
};

}  // namespace gtp::host
