// Layers other than attention: matrix products, norm, activation, embedding, loss.
#include "examples/train/cuda/kernels.cuh"

namespace gtp::train {

namespace {

constexpr float kNormEpsilon = 1e-5F;
constexpr float kGeluScale = 0.7978845608F;  // sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715F;

__device__ float gelu_tangent(float x) { return tanhf(kGeluScale * (x + kGeluCubic * x * x * x)); }

/// Sums over tokens of the gradients of 32 columns a block: eight warps take turns at the tokens.
__device__ void norm_parameter_gradients(std::size_t block, const NormGradients& gradients, ConstFloats dy,
                                         ConstFloats x, const NormState& state) {
  __shared__ float gains[kThreads], biases[kThreads];
  const std::size_t width = gradients.gain.size();
  const std::size_t column = block * 32 + threadIdx.x % 32;
  float gain = 0.0F, bias = 0.0F;
  for (std::size_t t = threadIdx.x / 32; t < state.mean.size() && column < width; t += kThreads / 32) {
    const std::size_t i = t * width + column;
    gain += dy[i] * ((x[i] - state.mean[t]) * state.rstd[t]);
    bias += dy[i];
  }
  gains[threadIdx.x] = gain, biases[threadIdx.x] = bias;
  __syncthreads();
  if (threadIdx.x >= 32 || column >= width) return;
  for (int i = static_cast<int>(threadIdx.x) + 32; i < kThreads; i += 32) gain += gains[i], bias += biases[i];
  gradients.gain[column] += gain;
  gradients.bias[column] += bias;
}

/// Activations as a matrix product reads them; rows whose gate is 0 become 0.
std::span<const std::uint16_t> rounded(const Task& task, DeviceMemory& memory, ConstFloats values,
                                       ConstFloats gate = {}) {
  const auto out = memory.get<std::uint16_t>(values.size());
  const std::size_t width = gate.empty() ? 1 : values.size() / gate.size();
  for_each(task, values.size(), [=] __device__(std::size_t i) {
    const bool left_out = !gate.empty() && gate[i / width] == 0.0F;
    out[i] = bits_of(to_bf16(left_out ? 0.0F : values[i]));
  });
  return out;
}

}  // namespace

void CudaArithmetic::linear_forward(const Task& task, Floats y, ConstFloats x, Weights w, LinearShape shape,
                                    ConstFloats gate) {
  const auto factor = rounded(task, right_, x, gate);
  gemm_.run({.m = shape.out, .n = shape.tokens, .k = shape.in, .transpose_a = true}, w.data(), factor.data(), y.data(),
            static_cast<cudaStream_t>(task.stream.handle));
}

void CudaArithmetic::linear_dgrad(const Task& task, Floats dx, ConstFloats dy, Weights w, LinearShape shape, bool add,
                                  ConstFloats gate) {
  const auto factor = rounded(task, right_, dy, gate);
  gemm_.run({.m = shape.in, .n = shape.tokens, .k = shape.out, .accumulate = add}, w.data(), factor.data(), dx.data(),
            static_cast<cudaStream_t>(task.stream.handle));
}

void CudaArithmetic::linear_wgrad(const Task& task, GradTarget dw, ConstFloats dy, ConstFloats x, LinearShape shape,
                                  std::size_t) {
  const auto left = rounded(task, left_, x);
  const auto right = rounded(task, right_, dy);
  gemm_.run({.m = shape.in,
             .n = shape.out,
             .k = shape.tokens,
             .transpose_b = true,
             .type = dw.type,
             .accumulate = dw.accumulate},
            left.data(), right.data(), dw.data, static_cast<cudaStream_t>(task.stream.handle));
}

void CudaArithmetic::norm_forward(const Task& task, Floats y, const NormState& state, ConstFloats x,
                                  const NormParameters& parameters) {
  for_each_row(task, state.mean.size(), [=] __device__(std::size_t t) {
    const std::size_t width = parameters.gain.size();
    const ConstFloats row = x.subspan(t * width, width);
    float sum = 0.0F;
    for (std::size_t i = threadIdx.x; i < width; i += kThreads) sum += row[i];
    const float mean = reduce_block(sum, Plus{}) / static_cast<float>(width);
    float squares = 0.0F;
    for (std::size_t i = threadIdx.x; i < width; i += kThreads) squares += (row[i] - mean) * (row[i] - mean);
    const float rstd = 1.0F / sqrtf(reduce_block(squares, Plus{}) / static_cast<float>(width) + kNormEpsilon);
    for (std::size_t i = threadIdx.x; i < width; i += kThreads) {
      y[t * width + i] = (row[i] - mean) * rstd * value_at(parameters.gain, i) + value_at(parameters.bias, i);
    }
    if (threadIdx.x == 0) state.mean[t] = mean, state.rstd[t] = rstd;
  });
}

void CudaArithmetic::norm_backward(const Task& task, Floats dx, const NormGradients& gradients, ConstFloats dy,
                                   ConstFloats x, const NormState& state, Weights gain) {
  const std::size_t width = gain.size();
  for_each_row(task, state.mean.size(), [=] __device__(std::size_t t) {
    const float mean = state.mean[t], rstd = state.rstd[t];
    float sum = 0.0F, weighted = 0.0F;
    for (std::size_t i = threadIdx.x; i < width; i += kThreads) {
      const float d = dy[t * width + i] * value_at(gain, i);
      sum += d;
      weighted += d * ((x[t * width + i] - mean) * rstd);
    }
    sum = reduce_block(sum, Plus{});
    weighted = reduce_block(weighted, Plus{});
    for (std::size_t i = threadIdx.x; i < width; i += kThreads) {
      const float d = dy[t * width + i] * value_at(gain, i);
      const float normal = (x[t * width + i] - mean) * rstd;
      dx[t * width + i] += rstd * (d - (sum + normal * weighted) / static_cast<float>(width));
    }
  });
  for_each_row(task, (width + 31) / 32,
               [=] __device__(std::size_t block) { norm_parameter_gradients(block, gradients, dy, x, state); });
}

void CudaArithmetic::gelu_forward(const Task& task, Floats y, ConstFloats x) {
  for_each(task, x.size(), [=] __device__(std::size_t i) { y[i] = 0.5F * x[i] * (1.0F + gelu_tangent(x[i])); });
}

void CudaArithmetic::gelu_backward(const Task& task, Floats d, ConstFloats x) {
  for_each(task, x.size(), [=] __device__(std::size_t i) {
    const float tangent = gelu_tangent(x[i]);
    const float inner = kGeluScale * (1.0F + 3.0F * kGeluCubic * x[i] * x[i]);
    d[i] *= 0.5F * (1.0F + tangent) + 0.5F * x[i] * (1.0F - tangent * tangent) * inner;
  });
}

void CudaArithmetic::add(const Task& task, Floats y, ConstFloats x) {
  for_each(task, y.size(), [=] __device__(std::size_t i) { y[i] += x[i]; });
}

}  // namespace gtp::train
