// The parts of a runtime and what they share. Private to kernels/; callers use runtime.hpp.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "kernels/prefetch_chain.hpp"
#include "kernels/runtime.hpp"
#include "kernels/weight_state.hpp"

namespace gtp::detail {

/// Parameters that are published together.
struct Bucket {
  std::function<void(Stream)> param_ready;
  bool armed = true;
  bool was_ready = false;
  Stream ready_on{};
  Event ready{};
};

/// Streams, events, memory and bookkeeping; members are destroyed from the last to the first.
struct Core {
  Core(Backend& backend_in, const Topology& topology_in, std::int64_t rank_in, RuntimeOptions options_in,
       MemoryCallbacks memory);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  /// Throws if the device, or a peer, has failed.
  void check() const;
  Event make_event(EventKind kind = EventKind::kInternal);
  CommStreams& streams_of(const Group& group, bool graphed);
  PrefetchChain& chain_of(ChainKey key);
  std::uint64_t capture() const noexcept { return scope != nullptr ? scope->capture : 0; }
  /// Throws kInvalidUse if a capture is under way that may not touch this weight.
  void require_usable(const ShardedWeight& weight) const;
  /// `stream` waits until the buffer's last reader is done.
  void wait_for_reader(const Buffer& buffer, Stream stream, bool graphed);
  /// `stream` waits for what replays have left under way on these streams.
  void wait_for_replays(CommStreams& streams, Stream stream);
  /// A side stream joins the capture that `compute` belongs to, once.
  void join_capture(Stream side, std::uint64_t& joined, Stream compute);
  /// Later writers find NaN where nothing was written: `poison_free_buffers`.
  void poison(void* data, std::size_t bytes, Stream stream, const ShardedWeight& weight);

  Backend& backend;
  Topology topology;
  std::int64_t rank;
  RuntimeOptions options;
  Counters counters;
  std::deque<Group> groups;  ///< Dense, expert.
  BufferCache cache;
  std::vector<Event> events;
  std::deque<CommStreams> streams;
  std::deque<PrefetchChain> chains;
  std::deque<ShardedWeight> weights;
  std::deque<Bucket> buckets;
  std::deque<GraphScope> scopes;
  GraphScope* scope = nullptr;  ///< Of the capture under way.
  GraphScope* last_replayed = nullptr;
  std::uint64_t captures = 0;
  bool warming = false;
  Event fork{};
};

/// Materialize ahead: gathers, views, readiness, versions.
class Gatherer {
 public:
  explicit Gatherer(Core& core) : core_(core) {}

  void prepare(ShardedWeight& weight);
  /// Slots and tickets of a weight that has got its place in a chain.
  void link(ShardedWeight& weight, bool recompute);
  std::span<const GatheredView> materialize(ShardedWeight& weight, Use use, Stream compute);
  void hold(ShardedWeight& weight, Use use);
  void release(ShardedWeight& weight, Use use, Stream compute);
  void publish(ShardedWeight& weight, Stream stream);
  /// All views whose readers were enqueued on `stream`; on any stream if null.
  void close_views(Stream stream);
  /// Forgets a gather that nobody will consume.
  void drop(ShardedWeight& weight, Use use);
  void drop_all();
  void ensure_published(ReadyBucket bucket, Stream stream);
  void forget_open() noexcept { open_.clear(); }
  BufferKey key_of(const ShardedWeight& weight, Use use, std::size_t shard) const;

 private:
  struct OpenView {
    ShardedWeight* weight;
    Use use;
  };

  std::span<const GatheredView> alias(ShardedWeight& weight, Use use, Stream compute);
  void reserve(ShardedWeight& weight, Use use);
  void issue(ShardedWeight& weight, Use use, Stream compute);
  void order_before_gather(ShardedWeight& weight, Use use, Stream compute);
  void acquire(ShardedWeight& weight, Use use);
  void fill_parts(ShardedWeight& weight, Use use);
  void zero_scale_padding(ShardedWeight& weight, Use use, Buffer& buffer);
  void count(Step step) noexcept;
  void wait_until_gathered(ShardedWeight& weight, Use use, Stream compute);
  void prefetch(ShardedWeight& weight, Use use, Stream compute);
  void close(ShardedWeight& weight, Use use, Stream stream);
  void poison(ShardedWeight& weight, Use use);

  Core& core_;
  std::vector<OpenView> open_;
};

/// Reduce behind, finalize late: gradients.
class Reducer {
 public:
  explicit Reducer(Core& core) : core_(core) {}

  void prepare(ShardedWeight& weight);
  std::span<const WgradView> grad_buffer(ShardedWeight& weight, Stream compute);
  void reduce(ShardedWeight& weight, Stream compute);
  void reduce_foreign(ShardedWeight& weight, std::span<const ForeignWgrad> wgrads, Stream compute);
  void* dummy(ShardedWeight& weight, Stream compute);
  void finalize(ShardedWeight& weight);
  void finalize_all(const PrefetchChain* chain);
  void fence(Stream stream, const PrefetchChain* chain);
  void add_replicated(ReplicatedSpec spec);
  void reduce_replicated(Stream stream);
  void begin_warmup(Stream stream);
  void end_warmup(Stream stream);

 private:
  std::span<const WgradView> alias(ShardedWeight& weight, Stream compute);
  BufferKey key_of(const ShardedWeight& weight, BufferUse use, std::size_t shard) const;
  std::uint32_t next_ring_slot(const BufferKey& key);
  void reserve(ShardedWeight& weight);
  Buffer& acquire_wgrad(ShardedWeight& weight, std::size_t shard, Stream compute);
  void claim_slot(ShardedWeight& weight, const Buffer& buffer);
  void order_before_reduction(ShardedWeight& weight, Stream compute);
  bool uses_windows(const ShardedWeight& weight) const noexcept;
  bool uses_fp32_accumulation(const ShardedWeight& weight) const noexcept;
  void zero_pad_rows(ShardedWeight& weight);
  void issue(ShardedWeight& weight);
  void release_wgrads(ShardedWeight& weight);
  void add(ShardedWeight& weight, std::size_t shard);
  void back_up(ShardedWeight& weight, Stream stream);
  void restore(ShardedWeight& weight, Stream stream);
  void reduce_replicated(WeightDomain domain, ElementType type, CommStreams& streams);
  float mean_factor(const Group& group) const noexcept;

  Core& core_;
  std::vector<ReplicatedSpec> replicated_;
  std::vector<CollectivePart> replicated_parts_;
  std::vector<std::pair<BufferKey, std::uint32_t>> ring_turns_;
  std::vector<std::pair<BufferKey, Ticket>> dummies_;
  std::uint32_t backups_ = 0;
};

/// The capture and replay state machine.
class Capturer {
 public:
  Capturer(Core& core, Gatherer& gatherer, Reducer& reducer) : core_(core), gatherer_(gatherer), reducer_(reducer) {}

  GraphScope& begin(std::string name, Stream stream);
  void end(GraphScope& scope);
  void abort(GraphScope& scope) noexcept;
  void before_replay(GraphScope& scope, Stream stream);
  void replay(GraphScope& scope, Stream stream);

 private:
  void require_drained() const;
  void join(GraphScope& scope);
  void forget_capture(GraphScope& scope) noexcept;

  Core& core_;
  Gatherer& gatherer_;
  Reducer& reducer_;
};

std::string chain_table(const Core& core);

}  // namespace gtp::detail
