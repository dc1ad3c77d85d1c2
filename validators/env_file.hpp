// Environment files: `NAME=value` lines, with or without `export`, as dotenv files and launch scripts have them.
#pragma once

#include <vector>

#include "validators/reading.hpp"
#include "validators/source.hpp"

namespace gtp::readers {

[[nodiscard]] bool is_variable_name(std::string_view name);

/// The variables in order. A line that sets none is reported. Nothing is expanded.
[[nodiscard]] std::vector<Variable> read_env_file(const Source& source, std::uint32_t index, Diagnostics& out);

}  // namespace gtp::readers
