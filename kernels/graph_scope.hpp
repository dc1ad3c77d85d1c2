// What one captured graph touches: the weights it reads ahead or reduces, the wgrad slots its replays write, the
// buckets that must be published before it runs. Made and driven by Runtime; see runtime.hpp for the calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/sharded_weight.hpp"

namespace gtp {

/// Owned by the runtime, at a stable address; all members are read-only for callers.
struct GraphScope {
  std::string name;
  std::uint64_t capture = 0;  ///< Number of the capture, from 1.
  Stream origin{};
  Graph graph{};  ///< Null until end_capture, and after a capture that failed.
  /// Recorded by each replay once compute and gathers are done: the next graph may start, reductions may still run.
  Event completion{};

  /// A send buffer of gradients that this graph writes. `ready`: the last reduction has finished reading it.
  struct WgradSlot {
    const void* data = nullptr;
    Event ready{};
    const ShardedWeight* weight = nullptr;
  };
  std::vector<WgradSlot> slots;
  std::vector<ReadyBucket> forward_reads;
  std::vector<ShardedWeight*> gathered;
  std::vector<ShardedWeight*> reduced;
  std::vector<Stream> joined;
  bool replayed = false;
};

}  // namespace gtp
