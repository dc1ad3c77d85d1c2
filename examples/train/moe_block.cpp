// A mixture of experts. Tokens go to the ranks of their experts and back in all-to-alls over EP: a slot a token and
// rank, zero where the token chose no expert of that rank. The weights of the local experts are one grouped weight.
#include <algorithm>

#include "blocks.hpp"
#include "moe_math.hpp"

namespace gtp::train {

namespace {

class MoeBlock final : public Block {
 public:
  MoeBlock(const BlockContext& context, const std::string& layer);
  void forward(Floats y, ConstFloats x) override;
  void backward(Floats d, ConstFloats x) override;

 private:
  /// Slots, gates and activations at the ranks of the experts are [expert][slot][...] with slots [peer][token].
  struct Sizes {
    std::size_t tokens, hidden, ffn, peers, local;
    std::size_t slots() const { return peers * tokens; }
    std::size_t experts() const { return peers * local; }
  };

  Floats exchange(Floats received, Floats sent, const char* note);
  void route();
  void dispatch();
  void compute_experts();
  void combine(Floats y, ConstFloats x);
  void differentiate_experts();
  void return_gradients();
  void differentiate_router();
  LinearShape fc1_shape() const { return {sizes_.slots(), sizes_.hidden, sizes_.ffn}; }
  LinearShape fc2_shape() const { return {sizes_.slots(), sizes_.ffn, sizes_.hidden}; }
  Floats of_expert(Floats all, std::size_t expert) const {
    const std::size_t count = all.size() / sizes_.local;
    return all.subspan(expert * count, count);
  }

