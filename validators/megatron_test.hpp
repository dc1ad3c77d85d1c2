// Megatron-LM's functional tests (`MODEL_ARGS`, `ENV_VARS`), read as their runner turns them into a command
// line, and the inference performance tests beside them (`MODEL`, `TP`, `PP`, `DP`, `EP`).
#pragma once

#include "validators/reading.hpp"
#include "validators/tree.hpp"

namespace gtp::readers {

/// Whether the keys of a map are those of such a file.
[[nodiscard]] bool is_megatron_test(const Node& root);

/// Precondition: `root` is a map. `text` is the whole source.
void read_megatron_test(Reading& reading, const Node& root, std::string_view text);

}  // namespace gtp::readers
