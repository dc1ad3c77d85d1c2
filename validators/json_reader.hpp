// JSON (RFC 8259) with the place of every key and value. Numbers stay text, as written.
#pragma once

#include <optional>

#include "validators/reading.hpp"
#include "validators/source.hpp"
#include "validators/tree.hpp"

namespace gtp::readers {

struct JsonText {
  Node root;
  /// The first of `NaN`, `Infinity` and `-Infinity`, which Python writes and JSON does not have.
  std::optional<Place> not_json{};
};

/// Nothing, and one `kUnreadable`, if the text is not JSON. Duplicate keys are reported.
[[nodiscard]] std::optional<JsonText> read_json(const Source& source, std::uint32_t index, Diagnostics& out);

}  // namespace gtp::readers
