// What the command line says beside the configuration: `--set`, the size of the job. One source holds its words.
#pragma once

#include "validators/load.hpp"
#include "validators/reading.hpp"

namespace gtp::readers {

/// Applies `set`, `world_size`, `nodes` and `gpus_per_node` of the request over what the configuration has
/// said so far. `none` and `null` as the value of `--set` mean the target's default.
void apply_command_line(const LoadRequest& request, Config& config, Sources& sources, Diagnostics& out);

}  // namespace gtp::readers
