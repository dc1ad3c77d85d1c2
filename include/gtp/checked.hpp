// Overflow-checked 64-bit arithmetic for sizes: a result that does not exist (overflow, division by zero, a remainder)
// is nullopt. It knows nothing of what the numbers mean.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>

namespace gtp {

constexpr std::optional<std::int64_t> checked_add(std::int64_t left, std::int64_t right) noexcept {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(left, right, &sum)) return std::nullopt;
  return sum;
}

constexpr std::optional<std::int64_t> checked_subtract(std::int64_t left, std::int64_t right) noexcept {
  std::int64_t difference = 0;
  if (__builtin_sub_overflow(left, right, &difference)) return std::nullopt;
  return difference;
}

constexpr std::optional<std::int64_t> checked_multiply(std::int64_t left, std::int64_t right) noexcept {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(left, right, &product)) return std::nullopt;
  return product;
}

/// Multiplies from left to right; nullopt as soon as a partial product overflows, even if a later factor is zero.
/// The product of nothing is 1.
constexpr std::optional<std::int64_t> checked_product(std::span<const std::int64_t> factors) noexcept {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return std::nullopt;
  }
  return product;
}

constexpr std::optional<std::int64_t> checked_product(std::initializer_list<std::int64_t> factors) noexcept {
  return checked_product(std::span<const std::int64_t>(factors.begin(), factors.size()));
}

/// nullopt unless `divisor` is positive and the division leaves no remainder.
constexpr std::optional<std::int64_t> exact_quotient(std::int64_t dividend, std::int64_t divisor) noexcept {
  if (divisor <= 0 || dividend % divisor != 0) return std::nullopt;
  return dividend / divisor;
}

/// True if `value` is a multiple of a positive `divisor`; nothing is a multiple of zero or of a negative size.
constexpr bool divides(std::int64_t divisor, std::int64_t value) noexcept {
  return exact_quotient(value, divisor).has_value();
}

/// Rounds towards plus infinity; nullopt unless `divisor` is positive.
constexpr std::optional<std::int64_t> ceil_quotient(std::int64_t dividend, std::int64_t divisor) noexcept {
  if (divisor <= 0) return std::nullopt;
  const bool round_up = dividend > 0 && dividend % divisor != 0;
  return dividend / divisor + (round_up ? 1 : 0);
}

/// The smallest multiple of `unit` that is not below `value`; nullopt unless `unit` is positive and the result fits.
constexpr std::optional<std::int64_t> round_up_to_multiple(std::int64_t value, std::int64_t unit) noexcept {
  const std::optional<std::int64_t> units = ceil_quotient(value, unit);
  return units ? checked_multiply(*units, unit) : std::nullopt;
}

}  // namespace gtp
