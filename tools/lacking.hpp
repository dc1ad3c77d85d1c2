// Which options a user would have to give so that a value becomes known: derived values are traced back to the options
// that they follow from.
#pragma once

#include <gtp/check.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace gtp::cli {

/// The unknown ones of `needs`, each once, and one of a section that the input says nothing of. A derived value is
/// replaced by those options it follows from that are unknown, and kept when there is none (an error elsewhere is then
/// to blame).
[[nodiscard]] std::vector<OptionId> lacking(const Facts& facts, std::span<const OptionId> needs);

struct Lack {
  OptionId option;
  std::size_t rules = 0;  ///< that cannot be checked without it
};

/// What the rules that were not checked lack; the option that most of them lack comes first.
[[nodiscard]] std::vector<Lack> lacking(const Report& report);

}  // namespace gtp::cli
