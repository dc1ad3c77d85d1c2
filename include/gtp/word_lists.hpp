// Lists of words, as several rules read them: modules to capture, to recompute, to offload.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include <gtp/facts.hpp>

namespace gtp {

namespace detail {

inline std::span<const std::string> words_in(const Value* value) {
  const auto* words = value == nullptr ? nullptr : std::get_if<StringList>(value);
  return words == nullptr ? std::span<const std::string>{} : std::span<const std::string>(*words);
}

}  // namespace detail

/// The words of a list; none when it is unknown, None or of another type. Valid until the next `set` of the facts.
[[nodiscard]] inline std::span<const std::string> words(const Facts& f, OptionId option) {
  return detail::words_in(f.find(option));
}

/// The words before upstream changes any.
[[nodiscard]] inline std::span<const std::string> original_words(const Facts& f, OptionId option) {
  return detail::words_in(f.original(option));
}

[[nodiscard]] inline bool contains(std::span<const std::string> words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

[[nodiscard]] inline bool contains_any(std::span<const std::string> words,
                                       std::initializer_list<std::string_view> any) {
  return std::any_of(any.begin(), any.end(), [&](std::string_view word) { return contains(words, word); });
}

/// The first word that is not allowed; empty when all are.
[[nodiscard]] inline std::string_view first_outside(std::span<const std::string> words,
                                                    std::span<const std::string_view> allowed) {
  for (const std::string& word : words)
    if (std::find(allowed.begin(), allowed.end(), word) == allowed.end()) return word;
  return {};
}

}  // namespace gtp
