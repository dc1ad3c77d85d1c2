// Initial weights as a function of (seed, tensor, place), for the host and for kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "synthetic.hpp"

namespace gtp::train {

/// The rows and columns of a whole tensor that a rank holds, pad rows below them.
struct HeldPart {
  std::size_t cols = 0;
  std::size_t real_rows = 0;
  std::size_t row_begin = 0;  ///< In the whole tensor.
  std::size_t col_begin = 0;
  std::size_t whole_cols = 0;

  constexpr bool is_padding(std::size_t held_index) const noexcept { return held_index / cols >= real_rows; }
  constexpr std::size_t whole_index(std::size_t held_index) const noexcept {
    return (row_begin + held_index / cols) * whole_cols + col_begin + held_index % cols;
  }
};

/// Uniform in mean +- range.
struct InitialValues {
  HeldPart part;
  std::uint64_t key = 0;  ///< Of the tensor; see tensor_key().
  float mean = 0.0F;
  float range = 0.0F;
  std::size_t first = 0;  ///< The held element that the first value is for.

  /// Of held element first + `index`; 0 for padding.
  constexpr float at(std::size_t index) const noexcept {
    const std::size_t held_index = first + index;
    return part.is_padding(held_index) ? 0.0F : mean + range * uniform(key, part.whole_index(held_index));
  }
};

}  // namespace gtp::train
