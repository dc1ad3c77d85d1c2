// Data and initial weights as functions of (seed, index): every rank computes any piece, and none is ever sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace gtp::train {

/// Bits of `value`, well stirred (the finalizer of splitmix64).
constexpr std::uint64_t stir(std::uint64_t value) noexcept {
  value += 0x9E3779B97F4A7C15ULL;
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31U);
}

enum class DataSplit : std::uint8_t { kTrain, kValidation };

/// A sample: the next token follows from the last by one of two rules, picked by a coin. `out` has one token more than
/// the model reads, the last target.
inline void make_sample(std::span<std::int32_t> out, std::uint64_t seed, DataSplit split, std::int64_t sample,
                        std::size_t vocab) noexcept {
  std::uint64_t state = stir(stir(seed + static_cast<std::uint64_t>(split)) ^ static_cast<std::uint64_t>(sample));
  std::uint64_t token = state % vocab;
  for (std::int32_t& place : out) {
    place = static_cast<std::int32_t>(token);
    state = stir(state);
    token = (token * 3 + 1 + state % 2) % vocab;
  }
}

/// In [-1, 1), of element `index` of the whole tensor `name`.
inline float uniform(std::uint64_t seed, std::string_view name, std::uint64_t index) noexcept {
  std::uint64_t tensor = 0xCBF29CE484222325ULL;
  for (const char letter : name) tensor = (tensor ^ static_cast<unsigned char>(letter)) * 0x100000001B3ULL;
  const std::uint64_t bits = stir(stir(seed ^ tensor) + index) >> 40U;
  return static_cast<float>(bits) / 8388608.0F - 1.0F;
}

}  // namespace gtp::train
