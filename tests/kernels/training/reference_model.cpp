#include <algorithm>

#include "examples/train/moe_math.hpp"
#include "examples/train/synthetic.hpp"
#include "kernels/format/bf16.hpp"
#include "reference.hpp"

namespace gtp::test {

using namespace train;

struct ReferenceModel::Layer {
  Vector x, h1, mean1, rstd1, qkv, probs, attended;
  Vector middle, h2, mean2, rstd2, hidden, active;
  Vector router_probs, gates;
  std::vector<Vector> expert_hidden, expert_active, expert_out;
  Vector y;
};

namespace {

/// Columns [begin, begin + count) of a matrix.
template <class T>
std::vector<T> columns(const std::vector<T>& whole, std::size_t cols, std::size_t begin, std::size_t count) {
  std::vector<T> out;
  for (std::size_t row = 0; row < whole.size() / cols; ++row) {
    for (std::size_t i = 0; i < count; ++i) out.push_back(whole[row * cols + begin + i]);
  }
  return out;
}

void add(Vector& to, const Vector& from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

Vector gate_of(const Vector& gates, std::size_t experts, std::size_t expert) {
  return columns(gates, experts, expert, 1);
}

}  // namespace

ReferenceModel::ReferenceModel(const ModelShape& shape, std::uint64_t seed, std::size_t tp)
    : shape_(shape), tp_(tp), specs_(tensors_of(shape)) {
  for (const TensorSpec& spec : specs_) {
    for (std::size_t e = 0; e < std::max<std::size_t>(spec.experts, 1); ++e) {
      const std::string name = spec.is_expert() ? spec.name + "." + std::to_string(e) : spec.name;
      sizes_[name] = {spec.rows, spec.cols};
      Vector& values = masters[name];
      for (std::size_t i = 0; i < spec.rows * spec.cols; ++i) {
        values.push_back(spec.initial_mean + spec.initial_range * uniform(seed, name, i));
      }
    }
  }
  round_weights();
}

void ReferenceModel::round_weights() {
  for (const auto& [name, values] : masters) {
    Half& half = weights_[name];
    half.clear();
    for (const float value : values) half.push_back(bits_of(to_bf16(value)));
  }
}

Vector ReferenceModel::by_columns(const std::string& name, const Vector& x) {
  const auto [rows, cols] = sizes_[name];
  const std::size_t tokens = x.size() / cols;
  const std::size_t part = cols / tp_;
  Vector y;
  for (std::size_t p = 0; p < tp_; ++p) {
    Vector partial(tokens * rows);
    const Half w = columns(weights_[name], cols, p * part, part);
    linear_forward(partial, columns(x, cols, p * part, part), w, {tokens, part, rows});
    if (p == 0)
      y = partial;
    else
      add(y, partial);
  }
  return y;
}

Vector ReferenceModel::dgrad_by_rows(const std::string& name, const Vector& dy) {
  const auto [rows, cols] = sizes_[name];
  const std::size_t tokens = dy.size() / rows;
  const std::size_t part = rows / tp_;
  Vector dx;
  for (std::size_t p = 0; p < tp_; ++p) {
    Vector partial(tokens * cols);
    const Weights w = Weights(weights_[name]).subspan(p * part * cols, part * cols);
    linear_dgrad(partial, columns(dy, rows, p * part, part), w, {tokens, cols, part});
    if (p == 0)
      dx = partial;
    else
      add(dx, partial);
  }
  return dx;
}

void ReferenceModel::wgrad(const std::string& name, const Vector& dy, const Vector& x, Tensors& grads) {
  const auto [rows, cols] = sizes_[name];
  Vector& grad = grads[name];
  grad.assign(rows * cols, 0.0F);
  linear_wgrad({grad.data(), ElementType::kFloat32, false}, dy, x, {x.size() / cols, cols, rows});
}

Vector ReferenceModel::norm(const std::string& name, const Vector& x, Vector& mean, Vector& rstd) {
  Vector y(x.size());
  mean.resize(x.size() / shape_.hidden);
  rstd.resize(mean.size());
  layer_norm_forward(y, mean, rstd, x, weights_[name + ".gain"], weights_[name + ".bias"]);
  return y;
}

void ReferenceModel::norm_backward(const std::string& name, Vector& d, const Vector& dy, const Vector& x,
                                   const Vector& mean, const Vector& rstd, Tensors& grads) {
  Vector& gain = grads[name + ".gain"];
  Vector& bias = grads[name + ".bias"];
  gain.assign(shape_.hidden, 0.0F);
  bias.assign(shape_.hidden, 0.0F);
  layer_norm_backward(d, gain, bias, dy, x, mean, rstd, weights_[name + ".gain"]);
}

void ReferenceModel::forward_attention(const std::string& name, Layer& layer, std::size_t samples) {
  const AttentionShape attention{samples, shape_.seq, shape_.heads, shape_.head_width()};
  const std::size_t tokens = samples * shape_.seq;
  layer.h1 = norm(name + ".norm1", layer.x, layer.mean1, layer.rstd1);
  layer.qkv.resize(tokens * 3 * shape_.hidden);
  linear_forward(layer.qkv, layer.h1, weights_[name + ".qkv"], {tokens, shape_.hidden, 3 * shape_.hidden});
  layer.probs.resize(attention.probabilities());
  layer.attended.resize(tokens * shape_.hidden);
  attention_forward(layer.attended, layer.probs, layer.qkv, attention);
  layer.middle = by_columns(name + ".proj", layer.attended);
  add(layer.middle, layer.x);
}

void ReferenceModel::forward_mlp(const std::string& name, Layer& layer) {
  const std::size_t tokens = layer.middle.size() / shape_.hidden;
  layer.h2 = norm(name + ".norm2", layer.middle, layer.mean2, layer.rstd2);
  layer.hidden.resize(tokens * shape_.ffn);
  layer.active.resize(layer.hidden.size());
  linear_forward(layer.hidden, layer.h2, weights_[name + ".fc1"], {tokens, shape_.hidden, shape_.ffn});
  gelu_forward(layer.active, layer.hidden);
  layer.y = by_columns(name + ".fc2", layer.active);
  add(layer.y, layer.middle);
}

void ReferenceModel::forward_experts(const std::string& name, Layer& layer) {
  const std::size_t tokens = layer.middle.size() / shape_.hidden;
  layer.h2 = norm(name + ".norm2", layer.middle, layer.mean2, layer.rstd2);
  Vector logits(tokens * shape_.experts);
  layer.router_probs = layer.gates = logits;
  linear_forward(logits, layer.h2, weights_[name + ".router"], {tokens, shape_.hidden, shape_.experts});
  route_forward(layer.gates, layer.router_probs, logits, {tokens, shape_.experts, shape_.topk});
  layer.y.assign(layer.middle.size(), 0.0F);
  for (std::size_t e = 0; e < shape_.experts; ++e) {
    const Vector gate = gate_of(layer.gates, shape_.experts, e);
    Vector& hidden = layer.expert_hidden.emplace_back(tokens * shape_.ffn);
    Vector& active = layer.expert_active.emplace_back(tokens * shape_.ffn);
    Vector& out = layer.expert_out.emplace_back(tokens * shape_.hidden);
    const std::string suffix = "." + std::to_string(e);
    linear_forward(hidden, layer.h2, weights_[name + ".experts.fc1" + suffix], {tokens, shape_.hidden, shape_.ffn},
                   gate);
    gelu_forward(active, hidden);
    linear_forward(out, active, weights_[name + ".experts.fc2" + suffix], {tokens, shape_.ffn, shape_.hidden}, gate);
    add_gated(layer.y, out, gate);
  }
  add(layer.y, layer.middle);
}

void ReferenceModel::backward_mlp(const std::string& name, Layer& layer, Vector& d, Tensors& grads) {
  const std::size_t tokens = d.size() / shape_.hidden;
  Vector d_hidden(layer.hidden.size());
  linear_dgrad(d_hidden, d, weights_[name + ".fc2"], {tokens, shape_.ffn, shape_.hidden});
  wgrad(name + ".fc2", d, layer.active, grads);
  gelu_backward(d_hidden, layer.hidden);
  const Vector d_normed = dgrad_by_rows(name + ".fc1", d_hidden);
  wgrad(name + ".fc1", d_hidden, layer.h2, grads);
  norm_backward(name + ".norm2", d, d_normed, layer.middle, layer.mean2, layer.rstd2, grads);
}

void ReferenceModel::backward_experts(const std::string& name, Layer& layer, Vector& d, Tensors& grads) {
  const std::size_t tokens = d.size() / shape_.hidden;
  Vector d_normed(d.size(), 0.0F);
  Vector dgates(layer.gates.size());
  for (std::size_t e = 0; e < shape_.experts; ++e) {
    const std::string fc1 = name + ".experts.fc1." + std::to_string(e);
    const std::string fc2 = name + ".experts.fc2." + std::to_string(e);
    const Vector gate = gate_of(layer.gates, shape_.experts, e);
    Vector d_out(d.size());
    Vector d_gate(tokens);
    Vector d_hidden(tokens * shape_.ffn);
    gated_backward(d_out, d_gate, d, layer.expert_out[e], gate);
    linear_dgrad(d_hidden, d_out, weights_[fc2], {tokens, shape_.ffn, shape_.hidden}, false, gate);
    wgrad(fc2, d_out, layer.expert_active[e], grads);
    gelu_backward(d_hidden, layer.expert_hidden[e]);
    linear_dgrad(d_normed, d_hidden, weights_[fc1], {tokens, shape_.hidden, shape_.ffn}, true, gate);
    wgrad(fc1, d_hidden, layer.h2, grads);
    for (std::size_t t = 0; t < tokens; ++t) dgates[t * shape_.experts + e] = d_gate[t];
  }
  Vector dlogits(dgates.size());
  route_backward(dlogits, dgates, layer.gates, layer.router_probs, {tokens, shape_.experts, shape_.topk});
  linear_dgrad(d_normed, dlogits, weights_[name + ".router"], {tokens, shape_.hidden, shape_.experts}, true);
  wgrad(name + ".router", dlogits, layer.h2, grads);
  norm_backward(name + ".norm2", d, d_normed, layer.middle, layer.mean2, layer.rstd2, grads);
}

void ReferenceModel::backward_attention(const std::string& name, Layer& layer, Vector& d, Tensors& grads,
                                        std::size_t samples) {
  const std::size_t tokens = d.size() / shape_.hidden;
  Vector d_attended(d.size());
  linear_dgrad(d_attended, d, weights_[name + ".proj"], {tokens, shape_.hidden, shape_.hidden});
  wgrad(name + ".proj", d, layer.attended, grads);
  Vector d_qkv(layer.qkv.size());
  attention_backward(d_qkv, d_attended, layer.probs, layer.qkv,
                     {samples, shape_.seq, shape_.heads, shape_.head_width()});
  const Vector d_normed = dgrad_by_rows(name + ".qkv", d_qkv);
  wgrad(name + ".qkv", d_qkv, layer.h1, grads);
  norm_backward(name + ".norm1", d, d_normed, layer.x, layer.mean1, layer.rstd1, grads);
}

double ReferenceModel::microbatch(std::uint64_t seed, std::int64_t first, std::size_t samples, float scale,
                                  Tensors& grads) {
  const std::size_t seq = shape_.seq;
  const std::size_t tokens = samples * seq;
  std::vector<std::int32_t> inputs, targets, sample(seq + 1);
  for (std::size_t s = 0; s < samples; ++s) {
    make_sample(sample, seed, DataSplit::kTrain, first + static_cast<std::int64_t>(s), shape_.vocab);
    inputs.insert(inputs.end(), sample.begin(), sample.end() - 1);
    targets.insert(targets.end(), sample.begin() + 1, sample.end());
  }
  std::vector<Layer> layers(shape_.layers);
  Vector x(tokens * shape_.hidden);
  embedding_forward(x, inputs, weights_["embedding"], 0);
  position_forward(x, weights_["position"]);
  for (std::size_t i = 0; i < shape_.layers; ++i) {
    const std::string name = "layers." + std::to_string(i);
    layers[i].x = x;
    forward_attention(name, layers[i], samples);
    if (shape_.is_moe())
      forward_experts(name, layers[i]);
    else
      forward_mlp(name, layers[i]);
    x = layers[i].y;
  }
  Vector mean, rstd;
  const Vector normed = norm("final_norm", x, mean, rstd);
  Vector logits(tokens * shape_.vocab);
  Vector dlogits(logits.size());
  linear_forward(logits, normed, weights_["head"], {tokens, shape_.hidden, shape_.vocab});
  const double loss = cross_entropy(dlogits, logits, targets, 1, 0, scale);
  const Vector d_normed = dgrad_by_rows("head", dlogits);
  wgrad("head", dlogits, normed, grads);
  Vector d(x.size(), 0.0F);
  norm_backward("final_norm", d, d_normed, x, mean, rstd, grads);
  for (std::size_t i = shape_.layers; i-- > 0;) {
    const std::string name = "layers." + std::to_string(i);
    if (shape_.is_moe())
      backward_experts(name, layers[i], d, grads);
    else
      backward_mlp(name, layers[i], d, grads);
    backward_attention(name, layers[i], d, grads, samples);
  }
  grads["position"].assign(shape_.seq * shape_.hidden, 0.0F);
  position_backward(grads["position"], d);
  grads["embedding"].assign(shape_.vocab * shape_.hidden, 0.0F);
  embedding_wgrad({grads["embedding"].data(), ElementType::kFloat32, false}, d, inputs, 0, shape_.vocab);
  return loss;
}

}  // namespace gtp::test
