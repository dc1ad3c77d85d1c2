// A mixture of experts. Tokens go to the ranks of their experts and back in all-to-alls over EP: a slot a token and
// rank, zero where the token chose no expert of that rank. The weights of the local experts are one grouped weight.
#include "blocks.hpp"

namespace gtp::train {

namespace {

class MoeBlock final : public Block {
 public:
  MoeBlock(const BlockContext& context, const std::string& layer);
  void forward(Floats y, ConstFloats x) override;
  void backward(Floats d, ConstFloats x) override;

 private:
  Floats exchange(Floats received, Floats sent, const char* note);
  void route();
  void dispatch();
  void compute_experts();
  void combine(Floats y, ConstFloats x);
  void differentiate_fc2();
  void differentiate_fc1();
  void return_gradients();
  void differentiate_router();
  LinearShape fc1_shape() const { return {sizes_.slots(), sizes_.hidden, ffn_}; }
  LinearShape fc2_shape() const { return {sizes_.slots(), ffn_, sizes_.hidden}; }
  LinearShape router_shape() const { return {sizes_.tokens, sizes_.hidden, sizes_.experts()}; }
  RouteShape route_shape() const { return {sizes_.tokens, sizes_.experts(), topk_}; }
  Floats of_expert(Floats all, std::size_t expert) const {
    const std::size_t count = all.size() / sizes_.local;
    return all.subspan(expert * count, count);
  }

