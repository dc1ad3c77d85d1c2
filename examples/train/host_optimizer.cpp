// Optimizer and quantized weights on host memory.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "host_arithmetic.hpp"
#include "kernels/bookkeeping/nvfp4_amax.hpp"
#include "kernels/format/mxfp8.hpp"
#include "kernels/format/nvfp4.hpp"

namespace gtp::train {

namespace {

constexpr double kNormEpsilon = 1e-6;  // megatron/core/optimizer/clip_grads.py:171

std::vector<Bf16> as_bf16(Weights values) {
  std::vector<Bf16> out(values.size());
  std::ranges::transform(values, out.begin(), [](std::uint16_t bits) { return Bf16{bits}; });
  return out;
}

/// The format functions refuse shapes only, which a ShardLayout has checked.
void require(bool done) {
  if (!done) throw std::logic_error("the components of a quantized weight do not fit its shape");
}

void quantize_values(const QuantizedShard& out, Weights values) {
  const std::vector<Bf16> source = as_bf16(values);
  const Bf16Matrix matrix{out.rows, out.cols, source};
  switch (out.format) {
    case WeightFormat::kBf16:
      return;
    case WeightFormat::kMxfp8:
      return require(quantize_mxfp8(matrix, {out.row_data, out.row_scales, out.col_data, out.col_scales}));
    case WeightFormat::kNvfp4:
      return require(quantize_nvfp4_rows(matrix, out.amax[0], out.row_data, out.row_scales));
  }
}

void dequantize_values(std::span<float> out, const GatheredMatrix& in, CopyDirection direction) {
  switch (in.format) {
    case WeightFormat::kBf16:
      return;
    case WeightFormat::kMxfp8:
      return require(direction == CopyDirection::kRow
                         ? dequantize_mxfp8_rows(in.rows, in.cols, in.row_data, in.row_scales, out)
                         : dequantize_mxfp8_cols(in.rows, in.cols, in.col_data, in.col_scales, out));
    case WeightFormat::kNvfp4:
      return require(dequantize_nvfp4_rows(in.rows, in.cols, in.amax[0], in.row_data, in.row_scales, out));
  }
}

}  // namespace

void HostArithmetic::squares(const Task& task, std::span<ExactSum> sum, std::span<const ConstFloats> ranges) {
  std::vector<Access> accesses{writes(sum)};
  for (const ConstFloats range : ranges) accesses.push_back(reads(range));
  launcher_.launch(task.stream, task.label, accesses, [=, ranges = std::vector(ranges.begin(), ranges.end())] {
    sum[0] = ExactSum{};
    for (const ConstFloats range : ranges) {
      for (const float value : range) sum[0].add_square(value);
    }
  });
}

void HostArithmetic::clip(const Task& task, std::span<double> clip, std::span<const ExactSum> dense,
                          std::span<const ExactSum> expert, double limit) {
  run(task, {writes(clip), reads(dense), reads(expert)}, [=] {
    ExactSum total;
    for (const ExactSum& sum : dense) total.add(sum);
    for (const ExactSum& sum : expert) total.add(sum);
    clip[0] = std::sqrt(total.value());
    clip[1] = limit > 0 ? std::min(1.0, limit / (clip[0] + kNormEpsilon)) : 1.0;
  });
}

void HostArithmetic::adam(const Task& task, const AdamState& state, ConstFloats grads, std::span<const double> clip,
                          const AdamStep& step) {
  run(task,
      {writes(state.masters), writes(state.first_moment), writes(state.second_moment), writes(state.weights),
       reads(grads), reads(clip)},
      [=] {
        const auto factor = static_cast<float>(clip[1]);
        const auto root = [](float value) { return std::sqrt(value); };
        for (std::size_t i = 0; i < state.masters.size(); ++i) {
          float& master = state.masters[i];
          master = step.update(master, grads[i] * factor, state.first_moment[i], state.second_moment[i], root);
          state.weights[i] = bits_of(to_bf16(master));
        }
      });
}

void HostArithmetic::amax(const Task& task, std::span<float> amax, Weights values) {
  run(task, {writes(amax), reads(values)}, [=] { amax[0] = nvfp4_amax(as_bf16(values)); });
}

void HostArithmetic::largest(const Task& task, std::span<float> amaxes, std::span<const float> of_members) {
  run(task, {writes(amaxes), reads(of_members)}, [=] {
    for (std::size_t i = 0; i < amaxes.size(); ++i) {
      std::vector<float> members;
      for (std::size_t j = i; j < of_members.size(); j += amaxes.size()) members.push_back(of_members[j]);
      amaxes[i] = reduce_amax(members);
    }
  });
}

void HostArithmetic::quantize(const Task& task, const QuantizedShard& out, Weights values) {
  run(task,
      {writes(out.row_data), writes(out.row_scales), writes(out.col_data), writes(out.col_scales), reads(out.amax),
       reads(values)},
      [=] { quantize_values(out, values); });
}

void HostArithmetic::dequantize(const Task& task, std::span<std::uint16_t> out, const GatheredMatrix& in,
                                CopyDirection direction) {
  const bool rows = direction == CopyDirection::kRow || in.format == WeightFormat::kNvfp4;
  run(task,
      {writes(out), reads(rows ? in.row_data : in.col_data), reads(rows ? in.row_scales : in.col_scales),
       reads(in.amax)},
      [=] {
        std::vector<float> values(out.size());
        dequantize_values(values, in, direction);
        std::ranges::transform(values, out.begin(), [](float value) { return bits_of(to_bf16(value)); });
      });
}

}  // namespace gtp::train
