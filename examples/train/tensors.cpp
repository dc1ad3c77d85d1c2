#include <fmt/format.h>

#include <cmath>

#include "parameters.hpp"

namespace gtp::train {

namespace {

float range_for(std::size_t fan_in) { return std::sqrt(3.0F / static_cast<float>(fan_in)); }

void add_norm(std::vector<TensorSpec>& out, const std::string& name, std::size_t width) {
  TensorSpec gain{.name = name + ".gain", .rows = width, .cols = 1, .sharded = false, .decays = false};
  gain.initial_mean = 1;
  out.push_back(gain);
  out.push_back({.name = name + ".bias", .rows = width, .cols = 1, .sharded = false, .decays = false});
}

void add_linear(std::vector<TensorSpec>& out, const std::string& name, std::size_t rows, std::size_t cols, Cut cut) {
  out.push_back({.name = name, .rows = rows, .cols = cols, .cut = cut, .initial_range = range_for(cols)});
}

void add_experts(std::vector<TensorSpec>& out, const std::string& layer, const ModelShape& shape) {
  TensorSpec router{.name = layer + ".router", .rows = shape.experts, .cols = shape.hidden, .sharded = false};
  router.initial_range = range_for(shape.hidden);
  out.push_back(router);
  TensorSpec fc1{.name = layer + ".experts.fc1", .rows = shape.ffn, .cols = shape.hidden};
  fc1.experts = shape.experts;
  fc1.role = ChainRole::kExpertFc1;
  fc1.initial_range = range_for(shape.hidden);
  out.push_back(fc1);
  TensorSpec fc2{.name = layer + ".experts.fc2", .rows = shape.hidden, .cols = shape.ffn};
  fc2.experts = shape.experts;
  fc2.role = ChainRole::kExpertFc2;
  fc2.initial_range = range_for(shape.ffn);
  out.push_back(fc2);
}

}  // namespace

std::vector<TensorSpec> tensors_of(const ModelShape& shape) {
  std::vector<TensorSpec> out;
  add_linear(out, "embedding", shape.vocab, shape.hidden, Cut::kRows);
  out.back().needs_dgrad = false;
  out.back().initial_range = 0.5F;
  out.push_back({.name = "position", .rows = shape.seq, .cols = shape.hidden, .sharded = false, .initial_range = 0.1F});
  for (std::size_t i = 0; i < shape.layers; ++i) {
    const std::string layer = fmt::format("layers.{}", i);
    add_norm(out, layer + ".norm1", shape.hidden);
    add_linear(out, layer + ".qkv", 3 * shape.hidden, shape.hidden, Cut::kRows);
    add_linear(out, layer + ".proj", shape.hidden, shape.hidden, Cut::kCols);
    add_norm(out, layer + ".norm2", shape.hidden);
    if (shape.is_moe()) {
      add_experts(out, layer, shape);
      continue;
    }
    add_linear(out, layer + ".fc1", shape.ffn, shape.hidden, Cut::kRows);
    add_linear(out, layer + ".fc2", shape.hidden, shape.ffn, Cut::kCols);
  }
  add_norm(out, "final_norm", shape.hidden);
  add_linear(out, "head", shape.vocab, shape.hidden, Cut::kRows);
  for (TensorSpec& spec : out) spec.quantizes = spec.sharded && spec.name.starts_with("layers.");
  return out;
}

}  // namespace gtp::train
