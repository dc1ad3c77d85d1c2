// Launch files made in process, and the stand-ins that their scripts run into.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/cli/gtplan.hpp"
#include "tools/launch/launch.hpp"
#include "tools/plan.hpp"

namespace gtp::test {

/// Loaded and checked, as `gtplan launch` gets it. Not judged: a test looks at the verdict where it matters.
inline std::unique_ptr<cli::Checked> checked_of(const LoadRequest& request) {
  auto checked = std::make_unique<cli::Checked>(kDefaultTarget);
  checked->loaded = load(request);
  checked->diagnostics = checked->loaded.diagnostics;
  if (!checked->loaded.readable) return checked;
  checked->report.emplace(check(checked->loaded.config));
  for (const Diagnostic& d : checked->report->diagnostics) checked->diagnostics.push_back(d);
  checked->verdict = has_errors(checked->diagnostics) ? cli::Verdict::Invalid : cli::Verdict::Valid;
  return checked;
}

inline std::unique_ptr<cli::Checked> checked_of(std::string_view text, std::string name = "a.yaml") {
  LoadRequest request;
  request.config = Text{std::move(name), std::string(text)};
  return checked_of(request);
}

inline cli::Launch launch_of(std::string_view text, const cli::LaunchOptions& options = {}) {
  const auto checked = checked_of(text);
  REQUIRE(checked->verdict == cli::Verdict::Valid);
  REQUIRE(checked->report->derivation.topology);
  return cli::make_launch(*checked, options);
}

/// The text of one file; the test fails when there is none.
inline std::string file_of(const cli::Launch& launch, std::string_view name) {
  const auto file =
      std::find_if(launch.files.begin(), launch.files.end(), [&](const auto& f) { return f.path == name; });
  REQUIRE_MESSAGE(file != launch.files.end(), name);
  return file->text;
}

/// Pieces that end in a zero byte.
inline std::vector<std::string> zero_terminated(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\0', at);
    words.emplace_back(text.substr(at, end - at));
    at = end == std::string_view::npos ? text.size() : end + 1;
  }
  return words;
}

/// What a careless script would break, run or lose.
inline const std::vector<std::string>& hostile_texts() {
  static const std::vector<std::string> texts{"a b",
                                              " leading and trailing ",
                                              "it's",
                                              "''",
                                              "say \"so\"",
                                              "$(touch PWNED)",
                                              "`touch PWNED`",
                                              "; touch PWNED;",
                                              "' ; touch PWNED ; '",
                                              "\" ; touch PWNED ; \"",
                                              "\ntouch PWNED\n",
                                              "line\nline\n",
                                              "dos\r\nline",
                                              "tab\there",
                                              "${HOME}",
                                              "$HOME $$ $(JOB_COMPLETION_INDEX) $$(X)",
                                              "*",
                                              "~",
                                              "~root/x",
                                              "a\\b\\",
                                              "\\'",
                                              "!!",
                                              "# no comment",
                                              "a|b&c<d>e",
                                              "{a,b}",
                                              "[x]=1",
                                              "%s%n",
                                              "key=value",
                                              "",
                                              "null",
                                              "1e3",
                                              "\xC3\xBC\xE2\x98\x83\xF0\x9D\x84\x9E",
                                              "\xC2\x85\xE2\x80\xA8\xEF\xBB\xBF"};
  return texts;
}

}  // namespace gtp::test
