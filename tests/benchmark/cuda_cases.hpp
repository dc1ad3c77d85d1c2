// What each kernel reads and writes, shared by the benchmark of the API and that of the variants.
#pragma once

#include "cuda_bench.hpp"
#include "kernels/cuda/format_kernels.hpp"

namespace cuda_bench {

using gtp::ElementType;
using gtp::cuda::QuantizedCopy;
using gtp::cuda::ScaleOrder;

inline constexpr std::int64_t kCols = 8192;

inline std::int64_t bytes_of(ElementType type) { return static_cast<std::int64_t>(gtp::element_bytes(type)); }

struct QuantizeSet {
  std::uint8_t* source;
  QuantizedCopy row, col;
};
inline QuantizeSet quantize_set(std::uint8_t* set, ElementType type, std::int64_t rows, ScaleOrder order) {
  Slices slices(set);
  QuantizeSet result{};
  result.source = slices.take(rows * kCols * bytes_of(type));
  result.row = {slices.take(rows * kCols), slices.take(gtp::mxfp8_row_scales(rows, kCols).bytes()), order};
  result.col = {slices.take(rows * kCols), slices.take(gtp::mxfp8_col_scales(rows, kCols).bytes()), order};
  return result;
}

template <class Launch>  // (const SourceMatrix&, row, col, stream)
Case mxfp8_quantize_case(std::string name, std::int64_t input, ElementType type, bool row, bool col, ScaleOrder order,
                         Launch launch) {
  const std::int64_t rows = input / (kCols * bytes_of(type)), values = rows * kCols;
  const std::int64_t copies = (row ? 1 : 0) + (col ? 1 : 0);
  return {std::move(name),
          rows,
          kCols,
          input,
          values * bytes_of(type) + copies * (values + values / 32),
          values * (bytes_of(type) + 2) + values / 16 + 4096,
          [=](std::uint8_t* set, cudaStream_t stream) {
            const QuantizeSet s = quantize_set(set, type, rows, order);
            launch(gtp::cuda::SourceMatrix{s.source, type, rows, kCols}, row ? s.row : QuantizedCopy{},
                   col ? s.col : QuantizedCopy{}, stream);
          },
          {}};
}

/// MXFP8 (8 bits, a scale per 32) or NVFP4 (4 bits, a scale per 16). `launch`: (copy, amax, target matrix, stream).
template <class Launch>
Case dequantize_case(std::string name, std::int64_t input, bool nvfp4, bool col, ElementType type, ScaleOrder order,
                     Launch launch) {
  const std::int64_t rows = input / (nvfp4 ? kCols / 2 : kCols), values = rows * kCols;
  const std::int64_t scales = nvfp4 ? gtp::nvfp4_row_scales(rows, kCols).bytes()
                              : col ? gtp::mxfp8_col_scales(rows, kCols).bytes()
                                    : gtp::mxfp8_row_scales(rows, kCols).bytes();
  return {std::move(name),
          rows,
          kCols,
          input,
          input + scales + values * bytes_of(type),
          input + scales + values * bytes_of(type) + 4096,
          [=](std::uint8_t* set, cudaStream_t stream) {
            Slices slices(set);
            const std::uint8_t* data = slices.take(input);
            const gtp::cuda::ConstQuantizedCopy copy{data, slices.take(scales), order};
            auto* target = slices.take(values * bytes_of(type));
            const auto* amax = reinterpret_cast<const float*>(slices.take(4));
            launch(copy, amax, gtp::cuda::TargetMatrix{target, type, rows, kCols}, stream);
          },
          {}};
}

template <class Launch>  // (values, count, amax, workspace, stream)
Case amax_case(std::string name, std::int64_t input, ElementType type, Launch launch) {
  const std::int64_t rows = input / (kCols * bytes_of(type));
  const auto workspace_of = [](std::uint8_t* set) { return reinterpret_cast<gtp::cuda::AmaxWorkspace*>(set); };
  return {std::move(name),
          rows,
          kCols,
          input,
          input,
          input + 4096,
          [=](std::uint8_t* set, cudaStream_t stream) {
            launch(set + 512, rows * kCols, reinterpret_cast<float*>(set + 256), workspace_of(set), stream);
          },
          [=](std::uint8_t* set, cudaStream_t stream) {
            cudaMemsetAsync(workspace_of(set), 0, sizeof(gtp::cuda::AmaxWorkspace), stream);
          }};
}

template <class Launch>  // (source matrix, amax, row, stream)
Case nvfp4_quantize_case(std::string name, std::int64_t input, ElementType type, ScaleOrder order, Launch launch) {
  const std::int64_t rows = input / (kCols * bytes_of(type)), values = rows * kCols;
  return {std::move(name),
          rows,
          kCols,
          input,
          input + values / 2 + values / 16,
          input + values / 2 + values / 16 + 4096,
          [=](std::uint8_t* set, cudaStream_t stream) {
            Slices slices(set);
            const auto* amax = reinterpret_cast<const float*>(slices.take(4));
            auto* source = slices.take(input);
            auto* data = slices.take(values / 2);
            launch(gtp::cuda::SourceMatrix{source, type, rows, kCols}, amax,
                   QuantizedCopy{data, slices.take(values / 16), order}, stream);
          },
          [](std::uint8_t* set, cudaStream_t stream) {
            const float amax = 31.875F;  // of the random values
            cudaMemcpyAsync(set, &amax, sizeof amax, cudaMemcpyHostToDevice, stream);
            cudaStreamSynchronize(stream);
          }};
}

template <class Launch>  // (rows, cols, row copy, col copy, stream)
Case transpose_case(std::string name, std::int64_t input, ScaleOrder order, Launch launch) {
  const std::int64_t rows = input / (kCols / 2), scales = rows * kCols / 16;
  return {std::move(name),
          rows,
          kCols,
          input,
          2 * (input + scales),
          2 * (input + scales) + 4096,
          [=](std::uint8_t* set, cudaStream_t stream) {
            Slices slices(set);
            const std::uint8_t* data = slices.take(input);
            const gtp::cuda::ConstQuantizedCopy row{data, slices.take(scales), order};
            auto* col_data = slices.take(input);
            launch(rows, kCols, row, QuantizedCopy{col_data, slices.take(scales), order}, stream);
          },
          {}};
}

/// `input` is that of all chunks. `launch`: (destination, source, count, chunks, stream).
template <class Launch>
Case sum_case(std::string name, std::int64_t input, ElementType to, ElementType from, std::int64_t chunks,
              Launch launch) {
  const std::int64_t count = input / (chunks * bytes_of(from));
  return {std::move(name),
          chunks,
          count,
          input,
          input + 2 * count * bytes_of(to),
          input + count * bytes_of(to) + 4096,
          [=](std::uint8_t* set, cudaStream_t stream) {
            Slices slices(set);
            const std::uint8_t* source = slices.take(input);
            launch(slices.take(count * bytes_of(to)), source, count, chunks, stream);
          },
          {}};
}

}  // namespace cuda_bench
