// Arithmetic on host memory: the functions of linear.hpp, layer_math.hpp, moe_math.hpp and kernels/format through a
// Launcher, with all memory they touch declared.
#pragma once

#include <functional>
#include <initializer_list>

#include "arithmetic.hpp"
#include "launcher.hpp"

namespace gtp::train {

class HostArithmetic final : public Arithmetic {
 public:
  explicit HostArithmetic(Launcher& launcher) : launcher_(launcher) {}

  void read_back(void* to, const void* from, std::size_t bytes) override;

  void store(const Task& task, std::span<std::int64_t> place, std::int64_t value) override;
  void load(const Task& task, std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
            std::span<const std::int64_t> step_begin, const SampleRange& range) override;
  void initialize(const Task& task, GradTarget out, std::size_t count, const InitialValues& values) override;

  void linear_forward(const Task& task, Floats y, ConstFloats x, Weights w, LinearShape shape,
                      ConstFloats gate) override;
  void linear_dgrad(const Task& task, Floats dx, ConstFloats dy, Weights w, LinearShape shape, bool add,
                    ConstFloats gate) override;
  void linear_wgrad(const Task& task, GradTarget dw, ConstFloats dy, ConstFloats x, LinearShape shape,
                    std::size_t chunks) override;
  void norm_forward(const Task& task, Floats y, const NormState& state, ConstFloats x,
                    const NormParameters& parameters) override;
  void norm_backward(const Task& task, Floats dx, const NormGradients& gradients, ConstFloats dy, ConstFloats x,
                     const NormState& state, Weights gain) override;
  void attention_forward(const Task& task, Floats context, Floats probs, ConstFloats qkv,
                         const AttentionShape& shape) override;
  void attention_backward(const Task& task, Floats dqkv, ConstFloats dcontext, ConstFloats probs, ConstFloats qkv,
                          const AttentionShape& shape) override;
  void gelu_forward(const Task& task, Floats y, ConstFloats x) override;
  void gelu_backward(const Task& task, Floats d, ConstFloats x) override;
  void embedding_forward(const Task& task, Floats y, Tokens tokens, Weights table, std::size_t first) override;
  void embedding_wgrad(const Task& task, GradTarget dtable, ConstFloats dy, Tokens tokens, std::size_t first,
                       std::size_t rows) override;
  void position_forward(const Task& task, Floats x, Weights position) override;
  void position_backward(const Task& task, Floats dposition, ConstFloats dx) override;
  void add(const Task& task, Floats y, ConstFloats x) override;
  void cross_entropy(const Task& task, std::span<double> losses, Floats dlogits, ConstFloats logits, Tokens targets,
                     const LossShape& shape, float scale) override;

  void route_forward(const Task& task, Floats gates, Floats probs, ConstFloats logits, RouteShape shape) override;
  void route_backward(const Task& task, Floats dlogits, ConstFloats dgates, ConstFloats gates, ConstFloats probs,
                      RouteShape shape) override;
  void dispatch(const Task& task, Floats slots, Floats sent_gates, ConstFloats x, ConstFloats gates,
                const SlotShape& shape) override;
  void swap_axes(const Task& task, Floats out, ConstFloats in, const AxisShape& shape) override;
  void repeat(const Task& task, Floats out, ConstFloats in) override;
  void sum_parts(const Task& task, Floats y, ConstFloats parts, ConstFloats x) override;
  void add_gated(const Task& task, Floats y, ConstFloats f, ConstFloats gate) override;
  void gated_backward(const Task& task, Floats df, Floats dgate, ConstFloats dy, ConstFloats f,
                      ConstFloats gate) override;

  void squares(const Task& task, std::span<ExactSum> sum, std::span<const ConstFloats> ranges) override;
  void clip(const Task& task, std::span<double> clip, std::span<const ExactSum> dense, std::span<const ExactSum> expert,
            double limit) override;
  void adam(const Task& task, const AdamState& state, ConstFloats grads, std::span<const double> clip,
            const AdamStep& step) override;

  void amax(const Task& task, std::span<float> amax, Weights values) override;
  void largest(const Task& task, std::span<float> amaxes, std::span<const float> of_members) override;
  void quantize(const Task& task, const QuantizedShard& out, Weights values) override;
  void dequantize(const Task& task, std::span<std::uint16_t> out, const GatheredMatrix& in,
                  CopyDirection direction) override;

 private:
  void run(const Task& task, std::initializer_list<Access> accesses, std::function<void()> body);

  Launcher& launcher_;
};

}  // namespace gtp::train
