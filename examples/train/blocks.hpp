// The parts of a decoder, each with its activations for one microbatch: forward keeps what backward needs. A block
// computes x + f(norm(x)); TP ranks hold slices of f and sum their outputs.
#pragma once

#include <memory>
#include <string>

#include "parameters.hpp"
#include "weight_formats.hpp"

namespace gtp::train {

/// Sizes of one microbatch on one rank.
struct BatchShape {
  std::size_t samples = 0;
  std::size_t seq = 0;
  std::size_t tokens() const noexcept { return samples * seq; }
};

struct BlockContext {
  Rank& rank;
  Parameters& parameters;
  const ModelShape& shape;
  BatchShape batch;
};

/// A linear layer whose weight the runtime materializes. Biases are not modelled.
class Linear {
 public:
  Linear(const BlockContext& context, const std::string& name);
  std::size_t in() const noexcept { return parameter_.cols; }
  std::size_t out() const noexcept { return parameter_.rows; }
  void forward(Floats y, ConstFloats x);
  /// dx is overwritten. The weight gradient is reduced behind.
  void backward(Floats dx, ConstFloats dy, ConstFloats x);

 private:
  Rank& rank_;
  Parameter& parameter_;
  std::size_t tokens_;
};

class Norm {
 public:
  Norm(const BlockContext& context, const std::string& name);
  Floats output() const noexcept { return y_; }
  void forward(ConstFloats x);
  /// dx += the gradient through the norm.
  void backward(Floats dx, ConstFloats dy, ConstFloats x);

 private:
  Rank& rank_;
  Parameter& gain_;
  Parameter& bias_;
  Floats y_;
  NormState state_;
};

class Block {
 public:
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  virtual ~Block() = default;
  /// `y` and `x` do not overlap; `x` must stay until backward.
  virtual void forward(Floats y, ConstFloats x) = 0;
  /// `d` is the gradient of y, and becomes that of x.
  virtual void backward(Floats d, ConstFloats x) = 0;
};

class AttentionBlock final : public Block {
 public:
  AttentionBlock(const BlockContext& context, const std::string& layer);
  void forward(Floats y, ConstFloats x) override;
  void backward(Floats d, ConstFloats x) override;

 private:
  Rank& rank_;
  Norm norm_;
  Linear qkv_, proj_;
  AttentionShape shape_;
  Floats projected_, probs_, attended_, d_projected_, d_attended_, d_normed_;
};

class MlpBlock final : public Block {
 public:
  MlpBlock(const BlockContext& context, const std::string& layer);
  void forward(Floats y, ConstFloats x) override;
  void backward(Floats d, ConstFloats x) override;

 private:
  Rank& rank_;
  Norm norm_;
  Linear fc1_, fc2_;
  Floats hidden_, active_, d_hidden_, d_normed_;
};

/// A router and experts, which are spread over EP; see moe_block.cpp.
std::unique_ptr<Block> make_moe_block(const BlockContext& context, const std::string& layer);

/// Where the next weight gradient of a local tensor goes.
GradTarget target_of(const WgradView& view) noexcept;

}  // namespace gtp::train