  Rank& rank_;
  Norm norm_;
  Parameter& router_;
  Parameter& fc1_;
  Parameter& fc2_;
  Sizes sizes_;
  std::size_t topk_;
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
      sizes_{context.batch.tokens(), context.shape.hidden, context.shape.ffn,
             static_cast<std::size_t>(rank_.groups().ep.size()), fc1_.names.size()},
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
  for (Floats* buffer : {&hidden_, &active_, &d_hidden_}) *buffer = rank_.floats(gates * sizes_.ffn);
  for (Floats* buffer : {&out_, &d_out_}) *buffer = rank_.floats(gates * sizes_.hidden);
}

/// What arrived: in a group of one, what was sent.
Floats MoeBlock::exchange(Floats received, Floats sent, const char* note) {
  if (sizes_.peers == 1) return sent;
  rank_.all_to_all(rank_.groups().ep, received, sent, {fc1_.spec.name, note}, rank_.calls().expert_exchange);
  return received;
}

void MoeBlock::route() {
  const Weights w = router_.values;
  rank_.run({router_.spec.name, "forward"},
            {writes(logits_), writes(probs_), writes(gates_), reads(norm_.output()), reads(w)},
            [=, x = norm_.output(), logits = logits_, probs = probs_, gates = gates_, sizes = sizes_, topk = topk_] {
              linear_forward(logits, x, w, {sizes.tokens, sizes.hidden, sizes.experts()});
              route_forward(gates, probs, logits, {sizes.tokens, sizes.experts(), topk});
            });
}

void MoeBlock::dispatch() {
  rank_.run({router_.spec.name, "dispatch"},
            {writes(sent_slots_), writes(sent_gates_), reads(norm_.output()), reads(gates_)},
            [x = norm_.output(), gates = gates_, slots = sent_slots_, sent = sent_gates_, sizes = sizes_] {
              for (std::size_t slot = 0; slot < sizes.slots(); ++slot) {
                const std::size_t peer = slot / sizes.tokens;
                const std::size_t token = slot % sizes.tokens;
                bool chosen = false;
                for (std::size_t e = 0; e < sizes.local; ++e) {
                  const float gate = gates[token * sizes.experts() + peer * sizes.local + e];
                  sent[(peer * sizes.local + e) * sizes.tokens + token] = gate;
                  chosen = chosen || gate != 0.0F;
                }
                for (std::size_t i = 0; i < sizes.hidden; ++i) {
                  slots[slot * sizes.hidden + i] = chosen ? x[token * sizes.hidden + i] : 0.0F;
                }
              }
            });
  slots_ = exchange(slots_, sent_slots_, "dispatch");
  const Floats arrived = exchange(peer_gates_, sent_gates_, "gates");
  rank_.run({router_.spec.name, "gates"}, {writes(gate_of_slot_), reads(arrived)},
            [arrived, gates = gate_of_slot_, sizes = sizes_] {
              for (std::size_t i = 0; i < gates.size(); ++i) {
                const std::size_t expert = i / sizes.slots();
                const std::size_t peer = i % sizes.slots() / sizes.tokens;
                gates[i] = arrived[(peer * sizes.local + expert) * sizes.tokens + i % sizes.tokens];
              }
            });
}

void MoeBlock::compute_experts() {
  const auto w1 = rank_.gtp().materialize(*fc1_.weight, Use::kForward, rank_.compute());
  for (std::size_t e = 0; e < sizes_.local; ++e) {
    const Weights w = values_of(w1[e]);
    const Floats hidden = of_expert(hidden_, e), active = of_expert(active_, e), gate = of_expert(gate_of_slot_, e);
    rank_.run({fc1_.spec.name, "forward"}, {writes(hidden), writes(active), reads(slots_), reads(gate), reads(w)},
              [=, slots = slots_, shape = fc1_shape()] {
                linear_forward(hidden, slots, w, shape, gate);
                gelu_forward(active, hidden);
              });
  }
  const auto w2 = rank_.gtp().materialize(*fc2_.weight, Use::kForward, rank_.compute());
  for (std::size_t e = 0; e < sizes_.local; ++e) {
    const Weights w = values_of(w2[e]);
    const Floats active = of_expert(active_, e), out = of_expert(out_, e), gate = of_expert(gate_of_slot_, e);
    rank_.run({fc2_.spec.name, "forward"}, {writes(out), writes(y_slots_), reads(active), reads(gate), reads(w)},
              [=, y = y_slots_, first = e == 0, shape = fc2_shape()] {
                linear_forward(out, active, w, shape, gate);
                if (first) std::ranges::fill(y, 0.0F);
                add_gated(y, out, gate);
              });
  }
}

/// Partial sums of the ranks, in order of rank, which is the order of experts.
void MoeBlock::combine(Floats y, ConstFloats x) {
  const Floats parts = exchange(returned_, y_slots_, "combine");
  rank_.run({fc2_.spec.name, "combine"}, {writes(y), reads(x), reads(parts)}, [=, peers = sizes_.peers] {
    for (std::size_t i = 0; i < y.size(); ++i) {
      float sum = parts[i];
      for (std::size_t peer = 1; peer < peers; ++peer) sum += parts[peer * y.size() + i];
      y[i] = sum + x[i];
    }
  });
}

void MoeBlock::forward(Floats y, ConstFloats x) {
  norm_.forward(x);
  route();
  dispatch();
  compute_experts();
  combine(y, x);
}

void MoeBlock::differentiate_experts() {
  Runtime& gtp = rank_.gtp();
  const Stream compute = rank_.compute();
  const auto w2 = gtp.materialize(*fc2_.weight, Use::kDgrad, compute);
  const auto g2 = gtp.grad_buffer(*fc2_.weight, compute);
  for (std::size_t e = 0; e < sizes_.local; ++e) {
    const Weights w = values_of(w2[e]);
    const WgradView grad = g2[e];
    const Floats out = of_expert(out_, e), active = of_expert(active_, e), hidden = of_expert(hidden_, e);
    const Floats d_out = of_expert(d_out_, e), d_hidden = of_expert(d_hidden_, e);
    const Floats gate = of_expert(gate_of_slot_, e), d_gate = of_expert(d_gate_of_slot_, e);
    rank_.run({fc2_.spec.name, "backward"},
              {writes(d_out), writes(d_gate), writes(d_hidden), touched(grad), reads(dy_slots_), reads(out),
               reads(active), reads(hidden), reads(gate), reads(w)},
              [=, dy = dy_slots_, shape = fc2_shape(), peers = sizes_.peers] {
                gated_backward(d_out, d_gate, dy, out, gate);
                linear_dgrad(d_hidden, d_out, w, shape, false, gate);
                linear_wgrad(target_of(grad), d_out, active, shape, peers);
                gelu_backward(d_hidden, hidden);
              });
  }
  gtp.reduce_grad(*fc2_.weight, compute);
  const auto w1 = gtp.materialize(*fc1_.weight, Use::kDgrad, compute);
  const auto g1 = gtp.grad_buffer(*fc1_.weight, compute);
  for (std::size_t e = 0; e < sizes_.local; ++e) {
    const Weights w = values_of(w1[e]);
    const WgradView grad = g1[e];
    const Floats d_hidden = of_expert(d_hidden_, e), gate = of_expert(gate_of_slot_, e);
    rank_.run({fc1_.spec.name, "backward"},
              {writes(dx_slots_), touched(grad), reads(d_hidden), reads(slots_), reads(gate), reads(w)},
              [=, dx = dx_slots_, slots = slots_, shape = fc1_shape(), add = e > 0, peers = sizes_.peers] {
                linear_dgrad(dx, d_hidden, w, shape, add, gate);
                linear_wgrad(target_of(grad), d_hidden, slots, shape, peers);
              });
  }
  gtp.reduce_grad(*fc1_.weight, compute);
}

void MoeBlock::return_gradients() {
  const Floats parts = exchange(returned_, dx_slots_, "return");
  rank_.run({fc1_.spec.name, "return"}, {writes(d_normed_), reads(parts)},
            [parts, d = d_normed_, peers = sizes_.peers] {
              for (std::size_t i = 0; i < d.size(); ++i) {
                d[i] = parts[i];
                for (std::size_t peer = 1; peer < peers; ++peer) d[i] += parts[peer * d.size() + i];
              }
            });
  rank_.run({router_.spec.name, "return"}, {writes(d_peer_gates_), reads(d_gate_of_slot_)},
            [d = d_gate_of_slot_, sent = d_peer_gates_, sizes = sizes_] {
              for (std::size_t i = 0; i < d.size(); ++i) {
                const std::size_t expert = i / sizes.slots();
                const std::size_t peer = i % sizes.slots() / sizes.tokens;
                sent[(peer * sizes.local + expert) * sizes.tokens + i % sizes.tokens] = d[i];
              }
            });
  const Floats arrived = exchange(returned_gates_, d_peer_gates_, "gates");
  rank_.run({router_.spec.name, "return"}, {writes(dgates_), reads(arrived)},
            [arrived, dgates = dgates_, sizes = sizes_] {
              for (std::size_t i = 0; i < dgates.size(); ++i) {
                dgates[i] = arrived[i % sizes.experts() * sizes.tokens + i / sizes.experts()];
              }
            });
}

void MoeBlock::differentiate_router() {
  const Weights w = router_.values;
  rank_.run({router_.spec.name, "backward"},
            {writes(dlogits_), writes(d_normed_), writes(router_.grad), reads(dgates_), reads(gates_), reads(probs_),
             reads(norm_.output()), reads(w)},
            [=, x = norm_.output(), d = d_normed_, dlogits = dlogits_, dgates = dgates_, gates = gates_, probs = probs_,
             grad = router_.grad, sizes = sizes_, topk = topk_] {
              const LinearShape shape{sizes.tokens, sizes.hidden, sizes.experts()};
              route_backward(dlogits, dgates, gates, probs, {sizes.tokens, sizes.experts(), topk});
              linear_dgrad(d, dlogits, w, shape, true);
              linear_wgrad({grad.data(), ElementType::kFloat32, true}, dlogits, x, shape);
            });
}

void MoeBlock::backward(Floats d, ConstFloats x) {
  rank_.run({fc2_.spec.name, "scatter"}, {writes(sent_dy_), reads(d)}, [d, slots = sent_dy_] {
    for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = d[i % d.size()];
  });
  dy_slots_ = exchange(dy_slots_, sent_dy_, "scatter");
  differentiate_experts();
  return_gradients();
  differentiate_router();
  norm_.backward(d, d_normed_, x);
}

}  // namespace

std::unique_ptr<Block> make_moe_block(const BlockContext& context, const std::string& layer) {
  return std::make_unique<MoeBlock>(context, layer);
}

}  // namespace gtp::train
