// Routing and the weighting of expert outputs.
#include "examples/train/cuda/kernels.cuh"

namespace gtp::train {

namespace {

__device__ void softmax(Floats probs, ConstFloats logits) {
  float top = logits[0];
  for (std::size_t i = 1; i < logits.size(); ++i) top = fmaxf(top, logits[i]);
  float sum = 0.0F;
  for (std::size_t i = 0; i < logits.size(); ++i) sum += probs[i] = expf(logits[i] - top);
  for (std::size_t i = 0; i < logits.size(); ++i) probs[i] /= sum;
}

__device__ void choose(Floats chosen, ConstFloats row, std::size_t topk) {
  for (std::size_t e = 0; e < row.size(); ++e) chosen[e] = 0.0F;
  for (std::size_t k = 0; k < topk; ++k) {
    std::size_t best = row.size();
    for (std::size_t e = 0; e < row.size(); ++e) {
      if (chosen[e] == 0.0F && (best == row.size() || row[e] > row[best])) best = e;
    }
    chosen[best] = row[best];
  }
}

}  // namespace

void CudaArithmetic::route_forward(const Task& task, Floats gates, Floats probs, ConstFloats logits, RouteShape shape) {
  for_each(task, shape.tokens, [=] __device__(std::size_t t) {
    const Floats row = probs.subspan(t * shape.experts, shape.experts);
    softmax(row, logits.subspan(t * shape.experts, shape.experts));
    choose(gates.subspan(t * shape.experts, shape.experts), row, shape.topk);
  });
}

void CudaArithmetic::route_backward(const Task& task, Floats dlogits, ConstFloats dgates, ConstFloats gates,
                                    ConstFloats probs, RouteShape shape) {
  for_each(task, shape.tokens, [=] __device__(std::size_t t) {
    const std::size_t row = t * shape.experts;
    float weighted = 0.0F;
    for (std::size_t e = row; e < row + shape.experts; ++e) weighted += gates[e] == 0.0F ? 0.0F : dgates[e] * probs[e];
    for (std::size_t e = row; e < row + shape.experts; ++e) {
      dlogits[e] = probs[e] * ((gates[e] == 0.0F ? 0.0F : dgates[e]) - weighted);
    }
  });
}

void CudaArithmetic::dispatch(const Task& task, Floats slots, Floats sent_gates, ConstFloats x, ConstFloats gates,
                              const SlotShape& shape) {
  for_each_row(task, shape.slots(), [=] __device__(std::size_t slot) {
    const std::size_t peer = slot / shape.tokens;
    const std::size_t token = slot % shape.tokens;
    bool chosen = false;
    for (std::size_t e = 0; e < shape.local; ++e) {
      const float gate = gates[token * shape.experts() + peer * shape.local + e];
      if (threadIdx.x == 0) sent_gates[(peer * shape.local + e) * shape.tokens + token] = gate;
      chosen = chosen || gate != 0.0F;
    }
    for (std::size_t i = threadIdx.x; i < shape.hidden; i += kThreads) {
      slots[slot * shape.hidden + i] = chosen ? x[token * shape.hidden + i] : 0.0F;
    }
  });
}

void CudaArithmetic::swap_axes(const Task& task, Floats out, ConstFloats in, const AxisShape& shape) {
  for_each(task, out.size(), [=] __device__(std::size_t i) {
    const std::size_t pair = i / shape.width;
    const std::size_t from = pair % shape.outer * shape.inner + pair / shape.outer;
    out[i] = in[from * shape.width + i % shape.width];
  });
}

void CudaArithmetic::repeat(const Task& task, Floats out, ConstFloats in) {
  for_each(task, out.size(), [=] __device__(std::size_t i) { out[i] = in[i % in.size()]; });
}

void CudaArithmetic::sum_parts(const Task& task, Floats y, ConstFloats parts, ConstFloats x) {
  for_each(task, y.size(), [=] __device__(std::size_t i) {
    float sum = parts[i];
    for (std::size_t j = i + y.size(); j < parts.size(); j += y.size()) sum += parts[j];
    y[i] = x.empty() ? sum : sum + x[i];
  });
}

void CudaArithmetic::add_gated(const Task& task, Floats y, ConstFloats f, ConstFloats gate) {
  const std::size_t width = y.size() / gate.size();
  for_each(task, y.size(), [=] __device__(std::size_t i) {
    if (gate[i / width] != 0.0F) y[i] += gate[i / width] * f[i];
  });
}

void CudaArithmetic::gated_backward(const Task& task, Floats df, Floats dgate, ConstFloats dy, ConstFloats f,
                                    ConstFloats gate) {
  const std::size_t width = dy.size() / gate.size();
  for_each_row(task, gate.size(), [=] __device__(std::size_t t) {
    float sum = 0.0F;
    for (std::size_t i = t * width + threadIdx.x; i < (t + 1) * width; i += kThreads) {
      df[i] = gate[t] == 0.0F ? 0.0F : gate[t] * dy[i];
      sum += dy[i] * f[i];
    }
    sum = reduce_block(sum, Plus{});
    if (threadIdx.x == 0) dgate[t] = gate[t] == 0.0F ? 0.0F : sum;
  });
}

}  // namespace gtp::train
