// YAML through libyaml's event interface: the place of every key and value, quotes, duplicates. Anchors,
// aliases and merge keys (`<<`) are resolved. Scalars stay text: no YAML version's types are applied.
#pragma once

#include <optional>

#include "validators/reading.hpp"
#include "validators/source.hpp"
#include "validators/tree.hpp"

namespace gtp::readers {

/// The first document. Nothing, and one `kUnreadable`, if the text is not YAML. Duplicate keys, further
/// documents and keys that are no scalars are reported. An empty text is `Kind::Null`.
[[nodiscard]] std::optional<Node> read_yaml(const Source& source, std::uint32_t index, Diagnostics& out);

}  // namespace gtp::readers
