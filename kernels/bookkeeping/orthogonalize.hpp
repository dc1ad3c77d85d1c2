// What a Muon-style orthogonalizer sees of a padded shard: its kernel never sees pad rows where that can be avoided,
// and pad rows of the result are zero. The kernel itself is the caller's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "gtp/checked.hpp"
#include "kernels/shard_layout.hpp"

namespace gtp {

/// Upstream's `muon_tp_mode`. emerging_optimizers.py:281
enum class MuonMode : std::uint8_t {
  kBlockwise,    ///< Each shard by itself.
  kDuplicated,   ///< The gathered whole on every rank.
  kDistributed,  ///< The shards together, by small all-reduces. Every shard must have the same shape, so padding stays.
};

/// Pad rows at the end of the matrix that a rank orthogonalizes and that are to be hidden from the kernel.
constexpr std::int64_t hidden_pad_rows(MuonMode mode, const ShardLayout& layout, std::int64_t rank) noexcept {
  switch (mode) {
    case MuonMode::kBlockwise:
      return layout.local_pad(rank);
    case MuonMode::kDuplicated:
      return layout.pad_length();
    case MuonMode::kDistributed:
      return 0;
  }
  return 0;
}

/// Runs `kernel(momentum, result)` on the first rows - pad_rows rows and zeroes the rest of `result`; a matrix that is
/// all padding never reaches the kernel. False, with nothing done, unless both spans have rows * cols values and
/// 0 <= pad_rows <= rows.
template <class Kernel>
bool orthogonalize_without_padding(std::int64_t rows, std::int64_t cols, std::int64_t pad_rows,
                                   std::span<const float> momentum, std::span<float> result, Kernel&& kernel) {
  const std::optional<std::int64_t> elements = rows >= 0 && cols >= 0 ? checked_multiply(rows, cols) : std::nullopt;
  if (!elements || pad_rows < 0 || pad_rows > rows) return false;
  if (momentum.size() != static_cast<std::size_t>(*elements) || result.size() != momentum.size()) return false;
  const auto seen = static_cast<std::size_t>((rows - pad_rows) * cols);
  if (seen != 0) kernel(momentum.first(seen), result.first(seen));
  const std::span<float> padding = result.subspan(seen);
  std::fill(padding.begin(), padding.end(), 0.0F);
  return true;
}

}  // namespace gtp
