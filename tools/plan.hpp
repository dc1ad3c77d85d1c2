// The canonical plan of one valid configuration: what it sets, what follows, and both grids. Equal configurations give
// equal bytes, and reading a plan and planning again gives the same bytes.
#pragma once

#include <string>

#include "tools/input.hpp"

namespace gtp::cli {

/// Precondition: the configuration is valid and its topology is known.
[[nodiscard]] std::string write_plan(const Checked& checked);

}  // namespace gtp::cli
