// Flat JSON and YAML: option names and their values, in groups of any name. `env`, `checkpoint` and
// `scenario` are not groups. The plan of `gtplan plan` keeps its options in this form.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "validators/reading.hpp"
#include "validators/tree.hpp"

namespace gtp::readers {

/// Precondition: `root` is a map.
void read_flat(Reading& reading, const Node& root);

/// The text that a list stands for in an option written as text; nothing when it has no such form.
[[nodiscard]] std::optional<std::string> list_as_text(std::string_view option, const Node& list);

/// Reads a map of options of the checkpoint to be loaded. Derived sizes count as options there.
void read_checkpoint(Reading& reading, const Node& map);

/// Reads a map of variables into the configuration's environment.
void read_env(Reading& reading, const Node& map);

}  // namespace gtp::readers
