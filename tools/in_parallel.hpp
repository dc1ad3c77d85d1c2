// Independent pieces of work on all cores.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace gtp::cli {

/// Calls `work(i)` for every i below `count`, in no order, on as many threads as the machine has cores; on the caller's
/// alone if there is little to do. The first exception is thrown here, once all threads have ended.
template <class Work>
void in_parallel(std::size_t count, Work&& work) {
  constexpr std::size_t kWorthThread = 16;
  const std::size_t threads = std::min<std::size_t>(std::thread::hardware_concurrency(), count / kWorthThread);
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto take = [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      next = count;
      const std::scoped_lock lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < threads; ++i) others.emplace_back(take);
  take();
  for (std::thread& other : others) other.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace gtp::cli
