// The whole model for microbatches of one size: data, embedding, layers, head and loss, forward and backward.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "blocks.hpp"
#include "synthetic.hpp"

namespace gtp::train {

class Model {
 public:
  Model(const BlockContext& context, std::uint64_t seed);

  /// Forgets the losses so far.
  void reset_loss();
  /// The sum of token losses since, on this rank; may be read after the compute stream was synchronized.
  std::span<const double> losses() const noexcept { return losses_; }
  /// What follows counts its samples from here on. Not part of a graph, so that graphs can be replayed.
  void begin_step(std::int64_t first_sample);
  /// Reads `batch.samples` samples, `offset` after the beginning of the step.
  void forward(DataSplit split, std::int64_t offset);
  /// After forward. Gradients of token losses are multiplied by `scale` and added up.
  void backward(float scale);
  /// After forward: the loss alone.
  void evaluate();

 private:
  void load(DataSplit split, std::int64_t offset);
  void embed();
  void loss(Floats dlogits, float scale);
  void embed_backward();

  Rank& rank_;
  const ModelShape shape_;
  BatchShape batch_;
  std::uint64_t seed_;
  Parameter& embedding_;
  Parameter& position_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Floats> activations_;  ///< The input of every block, and the output of the last.
  Norm final_norm_;
  Linear head_;
  std::span<std::int64_t> step_begin_;
  std::span<std::int32_t> tokens_, targets_;
  Floats logits_, gathered_logits_, dlogits_, d_normed_, d_;
  std::span<double> losses_;
};

}  // namespace gtp::train
