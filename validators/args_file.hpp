// Megatron args files: flags and values as a shell would split them, with comments. Nothing is expanded.
#pragma once

#include <optional>
#include <vector>

#include "validators/reading.hpp"
#include "validators/source.hpp"

namespace gtp::readers {

/// The words with their places. Nothing, and one `kUnreadable`, at a quote without an end.
[[nodiscard]] std::optional<std::vector<Word>> split_args(const Source& source, std::uint32_t index, Diagnostics& out);

}  // namespace gtp::readers
