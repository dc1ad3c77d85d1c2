#include <algorithm>
#include <cmath>

#include "layer_math.hpp"

namespace gtp::train {

namespace {

enum class Part : std::uint8_t { kQuery, kKey, kValue };

/// One head of one sample.
struct Head {
  const AttentionShape& shape;
  std::size_t sample;
  std::size_t head;

  std::size_t projected(std::size_t place, Part part) const {
    const std::size_t token = sample * shape.seq + place;
    return ((token * shape.heads + head) * 3 + static_cast<std::size_t>(part)) * shape.width;
  }
  std::size_t output(std::size_t place) const {
    return ((sample * shape.seq + place) * shape.heads + head) * shape.width;
  }
  std::size_t probability(std::size_t query, std::size_t key) const {
    return ((sample * shape.heads + head) * shape.seq + query) * shape.seq + key;
  }
};

float dot(ConstFloats a, std::size_t a_at, ConstFloats b, std::size_t b_at, std::size_t width) {
  float sum = 0.0F;
  for (std::size_t i = 0; i < width; ++i) sum += a[a_at + i] * b[b_at + i];
  return sum;
}

/// to += factor * from
void add(Floats to, std::size_t to_at, float factor, ConstFloats from, std::size_t from_at, std::size_t width) {
  for (std::size_t i = 0; i < width; ++i) to[to_at + i] += factor * from[from_at + i];
}

float score_scale(const AttentionShape& shape) { return 1.0F / std::sqrt(static_cast<float>(shape.width)); }

void softmax_row(Floats probs, ConstFloats qkv, const Head& head, std::size_t query) {
  const AttentionShape& shape = head.shape;
  const std::size_t q = head.projected(query, Part::kQuery);
  const Floats row = probs.subspan(head.probability(query, 0), shape.seq);
  std::ranges::fill(row, 0.0F);
  float top = -INFINITY;
  for (std::size_t key = 0; key <= query; ++key) {
    row[key] = dot(qkv, q, qkv, head.projected(key, Part::kKey), shape.width) * score_scale(shape);
    top = std::max(top, row[key]);
  }
  float sum = 0.0F;
  for (std::size_t key = 0; key <= query; ++key) sum += row[key] = std::exp(row[key] - top);
  for (std::size_t key = 0; key <= query; ++key) row[key] /= sum;
}

void backward_row(Floats dqkv, ConstFloats dcontext, ConstFloats probs, ConstFloats qkv, const Head& head,
                  std::size_t query) {
  const AttentionShape& shape = head.shape;
  const std::size_t out = head.output(query);
  float weighted = 0.0F;
  for (std::size_t key = 0; key <= query; ++key) {
    const float p = probs[head.probability(query, key)];
    weighted += p * dot(dcontext, out, qkv, head.projected(key, Part::kValue), shape.width);
  }
  for (std::size_t key = 0; key <= query; ++key) {
    const float p = probs[head.probability(query, key)];
    const float dp = dot(dcontext, out, qkv, head.projected(key, Part::kValue), shape.width);
    const float dscore = p * (dp - weighted) * score_scale(shape);
    const std::size_t q = head.projected(query, Part::kQuery);
    const std::size_t k = head.projected(key, Part::kKey);
    add(dqkv, head.projected(key, Part::kValue), p, dcontext, out, shape.width);
    add(dqkv, q, dscore, qkv, k, shape.width);
    add(dqkv, k, dscore, qkv, q, shape.width);
  }
}

template <class Row>
void for_each_row(const AttentionShape& shape, Row&& row) {
  for (std::size_t sample = 0; sample < shape.samples; ++sample) {
    for (std::size_t head = 0; head < shape.heads; ++head) {
      for (std::size_t query = 0; query < shape.seq; ++query) row(Head{shape, sample, head}, query);
    }
  }
}

}  // namespace

void attention_forward(Floats context, Floats probs, ConstFloats qkv, const AttentionShape& shape) {
  std::ranges::fill(context, 0.0F);
  for_each_row(shape, [&](const Head& head, std::size_t query) {
    softmax_row(probs, qkv, head, query);
    for (std::size_t key = 0; key <= query; ++key) {
      add(context, head.output(query), probs[head.probability(query, key)], qkv, head.projected(key, Part::kValue),
          shape.width);
    }
  });
}

void attention_backward(Floats dqkv, ConstFloats dcontext, ConstFloats probs, ConstFloats qkv,
                        const AttentionShape& shape) {
  std::ranges::fill(dqkv, 0.0F);
  for_each_row(shape,
               [&](const Head& head, std::size_t query) { backward_row(dqkv, dcontext, probs, qkv, head, query); });
}

}  // namespace gtp::train
