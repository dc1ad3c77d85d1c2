// The JSON that `gtplan plan` writes, read back: its options, environment and checkpoint. What it derived is derived
// again.
#pragma once

#include "validators/reading.hpp"
#include "validators/tree.hpp"

namespace gtp::readers {

/// Whether a map says that it is a plan.
[[nodiscard]] bool is_plan(const Node& root);

/// False, and one `kUnreadable`, for what is not a plan of a version that is understood.
[[nodiscard]] bool read_plan(Reading& reading, const Node& root);

}  // namespace gtp::readers
