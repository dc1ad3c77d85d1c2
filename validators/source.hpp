// The texts that were read, and how a byte span of one becomes lines and columns. Knows no format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace gtp {

struct Source {
  std::string name;
  std::string text;
};

/// 1-based; columns count Unicode code points.
struct Position {
  std::uint32_t line = 1;
  std::uint32_t column = 1;

  friend constexpr bool operator==(const Position&, const Position&) = default;
};

/// `end` is exclusive.
struct Range {
  Position start;
  Position end;

  friend constexpr bool operator==(const Range&, const Range&) = default;
};

/// The sources of one load, named by the index that a `Place` holds. References stay valid.
class Sources {
 public:
  std::uint32_t add(std::string name, std::string text);
  /// Precondition: `index < size()`.
  [[nodiscard]] const Source& operator[](std::uint32_t index) const;
  [[nodiscard]] std::size_t size() const { return sources_.size(); }

 private:
  std::deque<Source> sources_;
};

/// Offsets beyond the text mean its end. A line ends at a line feed.
[[nodiscard]] Range locate(const Source& source, std::uint32_t begin, std::uint32_t end);

/// The line's text without its line end; empty for a line that the source does not have.
[[nodiscard]] std::string_view line_text(const Source& source, std::uint32_t line);

}  // namespace gtp
