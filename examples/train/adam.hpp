// One element of an Adam step with decoupled weight decay, for the host and for kernels.
#pragma once

#include <cstdint>
#include <span>

#include "linear.hpp"

namespace gtp::train {

struct AdamStep {
  float lr = 0.0F;
  float beta1 = 0.0F;
  float beta2 = 0.0F;
  float eps = 0.0F;
  float correction1 = 1.0F;  ///< 1 - beta1 ^ steps
  float correction2 = 1.0F;
  float decay = 0.0F;

  /// The new master. `root`: the square root of a float.
  template <class Root>
  constexpr float update(float master, float grad, float& m, float& v, Root root) const {
    m = beta1 * m + (1.0F - beta1) * grad;
    v = beta2 * v + (1.0F - beta2) * grad * grad;
    const float direction = (m / correction1) / (root(v / correction2) + eps);
    return master - lr * (direction + decay * master);
  }
};

/// What a step updates: all of one length.
struct AdamState {
  Floats masters, first_moment, second_moment;
  std::span<std::uint16_t> weights;  ///< bf16, of the new masters.
};

}  // namespace gtp::train
