#include "kernels/cuda/bounded.hpp"

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>

namespace gtp::cuda {

namespace {

constexpr std::chrono::milliseconds kGlance{50};

struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;
};

}  // namespace

BoundedEnd run_bounded(std::chrono::milliseconds limit, std::function<void()> work,
                       const std::function<bool()>& give_up) {
  const auto shared = std::make_shared<Shared>();
  std::thread thread([shared, work = std::move(work)]() mutable {
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    work = nullptr;  // whatever it owns goes before anybody hears of the end
    const std::scoped_lock lock(shared->mutex);
    shared->error = error;
    shared->done = true;
    shared->changed.notify_all();
  });
  const auto deadline = Clock::now() + limit;
  std::unique_lock lock(shared->mutex);
  while (!shared->done) {
    shared->changed.wait_for(lock, kGlance);
    if (shared->done) break;
    const bool late = Clock::now() >= deadline;
    if (!late && !(give_up && give_up())) continue;
    thread.detach();
    return late ? BoundedEnd::kTimeout : BoundedEnd::kGaveUp;
  }
  lock.unlock();
  thread.join();
  if (shared->error) std::rethrow_exception(shared->error);
  return BoundedEnd::kDone;
}

}  // namespace gtp::cuda
