// Matrix products of a linear layer on host memory: weights in bf16 [out, in], everything else in fp32. Each sum runs
// in one stated order, so that two runs that add the same numbers in that order agree bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/element_type.hpp"

namespace gtp::train {

using Floats = std::span<float>;
using ConstFloats = std::span<const float>;
using Weights = std::span<const std::uint16_t>;  ///< bf16 bits.
using Tokens = std::span<const std::int32_t>;

struct LinearShape {
  std::size_t tokens = 0;
  std::size_t in = 0;
  std::size_t out = 0;
};

/// Where values go, weight gradients first of all: overwritten, or added to.
struct GradTarget {
  void* data = nullptr;
  ElementType type = ElementType::kFloat32;
  bool accumulate = false;

  void put(std::size_t index, float value) const noexcept;
};

/// y[t, n] = sum over k of x[t, k] * w[n, k]. A token whose `gate` is 0 is left out: its row of y becomes 0.
void linear_forward(Floats y, ConstFloats x, Weights w, LinearShape shape, ConstFloats gate = {});

/// dx[t, k] = (or, with `add`, +=) sum over n of dy[t, n] * w[n, k], left out as above.
void linear_dgrad(Floats dx, ConstFloats dy, Weights w, LinearShape shape, bool add = false, ConstFloats gate = {});

/// dw[n, k] = sum over chunks of (sum over t in the chunk of dy[t, n] * x[t, k]). Chunks are what different ranks
/// would have summed by themselves; `shape.tokens` counts all of them.
void linear_wgrad(GradTarget dw, ConstFloats dy, ConstFloats x, LinearShape shape, std::size_t chunks = 1);

}  // namespace gtp::train
