// Words of a command line as one source, so that diagnostics about them have a place to show.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <gtp/place.hpp>

namespace gtp::readers {

/// Where one word stands in the text, and whether it had to be quoted.
struct WordPlace {
  std::uint32_t begin = 0;  ///< the opening quote, if there is one
  std::uint32_t end = 0;
  bool quoted = false;
};

/// Joins words by spaces, quoted as a POSIX shell would need them.
class WordSource {
 public:
  WordPlace add(std::string_view word);

  /// Bytes of the text that hold bytes `from` to `to` of a word.
  [[nodiscard]] static Place part(const WordPlace& at, std::string_view word, std::uint32_t source, std::size_t from,
                                  std::size_t to);
  /// All of a word, its quotes included.
  [[nodiscard]] static Place whole(const WordPlace& at, std::uint32_t source) { return {source, at.begin, at.end}; }

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace gtp::readers
