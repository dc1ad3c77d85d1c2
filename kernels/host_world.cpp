#include "kernels/host_world.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <utility>

namespace gtp::host {

namespace {

using SteadyClock = std::chrono::steady_clock;

/// splitmix64: one addition and a few shifts, good enough to pick by.
std::uint64_t mix(std::uint64_t& state) noexcept {
  std::uint64_t z = (state += 0x9E3779B97F4A7C15U);
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31U);
}

}  // namespace

World::World(HostWorldOptions options) : options_(options), random_state_(options.seed) {
  // Some seeds let hosts run far ahead of their devices, others keep them close.
  constexpr std::array<std::uint64_t, 4> kHostLead{1, 6, 40, 1000};
  constexpr std::array<std::uint64_t, 4> kDeviceLead{1, 4, 20, 100};
  host_lead_ = kHostLead[mix(random_state_) % kHostLead.size()];
  device_lead_ = kDeviceLead[mix(random_state_) % kDeviceLead.size()];
  for (std::int64_t rank = 0; rank < options.ranks; ++rank) ranks_.push_back(std::make_unique<RankState>());
  if (options.ranks == 1) begin_run();
}

std::uint64_t World::random(std::uint64_t bound) { return mix(random_state_) % bound; }

void World::enter(std::int64_t index) {
  RankState& state = rank(index);
  if (state.failure.load(std::memory_order_acquire) != nullptr) throw_failure(index);
  if (state.phase != Phase::kRunning || state.budget-- > 0) return;
  park(index, Phase::kParked, {}, std::nullopt);
  if (state.failure.load(std::memory_order_acquire) != nullptr) throw_failure(index);
}

bool World::is_alive(std::int64_t index) const noexcept {
  return rank(index).failure.load(std::memory_order_acquire) == nullptr;
}

void World::block(std::int64_t index, Until until, std::chrono::milliseconds limit) {
  if (!is_alive(index)) throw_failure(index);
  if (rank(index).phase != Phase::kRunning) {
    drain();  // between runs
    return;
  }
  park(index, Phase::kBlocked, until, limit);
  if (!is_alive(index)) throw_failure(index);
}

void World::throw_failure(std::int64_t index) const {
  const BackendFailure& failure = *rank(index).failure.load(std::memory_order_acquire);
  throw RuntimeError(failure.status, failure.text);
}

/// Gives the turn up and waits for the next. The last rank to do so becomes the scheduler.
void World::park(std::int64_t index, Phase phase, Until until, std::optional<std::chrono::milliseconds> limit) {
  Lock lock(mutex_);
  RankState& state = rank(index);
  if (failed_) return;
  state.phase = phase;
  state.until = until;
  if (--running_ == 0) schedule();
  const auto deadline = SteadyClock::now() + limit.value_or(options_.time_limit);
  std::uint64_t seen_rounds = rounds_;
  while (state.phase != Phase::kRunning) {
    if (state.wake.wait_for(lock, limit.value_or(options_.time_limit)) == std::cv_status::no_timeout) continue;
    if (state.phase == Phase::kRunning || scheduling_) continue;
    if (limit && SteadyClock::now() >= deadline) {
      state.phase = Phase::kRunning;
      ++running_;
      throw RuntimeError(RuntimeStatus::kTimeout, fmt::format("rank {}: {}", index, silent_rank_text()));
    }
    if (std::exchange(seen_rounds, rounds_) == rounds_) {
      fail_locked(index, RuntimeStatus::kTimeout, silent_rank_text());
    }
  }
}

void World::fail(std::int64_t index, RuntimeStatus status, std::string text) noexcept {
  const Lock lock(mutex_);
  fail_locked(index, status, text);
}

/// Every rank wakes up with an error: the one at fault with the text itself.
void World::fail_locked(std::int64_t index, RuntimeStatus status, const std::string& text) {
  if (std::exchange(failed_, true)) return;
  for (std::int64_t other = 0; other < options_.ranks; ++other) {
    RankState& state = rank(other);
    if (!state.killed) {
      const bool own = other == index || status == RuntimeStatus::kTimeout;
      state.failure_text = {own ? status : RuntimeStatus::kAborted,
                            fmt::format("rank {}: {}{}", other, other == index ? "" : "gave up: ", text)};
      state.failure.store(&state.failure_text, std::memory_order_release);
    }
    if (state.phase == Phase::kParked || state.phase == Phase::kBlocked) release(state, 0);
  }
}

void World::release(RankState& state, std::int64_t budget) {
  state.phase = Phase::kRunning;
  state.budget = budget;
  ++running_;
  state.wake.notify_all();
}

/// Alternates between running operations and handing out turns, until some rank has a turn or all is lost.
void World::schedule() {
  scheduling_ = true;
  while (!failed_) {
    ++rounds_;
    for (std::uint64_t count = random(device_lead_ + 1); count > 0 && run_one(); --count) {
    }
    settle_events();
    watch_for_gone_peers();
    if (failed_ || running_ > 0 || grant_turns()) break;
    if (run_one() || release_holds()) continue;
    bool all_ended = true;
    for (const auto& state : ranks_) all_ended = all_ended && state->phase == Phase::kEnded;
    if (all_ended) break;
    std::int64_t at_fault = 0;
    const std::optional<std::string> text = blocked_collective(at_fault);
    fail_locked(at_fault, RuntimeStatus::kTimeout, text.value_or(stuck_text()));
  }
  scheduling_ = false;
}

