// Slurm's short form of many names: `node[01-16,20],x3`.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gtp::readers {

/// Longer names are refused: DNS has none.
inline constexpr std::size_t kLongestHostName = 253;

struct HostlistProblem {
  std::size_t offset;
  const char* what;
};

/// Appends the names. `budget` is how many more may be made, and is lowered by those that were; a list that asks for
/// more is refused before they are made.
[[nodiscard]] std::optional<HostlistProblem> expand_hostlist(std::string_view list, std::size_t& budget,
                                                             std::vector<std::string>& names);

/// Letters, digits, `.`, `-`, `_`; not empty, not too long.
[[nodiscard]] bool is_host_name(std::string_view name);

}  // namespace gtp::readers
