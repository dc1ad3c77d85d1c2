// Both ends of the model: data and embedding, and the loss.
#include "examples/train/cuda/kernels.cuh"

namespace gtp::train {

void CudaArithmetic::store(const Task& task, std::span<std::int64_t> place, std::int64_t value) {
  for_each(task, 1, [=] __device__(std::size_t i) { place[i] = value; });
}

void CudaArithmetic::load(const Task& task, std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
                          std::span<const std::int64_t> step_begin, const SampleRange& range) {
  for_each(task, tokens.size() / range.seq, [=] __device__(std::size_t sample) {
    const auto number = step_begin[0] + range.offset + static_cast<std::int64_t>(sample);
    Sample source(range.seed, range.split, number, range.vocab);
    std::int32_t token = source.next();
    for (std::size_t i = sample * range.seq; i < (sample + 1) * range.seq; ++i) {
      tokens[i] = token;
      targets[i] = token = source.next();
    }
  });
}

void CudaArithmetic::initialize(const Task& task, GradTarget out, std::size_t count, const InitialValues& values) {
  for_each(task, count, [=] __device__(std::size_t i) { put(out, i, values.at(i)); });
}

void CudaArithmetic::embedding_forward(const Task& task, Floats y, Tokens tokens, Weights table, std::size_t first) {
  const std::size_t width = y.size() / tokens.size();
  const std::size_t rows = table.size() / width;
  for_each(task, y.size(), [=] __device__(std::size_t i) {
    const std::size_t row = static_cast<std::size_t>(tokens[i / width]) - first;  // wraps below `first`
    y[i] = row < rows ? value_at(table, row * width + i % width) : 0.0F;
  });
}

/// Each warp looks at 32 tokens at once for those of its row.
void CudaArithmetic::embedding_wgrad(const Task& task, GradTarget dtable, ConstFloats dy, Tokens tokens,
                                     std::size_t first, std::size_t rows) {
  const std::size_t width = dy.size() / tokens.size();
  for_each_row(task, rows, [=] __device__(std::size_t row) {
    for (std::size_t begin = 0; begin < width; begin += kThreads) {
      const std::size_t column = begin + threadIdx.x;
      float sum = 0.0F;
      for (std::size_t t = 0; t < tokens.size(); t += 32) {
        const std::size_t own = t + threadIdx.x % 32;
        const bool hit = own < tokens.size() && static_cast<std::size_t>(tokens[own]) == first + row;
        for (unsigned hits = __ballot_sync(0xFFFFFFFFU, hit); hits != 0; hits &= hits - 1) {
          if (column < width)
            sum += dy[(t + static_cast<std::size_t>(__ffs(static_cast<int>(hits)) - 1)) * width + column];
        }
      }
      if (column < width) put(dtable, row * width + column, sum);
    }
  });
}

void CudaArithmetic::position_forward(const Task& task, Floats x, Weights position) {
  for_each(task, x.size(), [=] __device__(std::size_t i) { x[i] += value_at(position, i % position.size()); });
}

void CudaArithmetic::position_backward(const Task& task, Floats dposition, ConstFloats dx) {
  for_each(task, dposition.size(), [=] __device__(std::size_t i) {
    float sum = 0.0F;
    for (std::size_t j = i; j < dx.size(); j += dposition.size()) sum += dx[j];
    dposition[i] += sum;
  });
}

void CudaArithmetic::cross_entropy(const Task& task, std::span<double> losses, Floats dlogits, ConstFloats logits,
                                   Tokens targets, const LossShape& shape, float scale) {
  const std::size_t tokens = targets.size();
  const std::size_t width = logits.size() / tokens / shape.slices;
  const auto of_tokens = token_losses_.get<double>(tokens);
  for_each_row(task, tokens, [=] __device__(std::size_t t) {
    const auto logit = [&](std::size_t v) { return logits[(v / width * tokens + t) * width + v % width]; };
    float top = -INFINITY;
    for (std::size_t v = threadIdx.x; v < shape.slices * width; v += kThreads) top = fmaxf(top, logit(v));
    top = reduce_block(top, Larger{});
    float sum = 0.0F;
    for (std::size_t v = threadIdx.x; v < shape.slices * width; v += kThreads) sum += expf(logit(v) - top);
    sum = reduce_block(sum, Plus{});
    const auto target = static_cast<std::size_t>(targets[t]);
    if (threadIdx.x == 0) of_tokens[t] = static_cast<double>(logf(sum) + top - logit(target));
    for (std::size_t i = threadIdx.x; i < width && !dlogits.empty(); i += kThreads) {
      const std::size_t v = shape.own * width + i;
      dlogits[t * width + i] = (expf(logit(v) - top) / sum - (v == target ? 1.0F : 0.0F)) * scale;
    }
  });
  for_each_row(task, 1, [=] __device__(std::size_t) {
    double sum = 0.0;
    for (std::size_t t = threadIdx.x; t < tokens; t += kThreads) sum += of_tokens[t];
    sum = reduce_block(sum, Plus{});
    if (threadIdx.x == 0) losses[0] += sum;
  });
}

}  // namespace gtp::train
