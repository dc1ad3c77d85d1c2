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

/// Slots are [peer][token]: what the ranks of the experts are sent, and send back. Every rank has `local` experts.
struct SlotShape {
  std::size_t tokens = 0;
  std::size_t hidden = 0;
  std::size_t peers = 0;
  std::size_t local = 0;

  constexpr std::size_t slots() const noexcept { return peers * tokens; }
  constexpr std::size_t experts() const noexcept { return peers * local; }
};

/// Each token into the slots of the peers it has a gate for, zeros into the others; and its gates, [peer][local
/// expert][token].
void dispatch(Floats slots, Floats sent_gates, ConstFloats x, ConstFloats gates, const SlotShape& shape);

/// [outer][inner][width]
struct AxisShape {
  std::size_t outer = 0;
  std::size_t inner = 0;
  std::size_t width = 1;
};

/// `out` is [inner][outer][width].
void swap_axes(Floats out, ConstFloats in, const AxisShape& shape);
/// `in`, again and again.
void repeat(Floats out, ConstFloats in);
/// y = the sum of equal parts, in their order; then x is added, if there is one.
void sum_parts(Floats y, ConstFloats parts, ConstFloats x = {});

/// y[t] += gate[t] * f[t]
void add_gated(Floats y, ConstFloats f, ConstFloats gate);
/// df[t] = gate[t] * dy[t]; dgate[t] = dy[t] . f[t]; both 0 for a token that is left out.
void gated_backward(Floats df, Floats dgate, ConstFloats dy, ConstFloats f, ConstFloats gate);

}  // namespace gtp::train
