// Counts allocations of the whole test program.
#pragma once

#include <cstdint>

namespace gtp::test {

/// Calls of any operator new so far, on any thread.
std::int64_t host_allocations() noexcept;

}  // namespace gtp::test
