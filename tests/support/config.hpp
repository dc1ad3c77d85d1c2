// Makes configurations for tests from option names and words, as a reader would.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtp/assign.hpp>
#include <gtp/check.hpp>

namespace gtp::test {

/// A list option takes its words separated by spaces. What is wrong with the settings is appended to `diagnostics`.
inline Config make_config(std::initializer_list<std::pair<std::string_view, std::string_view>> settings,
                          Diagnostics& diagnostics, Target target = kDefaultTarget) {
  Config config(target);
  for (const auto& [name, text] : settings) {
    const auto option = resolve_name(name, {}, target, diagnostics);
    if (!option) continue;
    std::vector<Word> words;
    if (is_list(row_of(*option, target.version).type))
      for (std::string& word : detail::split_words(text)) words.push_back({std::move(word)});
    else
      words.push_back({std::string(text)});
    assign(config, *option, words, {}, diagnostics);
  }
  return config;
}

/// The ids of the rules that the settings violate, in order of their codes.
inline std::vector<std::string> violated(std::initializer_list<std::pair<std::string_view, std::string_view>> settings,
                                         Target target = kDefaultTarget) {
  Diagnostics diagnostics;
  const Config config = make_config(settings, diagnostics, target);
  std::vector<std::string> ids;
  for (const Diagnostic& d : diagnostics) ids.emplace_back(d.rule);
  for (const Diagnostic& d : check(config).diagnostics)
    if (d.severity != Severity::Note) ids.emplace_back(d.rule);
  return ids;
}

}  // namespace gtp::test
