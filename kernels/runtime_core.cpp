#include "kernels/runtime_core.hpp"

#include <fmt/format.h>

namespace gtp::detail {

namespace {

constexpr std::uint8_t kPoison = 0xFF;

}  // namespace

Core::Core(Backend& backend_in, const Topology& topology_in, std::int64_t rank_in, RuntimeOptions options_in,
           MemoryCallbacks memory)
    : backend(backend_in),
      topology(topology_in),
      rank(rank_in),
      options(options_in),
      cache(backend_in, std::move(memory)) {
  groups.emplace_back(backend, group_of_plan(topology, "gtp_remat", rank));
  groups.emplace_back(backend, group_of_plan(topology, "expt_gtp_remat", rank));
  fork = make_event();
}

/// Graphs first: they refer to everything else.
Core::~Core() {
  if (scope != nullptr) backend.abort_capture();
  if (!backend.synchronize_all(options.teardown_limit)) backend.abort("the runtime was destroyed with work under way");
  for (const GraphScope& made : scopes) {
    if (made.graph.handle != nullptr) backend.destroy_graph(made.graph);
  }
  for (const CommStreams& pair : streams) {
    backend.destroy_stream(pair.gather);
    backend.destroy_stream(pair.reduce);
  }
  for (const Event event : events) backend.destroy_event(event);
}

void Core::check() const {
  if (const BackendFailure* failure = backend.failure()) throw RuntimeError(failure->status, failure->text);
}

Event Core::make_event(EventKind kind) {
  events.push_back(backend.create_event(kind));
  return events.back();
}

CommStreams& Core::streams_of(const Group& group, bool graphed) {
  for (CommStreams& known : streams) {
    if (known.group == &group && known.graphed == graphed) return known;
  }
  const char* side = graphed ? "graphed" : "ungraphed";
  streams.push_back({});
  CommStreams& made = streams.back();
  made.group = &group;
  made.graphed = graphed;
  made.gather = backend.create_stream(fmt::format("gather {} {}", group.name(), side), StreamPriority::kHighest);
  made.reduce = backend.create_stream(fmt::format("reduce {} {}", group.name(), side), StreamPriority::kHighest);
  made.gather_tail = make_event();
  made.reduce_tail = make_event();
  if (graphed) made.graph_tail = make_event(EventKind::kExternal);
  return made;
}

PrefetchChain& Core::chain_of(ChainKey key) {
  key = effective_chain_key(key);
  for (PrefetchChain& known : chains) {
    if (known.key() == key) return known;
  }
  const auto id = static_cast<std::uint32_t>(chains.size() + 1);
  return chains.emplace_back(key, id, options.prefetch_depth);
}

void Core::require_usable(const ShardedWeight& weight) const {
  if (scope != nullptr && !weight.is_alias() && !weight.state().streams->graphed) {
    throw RuntimeError(
        RuntimeStatus::kInvalidUse,
        fmt::format("`{}` is on an ungraphed chain and was used in the capture of `{}`", weight.name(), scope->name));
  }
}

/// A reader in an earlier capture needs no wait inside this one: before_replay puts whole graphs in order.
void Core::wait_for_reader(const Buffer& buffer, Stream stream, bool graphed) {
  if (scope != nullptr && graphed) {
    if (buffer.capture == scope->capture) backend.wait(stream, buffer.captured_reader);
    return;
  }
  if (buffer.last_reader.handle != nullptr) backend.wait(stream, buffer.last_reader);
}

void Core::wait_for_replays(CommStreams& pair, Stream stream) {
  if (scope != nullptr) return;
  pair.used_eagerly = true;
  if (!pair.replayed) return;
  backend.wait(stream, last_replayed->completion);
  backend.wait(stream, pair.graph_tail);
}

void Core::join_capture(Stream side, std::uint64_t& joined, Stream compute) {
  if (scope == nullptr || joined == scope->capture) return;
  joined = scope->capture;
  backend.record(fork, compute);
  backend.wait(side, fork);
  scope->joined.push_back(side);
}

void Core::poison(void* data, std::size_t bytes, Stream stream, const ShardedWeight& weight) {
  if (options.poison_free_buffers && scope == nullptr) {
    backend.fill(data, kPoison, bytes, stream, {weight.name(), "poison"});
  }
}

}  // namespace gtp::detail
