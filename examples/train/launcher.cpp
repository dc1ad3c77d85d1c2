#include "launcher.hpp"

#include <utility>

namespace gtp::train {

void HostLauncher::launch(Stream stream, OpLabel label, std::span<const Access> accesses, std::function<void()> body) {
  backend_.enqueue(stream, label, accesses, std::move(body));
}

void FunctionLauncher::launch(Stream stream, OpLabel label, std::span<const Access>, std::function<void()> body) {
  while (!jobs_.empty() && jobs_.front().done.load(std::memory_order_acquire)) jobs_.pop_front();
  Job& job = jobs_.emplace_back();
  job.body = std::move(body);
  const auto call = [](void* argument) {
    Job& queued = *static_cast<Job*>(argument);
    queued.body();
    queued.done.store(true, std::memory_order_release);
  };
  backend_.host_function(call, &job, stream, label);
}

}  // namespace gtp::train
