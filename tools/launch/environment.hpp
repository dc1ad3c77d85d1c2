// The environment of a job: what the input says, and what follows from upstream's rules and the generation of the GPUs.
#pragma once

#include <gtp/check.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gtp::cli {

struct Assignment {
  std::string name;
  std::string value;
  std::string why;  ///< one line
};

struct Environment {
  std::vector<Assignment> list;  ///< sorted by name, each name once
  /// What cannot be decided without knowing more, as `NAME: why`.
  std::vector<std::string> undecided;
  /// Variables of the input that upstream or a shell would not accept.
  Diagnostics problems;
};

/// The input's variables win; one that contradicts a rule is reported. Options that the input does not give are the
/// target's defaults here, because that is what the job will run with. Precondition: the topology is known.
[[nodiscard]] Environment make_environment(const Config& config, const Derivation& derivation);

}  // namespace gtp::cli