  Rank& rank_;
  Norm norm_;
  Parameter& router_;
  Parameter& fc1_;
  Parameter& fc2_;
  SlotShape sizes_;
  std::size_t ffn_, topk_;
  /// At the ranks of the experts gates and activations are [expert][slot][...].
  Floats logits_, probs_, gates_, dgates_, dlogits_, d_normed_;
  Floats sent_slots_, slots_, sent_dy_, sent_gates_, peer_gates_, gate_of_slot_, d_gate_of_slot_, d_peer_gates_;
  Floats hidden_, active_, out_, y_slots_, dy_slots_, d_out_, d_hidden_, dx_slots_, returned_, returned_gates_;
};

MoeBlock::MoeBlock(const BlockContext& context, const std::string& layer)
    : rank_(context.rank),
      norm_(context, layer + ".norm2"),
      router_(context.parameters.find(layer + ".router")),
      fc1_(context.parameters.find(layer + ".experts.fc1")),
      fc2_(context.parameters.find(layer + ".experts.fc2")),
      sizes_{context.batch.tokens(), context.shape.hidden, static_cast<std::size_t>(rank_.groups().ep.size()),
             fc1_.names.size()},
      ffn_(context.shape.ffn),
      topk_(context.shape.topk) {
  const std::size_t routed = sizes_.tokens * sizes_.experts();
  for (Floats* buffer : {&logits_, &probs_, &gates_, &dgates_, &dlogits_}) *buffer = rank_.floats(routed);
  d_normed_ = rank_.floats(sizes_.tokens * sizes_.hidden);
  for (Floats* buffer : {&sent_slots_, &slots_, &sent_dy_, &y_slots_, &dy_slots_, &dx_slots_, &returned_}) {
    *buffer = rank_.floats(sizes_.slots() * sizes_.hidden);
  }
  const std::size_t gates = sizes_.local * sizes_.slots();
  for (Floats* buffer :
       {&sent_gates_, &peer_gates_, &gate_of_slot_, &d_gate_of_slot_, &d_peer_gates_, &returned_gates_}) {
    *buffer = rank_.floats(gates);
  }
  for (Floats* buffer : {&hidden_, &active_, &d_hidden_}) *buffer = rank_.floats(gates * ffn_);
  for (Floats* buffer : {&out_, &d_out_}) *buffer = rank_.floats(gates * sizes_.hidden);
}

/// What arrived: in a group of one, what was sent.
Floats MoeBlock::exchange(Floats received, Floats sent, const char* note) {
  if (sizes_.peers == 1) return sent;
  rank_.all_to_all(rank_.groups().ep, received, sent, {fc1_.spec.name, note}, rank_.calls().expert_exchange);
  return received;
}

void MoeBlock::route() {
  Arithmetic& math = rank_.arithmetic();
  math.linear_forward(rank_.task(router_.spec.name, "forward"), logits_, norm_.output(), router_.values,
                      router_shape());
  math.route_forward(rank_.task(router_.spec.name, "route"), gates_, probs_, logits_, route_shape());
}

void MoeBlock::dispatch() {
  Arithmetic& math = rank_.arithmetic();
  math.dispatch(rank_.task(router_.spec.name, "dispatch"), sent_slots_, sent_gates_, norm_.output(), gates_, sizes_);
  slots_ = exchange(slots_, sent_slots_, "dispatch");
  const Floats arrived = exchange(peer_gates_, sent_gates_, "gates");
  math.swap_axes(rank_.task(router_.spec.name, "gates"), gate_of_slot_, arrived,
                 {sizes_.peers, sizes_.local, sizes_.tokens});
}

void MoeBlock::compute_experts() {
  Arithmetic& math = rank_.arithmetic();
  const auto w1 = rank_.gtp().materialize(*fc1_.weight, Use::kForward, rank_.compute());
  for (std::size_t e = 0; e < sizes_.local; ++e) {
    const Weights w = usable_weight(rank_, fc1_, w1[e], CopyDirection::kRow);
    const Floats hidden = of_expert(hidden_, e);
    math.linear_forward(rank_.task(fc1_.spec.name, "forward"), hidden, slots_, w, fc1_shape(),
                        of_expert(gate_of_slot_, e));
    math.gelu_forward(rank_.task("gelu", "forward"), of_expert(active_, e), hidden);
  }
  const auto w2 = rank_.gtp().materialize(*fc2_.weight, Use::kForward, rank_.compute());
  rank_.clear(rank_.task(fc2_.spec.name, "start"), y_slots_);
  for (std::size_t e = 0; e < sizes_.local; ++e) {
    const Weights w = usable_weight(rank_, fc2_, w2[e], CopyDirection::kRow);
    const Floats out = of_expert(out_, e), gate = of_expert(gate_of_slot_, e);
    math.linear_forward(rank_.task(fc2_.spec.name, "forward"), out, of_expert(active_, e), w, fc2_shape(), gate);
    math.add_gated(rank_.task(fc2_.spec.name, "gates"), y_slots_, out, gate);
  }
}

/// Partial sums of the ranks, in order of rank, which is the order of experts.
void MoeBlock::combine(Floats y, ConstFloats x) {
  const Floats parts = exchange(returned_, y_slots_, "combine");
  rank_.arithmetic().sum_parts(rank_.task(fc2_.spec.name, "combine"), y, parts, x);
}

void MoeBlock::forward(Floats y, ConstFloats x) {
  norm_.forward(x);
  route();
  dispatch();
  compute_experts();
  combine(y, x);
}

void MoeBlock::differentiate_fc2() {
  Arithmetic& math = rank_.arithmetic();
  const auto weights = rank_.gtp().materialize(*fc2_.weight, Use::kDgrad, rank_.compute());
  const auto grads = rank_.gtp().grad_buffer(*fc2_.weight, rank_.compute());
  for (std::size_t e = 0; e < sizes_.local; ++e) {
    const Weights w = usable_weight(rank_, fc2_, weights[e], CopyDirection::kCol);
    const Floats gate = of_expert(gate_of_slot_, e), d_out = of_expert(d_out_, e), d_hidden = of_expert(d_hidden_, e);
    math.gated_backward(rank_.task(fc2_.spec.name, "gates"), d_out, of_expert(d_gate_of_slot_, e), dy_slots_,
                        of_expert(out_, e), gate);
    math.linear_dgrad(rank_.task(fc2_.spec.name, "dgrad"), d_hidden, d_out, w, fc2_shape(), false, gate);
    math.linear_wgrad(rank_.task(fc2_.spec.name, "wgrad"), target_of(grads[e]), d_out, of_expert(active_, e),
                      fc2_shape(), sizes_.peers);
    math.gelu_backward(rank_.task("gelu", "backward"), d_hidden, of_expert(hidden_, e));
  }
  rank_.gtp().reduce_grad(*fc2_.weight, rank_.compute());
}

void MoeBlock::differentiate_fc1() {
  Arithmetic& math = rank_.arithmetic();
  const auto weights = rank_.gtp().materialize(*fc1_.weight, Use::kDgrad, rank_.compute());
  const auto grads = rank_.gtp().grad_buffer(*fc1_.weight, rank_.compute());
  for (std::size_t e = 0; e < sizes_.local; ++e) {
    const Weights w = usable_weight(rank_, fc1_, weights[e], CopyDirection::kCol);
    const Floats d_hidden = of_expert(d_hidden_, e);
    math.linear_dgrad(rank_.task(fc1_.spec.name, "dgrad"), dx_slots_, d_hidden, w, fc1_shape(), e > 0,
                      of_expert(gate_of_slot_, e));
    math.linear_wgrad(rank_.task(fc1_.spec.name, "wgrad"), target_of(grads[e]), d_hidden, slots_, fc1_shape(),
                      sizes_.peers);
  }
  rank_.gtp().reduce_grad(*fc1_.weight, rank_.compute());
}

void MoeBlock::return_gradients() {
  Arithmetic& math = rank_.arithmetic();
  math.sum_parts(rank_.task(fc1_.spec.name, "return"), d_normed_, exchange(returned_, dx_slots_, "return"));
  math.swap_axes(rank_.task(router_.spec.name, "return"), d_peer_gates_, d_gate_of_slot_,
                 {sizes_.local, sizes_.peers, sizes_.tokens});
  const Floats arrived = exchange(returned_gates_, d_peer_gates_, "gates");
  math.swap_axes(rank_.task(router_.spec.name, "return"), dgates_, arrived, {sizes_.experts(), sizes_.tokens, 1});
}

void MoeBlock::differentiate_router() {
  Arithmetic& math = rank_.arithmetic();
  math.route_backward(rank_.task(router_.spec.name, "route"), dlogits_, dgates_, gates_, probs_, route_shape());
  math.linear_dgrad(rank_.task(router_.spec.name, "dgrad"), d_normed_, dlogits_, router_.values, router_shape(), true);
  math.linear_wgrad(rank_.task(router_.spec.name, "wgrad"), {router_.grad.data(), ElementType::kFloat32, true},
                    dlogits_, norm_.output(), router_shape());
}

void MoeBlock::backward(Floats d, ConstFloats x) {
  rank_.arithmetic().repeat(rank_.task(fc2_.spec.name, "scatter"), sent_dy_, d);
  dy_slots_ = exchange(dy_slots_, sent_dy_, "scatter");
  differentiate_fc2();
  differentiate_fc1();
  return_gradients();
  differentiate_router();
  norm_.backward(d, d_normed_, x);
}

}  // namespace

std::unique_ptr<Block> make_moe_block(const BlockContext& context, const std::string& layer) {
  return std::make_unique<MoeBlock>(context, layer);
}

}  // namespace gtp::train
