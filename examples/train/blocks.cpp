#include "blocks.hpp"

namespace gtp::train {

GradTarget target_of(const WgradView& view) noexcept { return {view.data, view.type, view.accumulate}; }

Linear::Linear(const BlockContext& context, const std::string& name)
    : rank_(context.rank), parameter_(context.parameters.find(name)), tokens_(context.batch.tokens()) {}

void Linear::forward(Floats y, ConstFloats x) {
  const auto views = rank_.gtp().materialize(*parameter_.weight, Use::kForward, rank_.compute());
  const Weights w = usable_weight(rank_, parameter_, views[0], CopyDirection::kRow);
  rank_.arithmetic().linear_forward(rank_.task(parameter_.spec.name, "forward"), y, x, w, {tokens_, in(), out()});
}

void Linear::backward(Floats dx, ConstFloats dy, ConstFloats x) {
  Runtime& gtp = rank_.gtp();
  const LinearShape shape{tokens_, in(), out()};
  const auto views = gtp.materialize(*parameter_.weight, Use::kDgrad, rank_.compute());
  const Weights w = usable_weight(rank_, parameter_, views[0], CopyDirection::kCol);
  rank_.arithmetic().linear_dgrad(rank_.task(parameter_.spec.name, "dgrad"), dx, dy, w, shape);
  const GradTarget dw = target_of(gtp.grad_buffer(*parameter_.weight, rank_.compute())[0]);
  rank_.arithmetic().linear_wgrad(rank_.task(parameter_.spec.name, "wgrad"), dw, dy, x, shape);
  gtp.reduce_grad(*parameter_.weight, rank_.compute());
}

Norm::Norm(const BlockContext& context, const std::string& name)
    : rank_(context.rank),
      gain_(context.parameters.find(name + ".gain")),
      bias_(context.parameters.find(name + ".bias")),
      y_(rank_.floats(context.batch.tokens() * context.shape.hidden)),
      state_{rank_.floats(context.batch.tokens()), rank_.floats(context.batch.tokens())} {}

void Norm::forward(ConstFloats x) {
  rank_.arithmetic().norm_forward(rank_.task(gain_.spec.name, "forward"), y_, state_, x, {gain_.values, bias_.values});
}

void Norm::backward(Floats dx, ConstFloats dy, ConstFloats x) {
  rank_.arithmetic().norm_backward(rank_.task(gain_.spec.name, "backward"), dx, {gain_.grad, bias_.grad}, dy, x, state_,
                                   gain_.values);
}

AttentionBlock::AttentionBlock(const BlockContext& context, const std::string& layer)
    : rank_(context.rank),
      norm_(context, layer + ".norm1"),
      qkv_(context, layer + ".qkv"),
      proj_(context, layer + ".proj"),
      shape_{context.batch.samples, context.batch.seq, proj_.in() / context.shape.head_width(),
             context.shape.head_width()},
      projected_(rank_.floats(context.batch.tokens() * qkv_.out())),
      probs_(rank_.floats(shape_.probabilities())),
      attended_(rank_.floats(context.batch.tokens() * shape_.columns())),
      d_projected_(rank_.floats(projected_.size())),
      d_attended_(rank_.floats(attended_.size())),
      d_normed_(rank_.floats(norm_.output().size())) {}

void AttentionBlock::forward(Floats y, ConstFloats x) {
  norm_.forward(x);
  qkv_.forward(projected_, norm_.output());
  rank_.arithmetic().attention_forward(rank_.task("attention", "forward"), attended_, probs_, projected_, shape_);
  proj_.forward(y, attended_);
  rank_.all_reduce(rank_.groups().tp, y, {"attention", "forward"}, rank_.calls().tensor_parallel);
  rank_.arithmetic().add(rank_.task("residual", "add"), y, x);
}

void AttentionBlock::backward(Floats d, ConstFloats x) {
  proj_.backward(d_attended_, d, attended_);
  rank_.arithmetic().attention_backward(rank_.task("attention", "backward"), d_projected_, d_attended_, probs_,
                                        projected_, shape_);
  qkv_.backward(d_normed_, d_projected_, norm_.output());
  rank_.all_reduce(rank_.groups().tp, d_normed_, {"attention", "backward"}, rank_.calls().tensor_parallel);
  norm_.backward(d, d_normed_, x);
}

MlpBlock::MlpBlock(const BlockContext& context, const std::string& layer)
    : rank_(context.rank),
      norm_(context, layer + ".norm2"),
      fc1_(context, layer + ".fc1"),
      fc2_(context, layer + ".fc2"),
      hidden_(rank_.floats(context.batch.tokens() * fc1_.out())),
      active_(rank_.floats(hidden_.size())),
      d_hidden_(rank_.floats(hidden_.size())),
      d_normed_(rank_.floats(norm_.output().size())) {}

void MlpBlock::forward(Floats y, ConstFloats x) {
  norm_.forward(x);
  fc1_.forward(hidden_, norm_.output());
  rank_.arithmetic().gelu_forward(rank_.task("gelu", "forward"), active_, hidden_);
  fc2_.forward(y, active_);
  rank_.all_reduce(rank_.groups().tp, y, {"mlp", "forward"}, rank_.calls().tensor_parallel);
  rank_.arithmetic().add(rank_.task("residual", "add"), y, x);
}

void MlpBlock::backward(Floats d, ConstFloats x) {
  fc2_.backward(d_hidden_, d, active_);
  rank_.arithmetic().gelu_backward(rank_.task("gelu", "backward"), d_hidden_, hidden_);
  fc1_.backward(d_normed_, d_hidden_, norm_.output());
  rank_.all_reduce(rank_.groups().tp, d_normed_, {"mlp", "backward"}, rank_.calls().tensor_parallel);
  norm_.backward(d, d_normed_, x);
}

}  // namespace gtp::train
