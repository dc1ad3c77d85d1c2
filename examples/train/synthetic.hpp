// Data and initial weights as functions of (seed, index): every rank computes any piece, and none is ever sent. Integer
// arithmetic throughout, constexpr so that kernels can call it: the same on every device.
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

/// The tokens of a sample, without end: the next follows from the last by one of two rules, picked by a coin.
class Sample {
 public:
  constexpr Sample(std::uint64_t seed, DataSplit split, std::int64_t number, std::size_t vocab) noexcept
      : vocab_(vocab),
        state_(stir(stir(seed + static_cast<std::uint64_t>(split)) ^ static_cast<std::uint64_t>(number))),
        token_(state_ % vocab) {}

  constexpr std::int32_t next() noexcept {
    const auto token = static_cast<std::int32_t>(token_);
    state_ = stir(state_);
    token_ = (token_ * 3 + 1 + state_ % 2) % vocab_;
    return token;
  }

 private:
  std::uint64_t vocab_, state_, token_;
};

/// `out` has one token more than the model reads, the last target.
inline void make_sample(std::span<std::int32_t> out, std::uint64_t seed, DataSplit split, std::int64_t number,
                        std::size_t vocab) noexcept {
  Sample sample(seed, split, number, vocab);
  for (std::int32_t& place : out) place = sample.next();
}

/// The samples of one microbatch: they begin `offset` samples after where the step begins, which is on the device.
struct SampleRange {
  std::uint64_t seed = 0;
  DataSplit split = DataSplit::kTrain;
  std::int64_t offset = 0;
  std::size_t seq = 0;
  std::size_t vocab = 0;
};

constexpr std::uint64_t tensor_key(std::uint64_t seed, std::string_view name) noexcept {
  std::uint64_t tensor = 0xCBF29CE484222325ULL;
  for (const char letter : name) tensor = (tensor ^ static_cast<unsigned char>(letter)) * 0x100000001B3ULL;
  return stir(seed ^ tensor);
}

/// In [-1, 1), of element `index` of a whole tensor. Every step is exact in single precision.
constexpr float uniform(std::uint64_t key, std::uint64_t index) noexcept {
  return static_cast<float>(stir(key + index) >> 40U) / 8388608.0F - 1.0F;
}

inline float uniform(std::uint64_t seed, std::string_view name, std::uint64_t index) noexcept {
  return uniform(tensor_key(seed, name), index);
}

}  // namespace gtp::train
