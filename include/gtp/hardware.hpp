// GPU generations by name, as upstream's checks see them: the major number of the compute capability.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace gtp {

/// 7 for volta, 8 for ampere, 9 for hopper, 10 for blackwell; nothing for another name.
[[nodiscard]] constexpr std::optional<int> arch_major(std::string_view gpu_arch) {
  constexpr std::array<std::pair<std::string_view, int>, 4> kMajors{
      {{"volta", 7}, {"ampere", 8}, {"hopper", 9}, {"blackwell", 10}}};
  for (const auto& [name, major] : kMajors)
    if (name == gpu_arch) return major;
  return std::nullopt;
}

}  // namespace gtp
