#include "tools/config_paths.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "tools/could_not_run.hpp"

namespace gtp::cli {

namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 4> kSuffixes{".yaml", ".yml", ".json", ".args"};

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

bool is_config(const fs::path& path) {
  const std::string suffix = path.extension().string();
  return std::ranges::find(kSuffixes, suffix) != kSuffixes.end();
}

/// All regular files below a folder that `wanted` takes, in order of name.
template <class Wanted>
std::vector<std::string> files_below(const fs::path& folder, Wanted&& wanted) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    const fs::path& path = at->path();
    std::error_code unknown;
    if (is_hidden(path)) {
      if (at->is_directory(unknown)) at.disable_recursion_pending();
    } else if (at->is_regular_file(unknown) && wanted(path)) {
      files.push_back(path.string());
    }
  }
  if (error) throw CouldNotRun{fmt::format("`{}` cannot be listed: {}", folder.string(), error.message())};
  std::ranges::sort(files);
  return files;
}

/// The part of a pattern before its first folder with a wildcard; `.` if there is none.
std::string fixed_part(const std::string& pattern) {
  const std::size_t slash = pattern.rfind('/', pattern.find_first_of("*?["));
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : pattern.substr(0, slash);
}

bool match_from(std::span<const std::string> pattern, std::span<const std::string> path) {
  if (pattern.empty()) return path.empty();
  if (pattern.front() == "**") {
    for (std::size_t skipped = 0; skipped <= path.size(); ++skipped) {
      if (match_from(pattern.subspan(1), path.subspan(skipped))) return true;
    }
    return false;
  }
  return !path.empty() && ::fnmatch(pattern.front().c_str(), path.front().c_str(), FNM_PERIOD) == 0 &&
         match_from(pattern.subspan(1), path.subspan(1));
}

std::vector<std::string> parts_of(const fs::path& path) {
  std::vector<std::string> parts;
  for (const fs::path& part : path.lexically_normal()) {
    // One `**` after another says nothing new, and would cost time.
    if (!(part == "**" && !parts.empty() && parts.back() == "**")) parts.push_back(part.string());
  }
  return parts;
}

std::vector<std::string> files_of_pattern(const std::string& word) {
  const std::vector<std::string> pattern = parts_of(word);
  const std::string folder = fixed_part(word);
  std::error_code unknown;
  std::vector<std::string> files;
  if (fs::is_directory(folder, unknown)) {
    files = files_below(folder, [&](const fs::path& path) { return match_from(pattern, parts_of(path)); });
  }
  if (files.empty()) throw CouldNotRun{fmt::format("no file matches `{}`", word)};
  for (std::string& file : files) {
    if (file.starts_with("./") && !word.starts_with("./")) file.erase(0, 2);
  }
  return files;
}

std::vector<std::string> files_of(const std::string& word) {
  std::error_code unknown;
  const fs::file_status status = fs::status(word, unknown);
  if (fs::is_directory(status)) {
    std::vector<std::string> files = files_below(word, is_config);
    if (files.empty()) throw CouldNotRun{fmt::format("no configuration is in the folder `{}`", word)};
    return files;
  }
  const bool pattern = word != "-" && !fs::exists(status) && word.find_first_of("*?[") != std::string::npos;
  return pattern ? files_of_pattern(word) : std::vector{word};
}

}  // namespace

std::vector<std::string> config_paths(std::span<const std::string> words) {
  std::vector<std::string> paths;
  for (const std::string& word : words) {
    std::vector<std::string> files = files_of(word);
    paths.insert(paths.end(), std::make_move_iterator(files.begin()), std::make_move_iterator(files.end()));
  }
  return paths;
}

bool matches(const std::string& pattern, const std::string& path) {
  std::error_code unknown;
  const fs::path full(path);
  std::vector<std::string> at =
      parts_of(full.is_absolute() ? full.lexically_relative(fs::current_path(unknown)) : full);
  std::vector<std::string> wanted = parts_of(pattern);
  std::erase(wanted, std::string());  // `configs/` ends in an empty part
  if (pattern.find('/') == std::string::npos) wanted.insert(wanted.begin(), "**");
  std::vector<std::string> below = wanted;
  below.insert(below.end(), {"**", "*"});
  return match_from(wanted, at) || match_from(below, at);
}

}  // namespace gtp::cli
