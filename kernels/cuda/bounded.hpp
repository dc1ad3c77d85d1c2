// Waits that end: polls with a pause that grows, and calls that might never return.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

namespace gtp::cuda {

using Clock = std::chrono::steady_clock;

/// True as soon as `done()` is, false at `deadline`. Asks again at once for some microseconds, then ever more rarely.
template <class Done>
bool poll_until(Clock::time_point deadline, Done&& done) {
  constexpr int kEager = 64;
  constexpr std::chrono::microseconds kLongest{1000};
  std::chrono::microseconds pause{10};
  for (int attempt = 0;; ++attempt) {
    if (done()) return true;
    if (attempt < kEager) continue;
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongest);
  }
}

enum class BoundedEnd : std::uint8_t {
  kDone,
  kGaveUp,   ///< `give_up` said so.
  kTimeout,  ///< At the limit.
};

/// Runs `work` on a thread of its own and waits for it, at most until `limit` or until `give_up()` is true. What it
/// throws is thrown here. If it has not returned by then the thread is left behind: `work` must own what it uses.
BoundedEnd run_bounded(std::chrono::milliseconds limit, std::function<void()> work,
                       const std::function<bool()>& give_up = nullptr);

}  // namespace gtp::cuda
