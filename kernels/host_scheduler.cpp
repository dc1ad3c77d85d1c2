#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kernels/host_kernels.hpp"
#include "kernels/host_world.hpp"

namespace gtp::host {

std::string World::describe(const VirtualStream& stream, const Op& op) const {
  std::string text = fmt::format("{}", op.name);
  if (!op.label.weight.empty()) text += fmt::format(" of `{}`", op.label.weight);
  if (op.communicator) {
    text += fmt::format(" over group {} (ranks {})", op.communicator->group, fmt::join(op.communicator->ranks, ","));
  }
  return text + fmt::format(" on stream {} of rank {}", stream.name, stream.rank);
}

/// Events cost no step: a record only lets others go on, and delaying those explores the same orders.
void World::settle_events() {
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& state : ranks_) {
      if (state->killed) continue;
      for (const auto& stream : state->streams) {
        while (settle_head(*stream)) changed = true;
      }
    }
  }
}

bool World::settle_head(VirtualStream& stream) {
  if (stream.queue.empty()) return false;
  Op& op = stream.queue.front();
  if (!op.seen) look_at_head(stream);
  if (op.hold > 0 || rank(stream.rank).killed) return false;
  if (op.type == OpType::kWait && (!op.event || op.event->done)) {
    if (op.event) stream.clock.join(op.event->clock);
    pop(stream);
    return true;
  }
  if (op.type == OpType::kRecord) {
    op.event->clock = stream.clock;
    op.event->done = true;
    pop(stream);
    return true;
  }
  return false;
}

void World::look_at_head(VirtualStream& stream) {
  Op& op = stream.queue.front();
  op.seen = true;
  op.seen_step = step_;
  if (op.host_clock) stream.clock.join(*op.host_clock);
  match_injections(stream, op);
}

void World::match_injections(VirtualStream& stream, Op& op) {
  for (std::size_t index = 0; index < injections_.size(); ++index) {
    ArmedInjection& armed = injections_[index];
    const Injection& what = armed.what;
    const bool matches =
        (what.rank < 0 || what.rank == stream.rank) && (what.operation.empty() || what.operation == op.name) &&
        (what.weight.empty() || what.weight == op.label.weight) && (what.stream.empty() || what.stream == stream.name);
    if (!matches || (armed.matches++ != what.occurrence && what.occurrence >= 0)) continue;
    ++armed.report.hits;
    op.injection = static_cast<std::int64_t>(index);
    switch (what.action) {
      case InjectedAction::kDelay:
        op.hold = what.steps;
        break;
      case InjectedAction::kFail:
        op.fails = true;
        break;
      case InjectedAction::kKill:
        kill(stream.rank);
        break;
    }
  }
}

/// Its memory goes with it, so it also leaves the collectives that it has already arrived at.
void World::kill(std::int64_t index) {
  RankState& state = rank(index);
  state.killed = true;
  for (const auto& stream : state.streams) {
    if (stream->queue.empty() || !stream->queue.front().communicator) continue;
    const Op& op = stream->queue.front();
    VirtualStream*& place = op.communicator->arrived[op.position];
    if (place != stream.get()) continue;
    place = nullptr;
    --op.communicator->arrivals;
  }
  state.failure_text = {RuntimeStatus::kAborted, fmt::format("rank {} was killed", index)};
  state.failure.store(&state.failure_text, std::memory_order_release);
  if (state.phase == Phase::kParked || state.phase == Phase::kBlocked) release(state, 0);
}

bool World::may_run(const VirtualStream& stream) const {
  if (stream.queue.empty() || rank(stream.rank).killed) return false;
  const Op& op = stream.queue.front();
  if (!op.seen || op.hold > 0) return false;
  return op.type == OpType::kKernel || op.type == OpType::kCollective;
}

bool World::run_one() {
  settle_events();
  runnable_.clear();
  for (const auto& state : ranks_) {
    for (const auto& stream : state->streams) {
      if (!may_run(*stream)) continue;
      Op& op = stream->queue.front();
      if (op.type == OpType::kKernel) {
        runnable_.push_back(stream.get());
        continue;
      }
      HostCommunicator& communicator = *op.communicator;
      VirtualStream*& place = communicator.arrived[op.position];
      if (place == nullptr && op.sequence == communicator.done) {
        place = stream.get();
        ++communicator.arrivals;
      }
      const bool complete = communicator.arrivals == communicator.ranks.size();
      if (place == stream.get() && complete) runnable_.push_back(stream.get());
    }
  }
  if (runnable_.empty() || failed_) return false;
  execute(*runnable_[random(runnable_.size())]);
  return true;
}

/// Nothing else can go on, so time passes for what was held back: one operation, at random.
bool World::release_holds() {
  std::vector<Op*> held;
  for (const auto& state : ranks_) {
    if (state->killed) continue;
    for (const auto& stream : state->streams) {
      if (!stream->queue.empty() && stream->queue.front().hold > 0) held.push_back(&stream->queue.front());
    }
  }
  if (held.empty()) return false;
  count_held();
  held[random(held.size())]->hold = 0;
  return true;
}

void World::count_held() {
  for (const auto& state : ranks_) {
    for (const auto& stream : state->streams) {
      if (stream->queue.empty() || stream->queue.front().hold == 0) continue;
      InjectionReport& report = injections_[static_cast<std::size_t>(stream->queue.front().injection)].report;
      ++report.held_steps;
      for (const auto& other_state : ranks_) {
        for (const auto& other : other_state->streams) {
          if (other->queue.empty()) continue;
          const Op& head = other->queue.front();
          if (head.type == OpType::kWait && head.event && head.event->stream == stream.get()) ++report.waiters;
        }
      }
    }
  }
}

