// All that training computes, as operations that are enqueued on a stream of some device. The parts of the model call
// this and nothing else, so they do not know where it runs: HostArithmetic on host memory, cuda/ on a GPU. Formulas and
// layouts are documented with the host's functions (linear.hpp, layer_math.hpp, moe_math.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "adam.hpp"
#include "exact_sum.hpp"
#include "initial_values.hpp"
#include "kernels/sharded_weight.hpp"
#include "layer_math.hpp"
#include "moe_math.hpp"
#include "synthetic.hpp"

namespace gtp::train {

/// Where an operation goes, and its name in traces and errors; the text must outlive it.
struct Task {
  Stream stream;
  OpLabel label;
};

/// Row statistics that a norm leaves for its backward.
struct NormState {
  Floats mean, rstd;
};
struct NormParameters {
  Weights gain, bias;
};
struct NormGradients {
  Floats gain, bias;
};

/// Logits [slices, tokens, vocab / slices], of which `dlogits` covers slice `own`.
struct LossShape {
  std::size_t slices = 1;
  std::size_t own = 0;
};

/// A matrix in the components of its format; see Component. Spans that the format lacks are empty.
template <class Byte>
struct QuantizedMatrix {
  WeightFormat format = WeightFormat::kMxfp8;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::span<Byte> row_data{}, row_scales{}, col_data{}, col_scales{};
  std::span<const float> amax{};  ///< One: of the whole tensor.
};
using QuantizedShard = QuantizedMatrix<std::uint8_t>;
using GatheredMatrix = QuantizedMatrix<const std::uint8_t>;

class Arithmetic {
 public:
  Arithmetic() = default;
  Arithmetic(const Arithmetic&) = delete;
  Arithmetic& operator=(const Arithmetic&) = delete;
  virtual ~Arithmetic() = default;

  /// Precondition: nothing pending writes `from`.
  virtual void read_back(void* to, const void* from, std::size_t bytes) = 0;

  // --- data and initial values ---------------------------------------------------------------------------------------

  virtual void store(const Task& task, std::span<std::int64_t> place, std::int64_t value) = 0;
  /// Samples from `step_begin[0]` + `range.offset` on.
  virtual void load(const Task& task, std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
                    std::span<const std::int64_t> step_begin, const SampleRange& range) = 0;
  /// `count` elements, rounded to the type of `out`.
  virtual void initialize(const Task& task, GradTarget out, std::size_t count, const InitialValues& values) = 0;

  // --- layers --------------------------------------------------------------------------------------------------------

  virtual void linear_forward(const Task& task, Floats y, ConstFloats x, Weights w, LinearShape shape,
                              ConstFloats gate = {}) = 0;
  virtual void linear_dgrad(const Task& task, Floats dx, ConstFloats dy, Weights w, LinearShape shape, bool add = false,
                            ConstFloats gate = {}) = 0;
  /// A device may add chunks in another way than ranks would have.
  virtual void linear_wgrad(const Task& task, GradTarget dw, ConstFloats dy, ConstFloats x, LinearShape shape,
                            std::size_t chunks = 1) = 0;
  virtual void norm_forward(const Task& task, Floats y, const NormState& state, ConstFloats x,
                            const NormParameters& parameters) = 0;
  virtual void norm_backward(const Task& task, Floats dx, const NormGradients& gradients, ConstFloats dy, ConstFloats x,
                             const NormState& state, Weights gain) = 0;
  virtual void attention_forward(const Task& task, Floats context, Floats probs, ConstFloats qkv,
                                 const AttentionShape& shape) = 0;
  virtual void attention_backward(const Task& task, Floats dqkv, ConstFloats dcontext, ConstFloats probs,
                                  ConstFloats qkv, const AttentionShape& shape) = 0;
  virtual void gelu_forward(const Task& task, Floats y, ConstFloats x) = 0;
  virtual void gelu_backward(const Task& task, Floats d, ConstFloats x) = 0;
  virtual void embedding_forward(const Task& task, Floats y, Tokens tokens, Weights table, std::size_t first) = 0;
  virtual void embedding_wgrad(const Task& task, GradTarget dtable, ConstFloats dy, Tokens tokens, std::size_t first,
                               std::size_t rows) = 0;
  virtual void position_forward(const Task& task, Floats x, Weights position) = 0;
  virtual void position_backward(const Task& task, Floats dposition, ConstFloats dx) = 0;
  /// y += x
  virtual void add(const Task& task, Floats y, ConstFloats x) = 0;
  /// losses[0] += the sum of token losses.
  virtual void cross_entropy(const Task& task, std::span<double> losses, Floats dlogits, ConstFloats logits,
                             Tokens targets, const LossShape& shape, float scale) = 0;

  // --- experts -------------------------------------------------------------------------------------------------------

  virtual void route_forward(const Task& task, Floats gates, Floats probs, ConstFloats logits, RouteShape shape) = 0;
  virtual void route_backward(const Task& task, Floats dlogits, ConstFloats dgates, ConstFloats gates,
                              ConstFloats probs, RouteShape shape) = 0;
  virtual void dispatch(const Task& task, Floats slots, Floats sent_gates, ConstFloats x, ConstFloats gates,
                        const SlotShape& shape) = 0;
  virtual void swap_axes(const Task& task, Floats out, ConstFloats in, const AxisShape& shape) = 0;
  virtual void repeat(const Task& task, Floats out, ConstFloats in) = 0;
  virtual void sum_parts(const Task& task, Floats y, ConstFloats parts, ConstFloats x = {}) = 0;
  virtual void add_gated(const Task& task, Floats y, ConstFloats f, ConstFloats gate) = 0;
  virtual void gated_backward(const Task& task, Floats df, Floats dgate, ConstFloats dy, ConstFloats f,
                              ConstFloats gate) = 0;

  // --- optimizer -----------------------------------------------------------------------------------------------------

  /// sum[0] = the exact sum of the squares of all values of all ranges.
  virtual void squares(const Task& task, std::span<ExactSum> sum, std::span<const ConstFloats> ranges) = 0;
  /// clip[0] = the norm whose squares these are, clip[1] = what gradients must be multiplied by to keep it below
  /// `limit` (0: no limit).
  virtual void clip(const Task& task, std::span<double> clip, std::span<const ExactSum> dense,
                    std::span<const ExactSum> expert, double limit) = 0;
  /// Gradients are multiplied by clip[1] first.
  virtual void adam(const Task& task, const AdamState& state, ConstFloats grads, std::span<const double> clip,
                    const AdamStep& step) = 0;

  // --- quantized weights ---------------------------------------------------------------------------------------------

  /// amax[0] = the largest magnitude of bf16 values.
  virtual void amax(const Task& task, std::span<float> amax, Weights values) = 0;
  /// amaxes[i] = the largest of what the members sent, [members, amaxes].
  virtual void largest(const Task& task, std::span<float> amaxes, std::span<const float> of_members) = 0;
  /// All copies that the format stores.
  virtual void quantize(const Task& task, const QuantizedShard& out, Weights values) = 0;
  /// From the copy of this direction; NVFP4 has rows only. `out` is bf16 [rows, cols].
  virtual void dequantize(const Task& task, std::span<std::uint16_t> out, const GatheredMatrix& in,
                          CopyDirection direction) = 0;
};

}  // namespace gtp::train
