// The upstream programs whose behaviour can be checked: Megatron-LM at several commits, and Megatron-Bridge, another
// framework over the same core. Versions are data: options and rules carry the first and the last version they hold
// for, and a rule may hold for one framework only. How a target is added: docs/targets.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>

namespace gtp {

/// Megatron-LM commits in the order of their dates; compared with `<`.
enum class Version : std::uint8_t {
  k6513e3e2,  ///< 2026-07-31: evaluation batches are not checked against GTP_remat
  kd98e8a64,  ///< 2026-08-22
  k2026_09,   ///< what pull requests merged since then are said to change; docs/targets.md
};

inline constexpr Version kOldestVersion = Version::k6513e3e2;
inline constexpr Version kNewestVersion = Version::k2026_09;
inline constexpr std::size_t kVersionCount = static_cast<std::size_t>(kNewestVersion) + 1;

/// Who starts the training: it decides the defaults, what is checked before Megatron Core, and what is changed
/// silently.
enum class Framework : std::uint8_t { kMegatronLm, kBridge };

struct Target {
  std::string_view name;
  Version version;  ///< of the Megatron Core below the framework
  std::string_view date;
  Framework framework = Framework::kMegatronLm;

  friend constexpr bool operator==(const Target&, const Target&) = default;
};

inline constexpr std::array<Target, 5> kTargets{{
    {"megatron-core@6513e3e2", Version::k6513e3e2, "2026-07-31"},
    {"megatron-core@d98e8a64", Version::kd98e8a64, "2026-08-22"},
    {"megatron-bridge@067f987d", Version::kd98e8a64, "2026-08-22", Framework::kBridge},
    {"megatron-core@2026-09", Version::k2026_09, "2026-09"},
    {"megatron-bridge@2026-09", Version::k2026_09, "2026-09", Framework::kBridge},
}};

inline constexpr Target kDefaultTarget = kTargets[1];
/// For Megatron-Bridge's own input formats, when no target is asked for.
inline constexpr Target kBridgeTarget = kTargets[2];

/// What `make` makes of a target, made once for each version and framework and kept; safe from several threads.
template <auto make>
[[nodiscard]] const auto& once_for(const Target& target) {
  constexpr std::size_t kFrameworks = 2;
  static std::array<decltype(make(target)), kVersionCount * kFrameworks> values;
  static std::array<std::once_flag, kVersionCount * kFrameworks> made;
  const auto at = static_cast<std::size_t>(target.version) * kFrameworks + static_cast<std::size_t>(target.framework);
  std::call_once(made[at], [&] { values[at] = make(target); });
  return values[at];
}

[[nodiscard]] constexpr std::optional<Target> find_target(std::string_view name) {
  for (const Target& target : kTargets)
    if (target.name == name) return target;
  return std::nullopt;
}

}  // namespace gtp
