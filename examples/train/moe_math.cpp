#include "moe_math.hpp"

#include <algorithm>
#include <cmath>

namespace gtp::train {

namespace {

void softmax(Floats probs, ConstFloats logits) {
  const float top = *std::ranges::max_element(logits);
  float sum = 0.0F;
  for (std::size_t i = 0; i < logits.size(); ++i) sum += probs[i] = std::exp(logits[i] - top);
  for (float& p : probs) p /= sum;
}

}  // namespace

void route_forward(Floats gates, Floats probs, ConstFloats logits, RouteShape shape) {
  for (std::size_t t = 0; t < shape.tokens; ++t) {
    const Floats row = probs.subspan(t * shape.experts, shape.experts);
    const Floats chosen = gates.subspan(t * shape.experts, shape.experts);
    softmax(row, logits.subspan(t * shape.experts, shape.experts));
    std::ranges::fill(chosen, 0.0F);
    for (std::size_t k = 0; k < shape.topk; ++k) {
      std::size_t best = shape.experts;
      for (std::size_t e = 0; e < shape.experts; ++e) {
        if (chosen[e] == 0.0F && (best == shape.experts || row[e] > row[best])) best = e;
      }
      chosen[best] = row[best];
    }
  }
}

void route_backward(Floats dlogits, ConstFloats dgates, ConstFloats gates, ConstFloats probs, RouteShape shape) {
  for (std::size_t t = 0; t < shape.tokens; ++t) {
    const std::size_t row = t * shape.experts;
    float weighted = 0.0F;
    for (std::size_t e = row; e < row + shape.experts; ++e) weighted += gates[e] == 0.0F ? 0.0F : dgates[e] * probs[e];
    for (std::size_t e = row; e < row + shape.experts; ++e) {
      dlogits[e] = probs[e] * ((gates[e] == 0.0F ? 0.0F : dgates[e]) - weighted);
    }
  }
}

void dispatch(Floats slots, Floats sent_gates, ConstFloats x, ConstFloats gates, const SlotShape& shape) {
  for (std::size_t slot = 0; slot < shape.slots(); ++slot) {
    const std::size_t peer = slot / shape.tokens;
    const std::size_t token = slot % shape.tokens;
    bool chosen = false;
    for (std::size_t e = 0; e < shape.local; ++e) {
      const float gate = gates[token * shape.experts() + peer * shape.local + e];
      sent_gates[(peer * shape.local + e) * shape.tokens + token] = gate;
      chosen = chosen || gate != 0.0F;
    }
    for (std::size_t i = 0; i < shape.hidden; ++i) {
      slots[slot * shape.hidden + i] = chosen ? x[token * shape.hidden + i] : 0.0F;
    }
  }
}

void swap_axes(Floats out, ConstFloats in, const AxisShape& shape) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t pair = i / shape.width;
    const std::size_t from = pair % shape.outer * shape.inner + pair / shape.outer;
    out[i] = in[from * shape.width + i % shape.width];
  }
}

void repeat(Floats out, ConstFloats in) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = in[i % in.size()];
}

void sum_parts(Floats y, ConstFloats parts, ConstFloats x) {
  for (std::size_t i = 0; i < y.size(); ++i) {
    float sum = parts[i];
    for (std::size_t j = i + y.size(); j < parts.size(); j += y.size()) sum += parts[j];
    y[i] = x.empty() ? sum : sum + x[i];
  }
}

void add_gated(Floats y, ConstFloats f, ConstFloats gate) {
  const std::size_t width = y.size() / gate.size();
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (gate[i / width] != 0.0F) y[i] += gate[i / width] * f[i];
  }
}

void gated_backward(Floats df, Floats dgate, ConstFloats dy, ConstFloats f, ConstFloats gate) {
  const std::size_t width = dy.size() / gate.size();
  for (std::size_t t = 0; t < gate.size(); ++t) {
    float sum = 0.0F;
    for (std::size_t i = t * width; i < (t + 1) * width; ++i) {
      df[i] = gate[t] == 0.0F ? 0.0F : gate[t] * dy[i];
      sum += dy[i] * f[i];
    }
    dgate[t] = gate[t] == 0.0F ? 0.0F : sum;
  }
}

}  // namespace gtp::train
