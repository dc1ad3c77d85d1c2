// The installed TransformerEngine, as upstream's version gates see it.
#pragma once

#include <optional>
#include <string_view>

#include <gtp/facts.hpp>
#include <gtp/package_version.hpp>

namespace gtp {

/// Whether the installed version is known and older than `minimum`. An unknown or unreadable version is not older, so
/// that what holds for every recent one needs no `te_version`.
[[nodiscard]] inline bool te_older_than(const Facts& f, std::string_view minimum) {
  using namespace literals;
  const auto text = f.text("te_version"_opt);
  const auto version = text ? PackageVersion::parse(*text) : std::nullopt;
  const auto least = PackageVersion::parse(minimum);
  return version && least && *version < *least;
}

}  // namespace gtp
