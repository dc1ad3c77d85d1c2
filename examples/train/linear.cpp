#include "linear.hpp"

#include <algorithm>

#include "kernels/format/bf16.hpp"

namespace gtp::train {

namespace {

float at(Weights w, std::size_t index) noexcept { return to_float(Bf16{w[index]}); }
bool left_out(ConstFloats gate, std::size_t token) noexcept { return !gate.empty() && gate[token] == 0.0F; }

}  // namespace

void GradTarget::put(std::size_t index, float value) const noexcept {
  if (type == ElementType::kFloat32) {
    float& out = static_cast<float*>(data)[index];
    out = accumulate ? out + value : value;
    return;
  }
  std::uint16_t& out = static_cast<std::uint16_t*>(data)[index];
  out = bits_of(to_bf16(accumulate ? to_float(Bf16{out}) + value : value));
}

void linear_forward(Floats y, ConstFloats x, Weights w, LinearShape shape, ConstFloats gate) {
  for (std::size_t t = 0; t < shape.tokens; ++t) {
    const Floats row = y.subspan(t * shape.out, shape.out);
    if (left_out(gate, t)) {
      std::ranges::fill(row, 0.0F);
      continue;
    }
    for (std::size_t n = 0; n < shape.out; ++n) {
      float sum = 0.0F;
      for (std::size_t k = 0; k < shape.in; ++k) sum += x[t * shape.in + k] * at(w, n * shape.in + k);
      row[n] = sum;
    }
  }
}

void linear_dgrad(Floats dx, ConstFloats dy, Weights w, LinearShape shape, bool add, ConstFloats gate) {
  for (std::size_t t = 0; t < shape.tokens; ++t) {
    for (std::size_t k = 0; k < shape.in; ++k) {
      float sum = 0.0F;
      for (std::size_t n = 0; n < shape.out && !left_out(gate, t); ++n) {
        sum += dy[t * shape.out + n] * at(w, n * shape.in + k);
      }
      float& out = dx[t * shape.in + k];
      out = add ? out + sum : sum;
    }
  }
}

void linear_wgrad(GradTarget dw, ConstFloats dy, ConstFloats x, LinearShape shape, std::size_t chunks) {
  const std::size_t length = shape.tokens / chunks;
  for (std::size_t n = 0; n < shape.out; ++n) {
    for (std::size_t k = 0; k < shape.in; ++k) {
      float total = 0.0F;
      for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
        float sum = 0.0F;
        for (std::size_t t = chunk * length; t < (chunk + 1) * length; ++t) {
          sum += dy[t * shape.out + n] * x[t * shape.in + k];
        }
        total = chunk == 0 ? sum : total + sum;
      }
      dw.put(n * shape.in + k, total);
    }
  }
}

}  // namespace gtp::train
