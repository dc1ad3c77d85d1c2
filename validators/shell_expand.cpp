#include "validators/shell_expand.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "validators/env_file.hpp"
#include "validators/shell_arithmetic.hpp"

namespace gtp::readers::shell {

namespace {

/// Values inside values, as in `${A:-${B:-1}}`.
constexpr std::size_t kMaxExpansions = 16;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

Chunk chunk_of(const Part& part) { return {part.text, part.place, true}; }

Chunk piece(const Chunk& chunk, std::size_t begin, std::size_t end) {
  Chunk part{chunk.text.substr(begin, end - begin), chunk.place, chunk.known};
  if (chunk.exact()) {
    part.place.begin = chunk.place.begin + static_cast<std::uint32_t>(begin);
    part.place.end = chunk.place.begin + static_cast<std::uint32_t>(end);
  }
  return part;
}

Value text_value(Chunk chunk) {
  Value value;
  value.elements.push_back({{std::move(chunk)}, 0});
  return value;
}

bool is_empty(const Value& value) {
  return std::all_of(value.elements.begin(), value.elements.end(), [](const Element& element) {
    return std::all_of(element.chunks.begin(), element.chunks.end(), [](const Chunk& c) { return c.text.empty(); });
  });
}

/// The words that a command sees: joined where they touch, apart where a blank or an item ends them.
Field field_of(const Element& element, bool open) {
  Field field{{}, {}, true, open, element.condition};
  for (const Chunk& chunk : element.chunks) {
    const bool touches = field.place.known() && field.place.source == chunk.place.source &&
                         field.place.end == chunk.place.begin &&
                         field.place.end - field.place.begin == field.text.size();
    if (!field.place.known())
      field.place = chunk.place;
    else if (touches && chunk.exact())
      field.place.end = chunk.place.end;
    field.text += chunk.text;
    field.known = field.known && chunk.known;
  }
  return field;
}

}  // namespace

/// Collects elements of one word.
class Expander::Builder {
 public:
  explicit Builder(Splitting splitting) : splitting_(splitting) {}

  void add(const Value& value, bool quoted, bool each, bool open) {
    const bool split = splitting_ == Splitting::All || (splitting_ == Splitting::Shell && !quoted);
    bool first = true;
    for (const Element& element : value.elements) {
      const bool starts = !first && (value.array ? each || split : true);
      if (starts || (element.condition != condition_ && !first)) end();
      if (!first && !starts) append({" ", {}, true});
      if (element.condition != 0) condition_ = element.condition;
      for (const Chunk& chunk : element.chunks) split ? append_split(chunk, open) : append(chunk);
      if (!split) has_word_ = true;
      if (open && !chunks_.empty()) open_ = true;
      first = false;
    }
  }

  void end() {
    if (has_word_ || !chunks_.empty()) {
      done_.push_back({std::move(chunks_), condition_});
      open_flags_.push_back(open_ && pieces_ == 1);
    }
    chunks_.clear();
    has_word_ = open_ = false;
    condition_ = pieces_ = 0;
  }

  std::vector<Element> take(std::vector<bool>* open) {
    end();
    if (open != nullptr) *open = std::move(open_flags_);
    return std::move(done_);
  }

 private:
  void append(Chunk chunk) {
    ++pieces_;
    chunks_.push_back(std::move(chunk));
  }

  void append_split(const Chunk& chunk, bool open) {
    if (!chunk.known) {
      append(chunk);
      open_ = open_ || open || !chunk.text.starts_with("$((");
      return;
    }
    const std::string& text = chunk.text;
    for (std::size_t at = 0; at < text.size();) {
      const auto end = static_cast<std::size_t>(
          std::find_if(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(), is_space) - text.begin());
      if (end > at) append(piece(chunk, at, end));
      const std::size_t condition = condition_;
      if (end < text.size()) this->end();
      condition_ = condition;
      at = end + 1;
    }
  }

