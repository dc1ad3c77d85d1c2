// Which operations of one communicator have been enqueued and are not known to be complete: how a hang is noticed, and
// named. One thread records, a watching thread asks.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/bounded.hpp"
#include "kernels/cuda/marker_events.hpp"

namespace gtp::cuda {

class OperationTracker {
 public:
  static constexpr std::size_t kCapacity = 128;

  struct Pending {
    std::string_view operation;
    std::string weight;
    std::chrono::milliseconds stalled{0};  ///< Since `oldest` first found it at the front.
  };

  /// Nothing is tracked with `enabled` false.
  explicit OperationTracker(bool enabled);

  bool enabled() const noexcept { return !entries_.empty(); }
  /// An operation outside any capture, after which `end` was recorded. `operation` is static text, `weight` is copied,
  /// up to kMaxWeight bytes. If very many are pending this one is not tracked: those behind it will be. Once `end` is
  /// recorded again nothing is known of this operation any more.
  void add(std::string_view operation, std::string_view weight, const MarkerEvent& end);
  /// The oldest operation that is known not to be complete; none either while `add` is under way. Throws if the device
  /// has failed.
  std::optional<Pending> oldest();
  /// The same as last seen, without asking the device.
  std::optional<Pending> last_seen() const;

 private:
  static constexpr std::size_t kMaxWeight = 120;
  struct Entry {
    std::string_view operation;
    std::array<char, kMaxWeight> weight;
    std::size_t length;
    MarkerEvent end;
    std::uint64_t record;  ///< Of `end`, by its count.

    bool is_known() const noexcept { return end->records.load(std::memory_order_acquire) == record; }
  };
  enum class State : std::uint8_t { kUnknown, kPending, kComplete };

  const Entry& at(std::size_t index) const noexcept { return entries_[(first_ + index) % kCapacity]; }
  State ask(std::size_t index) const;
  void drop(std::size_t count) noexcept;
  void drop_complete();
  Pending front() const;

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::uint64_t dropped_ = 0;
  std::uint64_t front_ = ~std::uint64_t{0};  ///< Which operation `oldest` found last, and since when.
  Clock::time_point front_since_{};
};

}  // namespace gtp::cuda
