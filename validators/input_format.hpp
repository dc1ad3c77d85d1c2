// Which grammar a text has. Formats of one grammar are told apart by their keys, once it is parsed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "validators/load.hpp"

namespace gtp::readers {

enum class Syntax : std::uint8_t { Json, Yaml, Words, Overrides, Script, Variables };

/// Content decides; the name (`.json`, `.args`, `.sh`) only where the content leaves it open.
[[nodiscard]] Syntax syntax_of(std::string_view text, std::string_view name);
[[nodiscard]] Syntax syntax_of(InputFormat format);

}  // namespace gtp::readers