/// Peers that keep enqueuing would never notice that one of them is gone: a real collective has a time limit.
void World::watch_for_gone_peers() {
  bool someone_gone = false;
  for (const auto& state : ranks_) someone_gone = someone_gone || state->killed || state->phase == Phase::kEnded;
  if (!someone_gone) return;
  std::int64_t at_fault = 0;
  const auto text = blocked_collective(at_fault);
  if (!text || text->find("gone") == std::string::npos) return peer_gone_since_.reset();
  if (!peer_gone_since_) peer_gone_since_ = SteadyClock::now();
  if (SteadyClock::now() - *peer_gone_since_ >= options_.time_limit) {
    fail_locked(at_fault, RuntimeStatus::kTimeout, *text);
  }
}

bool World::grant_turns() {
  std::vector<RankState*> ready;
  for (std::int64_t index = 0; index < options_.ranks; ++index) {
    RankState& state = rank(index);
    const bool waits = state.phase == Phase::kParked || state.phase == Phase::kBlocked;
    if (waits && is_satisfied(state, index)) ready.push_back(&state);
  }
  if (ready.empty()) return false;
  const std::size_t chosen = random(ready.size());
  const bool barrier = all_at_barrier();
  if (barrier) {
    auto joined = std::make_shared<Clock>();
    for (const auto& state : ranks_) {
      if (state->host_clock) joined->join(*state->host_clock);
    }
    for (const auto& state : ranks_) state->host_clock = joined;
  }
  for (std::size_t index = 0; index < ready.size(); ++index) {
    if (barrier || index == chosen || random(4) != 0) {
      release(*ready[index], static_cast<std::int64_t>(random(host_lead_)));
    }
  }
  return true;
}

bool World::all_at_barrier() const {
  for (const auto& state : ranks_) {
    if (state->phase != Phase::kBlocked || state->until.kind != Until::Kind::kBarrier) return false;
  }
  return true;
}

bool World::is_satisfied(const RankState& state, std::int64_t index) const {
  switch (state.until.kind) {
    case Until::Kind::kNothing:
      return true;
    case Until::Kind::kDrained:
      return state.until.stream->queue.empty();
    case Until::Kind::kAllDrained:
      for (const auto& stream : rank(index).streams) {
        if (!stream->queue.empty()) return false;
      }
      return true;
    case Until::Kind::kBarrier:
      return all_at_barrier();
  }
  return true;
}

/// Looks at phases only: the rank that does not call may be changing its streams.
std::string World::silent_rank_text() const {
  for (std::int64_t index = 0; index < options_.ranks; ++index) {
    if (rank(index).phase == Phase::kRunning) return fmt::format("rank {} makes no call, and the others wait", index);
  }
  return "the device did not get done in time";
}

/// Precondition: no rank is running.
std::string World::stuck_text() const {
  for (const auto& state : ranks_) {
    for (const auto& stream : state->streams) {
      if (!stream->queue.empty()) return describe(*stream, stream->queue.front()) + " can never run";
    }
  }
  return "the ranks wait for one another outside the backend, or not all of them reached the barrier";
}

VirtualStream& World::make_stream(std::int64_t index, std::string name) {
  RankState& state = rank(index);
  auto stream = std::make_unique<VirtualStream>();
  stream->rank = index;
  stream->index = state.streams.size() * static_cast<std::size_t>(options_.ranks) + static_cast<std::size_t>(index);
  stream->name = std::move(name);
  state.streams.push_back(std::move(stream));
  return *state.streams.back();
}

/// The n-th communicator that a member makes with these ranks and purpose is the n-th of all the others.
std::shared_ptr<HostCommunicator> World::join_communicator(const CommunicatorSpec& spec) {
  const Lock lock(mutex_);
  const std::string key =
      fmt::format("{}/{}/{}", spec.group, static_cast<int>(spec.purpose), fmt::join(spec.ranks, ","));
  auto& family = communicators_[key];
  const auto member = static_cast<std::size_t>(spec.position);
  for (const auto& known : family) {
    if (known->issued[member] == ~std::uint64_t{0}) {
      known->issued[member] = 0;
      return known;
    }
  }
  auto made = std::make_shared<HostCommunicator>();
  made->group = spec.group;
  made->purpose = spec.purpose;
  made->ranks = spec.ranks;
  made->issued.assign(spec.ranks.size(), ~std::uint64_t{0});
  made->issued[member] = 0;
  made->arrived.assign(spec.ranks.size(), nullptr);
  made->windows.resize(spec.ranks.size());
  family.push_back(made);
  return made;
}

void World::begin_run() {
  const Lock lock(mutex_);
  for (const auto& state : ranks_) {
    state->phase = Phase::kRunning;
    state->detector.settle();
  }
  running_ = ranks_.size();
}

void World::end_rank(std::int64_t index) noexcept {
  const Lock lock(mutex_);
  rank(index).phase = Phase::kEnded;
  if (--running_ == 0 && !failed_) schedule();
}

std::optional<std::string> World::drain() {
  const Lock lock(mutex_);
  while (!failed_ && (run_one() || release_holds())) {
  }
  for (const auto& state : ranks_) {
    for (const auto& stream : state->streams) {
      if (!stream->queue.empty() && !failed_) return describe(*stream, stream->queue.front()) + " can never run";
    }
  }
  return std::nullopt;
}

std::size_t World::inject(Injection injection) {
  injections_.push_back({std::move(injection), 0, {}});
  return injections_.size() - 1;
}

void World::set_trace(TraceSink* sink) {
  const Lock lock(mutex_);
  trace_ = sink;
}

}  // namespace gtp::host
