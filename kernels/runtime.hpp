// Runs GTP on one rank: materializes weights ahead of their GEMMs, reduces their gradients behind, finalizes late.
// It knows no model, no GEMM and no optimizer, and holds no process-global state: several runtimes may live at once.
//
//   HostBackend or CUDA backend b;              // one per rank
//   Runtime gtp(b, topology, rank, options);    // same order of calls on every rank from here on
//   ShardedWeight& w = gtp.add_weight({...});   // then, per microbatch:
//   const GatheredView& v = gtp.materialize(w, Use::kForward, stream)[0];   // ... enqueue the GEMM that reads v
//   gtp.materialize(w, Use::kDgrad, stream);                                // ... enqueue the dgrad GEMM
//   gtp.grad_buffer(w, stream)[0];                                          // ... enqueue the wgrad GEMM into it
//   gtp.reduce_grad(w, stream);
//   gtp.fence_grads(stream);                    // per step: main_grad is final; reduce over replicate DP, optimize
//   gtp.publish(w, stream);                     // the optimizer rewrote the shard
//
// Rules of use. Every rank of a group makes the same calls in the same order. All calls come from one thread at a time;
// a call enqueues and returns, it never waits for the device. A view may be read by work that is enqueued on the same
// compute stream before the next materialize with that stream; `hold` lengthens that. After a RuntimeError other than
// kInvalidUse and kCaptureFailed the runtime is dead: every call throws it again, and only destruction is left.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/buffer_cache.hpp"
#include "kernels/counters.hpp"
#include "kernels/graph_scope.hpp"
#include "kernels/group.hpp"
#include "kernels/prefetch_chain.hpp"
#include "kernels/sharded_weight.hpp"

namespace gtp {

/// Names are Megatron's where Megatron has the option.
struct RuntimeOptions {
  std::uint32_t prefetch_depth = 1;  ///< Weights gathered ahead; needs one buffer more per shape. 0: on demand.
  bool async_reduction = true;       ///< False: reduce_grad finalizes at once (still without waiting for the device).
  /// Gradients sum over the group instead of averaging; the caller divides by its global number of tokens.
  bool calculate_per_token_loss = false;
  /// Reductions of more than two bf16 shards become an all-to-all with a local fp32 sum.
  bool gtp_remat_reduce_scatter_with_fp32_accumulation = false;
  /// Wgrad send buffers, dense and expert, come from a symmetric window: reductions add in fp32 in the switch. Goes
  /// before fp32 accumulation.
  bool gtp_remat_nccl_ub = false;
  bool gtp_expert_remat_nccl_ub = false;
  /// Gather outputs are windows too (all-gathers without SMs).
  bool register_gather_outputs = false;
  std::uint32_t graph_wgrad_ring_size = 2;  ///< Wgrad send buffers per shape.
  /// Bytes of released buffers become NaN, in stream order: for tests.
  bool poison_free_buffers = false;
  /// The longest that destruction waits for the device before it aborts.
  std::chrono::milliseconds teardown_limit{60000};
};

/// A parameter that every rank of the group holds whole (norm, bias, router): its gradient is completed over the group.
struct ReplicatedSpec {
  std::string name;
  WeightDomain domain = WeightDomain::kDense;
  void* main_grad = nullptr;
  ElementType main_grad_type = ElementType::kFloat32;
  std::size_t count = 0;
};

/// A wgrad that was not written into grad_buffer, [rows, cols] of the weight.
struct ForeignWgrad {
  const void* data = nullptr;
  ElementType type = ElementType::kFloat32;
};

class Runtime {
 public:
  /// Makes the groups `gtp_remat` and `expt_gtp_remat` of `rank`: collective. Throws kInvalidPlan if the topology's
  /// sizes do not make up its world or the rank is outside. The backend must outlive the runtime.
  Runtime(Backend& backend, const Topology& topology, std::int64_t rank, RuntimeOptions options = {},
          MemoryCallbacks memory = {});
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  /// Drains the device, or aborts it at `teardown_limit`; then graphs, windows, buffers, communicators go, in this
  /// order. The runtime's weights and views are dead afterwards.
  ~Runtime();

  const RuntimeOptions& options() const noexcept;
  const Group& group(WeightDomain domain) const noexcept;

  // --- registration: before the first step ---------------------------------------------------------------------------

  /// `param_ready(stream)` must see to it, by what it enqueues on `stream`, that later work of that stream reads the
  /// published parameters of the bucket. Called once per publish of a weight in it, before the first forward gather;
  /// never in backward, recompute or capture.
  ReadyBucket add_ready_bucket(std::function<void(Stream)> param_ready);
  /// Throws kInvalidPlan, naming the weight, if layout, shards and group do not fit together.
  ShardedWeight& add_weight(WeightSpec spec);
  void add_replicated(ReplicatedSpec spec);