  Splitting splitting_;
  std::vector<Element> done_{};
  std::vector<bool> open_flags_{};
  std::vector<Chunk> chunks_{};
  std::size_t condition_ = 0;
  std::size_t pieces_ = 0;
  bool has_word_ = false;
  bool open_ = false;
};

Value Expander::unknown(const Part& part) const {
  std::string text(text_.substr(part.place.begin, part.place.end - part.place.begin));
  const bool named = part.kind == Part::Kind::Parameter && is_variable_name(part.text);
  if (part.kind == Part::Kind::Substitution && !text.starts_with("$(")) text = fmt::format("$({})", part.text);
  if (part.kind == Part::Kind::Parameter && !named && !text.starts_with("${")) text = fmt::format("${{{}}}", part.text);
  return text_value({std::move(text), part.place, false});
}

std::vector<Field> Expander::fields(const Word& word, Splitting splitting) {
  std::vector<bool> open;
  std::vector<Field> fields;
  const std::vector<Element> found = elements(word, splitting, &open);
  for (std::size_t i = 0; i < found.size(); ++i) {
    fields.push_back(field_of(found[i], open[i]));
    if (!fields.back().place.known()) fields.back().place = word.place;
  }
  return fields;
}

std::vector<Element> Expander::elements(const Word& word, Splitting splitting, std::vector<bool>* open) {
  Builder builder(splitting);
  for (const Part& part : word.parts) {
    if (part.kind == Part::Kind::Text) {
      const bool split = splitting == Splitting::All;
      builder.add(text_value(chunk_of(part)), part.quoted || !split, false, false);
      if (!budget_.spend(part.text.size())) break;
      continue;
    }
    bool many = false, each = false;
    const Value value = expanded(part, many, each);
    builder.add(value, part.quoted, each, many && (!part.quoted || each));
  }
  return builder.take(open);
}

std::vector<Element> Expander::items(const std::vector<Word>& words) {
  std::vector<Element> all;
  for (const Word& word : words) {
    std::vector<Element> found = elements(word, Splitting::Shell, nullptr);
    std::move(found.begin(), found.end(), std::back_inserter(all));
    if (budget_.empty()) break;
  }
  return all;
}

/// Parts follow each other in one text; what is appended under a condition stays apart.
Value Expander::value(const Word& word) {
  Value whole;
  whole.elements.emplace_back();
  for (const Part& part : word.parts) {
    bool many = false, each = false;
    const Value value = part.kind == Part::Kind::Text ? text_value(chunk_of(part)) : expanded(part, many, each);
    if (!budget_.spend(part.text.size())) break;
    bool first = true;
    for (const Element& element : value.elements) {
      if (element.condition != 0) {
        whole.elements.push_back(element);
        continue;
      }
      auto& chunks = whole.elements.front().chunks;
      if (!std::exchange(first, false)) chunks.push_back({" ", part.place, true});
      chunks.insert(chunks.end(), element.chunks.begin(), element.chunks.end());
    }
  }
  return whole;
}

std::optional<std::string> Expander::plain_text(const Word& word) { return plain(value(word)); }

/// `open`: it may be many words. `each`: its items are words even in quotes.
Value Expander::expanded(const Part& part, bool& open, bool& each) {
  if (depth_ >= kMaxExpansions || budget_.empty()) return unknown(part);
  ++depth_;
  Value value;
  if (part.kind == Part::Kind::Parameter) {
    Parameter found = parameter(part);
    open = found.open;
    each = found.each;
    value = std::move(found.value);
  } else if (part.kind == Part::Kind::Arithmetic) {
    const std::optional<std::int64_t> number = arithmetic(part.text);
    value = number ? text_value({fmt::format("{}", *number), part.place, true}) : unknown(part);
  } else {
    open = true;
    value = unknown(part);
  }
  --depth_;
  std::size_t bytes = 0;
  for (const Element& element : value.elements)
    for (const Chunk& chunk : element.chunks) bytes += chunk.text.size() + sizeof(Chunk);
  return budget_.spend(bytes) ? value : unknown(part);
}

Expander::Parameter Expander::parameter(const Part& part) {
  const std::string_view inner = part.text;
  std::size_t size = 0;
  while (size < inner.size() && (is_variable_name(inner.substr(size, 1)) || (inner[size] >= '0' && inner[size] <= '9')))
    ++size;
  const std::string_view name = inner.substr(0, size);
  std::string_view operation = inner.substr(size);
  bool each = false, item = false;
  if (operation.starts_with("[@]") || operation.starts_with("[*]")) {
    each = operation[1] == '@';
    item = true;
    operation.remove_prefix(3);
  }
  if (size == 0) return {unknown(part), inner == "@", inner == "@" || inner == "*"};
  const auto known = variables_.find(name);
  const Value* value = known == variables_.end() ? nullptr : known->second.get();
  Parameter found = substituted(part, name, operation, value);
  found.each = each;
  if (found.value.array && !item && operation.empty()) {  // `$ARRAY` is its first item
    found.value.elements.resize(std::min<std::size_t>(1, found.value.elements.size()));
    found.value.array = false;
  }
  return found;
}

/// `:-` and its like; anything else is not known.
Expander::Parameter Expander::substituted(const Part& part, std::string_view name, std::string_view operation,
                                          const Value* value) {
  const Parameter not_known{unknown(part), false, true};
  if (value != nullptr && !value->known) return not_known;
  if (operation.empty()) return value == nullptr ? not_known : Parameter{*value, false, false};
  const bool colon = operation.starts_with(':');
  const std::size_t size = colon ? 2 : 1;
  if (operation.size() < size) return not_known;
  const bool set = value != nullptr && !(colon && is_empty(*value));
  const auto operand = [&] {
    const std::size_t begin = part.place.begin + 2 + name.size() + size;
    const std::size_t skip = part.text.size() - name.size() - operation.size();
    const Word word = parse_fragment(text_, part.place.source, begin + skip, part.place.end - 1, part.quoted);
    return this->value(word);
  };
  switch (operation[size - 1]) {
    case '-':
      return {set ? *value : operand(), false, false};
    case '=': {
      if (set) return {*value, false, false};
      const auto stored = std::make_shared<const Value>(operand());
      variables_.insert_or_assign(std::string(name), stored);
      return {*stored, false, false};
    }
    case '+':
      return set ? Parameter{operand(), false, false} : value == nullptr ? not_known : Parameter{};
    case '?':
      return set ? Parameter{*value, false, false} : not_known;
    default:
      return not_known;
  }
}

/// `NAME`, `$NAME`, `${NAME}` and `${NAME:-1}`: the variable's text.
std::optional<std::string> Expander::number_text(std::string_view reference) {
  if (!budget_.spend(reference.size())) return std::nullopt;
  if (reference.starts_with("${"))
    reference = reference.substr(2, reference.size() - 3);
  else if (reference.starts_with('$'))
    reference.remove_prefix(1);
  const std::string_view name = reference.substr(0, reference.find(":-"));
  if (!is_variable_name(name)) return std::nullopt;
  if (const auto found = variables_.find(name); found != variables_.end()) return plain(*found->second);
  return name.size() == reference.size() ? std::nullopt : std::optional(std::string(reference.substr(name.size() + 2)));
}

std::optional<std::int64_t> Expander::arithmetic(std::string_view expression) {
  return evaluate_arithmetic(expression, [&](std::string_view reference) { return number_text(reference); });
}

}  // namespace gtp::readers::shell
