// Megatron-Bridge: `run_config.yaml` of a checkpoint, override files in the same form, and Hydra's `key=value`
// overrides. A `run_config.yaml` (with `_target_`) is a whole configuration; the others are parts over a recipe.
#pragma once

#include "validators/reading.hpp"
#include "validators/source.hpp"
#include "validators/tree.hpp"

namespace gtp::readers {

/// Whether a YAML map is a configuration of Megatron-Bridge, or a part of one.
[[nodiscard]] bool is_bridge(const Node& root);

/// Precondition: `root` is a map.
void read_bridge(Reading& reading, const Node& root);

/// Whether a text begins with an override such as `++model.seq_length=4096`.
[[nodiscard]] bool starts_with_override(std::string_view content);

/// False, and one `kUnreadable`, at a value that Hydra's grammar does not know.
[[nodiscard]] bool read_bridge_overrides(Reading& reading, std::string_view text);

}  // namespace gtp::readers
