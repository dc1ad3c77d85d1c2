// A sum of squares that does not depend on the order of additions: fixed point with 80 fraction bits in 128. With it
// the gradient norm is the same however gradients are sharded, and whatever device adds them up.
#pragma once

#include <cstdint>
#include <limits>

namespace gtp::train {

class ExactSum {
 public:
  /// Squares are exact in double; what is below 2^-80 is cut off, element by element.
  constexpr void add_square(float value) noexcept {
    const double square = static_cast<double>(value) * static_cast<double>(value);
    if (!(square < kLimit)) {
      overflowed_ = 1;
      return;
    }
    const double scaled = square * kOne;  // multiplication by powers of two is exact
    const auto high = static_cast<std::uint64_t>(scaled / kHighOne);
    add(high, static_cast<std::uint64_t>(scaled - static_cast<double>(high) * kHighOne));
  }
  constexpr void add(const ExactSum& other) noexcept {
    overflowed_ |= other.overflowed_;
    add(other.high_, other.low_);
  }
  /// Infinite if a value was not finite, or too large to be a gradient (2^20).
  constexpr double value() const noexcept {
    if (overflowed_ != 0) return std::numeric_limits<double>::infinity();
    return static_cast<double>(high_) * (kHighOne / kOne) + static_cast<double>(low_) / kOne;
  }

 private:
  static constexpr double kOne = 0x1p80;
  static constexpr double kHighOne = 0x1p64;
  static constexpr double kLimit = 0x1p40;  // leaves room for 2^7 such squares

  constexpr void add(std::uint64_t high, std::uint64_t low) noexcept {
    low_ += low;
    const std::uint64_t before = high_;
    high_ += high + (low_ < low ? 1U : 0U);
    if (high_ < before) overflowed_ = 1;
  }

  std::uint64_t high_ = 0;
  std::uint64_t low_ = 0;
  std::uint64_t overflowed_ = 0;
};

}  // namespace gtp::train
