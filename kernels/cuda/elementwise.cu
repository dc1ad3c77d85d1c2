// Conversion between BF16 and FP32, and scaling in place.
#include "kernels/cuda/reduce_kernels.hpp"
#include "kernels/cuda/values.cuh"

namespace gtp::cuda {

namespace {

struct Convert {
  __device__ float operator()(float value) const { return value; }
};

struct Multiply {
  float factor;
  __device__ float operator()(float value) const { return __fmul_rn(value, factor); }
};

/// target[i] = operation(source[i]); they may be the same array.
template <class Target, class Source, class Operation, int kUnits, bool kAligned>
__global__ void __launch_bounds__(kElementwiseThreads)
    transform_kernel(Target* target, const Source* source, std::int64_t count, Operation operation) {
  wait_for_predecessor();
  constexpr int kWidth = unit_width<Target, Source>();
  const std::int64_t block = std::int64_t{blockIdx.x} * (kElementwiseThreads * kUnits * kWidth);
  Values<Source, kWidth> loaded[kUnits];
#pragma unroll
  for (int unit = 0; unit < kUnits; ++unit) {
    const std::int64_t first = block + (unit * kElementwiseThreads + static_cast<int>(threadIdx.x)) * kWidth;
    if (first + kWidth <= count) loaded[unit] = Values<Source, kWidth>::template load<kAligned>(source + first);
  }
#pragma unroll
  for (int unit = 0; unit < kUnits; ++unit) {
    const std::int64_t first = block + (unit * kElementwiseThreads + static_cast<int>(threadIdx.x)) * kWidth;
    if (first + kWidth > count) continue;
    float values[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[i] = operation(loaded[unit].at(i));
    Values<Target, kWidth>::template store<kAligned>(target + first, values);
  }
  const std::int64_t tail = count / kWidth * kWidth + threadIdx.x;
  if (blockIdx.x == gridDim.x - 1 && tail < count) from_fp32(target + tail, operation(to_fp32(source[tail])));
}

template <class Target, class Source, class Operation>
void transform(const KernelCall& call, Target* target, const Source* source, std::int64_t count,
               const Operation& operation, cudaStream_t stream) {
  constexpr int kWidth = unit_width<Target, Source>(), kUnits = 4;
  const std::int64_t blocks = detail::blocks_of(count, kElementwiseThreads * kUnits * kWidth);
  if (is_aligned(target, kWidth * sizeof(Target)) && is_aligned(source, kWidth * sizeof(Source))) {
    launch_overlapped(call, transform_kernel<Target, Source, Operation, kUnits, true>, blocks, kElementwiseThreads,
                      stream, target, source, count, operation);
  } else {
    launch_overlapped(call, transform_kernel<Target, Source, Operation, kUnits, false>, blocks, kElementwiseThreads,
                      stream, target, source, count, operation);
  }
}

bool is_empty(const KernelCall& call, std::int64_t count) {
  if (count < 0) refuse(call, "the count is negative");
  if (!checked_multiply(count, 4)) refuse(call, "the count is too large");
  return count == 0;
}

}  // namespace

void copy(void* destination, ElementType destination_type, const void* source, ElementType source_type,
          std::int64_t count, cudaStream_t stream) {
  const KernelCall call{"copy", 1, count};
  if (is_empty(call, count)) return;
  if (destination_type == source_type) {
    const std::size_t bytes = static_cast<std::size_t>(count) * element_bytes(source_type);
    return check(call, cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDeviceToDevice, stream));
  }
  require_values(call, destination, destination_type);
  require_values(call, source, source_type);
  if (source_type == ElementType::kBFloat16) {
    transform(call, static_cast<float*>(destination), static_cast<const __nv_bfloat16*>(source), count, Convert{},
              stream);
  } else {
    transform(call, static_cast<__nv_bfloat16*>(destination), static_cast<const float*>(source), count, Convert{},
              stream);
  }
}

void scale(void* data, ElementType type, std::int64_t count, float factor, cudaStream_t stream) {
  const KernelCall call{"scale", 1, count};
  if (is_empty(call, count)) return;
  require_values(call, data, type);
  with_type(type, [&](auto* null) {
    auto* values = static_cast<decltype(null)>(data);
    transform(call, values, static_cast<std::add_const_t<std::remove_pointer_t<decltype(null)>>*>(values), count,
              Multiply{factor}, stream);
  });
}

}  // namespace gtp::cuda
