// A sum of squares that does not depend on the order of additions: fixed point with 80 fraction bits in 128. With it
// the gradient norm is the same however gradients are sharded.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

namespace gtp::train {

class ExactSum {
 public:
  /// Squares are exact in double; what is below 2^-80 is cut off, element by element.
  void add_square(float value) noexcept {
    const double square = static_cast<double>(value) * static_cast<double>(value);
    if (!(square < kLimit)) {
      overflowed_ = 1;
      return;
    }
    const double scaled = std::ldexp(square, kFractionBits);
    const double high = std::floor(std::ldexp(scaled, -64));
    add(static_cast<std::uint64_t>(high), static_cast<std::uint64_t>(scaled - std::ldexp(high, 64)));
  }
  void add(const ExactSum& other) noexcept {
    overflowed_ |= other.overflowed_;
    add(other.high_, other.low_);
  }
  /// Infinite if a value was not finite, or too large to be a gradient (2^20).
  double value() const noexcept {
    if (overflowed_ != 0) return static_cast<double>(INFINITY);
    return std::ldexp(static_cast<double>(high_), 64 - kFractionBits) +
           std::ldexp(static_cast<double>(low_), -kFractionBits);
  }

 private:
  static constexpr int kFractionBits = 80;
  static constexpr double kLimit = 1099511627776.0;  // 2^40, which leaves room for 2^7 such squares

  void add(std::uint64_t high, std::uint64_t low) noexcept {
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
