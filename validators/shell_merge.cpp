#include "validators/shell_merge.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace gtp::readers::shell {

namespace {

using Values = std::vector<std::shared_ptr<const Value>>;  // one a way; null: not set there

std::shared_ptr<const Value> not_known(const Values& ways) {
  Value value;
  value.known = false;
  value.exported = std::any_of(ways.begin(), ways.end(), [](const auto& v) { return v && v->exported; });
  return std::make_shared<const Value>(std::move(value));
}

bool has_flag(const std::vector<Chunk>& chunks) {
  return std::any_of(chunks.begin(), chunks.end(),
                     [](const Chunk& chunk) { return chunk.text.find("--") != std::string::npos; });
}

/// Whether the values may be taken apart: arrays, and texts that hold flags. A number is no such text.
bool holds_words(const Values& ways) {
  bool words = false;
  for (const auto& value : ways) {
    if (!value) continue;
    if (!value->known) return false;
    words = words || value->array ||
            std::any_of(value->elements.begin(), value->elements.end(),
                        [](const Element& element) { return has_flag(element.chunks); });
  }
  return words;
}

std::vector<Element> without_condition(const Value& value) {
  std::vector<Element> elements;
  for (const Element& element : value.elements)
    if (element.condition == 0) elements.push_back(element);
  return elements;
}

/// Items that all ways begin with.
std::size_t common_items(const std::vector<std::vector<Element>>& ways) {
  std::size_t size = ways[0].size();
  for (const auto& way : ways) {
    std::size_t same = 0;
    while (same < std::min(size, way.size()) && way[same] == ways[0][same]) ++same;
    size = same;
  }
  return size;
}

/// Pieces of text that all ways begin with.
std::vector<Chunk> common_chunks(const std::vector<std::vector<Element>>& ways) {
  const auto chunks = [](const std::vector<Element>& way) {
    return way.empty() ? std::vector<Chunk>{} : way[0].chunks;
  };
  std::vector<Chunk> common = chunks(ways[0]);
  for (const auto& way : ways) {
    const std::vector<Chunk> other = chunks(way);
    std::size_t same = 0;
    while (same < std::min(common.size(), other.size()) && common[same] == other[same]) ++same;
    common.resize(same);
  }
  return common;
}

/// What was there under earlier conditions, once, although several ways have it.
void add_conditional(Value& merged, const Values& ways) {
  std::set<std::size_t> seen;
  for (const auto& value : ways) {
    if (!value) continue;
    std::set<std::size_t> here;
    for (const Element& element : value->elements) {
      if (element.condition == 0 || seen.contains(element.condition)) continue;
      merged.elements.push_back(element);
      here.insert(element.condition);
    }
    seen.merge(here);
  }
}

std::shared_ptr<const Value> merge_words(const Values& ways, std::size_t& next_condition) {
  Value merged;
  std::vector<std::vector<Element>> certain;
  for (const auto& value : ways) {
    certain.push_back(value ? without_condition(*value) : std::vector<Element>{});
    merged.array = merged.array || (value && value->array);
    merged.exported = merged.exported || (value && value->exported);
  }
  std::size_t skipped = 0;
  if (merged.array) {
    skipped = common_items(certain);
    merged.elements.assign(certain[0].begin(), certain[0].begin() + static_cast<std::ptrdiff_t>(skipped));
  } else {
    merged.elements.push_back({common_chunks(certain), 0});
    skipped = merged.elements[0].chunks.size();
  }
  add_conditional(merged, ways);
  for (const auto& way : certain) {
    const std::size_t condition = next_condition++;
    if (merged.array)
      for (std::size_t i = skipped; i < way.size(); ++i) merged.elements.push_back({way[i].chunks, condition});
    else if (!way.empty() && way[0].chunks.size() > skipped)
      merged.elements.push_back(
          {{way[0].chunks.begin() + static_cast<std::ptrdiff_t>(skipped), way[0].chunks.end()}, condition});
  }
  return std::make_shared<const Value>(std::move(merged));
}

std::size_t size_of(const Values& ways) {
  std::size_t bytes = 0;
  for (const auto& value : ways)
    if (value && value != ways[0])
      for (const Element& element : value->elements) bytes += sizeof(Element) + element.chunks.size() * sizeof(Chunk);
  return bytes;
}

/// Whether two texts are the same wherever they are written.
bool same_text(const Value& a, const Value& b) {
  if (a.array || b.array || a.exported != b.exported) return false;
  const std::optional<std::string> text = plain(a);
  return text && text == plain(b);
}

std::shared_ptr<const Value> merge_values(const Values& ways, std::size_t& next_condition, Budget& budget) {
  if (!budget.spend(size_of(ways))) return not_known(ways);
  const bool same = std::all_of(ways.begin(), ways.end(), [&](const auto& value) {
    return value == ways[0] || (value && ways[0] && (*value == *ways[0] || same_text(*value, *ways[0])));
  });
  if (same) return ways[0];
  return holds_words(ways) ? merge_words(ways, next_condition) : not_known(ways);
}

}  // namespace

Variables merge(std::span<const Variables> ways, std::size_t& next_condition, Budget& budget) {
  if (ways.size() == 1) return ways[0];
  std::set<std::string, std::less<>> names;
  for (const Variables& way : ways)
    for (const auto& [name, value] : way) names.insert(name);
  Variables merged;
  for (const std::string& name : names) {
    Values values;
    for (const Variables& way : ways) {
      const auto found = way.find(name);
      values.push_back(found == way.end() ? nullptr : found->second);
    }
    if (auto value = merge_values(values, next_condition, budget)) merged.emplace(name, std::move(value));
  }
  return merged;
}

}  // namespace gtp::readers::shell
