// NeMo-RL's YAML: `defaults` name files that a file builds on, `${...}` refers to other values, and
// `policy.megatron_cfg` and `cluster` say how the policy is trained. Other workers of the job are not read.
#pragma once

#include <optional>

#include "validators/load.hpp"
#include "validators/reading.hpp"
#include "validators/tree.hpp"

namespace gtp::readers {

/// Whether the keys of a map are those of such a file.
[[nodiscard]] bool is_nemo_rl(const Node& root);

/// The map with everything that its `defaults` name merged below it, as NeMo-RL merges
/// (nemo_rl/utils/config.py:31-99). Nothing, and one `kUnreadable`, if a file of the chain cannot be read.
[[nodiscard]] std::optional<Node> with_defaults(Node root, const Include& include, Sources& sources, Diagnostics& out);

/// Precondition: `root` is a map, without `defaults`.
void read_nemo_rl(Reading& reading, const Node& root);

}  // namespace gtp::readers
