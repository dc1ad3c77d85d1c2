#include "layer_math.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/format/bf16.hpp"

namespace gtp::train {

namespace {

constexpr float kNormEpsilon = 1e-5F;
constexpr float kGeluScale = 0.7978845608F;  // sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715F;

float at(Weights w, std::size_t index) noexcept { return to_float(Bf16{w[index]}); }

}  // namespace

void layer_norm_forward(Floats y, Floats mean, Floats rstd, ConstFloats x, Weights gain, Weights bias) {
  const std::size_t width = gain.size();
  for (std::size_t t = 0; t < mean.size(); ++t) {
    const ConstFloats row = x.subspan(t * width, width);
    float sum = 0.0F;
    for (const float value : row) sum += value;
    mean[t] = sum / static_cast<float>(width);
    float squares = 0.0F;
    for (const float value : row) squares += (value - mean[t]) * (value - mean[t]);
    rstd[t] = 1.0F / std::sqrt(squares / static_cast<float>(width) + kNormEpsilon);
    for (std::size_t i = 0; i < width; ++i) y[t * width + i] = (row[i] - mean[t]) * rstd[t] * at(gain, i) + at(bias, i);
  }
}

void layer_norm_backward(Floats dx, Floats dgain, Floats dbias, ConstFloats dy, ConstFloats x, ConstFloats mean,
                         ConstFloats rstd, Weights gain) {
  const std::size_t width = gain.size();
  const auto normal = [&](std::size_t t, std::size_t i) { return (x[t * width + i] - mean[t]) * rstd[t]; };
  for (std::size_t t = 0; t < mean.size(); ++t) {
    float sum = 0.0F;
    float weighted = 0.0F;
    for (std::size_t i = 0; i < width; ++i) {
      const float d = dy[t * width + i] * at(gain, i);
      sum += d;
      weighted += d * normal(t, i);
    }
    for (std::size_t i = 0; i < width; ++i) {
      const float d = dy[t * width + i] * at(gain, i);
      dx[t * width + i] += rstd[t] * (d - (sum + normal(t, i) * weighted) / static_cast<float>(width));
    }
  }
  for (std::size_t i = 0; i < width; ++i) {
    float gains = 0.0F;
    float biases = 0.0F;
    for (std::size_t t = 0; t < mean.size(); ++t) {
      gains += dy[t * width + i] * normal(t, i);
      biases += dy[t * width + i];
    }
    dgain[i] += gains;
    dbias[i] += biases;
  }
}

void gelu_forward(Floats y, ConstFloats x) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] = 0.5F * x[i] * (1.0F + std::tanh(kGeluScale * (x[i] + kGeluCubic * x[i] * x[i] * x[i])));
  }
}

void gelu_backward(Floats d, ConstFloats x) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float tangent = std::tanh(kGeluScale * (x[i] + kGeluCubic * x[i] * x[i] * x[i]));
    const float inner = kGeluScale * (1.0F + 3.0F * kGeluCubic * x[i] * x[i]);
    d[i] *= 0.5F * (1.0F + tangent) + 0.5F * x[i] * (1.0F - tangent * tangent) * inner;
  }
}

void embedding_forward(Floats y, Tokens tokens, Weights table, std::size_t first) {
  const std::size_t width = y.size() / tokens.size();
  const std::size_t rows = table.size() / width;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const std::size_t row = static_cast<std::size_t>(tokens[t]) - first;  // wraps below `first`
    for (std::size_t i = 0; i < width; ++i) y[t * width + i] = row < rows ? at(table, row * width + i) : 0.0F;
  }
}

void embedding_wgrad(GradTarget dtable, ConstFloats dy, Tokens tokens, std::size_t first, std::size_t rows) {
  const std::size_t width = dy.size() / tokens.size();
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < width; ++i) {
      float sum = 0.0F;
      for (std::size_t t = 0; t < tokens.size(); ++t) {
        if (static_cast<std::size_t>(tokens[t]) == first + row) sum += dy[t * width + i];
      }
      dtable.put(row * width + i, sum);
    }
  }
}

void position_forward(Floats x, Weights position) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += at(position, i % position.size());
}

void position_backward(Floats dposition, ConstFloats dx) {
  for (std::size_t i = 0; i < dposition.size(); ++i) {
    float sum = 0.0F;
    for (std::size_t j = i; j < dx.size(); j += dposition.size()) sum += dx[j];
    dposition[i] += sum;
  }
}

double cross_entropy(Floats dlogits, ConstFloats logits, Tokens targets, std::size_t slices, std::size_t own,
                     float scale) {
  const std::size_t tokens = targets.size();
  const std::size_t width = logits.size() / tokens / slices;
  const auto logit = [&](std::size_t t, std::size_t v) { return logits[(v / width * tokens + t) * width + v % width]; };
  double losses = 0.0;
  for (std::size_t t = 0; t < tokens; ++t) {
    float top = logit(t, 0);
    for (std::size_t v = 1; v < slices * width; ++v) top = std::max(top, logit(t, v));
    float sum = 0.0F;
    for (std::size_t v = 0; v < slices * width; ++v) sum += std::exp(logit(t, v) - top);
    const auto target = static_cast<std::size_t>(targets[t]);
    losses += static_cast<double>(std::log(sum) + top - logit(t, target));
    for (std::size_t i = 0; i < width && !dlogits.empty(); ++i) {
      const std::size_t v = own * width + i;
      dlogits[t * width + i] = (std::exp(logit(t, v) - top) / sum - (v == target ? 1.0F : 0.0F)) * scale;
    }
  }
  return losses;
}

}  // namespace gtp::train
