// The layers; experts, optimizer and quantized weights are in host_moe.cpp and host_optimizer.cpp.
#include "host_arithmetic.hpp"

#include <cstring>
#include <utility>
#include <vector>

namespace gtp::train {

namespace {

/// `count` elements.
Access touched(const GradTarget& target, std::size_t count) noexcept {
  return {target.data, count * element_bytes(target.type), true};
}

}  // namespace

void HostArithmetic::run(const Task& task, std::initializer_list<Access> accesses, std::function<void()> body) {
  launcher_.launch(task.stream, task.label, {accesses.begin(), accesses.size()}, std::move(body));
}

/// An empty vector has no memory, which memcpy must not be given even for no bytes.
void HostArithmetic::read_back(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void HostArithmetic::store(const Task& task, std::span<std::int64_t> place, std::int64_t value) {
  run(task, {writes(place)}, [=] { place[0] = value; });
}

void HostArithmetic::load(const Task& task, std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
                          std::span<const std::int64_t> step_begin, const SampleRange& range) {
  run(task, {writes(tokens), writes(targets), reads(step_begin)}, [=] {
    for (std::size_t at = 0; at < tokens.size(); at += range.seq) {
      const auto number = step_begin[0] + range.offset + static_cast<std::int64_t>(at / range.seq);
      Sample sample(range.seed, range.split, number, range.vocab);
      std::int32_t token = sample.next();
      for (std::size_t i = at; i < at + range.seq; ++i) {
        tokens[i] = token;
        targets[i] = token = sample.next();
      }
    }
  });
}

void HostArithmetic::initialize(const Task& task, GradTarget out, std::size_t count, const InitialValues& values) {
  run(task, {touched(out, count)}, [=] {
    for (std::size_t i = 0; i < count; ++i) out.put(i, values.at(i));
  });
}

void HostArithmetic::linear_forward(const Task& task, Floats y, ConstFloats x, Weights w, LinearShape shape,
                                    ConstFloats gate) {
  run(task, {writes(y), reads(x), reads(w), reads(gate)}, [=] { train::linear_forward(y, x, w, shape, gate); });
}

void HostArithmetic::linear_dgrad(const Task& task, Floats dx, ConstFloats dy, Weights w, LinearShape shape, bool add,
                                  ConstFloats gate) {
  run(task, {writes(dx), reads(dy), reads(w), reads(gate)}, [=] { train::linear_dgrad(dx, dy, w, shape, add, gate); });
}

void HostArithmetic::linear_wgrad(const Task& task, GradTarget dw, ConstFloats dy, ConstFloats x, LinearShape shape,
                                  std::size_t chunks) {
  run(task, {touched(dw, shape.in * shape.out), reads(dy), reads(x)},
      [=] { train::linear_wgrad(dw, dy, x, shape, chunks); });
}

void HostArithmetic::norm_forward(const Task& task, Floats y, const NormState& state, ConstFloats x,
                                  const NormParameters& parameters) {
  run(task,
      {writes(y), writes(state.mean), writes(state.rstd), reads(x), reads(parameters.gain), reads(parameters.bias)},
      [=] { layer_norm_forward(y, state.mean, state.rstd, x, parameters.gain, parameters.bias); });
}

void HostArithmetic::norm_backward(const Task& task, Floats dx, const NormGradients& gradients, ConstFloats dy,
                                   ConstFloats x, const NormState& state, Weights gain) {
  run(task,
      {writes(dx), writes(gradients.gain), writes(gradients.bias), reads(dy), reads(x), reads(state.mean),
       reads(state.rstd), reads(gain)},
      [=] { layer_norm_backward(dx, gradients.gain, gradients.bias, dy, x, state.mean, state.rstd, gain); });
}

void HostArithmetic::attention_forward(const Task& task, Floats context, Floats probs, ConstFloats qkv,
                                       const AttentionShape& shape) {
  run(task, {writes(context), writes(probs), reads(qkv)},
      [=] { train::attention_forward(context, probs, qkv, shape); });
}

void HostArithmetic::attention_backward(const Task& task, Floats dqkv, ConstFloats dcontext, ConstFloats probs,
                                        ConstFloats qkv, const AttentionShape& shape) {
  run(task, {writes(dqkv), reads(dcontext), reads(probs), reads(qkv)},
      [=] { train::attention_backward(dqkv, dcontext, probs, qkv, shape); });
}

void HostArithmetic::gelu_forward(const Task& task, Floats y, ConstFloats x) {
  run(task, {writes(y), reads(x)}, [=] { train::gelu_forward(y, x); });
}

void HostArithmetic::gelu_backward(const Task& task, Floats d, ConstFloats x) {
  run(task, {writes(d), reads(x)}, [=] { train::gelu_backward(d, x); });
}

void HostArithmetic::embedding_forward(const Task& task, Floats y, Tokens tokens, Weights table, std::size_t first) {
  run(task, {writes(y), reads(tokens), reads(table)}, [=] { train::embedding_forward(y, tokens, table, first); });
}

void HostArithmetic::embedding_wgrad(const Task& task, GradTarget dtable, ConstFloats dy, Tokens tokens,
                                     std::size_t first, std::size_t rows) {
  run(task, {touched(dtable, rows * (dy.size() / tokens.size())), reads(dy), reads(tokens)},
      [=] { train::embedding_wgrad(dtable, dy, tokens, first, rows); });
}

void HostArithmetic::position_forward(const Task& task, Floats x, Weights position) {
  run(task, {writes(x), reads(position)}, [=] { train::position_forward(x, position); });
}

void HostArithmetic::position_backward(const Task& task, Floats dposition, ConstFloats dx) {
  run(task, {writes(dposition), reads(dx)}, [=] { train::position_backward(dposition, dx); });
}

void HostArithmetic::add(const Task& task, Floats y, ConstFloats x) {
  run(task, {writes(y), reads(x)}, [=] {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += x[i];
  });
}

void HostArithmetic::cross_entropy(const Task& task, std::span<double> losses, Floats dlogits, ConstFloats logits,
                                   Tokens targets, const LossShape& shape, float scale) {
  run(task, {writes(losses), writes(dlogits), reads(logits), reads(targets)},
      [=] { losses[0] += train::cross_entropy(dlogits, logits, targets, shape.slices, shape.own, scale); });
}

}  // namespace gtp::train
