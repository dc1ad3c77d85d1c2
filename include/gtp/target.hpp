// The upstream versions whose behaviour can be checked. Versions are data: options and rules carry
// the first and the last version they hold for. How a target is added: docs/targets.md.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace gtp {

/// Megatron-LM commits in the order of their dates; compared with `<`.
enum class Version : std::uint8_t {
  k6513e3e2,  ///< 2026-07-31: evaluation batches are not checked against GTP_remat
  kd98e8a64,  ///< 2026-08-22
};

inline constexpr Version kOldestVersion = Version::k6513e3e2;
inline constexpr Version kNewestVersion = Version::kd98e8a64;

struct Target {
  std::string_view name;
  Version version;
  std::string_view date;

  friend constexpr bool operator==(const Target&, const Target&) = default;
};

inline constexpr std::array<Target, 2> kTargets{{
    {"megatron-core@6513e3e2", Version::k6513e3e2, "2026-07-31"},
    {"megatron-core@d98e8a64", Version::kd98e8a64, "2026-08-22"},
}};

inline constexpr Target kDefaultTarget = kTargets[1];

[[nodiscard]] constexpr std::optional<Target> find_target(std::string_view name) {
  for (const Target& target : kTargets)
    if (target.name == name) return target;
  return std::nullopt;
}

}  // namespace gtp
