#include "kernels/cuda/store_wait.hpp"

#include <algorithm>
#include <optional>

#include "kernels/cuda/bounded.hpp"

namespace gtp::cuda {

namespace {

/// The store serves one request of a rank at a time, and the watchdog has some too.
constexpr std::chrono::milliseconds kSlice{200};

}  // namespace

std::string get_unless_failed(TcpStore& store, std::string_view key, std::chrono::milliseconds limit,
                              const FailureCell& failure) {
  const auto deadline = Clock::now() + limit;
  for (;;) {
    failure.check();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    try {
      return store.get(key, std::clamp(left, std::chrono::milliseconds(0), kSlice));
    } catch (const RuntimeError& error) {
      if (error.status() != RuntimeStatus::kTimeout || left.count() <= 0) throw;
    }
    if (const std::optional<std::string> why = store.why(std::chrono::milliseconds(0))) {
      throw RuntimeError(RuntimeStatus::kAborted, *why);
    }
  }
}

}  // namespace gtp::cuda
