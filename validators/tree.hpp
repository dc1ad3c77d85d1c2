// What JSON and YAML have in common: scalars, lists and maps, each with its place in the text.
// Scalars stay text; types come in with the option that a scalar is for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtp/config.hpp>
#include <gtp/diagnostic.hpp>
#include <gtp/place.hpp>

namespace gtp::readers {

/// Deeper nesting is refused, so that no reader and no destructor can run out of stack.
inline constexpr std::size_t kMaxDepth = 64;
/// More values (YAML aliases expanded) are refused, so that a small text cannot take much memory.
inline constexpr std::size_t kMaxNodes = 250'000;
/// Bytes of text that YAML's anchors and aliases may copy.
inline constexpr std::size_t kMaxCopiedBytes = std::size_t{16} << 20U;

enum class Kind : std::uint8_t { Null, Scalar, List, Map };

struct Entry;

struct Node {
  Kind kind = Kind::Null;
  bool quoted = false;  ///< a scalar that is text whatever it looks like
  bool block = false;   ///< a list or map in YAML's block style
  Place place{};
  std::string text{};
  std::vector<Node> items;
  std::vector<Entry> entries;
};

struct Entry {
  std::string key;
  Place key_place;
  Node value;
  bool overridden = false;  ///< an equal key follows, which wins
};

/// Marks and reports all but the last of equal keys.
void mark_duplicates(Node& map, Diagnostics& out);

/// The value of a key that is not overridden; null when there is none.
[[nodiscard]] const Node* find(const Node& map, std::string_view key);

/// What a kind is called in a message.
[[nodiscard]] std::string_view to_text(Kind kind);

}  // namespace gtp::readers
