// The arithmetic a Backend owes the runtime, on the GPU: bit for bit what the host backend computes, except that a NaN
// in FP32 has the GPU's bits. Tail rows are zeroed with cudaMemsetAsync; there is no kernel for that.
//
// The rules of format_kernels.hpp about streams, graphs, alignment and errors hold here too. Types are BF16 and FP32 in
// any combination; counts are in elements and may exceed 2^31; 0 does nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/element_type.hpp"

namespace gtp::cuda {

/// destination[i] = source[i], rounded to the destination's type. Equal types, bytes included, are a plain copy.
void copy(void* destination, ElementType destination_type, const void* source, ElementType source_type,
          std::int64_t count, cudaStream_t stream);

/// data[i] *= factor.
void scale(void* data, ElementType type, std::int64_t count, float factor, cudaStream_t stream);

/// destination[i] += factor * source[i]: the product and the sum are each rounded to fp32, then to the destination.
void add_into(void* destination, ElementType destination_type, const void* source, ElementType source_type,
              std::int64_t count, float factor, cudaStream_t stream);

/// destination[i] += factor * (sum over c < chunks of source[c * count + i]), summed in fp32 in order of c. Fastest
/// when a chunk is a multiple of 16 bytes. `chunks` is positive.
void sum_chunks_into(void* destination, ElementType destination_type, const void* source, ElementType source_type,
                     std::int64_t count, std::int64_t chunks, float factor, cudaStream_t stream);

}  // namespace gtp::cuda
