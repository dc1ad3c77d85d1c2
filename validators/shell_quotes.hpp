// One quoted part of a word, as a POSIX shell takes its quotes away. Nothing is expanded.
#pragma once

#include <cstddef>
#include <string_view>

namespace gtp::readers {

/// `add(byte, offset)` for each byte that is left of the quotes at `at`, which ends behind them. False, and `at` at the
/// end, when they do not end. Precondition: a quote stands at `at`.
template <class Add>
[[nodiscard]] bool read_shell_quotes(std::string_view text, std::size_t& at, Add add) {
  const char quote = text[at++];
  while (at < text.size() && text[at] != quote) {
    const bool escape = quote == '"' && text[at] == '\\' && at + 1 < text.size() &&
                        std::string_view("\"\\$`").find(text[at + 1]) != std::string_view::npos;
    if (escape) ++at;
    add(text[at], at);
    ++at;
  }
  if (at == text.size()) return false;
  ++at;
  return true;
}

}  // namespace gtp::readers
