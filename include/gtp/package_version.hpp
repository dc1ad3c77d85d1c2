// Versions of Python packages, such as `2.19.0.dev0`, in the order of PEP 440 as far as release
// numbers and pre-releases go; a local part after `+` is ignored.
#pragma once

#include <array>
#include <charconv>
#include <compare>
#include <cstdint>
#include <optional>
#include <string_view>

namespace gtp {

struct PackageVersion {
  std::array<std::int32_t, 4> release{};
  /// dev, a, b, rc, then the release itself, then post.
  std::int32_t stage = 4;
  std::int32_t stage_number = 0;

  /// Nothing when the text is not a version.
  [[nodiscard]] static std::optional<PackageVersion> parse(std::string_view text) {
    PackageVersion version;
    text = text.substr(0, text.find('+'));
    if (!text.empty() && text.front() == 'v') text.remove_prefix(1);
    std::size_t parts = 0;
    while (parts < version.release.size() && take_number(text, version.release[parts])) {
      ++parts;
      if (text.size() < 2 || text[0] != '.' || text[1] < '0' || text[1] > '9') break;
      text.remove_prefix(1);
    }
    if (parts == 0) return std::nullopt;
    if (!text.empty() && (text.front() == '.' || text.front() == '-' || text.front() == '_')) text.remove_prefix(1);
    if (text.empty()) return version;
    constexpr std::array<std::string_view, 6> kStages{"dev", "a", "b", "rc", "", "post"};
    for (std::size_t i = 0; i < kStages.size(); ++i) {
      if (kStages[i].empty() || !text.starts_with(kStages[i])) continue;
      version.stage = static_cast<std::int32_t>(i);
      text.remove_prefix(kStages[i].size());
      if (!text.empty() && !take_number(text, version.stage_number)) return std::nullopt;
      return text.empty() ? std::optional(version) : std::nullopt;
    }
    return std::nullopt;
  }

  friend auto operator<=>(const PackageVersion&, const PackageVersion&) = default;

 private:
  static bool take_number(std::string_view& text, std::int32_t& number) {
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || number < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
    return true;
  }
};

}  // namespace gtp
