#include "kernels/cuda/scale_swizzle.cuh"

namespace gtp::cuda {

namespace {

using namespace swizzling;

template <bool kSwizzle>
void move_scales(std::string_view name, const ScaleGrid& grid, const std::uint8_t* source, std::uint8_t* target,
                 cudaStream_t stream) {
  const KernelCall call{name, grid.outer, grid.inner};
  if (grid.outer < 0 || grid.inner < 0) refuse(call, "a size is negative");
  if (grid.outer == 0 || grid.inner == 0) return;
  if (source == nullptr || target == nullptr) refuse(call, "scales are a null pointer");
  const auto outer = round_up_to_multiple(grid.outer, kScaleTileOuter);
  const auto inner = round_up_to_multiple(grid.inner, kScaleTileInner);
  const auto bytes = outer && inner ? checked_multiply(*outer, *inner) : std::nullopt;
  if (!bytes || *bytes / kThreads > std::numeric_limits<std::int32_t>::max() - 1) refuse(call, "the grid is too large");
  Arguments arguments{grid, source, target, 0};
  const std::uint8_t* compact = kSwizzle ? source : target;
  const std::uint8_t* swizzled = kSwizzle ? target : source;
  const std::size_t compact_alignment = kSwizzle && grid.compact_runs_along_outer ? 16 : 4;
  if (!is_aligned(compact, compact_alignment) || !is_aligned(swizzled, 16)) {
    launch_overlapped(call, move_any<kSwizzle>, detail::blocks_of(*bytes, kThreads), kThreads, stream, arguments);
    return;
  }
  if (grid.compact_runs_along_outer) {
    launch_move_bytes<kSwizzle>(call, arguments, stream);
  } else {
    const std::int64_t across = detail::blocks_of(grid.tile_columns(), kTilesPerBlock);
    arguments.blocks_across = static_cast<std::uint32_t>(across);
    launch_overlapped(call, move_words<kSwizzle>, across * grid.tile_rows(), kThreads, stream, arguments);
  }
}

}  // namespace

void swizzle_scales(const ScaleGrid& grid, const std::uint8_t* compact, std::uint8_t* swizzled, cudaStream_t stream) {
  move_scales<true>("swizzle_scales", grid, compact, swizzled, stream);
}

void unswizzle_scales(const ScaleGrid& grid, const std::uint8_t* swizzled, std::uint8_t* compact, cudaStream_t stream) {
  move_scales<false>("unswizzle_scales", grid, swizzled, compact, stream);
}

}  // namespace gtp::cuda
