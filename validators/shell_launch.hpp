// How many ranks a launcher starts: torchrun's options, srun's, and the `#SBATCH` lines of a script.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "validators/reading.hpp"
#include "validators/shell_value.hpp"

namespace gtp::readers::shell {

/// What Slurm was asked for; words as they are written.
struct SlurmSizes {
  std::optional<gtp::Word> nodes{};
  std::optional<gtp::Word> tasks{};
  std::optional<gtp::Word> tasks_per_node{};
  std::optional<gtp::Word> gpus_per_node{};
};

[[nodiscard]] SlurmSizes read_directives(std::string_view text, std::uint32_t source);

/// Slurm's variables inside the job, as far as the directives say them.
void add_slurm_variables(const SlurmSizes& sizes, Variables& variables);

/// Sets `gpus_per_node` and `world_size` from the words before the program's own. What a launcher is given but
/// cannot be known is reported.
void read_launcher(Reading& reading, std::span<const Field> words, const SlurmSizes& directives);

}  // namespace gtp::readers::shell
