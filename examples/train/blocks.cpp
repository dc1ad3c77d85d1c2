#include "blocks.hpp"

namespace gtp::train {

GradTarget target_of(const WgradView& view) noexcept { return {view.data, view.type, view.accumulate}; }

Access touched(const WgradView& view) noexcept {
  return {view.data, static_cast<std::size_t>(view.rows * view.cols) * element_bytes(view.type), true};
}

Weights values_of(const GatheredView& view) noexcept {
  return {static_cast<const std::uint16_t*>(view.row_data()), static_cast<std::size_t>(view.rows * view.cols)};
}

void add_residual(Rank& rank, Floats y, ConstFloats x) {
  rank.run({"residual", "add"}, {writes(y), reads(x)}, [=] {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += x[i];
  });
}

Linear::Linear(const BlockContext& context, const std::string& name)
    : rank_(context.rank), parameter_(context.parameters.find(name)), tokens_(context.batch.tokens()) {}

void Linear::forward(Floats y, ConstFloats x) {
  const Weights w = values_of(rank_.gtp().materialize(*parameter_.weight, Use::kForward, rank_.compute())[0]);
  const LinearShape shape{tokens_, in(), out()};
  rank_.run({parameter_.spec.name, "forward"}, {writes(y), reads(x), reads(w)},
            [=] { linear_forward(y, x, w, shape); });
}

void Linear::backward(Floats dx, ConstFloats dy, ConstFloats x) {
  Runtime& gtp = rank_.gtp();
  const Weights w = values_of(gtp.materialize(*parameter_.weight, Use::kDgrad, rank_.compute())[0]);
  const LinearShape shape{tokens_, in(), out()};
  rank_.run({parameter_.spec.name, "dgrad"}, {writes(dx), reads(dy), reads(w)},
            [=] { linear_dgrad(dx, dy, w, shape); });
  const WgradView view = gtp.grad_buffer(*parameter_.weight, rank_.compute())[0];
  rank_.run({parameter_.spec.name, "wgrad"}, {touched(view), reads(dy), reads(x)},
            [=] { linear_wgrad(target_of(view), dy, x, shape); });
  gtp.reduce_grad(*parameter_.weight, rank_.compute());
}

Norm::Norm(const BlockContext& context, const std::string& name)
    : rank_(context.rank),
      gain_(context.parameters.find(name + ".gain")),
      bias_(context.parameters.find(name + ".bias")),
      y_(rank_.floats(context.batch.tokens() * context.shape.hidden)),
      mean_(rank_.floats(context.batch.tokens())),
      rstd_(rank_.floats(context.batch.tokens())) {}

void Norm::forward(ConstFloats x) {
  const Weights gain = gain_.values;
  const Weights bias = bias_.values;
  rank_.run({gain_.spec.name, "forward"},
            {writes(y_), writes(mean_), writes(rstd_), reads(x), reads(gain), reads(bias)},
            [=, y = y_, mean = mean_, rstd = rstd_] { layer_norm_forward(y, mean, rstd, x, gain, bias); });
}

void Norm::backward(Floats dx, ConstFloats dy, ConstFloats x) {
  const Weights gain = gain_.values;
  rank_.run({gain_.spec.name, "backward"},
            {writes(dx), writes(gain_.grad), writes(bias_.grad), reads(dy), reads(x), reads(mean_), reads(rstd_),
             reads(gain)},
            [=, dgain = gain_.grad, dbias = bias_.grad, mean = mean_, rstd = rstd_] {
              layer_norm_backward(dx, dgain, dbias, dy, x, mean, rstd, gain);
            });
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
  rank_.run({"attention", "forward"}, {writes(attended_), writes(probs_), reads(projected_)},
            [attended = attended_, probs = probs_, projected = projected_, shape = shape_] {
              attention_forward(attended, probs, projected, shape);
            });
  proj_.forward(y, attended_);
  rank_.all_reduce(rank_.groups().tp, y, {"attention", "forward"}, rank_.calls().tensor_parallel);
  add_residual(rank_, y, x);
}

void AttentionBlock::backward(Floats d, ConstFloats x) {
  proj_.backward(d_attended_, d, attended_);
  rank_.run({"attention", "backward"}, {writes(d_projected_), reads(d_attended_), reads(probs_), reads(projected_)},
            [d_projected = d_projected_, d_attended = d_attended_, probs = probs_, projected = projected_,
             shape = shape_] { attention_backward(d_projected, d_attended, probs, projected, shape); });
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
  rank_.run({"gelu", "forward"}, {writes(active_), reads(hidden_)},
            [active = active_, hidden = hidden_] { gelu_forward(active, hidden); });
  fc2_.forward(y, active_);
  rank_.all_reduce(rank_.groups().tp, y, {"mlp", "forward"}, rank_.calls().tensor_parallel);
  add_residual(rank_, y, x);
}

void MlpBlock::backward(Floats d, ConstFloats x) {
  fc2_.backward(d_hidden_, d, active_);
  rank_.run({"gelu", "backward"}, {writes(d_hidden_), reads(hidden_)},
            [d_hidden = d_hidden_, hidden = hidden_] { gelu_backward(d_hidden, hidden); });
  fc1_.backward(d_normed_, d_hidden_, norm_.output());
  rank_.all_reduce(rank_.groups().tp, d_normed_, {"mlp", "backward"}, rank_.calls().tensor_parallel);
  norm_.backward(d, d_normed_, x);
}

}  // namespace gtp::train
