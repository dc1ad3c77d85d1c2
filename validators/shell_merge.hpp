// Variables after a fork of the way through a script.
#pragma once

#include <cstddef>
#include <span>

#include "validators/shell_expand.hpp"
#include "validators/shell_value.hpp"

namespace gtp::readers::shell {

/// What is true of the variables whichever way was taken. An array or a text of flags that was appended to keeps
/// what all ways share, and gets the rest under new conditions, counted from `next_condition` on.
[[nodiscard]] Variables merge(std::span<const Variables> ways, std::size_t& next_condition, Budget& budget);

}  // namespace gtp::readers::shell
