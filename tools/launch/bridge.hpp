// Megatron-Bridge's overrides: `path=value` in Hydra's grammar.
#pragma once

#include <gtp/config.hpp>
#include <gtp/facts.hpp>

#include <string>
#include <vector>

namespace gtp::cli {

/// What sets the option; nothing where Bridge has no place for it.
[[nodiscard]] std::vector<std::string> bridge_overrides(const Setting& setting, const Facts& facts);

/// A list of texts.
[[nodiscard]] std::string hydra_list(const StringList& texts);

}  // namespace gtp::cli
