// Short ways to load a small text and look at what came out of it.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "validators/load.hpp"

namespace gtp::test {

inline LoadRequest request_for(std::string text, std::string name = "input", std::optional<InputFormat> format = {}) {
  LoadRequest request;
  request.format = format;
  request.config = Text{std::move(name), std::move(text)};
  return request;
}

inline Loaded load_text(std::string text, std::string name = "input", std::optional<InputFormat> format = {}) {
  return load(request_for(std::move(text), std::move(name), format));
}

inline Loaded load_words(std::vector<std::string> argv) {
  LoadRequest request;
  request.argv = std::move(argv);
  return load(request);
}

inline const Setting* setting(const Loaded& loaded, std::string_view option) {
  return loaded.config.given(*find_option(option));
}

/// The value as a person would write it; `-` for an option that is not given, `?` for one given as unknown.
inline std::string value(const Loaded& loaded, std::string_view option) {
  const OptionId id = *find_option(option);
  if (const Setting* found = loaded.config.given(id)) return to_text(found->value);
  return loaded.config.given_unknown(id) ? "?" : "-";
}

inline std::string text_at(const Loaded& loaded, Place place) {
  if (!place.known()) return "(nowhere)";
  return loaded.sources[place.source].text.substr(place.begin, place.end - place.begin);
}

/// `line:column` of a place's start.
inline std::string start_of(const Loaded& loaded, Place place) {
  const Position start = locate(loaded.sources[place.source], place.begin, place.end).start;
  return std::to_string(start.line) + ':' + std::to_string(start.column);
}

/// Codes of all diagnostics, separated by spaces.
inline std::string codes(const Loaded& loaded) {
  std::string text;
  for (const Diagnostic& d : loaded.diagnostics) text += (text.empty() ? "" : " ") + std::string(d.code);
  return text;
}

/// Names of the options given, in order of the input.
inline std::string given(const Loaded& loaded) {
  std::string text;
  for (const Setting& s : loaded.config.settings()) text += (text.empty() ? "" : " ") + std::string(name_of(s.option));
  return text;
}

inline std::optional<std::string> variable(const Loaded& loaded, std::string_view name) {
  for (const Variable& v : loaded.config.env)
    if (v.name == name) return v.value;
  return std::nullopt;
}

}  // namespace gtp::test
