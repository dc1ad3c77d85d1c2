// The unsharded run: one process, whole tensors, no runtime, no streams and no collectives. To be comparable bit for
// bit it adds partial sums in the order in which the ranks of a plan would meet, and does nothing else that they do.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "examples/train/layer_math.hpp"
#include "examples/train/parameters.hpp"
#include "examples/train/plan_values.hpp"

namespace gtp::test {

using Vector = std::vector<float>;
using Tensors = std::map<std::string, Vector>;

struct ReferenceLog {
  std::vector<double> losses;
  std::vector<double> grad_norms;  ///< In plain double arithmetic, so only close to what the ranks report.
  Tensors weights;
};

/// Trains for `steps` steps on the samples, and in the order of additions, of `plan`.
ReferenceLog run_reference(const train::PlanValues& plan, const train::ModelShape& shape, std::uint64_t seed,
                           std::int64_t steps);

/// One microbatch on whole tensors: loss and gradients of every tensor, for the tests of the mathematics.
class ReferenceModel {
 public:
  ReferenceModel(const train::ModelShape& shape, std::uint64_t seed, std::size_t tp);

  /// bf16 copies are what forward and backward read.
  Tensors masters;
  void round_weights();
  /// The sum of token losses of samples [first, first + samples), and gradients of `scale` times it.
  double microbatch(std::uint64_t seed, std::int64_t first, std::size_t samples, float scale, Tensors& grads);

  const std::vector<train::TensorSpec>& specs() const noexcept { return specs_; }

 private:
  struct Layer;
  using Half = std::vector<std::uint16_t>;

  void forward_attention(const std::string& name, Layer& layer, std::size_t samples);
  void forward_mlp(const std::string& name, Layer& layer);
  void forward_experts(const std::string& name, Layer& layer);
  void backward_mlp(const std::string& name, Layer& layer, Vector& d, Tensors& grads);
  void backward_experts(const std::string& name, Layer& layer, Vector& d, Tensors& grads);
  void backward_attention(const std::string& name, Layer& layer, Vector& d, Tensors& grads, std::size_t samples);
  Vector norm(const std::string& name, const Vector& x, Vector& mean, Vector& rstd);
  void norm_backward(const std::string& name, Vector& d, const Vector& dy, const Vector& x, const Vector& mean,
                     const Vector& rstd, Tensors& grads);
  /// Both as TP ranks would: partial products of the slices of `tp` ranks, added in order.
  Vector by_columns(const std::string& name, const Vector& x);
  Vector dgrad_by_rows(const std::string& name, const Vector& dy);
  void wgrad(const std::string& name, const Vector& dy, const Vector& x, Tensors& grads);

  train::ModelShape shape_;
  std::size_t tp_;
  std::vector<train::TensorSpec> specs_;
  std::map<std::string, Half> weights_;
  std::map<std::string, std::pair<std::size_t, std::size_t>> sizes_;
};

}  // namespace gtp::test
