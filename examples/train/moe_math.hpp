// Routing and the weighting of expert outputs. Pure functions on host memory.
#pragma once

#include "linear.hpp"

namespace gtp::train {

struct RouteShape {
  std::size_t tokens = 0;
  std::size_t experts = 0;
  std::size_t topk = 0;
};

/// Softmax over experts; a token's `topk` largest probabilities are its gates, all other gates are 0.
void route_forward(Floats gates, Floats probs, ConstFloats logits, RouteShape shape);
void route_backward(Floats dlogits, ConstFloats dgates, ConstFloats gates, ConstFloats probs, RouteShape shape);

/// y[t] += gate[t] * f[t]
void add_gated(Floats y, ConstFloats f, ConstFloats gate);
/// df[t] = gate[t] * dy[t]; dgate[t] = dy[t] . f[t]; both 0 for a token that is left out.
void gated_backward(Floats df, Floats dgate, ConstFloats dy, ConstFloats f, ConstFloats gate);

}  // namespace gtp::train
