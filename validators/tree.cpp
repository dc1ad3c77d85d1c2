#include "validators/tree.hpp"

#include <fmt/format.h>

#include <unordered_map>

#include <gtp/rules/form.hpp>

#include "validators/reading.hpp"

namespace gtp::readers {

void mark_duplicates(Node& map, Diagnostics& out) {
  std::unordered_map<std::string_view, Entry*> last;
  last.reserve(map.entries.size());
  for (Entry& entry : map.entries) {
    const auto [at, is_new] = last.try_emplace(entry.key, &entry);
    if (is_new) continue;
    at->second->overridden = true;
    if (!full(out)) {
      out.push_back(rules::at_place(rules::kDuplicateKey, "", entry.key_place, fmt::format("`{}` again", entry.key)));
      out.back().related.push_back({"", at->second->key_place, "first given here"});
    }
    at->second = &entry;
  }
}

const Node* find(const Node& map, std::string_view key) {
  for (const Entry& entry : map.entries)
    if (!entry.overridden && entry.key == key) return &entry.value;
  return nullptr;
}

std::string_view to_text(Kind kind) {
  switch (kind) {
    case Kind::Null:
      return "nothing";
    case Kind::Scalar:
      return "a value";
    case Kind::List:
      return "a list";
    case Kind::Map:
      return "a group of keys";
  }
  return "";
}

}  // namespace gtp::readers