void World::execute(VirtualStream& stream) {
  Op& op = stream.queue.front();
  if (op.fails) {
    fail_locked(stream.rank, RuntimeStatus::kCollectiveFailed, describe(stream, op) + " failed");
    return;
  }
  count_held();
  ++step_;
  for (const auto& state : ranks_) {
    for (const auto& other : state->streams) {
      if (!other->queue.empty() && other->queue.front().hold > 0) --other->queue.front().hold;
    }
  }
  if (op.type == OpType::kKernel) {
    execute_kernel(stream, op);
  } else {
    execute_collective(*op.communicator);
  }
}

void World::execute_kernel(VirtualStream& stream, Op& op) {
  stream.clock.set(stream.index, stream.clock.at(stream.index) + 1);
  check_memory(stream, op);
  if (failed_) return;
  if (op.body) op.body();
  trace(stream, op);
  pop(stream);
}

bool World::agree(const HostCommunicator& communicator, std::string& why) const {
  const Op& first = communicator.arrived[0]->queue.front();
  for (const VirtualStream* stream : communicator.arrived) {
    const Op& op = stream->queue.front();
    bool same = op.call.kind == first.call.kind && op.call.type == first.call.type &&
                op.call.parts.size() == first.call.parts.size();
    for (std::size_t part = 0; same && part < op.call.parts.size(); ++part) {
      same = op.call.parts[part].count == first.call.parts[part].count;
    }
    if (!same || op.label.weight != first.label.weight) {
      why = describe(*stream, op) + " met " + describe(*communicator.arrived[0], first);
      return false;
    }
  }
  return true;
}

/// All members at once: each depends on the data of all others, so their clocks join.
void World::execute_collective(HostCommunicator& communicator) {
  std::string why;
  if (!agree(communicator, why)) {
    fail_locked(communicator.arrived[0]->rank, RuntimeStatus::kCollectiveFailed, why);
    return;
  }
  for (VirtualStream* stream : communicator.arrived) {
    if (!stream->queue.front().fails) continue;
    fail_locked(stream->rank, RuntimeStatus::kCollectiveFailed, describe(*stream, stream->queue.front()) + " failed");
    return;
  }
  Clock joined;
  for (const VirtualStream* stream : communicator.arrived) joined.join(stream->clock);
  for (VirtualStream* stream : communicator.arrived) joined.set(stream->index, joined.at(stream->index) + 1);
  std::vector<const CollectiveCall*> calls;
  bool in_windows = true;
  for (std::size_t member = 0; member < communicator.arrived.size(); ++member) {
    VirtualStream& stream = *communicator.arrived[member];
    const Op& op = stream.queue.front();
    stream.clock = joined;
    check_memory(stream, op);
    if (failed_) return;
    calls.push_back(&op.call);
    for (const CollectivePart& part : op.call.parts) {
      const auto* data = static_cast<const char*>(part.send);
      in_windows = in_windows && std::ranges::any_of(communicator.windows[member], [&](const auto& window) {
                     return window.first <= data && data < window.first + window.second;
                   });
    }
  }
  run_collective(calls, in_windows);
  for (VirtualStream*& stream : communicator.arrived) {
    trace(*stream, stream->queue.front());
    pop(*stream);
    stream = nullptr;
  }
  communicator.arrivals = 0;
  ++communicator.done;
}

void World::check_memory(VirtualStream& stream, const Op& op) {
  if (!options_.detect_races) return;
  const Toucher toucher{op.name, op.label.weight, stream.name, stream.index, op.label.note == "poison"};
  if (const auto hazard = rank(stream.rank).detector.touch(toucher, op.accesses, stream.clock)) {
    fail_locked(stream.rank, RuntimeStatus::kCollectiveFailed, *hazard);
  }
}

void World::trace(const VirtualStream& stream, const Op& op) {
  if (trace_ == nullptr) return;
  trace_->span({stream.rank, stream.name, op.name, op.label.weight,
                op.communicator ? std::string_view(op.communicator->group) : std::string_view{},
                static_cast<std::int64_t>(op.seen_step), static_cast<std::int64_t>(step_)});
}

void World::pop(VirtualStream& stream) { stream.queue.pop_front(); }

/// A member that can no longer arrive, or -1.
std::int64_t World::absent_member(const HostCommunicator& communicator) const {
  for (std::size_t member = 0; member < communicator.ranks.size(); ++member) {
    const RankState& state = rank(communicator.ranks[member]);
    if (communicator.arrived[member] == nullptr && (state.killed || state.phase == Phase::kEnded)) {
      return communicator.ranks[member];
    }
  }
  return -1;
}

std::optional<std::string> World::blocked_collective(std::int64_t& at_fault) const {
  std::optional<std::string> first;
  for (const auto& state : ranks_) {
    if (state->killed) continue;
    for (const auto& stream : state->streams) {
      if (stream->queue.empty() || stream->queue.front().type != OpType::kCollective) continue;
      const Op& op = stream->queue.front();
      const std::int64_t gone = absent_member(*op.communicator);
      if (gone < 0 && first) continue;
      first = gone >= 0 ? fmt::format("{} waits for rank {}, which is gone", describe(*stream, op), gone)
                        : describe(*stream, op) + " waits for its peers, which wait for something else";
      at_fault = stream->rank;
      if (gone >= 0) return first;
    }
  }
  return first;
}

}  // namespace gtp::host
