// Walks through a script as a shell would, with what the script itself says: which commands it would start, with
// which words. Where the way depends on something else, all ways are taken, and what differs between them is not
// known afterwards. Nothing is started, and nothing outside the script is looked at.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtp/config.hpp>

#include "validators/shell_expand.hpp"
#include "validators/shell_script.hpp"
#include "validators/shell_value.hpp"

namespace gtp::readers::shell {

/// A command that may be the one looked for.
struct Started {
  std::vector<Field> fields{};
  Place place{};
  Variables variables{};        ///< at its start
  std::vector<Variable> set{};  ///< `NAME=value` before it
  bool conditional = false;
};

/// What a script sets that cannot be known from it: `source FILE`.
struct Opaque {
  Place place{};
  std::string what{};
};

struct Run {
  std::vector<Started> started{};
  std::vector<Opaque> opaque{};
  bool complete = true;  ///< false: the script asks for too much work, and the rest was left out
};

/// `wanted` says of a command's words whether it may be the one looked for. `variables` are set at the start.
[[nodiscard]] Run run_script(std::string_view text, const List& list, Variables variables,
                             const std::function<bool(std::span<const Field>)>& wanted);

}  // namespace gtp::readers::shell
