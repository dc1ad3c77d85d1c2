// Text as a terminal shows it: code points, their widths, and what to print for bytes that are not text.
// Knows nothing of locales; widths are those of common monospaced fonts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gtp::cli {

inline constexpr char32_t kReplacement = 0xFFFD;

struct CodePoint {
  char32_t value = kReplacement;  ///< U+FFFD where the bytes are not UTF-8
  std::size_t size = 1;           ///< bytes taken; one for each byte that is not UTF-8
};

/// Precondition: `at < text.size()`.
[[nodiscard]] CodePoint decode(std::string_view text, std::size_t at);

void append_utf8(char32_t value, std::string& out);

/// Columns on a terminal: 0 for combining marks, 2 for East Asian wide characters and emoji.
[[nodiscard]] int width_of(char32_t value);

/// What may be sent to a terminal in place of the code point: controls and direction marks become U+FFFD.
[[nodiscard]] char32_t printable(char32_t value);

/// One line that is safe on a terminal, shortened in the middle when it is longer than any person would read.
[[nodiscard]] std::string printable(std::string_view text);

/// Columns of a text that `printable` returned.
[[nodiscard]] std::size_t width_of(std::string_view text);

}  // namespace gtp::cli