  /// The forward (or recompute) order of the chain that these weights belong to, instead of recording it in pass 1.
  /// Seals it. Throws kInvalidUse if the weights are of different chains or the chain is sealed.
  void declare_chain(std::span<ShardedWeight* const> order, bool recompute = false);
  /// Ends recording. Happens by itself: forward at the first dgrad of the chain, both at fence_grads.
  void seal_chains() noexcept;
  /// The chains so far, in order of creation.
  std::vector<const PrefetchChain*> chains() const;

  // --- each microbatch -----------------------------------------------------------------------------------------------

  /// One view per shard of the weight. Work enqueued on `compute` from now on may read them (see the rules of use).
  /// Gathers the weight now if nobody did ahead, then gathers what comes next. The span is valid until the next
  /// materialize of this weight.
  std::span<const GatheredView> materialize(ShardedWeight& weight, Use use, Stream compute);
  /// Keeps the views of the latest materialize valid until `release`, which is called once the last reader was enqueued
  /// on `compute`.
  void hold(ShardedWeight& weight, Use use);
  void release(ShardedWeight& weight, Use use, Stream compute);

  /// One view per shard, to be written wholly (unless `accumulate`) by work enqueued on `compute`. Throws kInvalidUse
  /// for a frozen weight, or if the previous buffer has not been reduced.
  std::span<const WgradView> grad_buffer(ShardedWeight& weight, Stream compute);
  /// Reduces what was written into grad_buffer; adds it to main_grad when the predecessor in the chain reduces, or at
  /// fence_grads. In a group of one it only reports grad_ready.
  void reduce_grad(ShardedWeight& weight, Stream compute);
  /// The same for gradients that lie elsewhere, one per shard: they are copied into the send buffer on `compute`.
  void reduce_grad(ShardedWeight& weight, std::span<const ForeignWgrad> wgrads, Stream compute);
  /// Memory of the shape of a shard, in the wire type, for frameworks that insist on a gradient to return; shared, and
  /// zeroed on `compute` first if the weight has zero_out_wgrad.
  void* dummy_wgrad(ShardedWeight& weight, Stream compute);

  // --- each step -----------------------------------------------------------------------------------------------------

  /// Finalizes every outstanding reduction (of one chain), then makes `stream` wait for all of them, and for all
  /// gathers: afterwards the caller may read main_grad and rewrite shards there. Ends recording and passes.
  void fence_grads(Stream stream, const PrefetchChain* chain = nullptr);
  /// All-reduces the gradients of replicated parameters over their group, average or sum as the options say.
  void reduce_replicated_grads(Stream stream);
  /// What a replicate-DP reduction multiplies by so that, after the runtime's share, the mean over all samples results:
  /// 1 / replicate DP, or 1 with calculate_per_token_loss.
  float gradient_scaling_factor(WeightDomain domain) const noexcept;
  /// Shards were rewritten by work already on `stream`, or will be published by their bucket's param_ready. Gathers
  /// that are under way are thrown away.
  void publish(std::span<ShardedWeight* const> weights, Stream stream);
  void publish(ShardedWeight& weight, Stream stream);

  // --- graphs --------------------------------------------------------------------------------------------------------

  /// Eager passes follow for their allocations only. Until end_warmup grad_ready is silent; end_warmup then drains what
  /// is under way and puts back every main_grad that was added to, bit for bit. Throws kInvalidUse if a reduction is
  /// outstanding. Gradients must be final on `stream`, and are again afterwards.
  void begin_warmup(Stream stream);
  void end_warmup(Stream stream);

  /// Records the calls for weights of graphed chains until end_capture; others must not be used. Throws kCaptureFailed,
  /// naming the weight, if an eager gather or reduction of a graphed weight is outstanding: replays would not repeat
  /// it.
  GraphScope& begin_capture(std::string name, Stream stream);
  /// Joins the streams this capture used, gathers first, reductions after the completion event. Throws kCaptureFailed
  /// naming the limit that was hit; the runtime stays usable.
  void end_capture(GraphScope& scope);
  /// Drops a capture, after an error of the caller's. Also done by destruction.
  void abort_capture(GraphScope& scope) noexcept;
  /// On `stream`: publishes the buckets that the graph reads in forward, and waits until its wgrad slots are free and
  /// the graphs before it have completed.
  void before_replay(GraphScope& scope, Stream stream);
  /// before_replay, then the graph.
  void replay(GraphScope& scope, Stream stream);

  // --- observation ---------------------------------------------------------------------------------------------------

  /// Brought up to date by the call; the reference stays valid.
  const Counters& counters() const noexcept;
  const BufferCache& buffers() const noexcept;
  /// The chains as linked: one table a chain, one line a weight with shape, format, buffer slots.
  std::string chain_table() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gtp
