// Gradient norm, Adam, and weights in quantized formats.
#include "examples/train/cuda/kernels.cuh"

namespace gtp::train {

namespace {

constexpr double kNormEpsilon = 1e-6;  // megatron/core/optimizer/clip_grads.py:171
constexpr std::size_t kSumBlocks = 256;

struct Root {
  __host__ __device__ float operator()(float value) const { return sqrtf(value); }
};

__device__ void sum_squares(std::size_t block, std::span<ExactSum> partial_sums, ConstFloats range) {
  __shared__ ExactSum of_threads[kThreads];
  ExactSum sum;
  for (std::size_t i = block * kThreads + threadIdx.x; i < range.size(); i += kSumBlocks * kThreads) {
    sum.add_square(range[i]);
  }
  of_threads[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kThreads; ++i) sum.add(of_threads[i]);
  partial_sums[block] = sum;
}

cuda::SourceMatrix source_of(const QuantizedShard& out, Weights values) {
  return {values.data(), ElementType::kBFloat16, out.rows, out.cols};
}

}  // namespace

void CudaArithmetic::squares(const Task& task, std::span<ExactSum> sum, std::span<const ConstFloats> ranges) {
  const auto partial_sums = partial_sums_.get<ExactSum>(kSumBlocks);
  for_each(task, 1, [=] __device__(std::size_t i) { sum[i] = ExactSum{}; });
  for (const ConstFloats range : ranges) {
    for_each_row(task, kSumBlocks, [=] __device__(std::size_t block) { sum_squares(block, partial_sums, range); });
    for_each(task, 1, [=] __device__(std::size_t) {
      for (std::size_t i = 0; i < partial_sums.size(); ++i) sum[0].add(partial_sums[i]);
    });
  }
}

void CudaArithmetic::clip(const Task& task, std::span<double> clip, std::span<const ExactSum> dense,
                          std::span<const ExactSum> expert, double limit) {
  for_each(task, 1, [=] __device__(std::size_t) {
    ExactSum total;
    for (std::size_t i = 0; i < dense.size(); ++i) total.add(dense[i]);
    for (std::size_t i = 0; i < expert.size(); ++i) total.add(expert[i]);
    clip[0] = sqrt(total.value());
    clip[1] = limit > 0 ? fmin(1.0, limit / (clip[0] + kNormEpsilon)) : 1.0;
  });
}

void CudaArithmetic::adam(const Task& task, const AdamState& state, ConstFloats grads, std::span<const double> clip,
                          const AdamStep& step) {
  for_each(task, state.masters.size(), [=] __device__(std::size_t i) {
    const auto factor = static_cast<float>(clip[1]);
    float& master = state.masters[i];
    master = step.update(master, grads[i] * factor, state.first_moment[i], state.second_moment[i], Root{});
    state.weights[i] = bits_of(to_bf16(master));
  });
}

void CudaArithmetic::amax(const Task& task, std::span<float> amax, Weights values) {
  cuda::nvfp4_amax(values.data(), ElementType::kBFloat16, static_cast<std::int64_t>(values.size()), amax.data(),
                   amax_workspace_.get<cuda::AmaxWorkspace>(1).data(), static_cast<cudaStream_t>(task.stream.handle));
}

void CudaArithmetic::largest(const Task& task, std::span<float> amaxes, std::span<const float> of_members) {
  for_each(task, amaxes.size(), [=] __device__(std::size_t i) {
    float amax = 0.0F;
    for (std::size_t j = i; j < of_members.size(); j += amaxes.size()) amax = max_magnitude(amax, of_members[j]);
    amaxes[i] = amax;
  });
}

void CudaArithmetic::quantize(const Task& task, const QuantizedShard& out, Weights values) {
  const auto stream = static_cast<cudaStream_t>(task.stream.handle);
  const cuda::QuantizedCopy rows{out.row_data.data(), out.row_scales.data()};
  switch (out.format) {
    case WeightFormat::kBf16:
      return;
    case WeightFormat::kMxfp8:
      return cuda::quantize_mxfp8(source_of(out, values), rows, {out.col_data.data(), out.col_scales.data()}, stream);
    case WeightFormat::kNvfp4:
      return cuda::quantize_nvfp4(source_of(out, values), out.amax.data(), rows, stream);
  }
}

void CudaArithmetic::dequantize(const Task& task, std::span<std::uint16_t> out, const GatheredMatrix& in,
                                CopyDirection direction) {
  const auto stream = static_cast<cudaStream_t>(task.stream.handle);
  const cuda::TargetMatrix target{out.data(), ElementType::kBFloat16, in.rows, in.cols};
  const cuda::ConstQuantizedCopy rows{in.row_data.data(), in.row_scales.data()};
  const cuda::ConstQuantizedCopy cols{in.col_data.data(), in.col_scales.data()};
  switch (in.format) {
    case WeightFormat::kBf16:
      return;
    case WeightFormat::kMxfp8:
      return cuda::dequantize_mxfp8(direction, direction == CopyDirection::kRow ? rows : cols, target, stream);
    case WeightFormat::kNvfp4:
      return cuda::dequantize_nvfp4(rows, in.amax.data(), target, stream);
  }
}

}  // namespace gtp::train
