// Where in which input a value stands. Values only: who owns the text and how a place is shown is
// not known here (validators/source.hpp turns a place into file, line and column).
#pragma once

#include <cstdint>

namespace gtp {

/// A half-open byte span of one source; `source` indexes the reader's list of sources.
struct Place {
  static constexpr std::uint32_t kNoSource = UINT32_MAX;

  std::uint32_t source = kNoSource;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;

  [[nodiscard]] constexpr bool known() const { return source != kNoSource; }
  friend constexpr bool operator==(const Place&, const Place&) = default;
};

}  // namespace gtp
