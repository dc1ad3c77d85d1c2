// Where tests find their data: the project's own copy and, when it is there, the larger shared folder beside it.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

namespace gtp::test {

/// A file of tests/data, whether or not it exists.
inline std::filesystem::path project_data(std::string_view name) {
  return std::filesystem::path(GTP_SOURCE_ROOT) / "tests" / "data" / name;
}

/// A file or folder of the shared data: `GTPLAN_SHARED_DATA` if that is set, else ../shared/data beside the source
/// root. nullopt if it is not there, in which case a test says so and goes on.
inline std::optional<std::filesystem::path> shared_data(std::string_view name) {
  const char* folder = std::getenv("GTPLAN_SHARED_DATA");
  const std::filesystem::path root = folder != nullptr
                                         ? std::filesystem::path(folder)
                                         : std::filesystem::path(GTP_SOURCE_ROOT) / ".." / "shared" / "data";
  std::error_code unreadable;
  if (!std::filesystem::exists(root / name, unreadable)) return std::nullopt;
  return root / name;
}

/// As `shared_data`; says so in the test's output when the file is not there.
inline std::optional<std::filesystem::path> shared_or_message(std::string_view name) {
  auto path = shared_data(name);
  if (!path) MESSAGE("skipped: the shared data folder has no ", name);
  return path;
}

}  // namespace gtp::test
