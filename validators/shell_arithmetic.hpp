// `$((...))`: integers, variables, + - * / % ** and parentheses.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace gtp::readers::shell {

/// `variable` gives the text of `NAME`, `$NAME` or `${...}`. Nothing for other operators, unknown variables,
/// overflow and division by zero.
[[nodiscard]] std::optional<std::int64_t> evaluate_arithmetic(
    std::string_view expression, const std::function<std::optional<std::string>(std::string_view)>& variable);

}  // namespace gtp::readers::shell
