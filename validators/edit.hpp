// How a fix is written into the text of the configuration it mends. Touches only the bytes of the value concerned, or
// adds one line for an option that the text does not have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "validators/load.hpp"

namespace gtp {

/// Bytes `begin` to `end` of the configuration's own source (index 0) become `text`.
struct Edit {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::string text;
};

/// The edit that gives `fix.option` its value. Nothing when the value came from elsewhere (`--set`, a model file) or
/// the format has no form for it. It is a proposal: whoever applies it reads the result again and judges that.
[[nodiscard]] std::optional<Edit> edit_for(const Loaded& loaded, const Diagnostic& diagnostic, const Fix& fix);

}  // namespace gtp
