// The first failure of a backend, which stays. Any thread may set it; reading is one load.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "kernels/backend.hpp"

namespace gtp::cuda {

class FailureCell {
 public:
  FailureCell() = default;
  ~FailureCell() { delete failure_.load(std::memory_order_acquire); }
  FailureCell(const FailureCell&) = delete;
  FailureCell& operator=(const FailureCell&) = delete;

  /// Valid as long as the cell.
  const BackendFailure* get() const noexcept { return failure_.load(std::memory_order_acquire); }

  /// True if nothing had failed before; otherwise what is there stays.
  bool set(RuntimeStatus status, std::string text) {
    auto made = std::make_unique<BackendFailure>(BackendFailure{status, std::move(text)});
    const BackendFailure* expected = nullptr;
    if (!failure_.compare_exchange_strong(expected, made.get(), std::memory_order_acq_rel)) return false;
    made.release();
    return true;
  }

  void check() const {
    if (const BackendFailure* failure = get()) throw RuntimeError(failure->status, failure->text);
  }

 private:
  std::atomic<const BackendFailure*> failure_{nullptr};
};

}  // namespace gtp::cuda
