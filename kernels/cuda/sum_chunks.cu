#include "kernels/cuda/reduce_kernels.hpp"
#include "kernels/cuda/sum_chunks.cuh"

namespace gtp::cuda {

namespace {

/// Chunks of common group sizes are unrolled; two units per thread keep enough loads in flight where there are few.
template <class Destination, class Source>
void sum_aligned(const KernelCall& call, const SumChunksArguments<Destination, Source>& arguments,
                 cudaStream_t stream) {
  switch (arguments.chunks) {
    case 1:
      return launch_sum_chunks<Destination, Source, 1, 4, true>(call, arguments, stream);
    case 2:
      return launch_sum_chunks<Destination, Source, 2, 2, true>(call, arguments, stream);
    case 4:
      return launch_sum_chunks<Destination, Source, 4, 1, true>(call, arguments, stream);
    case 8:
      return launch_sum_chunks<Destination, Source, 8, 1, true>(call, arguments, stream);
    default:
      return launch_sum_chunks<Destination, Source, 0, 1, true>(call, arguments, stream);
  }
}

template <class Destination, class Source>
void sum(const KernelCall& call, const SumChunksArguments<Destination, Source>& arguments, cudaStream_t stream) {
  constexpr int kWidth = unit_width<Destination, Source>();
  const bool aligned = is_aligned(arguments.destination, kWidth * sizeof(Destination)) &&
                       is_aligned(arguments.source, kWidth * sizeof(Source)) &&
                       (arguments.chunks == 1 || arguments.count % kWidth == 0);
  if (aligned) {
    sum_aligned(call, arguments, stream);
  } else {
    launch_sum_chunks<Destination, Source, 0, 1, false>(call, arguments, stream);
  }
}

void checked_sum(std::string_view name, void* destination, ElementType destination_type, const void* source,
                 ElementType source_type, std::int64_t count, std::int64_t chunks, float factor, cudaStream_t stream) {
  const KernelCall call{name, chunks, count};
  if (count < 0) refuse(call, "the count is negative");
  if (chunks <= 0) refuse(call, "there are no chunks");
  if (count == 0) return;
  require_values(call, destination, destination_type);
  require_values(call, source, source_type);
  if (!checked_product({count, chunks, 4})) refuse(call, "the chunks are too large");
  with_type(destination_type, [&](auto* to) {
    with_type(source_type, [&](auto* from) {
      using To = std::remove_pointer_t<decltype(to)>;
      using From = std::remove_pointer_t<decltype(from)>;
      sum<To, From>(call, {static_cast<To*>(destination), static_cast<const From*>(source), count, chunks, factor},
                    stream);
    });
  });
}

}  // namespace

void add_into(void* destination, ElementType destination_type, const void* source, ElementType source_type,
              std::int64_t count, float factor, cudaStream_t stream) {
  checked_sum("add_into", destination, destination_type, source, source_type, count, 1, factor, stream);
}

void sum_chunks_into(void* destination, ElementType destination_type, const void* source, ElementType source_type,
                     std::int64_t count, std::int64_t chunks, float factor, cudaStream_t stream) {
  checked_sum("sum_chunks_into", destination, destination_type, source, source_type, count, chunks, factor, stream);
}

}  // namespace gtp::cuda
