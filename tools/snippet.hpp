// The lines of a source with what is to be said under them. Knows lines and columns, not diagnostics.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/paint.hpp"
#include "validators/source.hpp"

namespace gtp::cli {

/// One place to be marked: carets for the primary one, dashes for the others.
struct Mark {
  std::uint32_t begin = 0;  ///< bytes
  std::uint32_t end = 0;
  std::uint32_t line = 1;
  bool primary = false;
  std::string text;
};

/// Columns that the numbers of lines take to the left of the frame.
[[nodiscard]] std::size_t gutter_of(const std::vector<Mark>& marks);

/// Appends the marked lines in order, each with its marks below. Only the first line of a longer place is shown, and of
/// a long line only what is around the mark. `ink` is that of the carets.
void append_snippet(const Source& source, std::vector<Mark> marks, std::size_t gutter, Ink ink, Paint paint,
                    std::string& out);

}  // namespace gtp::cli
