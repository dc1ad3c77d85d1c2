// The conditions of `if` that a script itself decides: comparisons of texts and integers.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace gtp::readers::shell {

/// The words of `[ ... ]` or `[[ ... ]]` without the brackets, all of them known. Nothing for what depends on
/// files, and for patterns.
[[nodiscard]] std::optional<bool> evaluate_test(std::span<const std::string> words);

}  // namespace gtp::readers::shell
