// What the variables and words of a script stand for, as far as the script itself says it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtp/place.hpp>

namespace gtp::readers::shell {

/// A piece of text with where it is written. What is not known is kept as it is spelled: `$NAME`.
struct Chunk {
  std::string text{};
  Place place{};
  bool known = true;

  /// Whether the place holds exactly the text.
  [[nodiscard]] bool exact() const { return place.end - place.begin == text.size(); }
  friend bool operator==(const Chunk&, const Chunk&) = default;
};

/// One item of an array, or a text.
struct Element {
  std::vector<Chunk> chunks{};
  /// Not zero: it is there only under a condition that is not known. Items of one number come together.
  std::size_t condition = 0;

  friend bool operator==(const Element&, const Element&) = default;
};

/// A text is its first element; others may be appended to it, under their conditions.
struct Value {
  std::vector<Element> elements{};
  bool array = false;
  bool known = true;
  bool exported = false;

  friend bool operator==(const Value&, const Value&) = default;
};

using Variables = std::map<std::string, std::shared_ptr<const Value>, std::less<>>;

/// One word of a command after expansion.
struct Field {
  std::string text{};
  Place place{};
  bool known = true;
  bool open = false;  ///< an expansion that is not known and may be any number of words
  std::size_t condition = 0;
};

/// The text, if all of it is known under every condition.
[[nodiscard]] inline std::optional<std::string> plain(const Value& value) {
  if (!value.known || value.elements.size() > 1) return std::nullopt;
  std::string text;
  if (!value.elements.empty())
    for (const Chunk& chunk : value.elements.front().chunks) {
      if (!chunk.known) return std::nullopt;
      text += chunk.text;
    }
  return text;
}

}  // namespace gtp::readers::shell
