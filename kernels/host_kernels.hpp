// Element-wise arithmetic and the data movement of collectives, on host memory. Knows nothing of streams.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/element_type.hpp"
#include "kernels/host_stream.hpp"

namespace gtp::host {

float load(const void* data, ElementType type, std::size_t index) noexcept;
/// Rounds to nearest, ties to even.
void store(void* data, ElementType type, std::size_t index, float value) noexcept;

/// One collective over all members: `calls[m]` is what member m issued. Precondition: they agree. `in_windows`: sums
/// are kept in fp32 and rounded once, as a switch does; otherwise after every addition, as a ring does.
void run_collective(std::span<const CollectiveCall* const> calls, bool in_windows);

}  // namespace gtp::host
