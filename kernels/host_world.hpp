// The scheduler of the host backend: when every rank's thread has used up its turn, operations run at random, then
// ranks get new turns. All state is touched either by a rank in its turn (its own) or by the scheduler (everything).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kernels/host_backend.hpp"
#include "kernels/host_clock.hpp"
#include "kernels/host_race_detector.hpp"
#include "kernels/host_stream.hpp"

namespace gtp::host {

enum class Phase : std::uint8_t {
  kIdle,     ///< Before run().
  kRunning,  ///< Its thread executes the rank's program.
  kParked,   ///< Turn used up.
  kBlocked,  ///< Waits for `until`.
  kEnded,
};

/// What a blocked rank waits for.
struct Until {
  enum class Kind : std::uint8_t { kNothing, kDrained, kAllDrained, kBarrier };
  Kind kind = Kind::kNothing;
  const VirtualStream* stream = nullptr;
};

struct RankState {
  Phase phase = Phase::kIdle;
  Until until{};
  std::int64_t budget = 0;
  bool killed = false;
  std::condition_variable wake;
  /// Streams in order of creation; none is removed, because operations and clocks refer to them.
  std::vector<std::unique_ptr<VirtualStream>> streams;
  RaceDetector detector;
  std::shared_ptr<const Clock> host_clock;
  BackendFailure failure_text;
  std::atomic<const BackendFailure*> failure{nullptr};
  std::atomic<std::int64_t> live_bytes{0};
};

class World {
 public:
  explicit World(HostWorldOptions options);

  // --- called by a rank's thread -------------------------------------------------------------------------------------

  /// Start of every call: may hand the turn over. Throws if the rank was killed or the run has failed.
  void enter(std::int64_t rank);
  /// As enter, but never throws or waits: for calls of destructors. False if the rank is dead.
  bool is_alive(std::int64_t rank) const noexcept;
  /// Waits; throws on failure, or kTimeout after `limit`.
  void block(std::int64_t rank, Until until, std::chrono::milliseconds limit);
  /// The first failure of a run; later ones are ignored.
  void fail(std::int64_t rank, RuntimeStatus status, std::string text) noexcept;
  [[noreturn]] void throw_failure(std::int64_t rank) const;
  VirtualStream& make_stream(std::int64_t rank, std::string name);
  std::shared_ptr<HostCommunicator> join_communicator(const CommunicatorSpec& spec);

  // --- called by HostWorld -------------------------------------------------------------------------------------------

  void begin_run();
  void end_rank(std::int64_t rank) noexcept;
  /// After all threads ended: runs what is left. The text of what cannot run.
  std::optional<std::string> drain();

  std::size_t inject(Injection injection);
  InjectionReport report(std::size_t injection) const { return injections_[injection].report; }

  RankState& rank(std::int64_t index) { return *ranks_[static_cast<std::size_t>(index)]; }
  const RankState& rank(std::int64_t index) const { return *ranks_[static_cast<std::size_t>(index)]; }
  const HostWorldOptions& options() const noexcept { return options_; }
  std::uint64_t steps() const noexcept { return step_; }
  void set_trace(TraceSink* sink);

 private:
  struct ArmedInjection {
    Injection what;
    std::int64_t matches = 0;
    InjectionReport report;
  };
  using Lock = std::unique_lock<std::mutex>;

  // Turns (host_world.cpp)
  void park(std::int64_t rank, Phase phase, Until until, std::optional<std::chrono::milliseconds> limit);
  void schedule();
  void watch_for_gone_peers();
  bool grant_turns();
  bool is_satisfied(const RankState& state, std::int64_t rank) const;
  bool all_at_barrier() const;
  void release(RankState& state, std::int64_t budget);
  void fail_locked(std::int64_t rank, RuntimeStatus status, const std::string& text);
  std::string silent_rank_text() const;
  std::string stuck_text() const;
  std::uint64_t random(std::uint64_t bound);

  // Operations (host_scheduler.cpp)
  /// Runs one operation chosen at random; false if none may run.
  bool run_one();
  void settle_events();
  bool settle_head(VirtualStream& stream);
  void look_at_head(VirtualStream& stream);
  void match_injections(VirtualStream& stream, Op& op);
  void kill(std::int64_t rank);
  bool may_run(const VirtualStream& stream) const;
  bool release_holds();
  void count_held();
  void execute(VirtualStream& stream);
  void execute_kernel(VirtualStream& stream, Op& op);
  void execute_collective(HostCommunicator& communicator);
  bool agree(const HostCommunicator& communicator, std::string& why) const;
  void check_memory(VirtualStream& stream, const Op& op);
  void trace(const VirtualStream& stream, const Op& op);
  void pop(VirtualStream& stream);
  std::string describe(const VirtualStream& stream, const Op& op) const;
  std::int64_t absent_member(const HostCommunicator& communicator) const;
  std::optional<std::string> blocked_collective(std::int64_t& rank) const;

  HostWorldOptions options_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<RankState>> ranks_;
  std::size_t running_ = 0;
  bool scheduling_ = false;
  bool failed_ = false;
  std::uint64_t step_ = 0;
  std::uint64_t rounds_ = 0;
  std::uint64_t random_state_;
  std::uint64_t host_lead_;
  std::uint64_t device_lead_;
  std::optional<std::chrono::steady_clock::time_point> peer_gone_since_;
  std::deque<ArmedInjection> injections_;
  std::map<std::string, std::vector<std::shared_ptr<HostCommunicator>>> communicators_;
  std::vector<VirtualStream*> runnable_;
  TraceSink* trace_ = nullptr;
};

}  // namespace gtp::host
