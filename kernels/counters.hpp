// What a runtime has done so far. Plain numbers, read at any time from the thread that drives the runtime.
#pragma once

#include <cstdint>

namespace gtp {

/// One gather, reduce-scatter or finalize of a weight counts once, however many experts or components it has.
struct Counters {
  std::int64_t consumes = 0;
  std::int64_t gathers = 0;             ///< Issued in all: prefetched + head + recording + on-demand.
  std::int64_t prefetched_gathers = 0;  ///< Issued ahead of their consume.
  std::int64_t head_gathers = 0;        ///< First of a pass along a chain: nobody could have issued it earlier.
  std::int64_t recording_gathers = 0;   ///< While the chain was being recorded.
  std::int64_t on_demand_gathers = 0;   ///< The rest: a second consume in one pass, another order than the chain's.
  std::int64_t stale_gathers = 0;       ///< Prefetched before a `publish`, thrown away.
  std::int64_t gathered_bytes = 0;      ///< This rank's contribution to all-gathers.
  std::int64_t reduce_scatters = 0;
  std::int64_t fp32_reduce_scatters = 0;  ///< Of them, as all-to-all with a local fp32 sum.
  std::int64_t reduced_bytes = 0;         ///< This rank's input of reduce-scatters.
  std::int64_t finalizes = 0;
  std::int64_t deferred_finalizes = 0;  ///< Of them, by the predecessor's `reduce_grad`.
  std::int64_t copied_wgrads = 0;       ///< Gradients that came from elsewhere than `grad_buffer`.
  std::int64_t replicated_reductions = 0;
  std::int64_t param_ready_calls = 0;
  std::int64_t grad_ready_calls = 0;
  std::int64_t buffer_allocations = 0;
  std::int64_t buffer_bytes = 0;   ///< Allocated now.
  std::int64_t buffer_spills = 0;  ///< A buffer was taken beside the reserved one, which was still in use.
  std::int64_t captures = 0;
  std::int64_t replays = 0;

  friend bool operator==(const Counters&, const Counters&) = default;
};

}  // namespace gtp
