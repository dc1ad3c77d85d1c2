#include "validators/interpolation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include <gtp/assign.hpp>
#include <gtp/checked.hpp>

namespace gtp::readers {

namespace {

/// References through references; a cycle ends here.
constexpr std::size_t kMaxReferences = 32;
/// Bytes and keys looked at, over all look-ups of one tree: real files need some thousands.
constexpr std::size_t kMaxWork = 20'000'000;
constexpr std::size_t kMaxText = 65'536;

using Path = std::vector<std::string>;

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\n\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n\r") - begin + 1);
}

/// The first `${` from `at` on that no backslash escapes.
std::size_t find_open(std::string_view text, std::size_t at) {
  for (at = text.find("${", at); at != std::string_view::npos; at = text.find("${", at + 2)) {
    std::size_t slashes = 0;
    while (slashes < at && text[at - slashes - 1] == '\\') ++slashes;
    if (slashes % 2 == 0) return at;
  }
  return at;
}

/// The `}` that ends what `${` at `open` began.
std::size_t find_close(std::string_view text, std::size_t open) {
  std::size_t depth = 0;
  for (std::size_t i = open + 1; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return i;
  }
  return std::string_view::npos;
}

/// Parts between commas that stand in no braces.
std::vector<std::string_view> split_arguments(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t depth = 0, begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && depth > 0) --depth;
    if (text[i] != ',' || depth > 0) continue;
    parts.push_back(trimmed(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  parts.push_back(trimmed(text.substr(begin)));
  return parts;
}

/// The colon that ends a resolver's name; npos for a reference.
std::size_t find_resolver_end(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return colon;
  const auto in_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  };
  const std::string_view name = trimmed(text.substr(0, colon));
  return !name.empty() && std::all_of(name.begin(), name.end(), in_name) ? colon : std::string_view::npos;
}

/// A number as Python has it: an integer, or a float.
struct Number {
  bool whole = true;
  std::int64_t integer = 0;
  double real = 0;

  [[nodiscard]] double as_real() const { return whole ? static_cast<double>(integer) : real; }
};

std::optional<Number> number_of(std::string_view text) {
  if (const auto whole = parse_int(text); whole.value) return Number{true, *whole.value, 0};
  if (const auto real = parse_float(text); real.value) return Number{false, 0, *real.value};
  return std::nullopt;
}

std::string text_of(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

using Whole = std::optional<std::int64_t> (*)(std::int64_t, std::int64_t);
using Real = double (*)(double, double);

struct Arithmetic {
  std::string_view name;
  Whole whole;  ///< null: always a float
  Real real;
};

/// NeMo-RL's resolvers (nemo_rl/utils/config.py:199), and NeMo-Framework-Launcher's name for the product.
constexpr std::array kArithmetic{
    Arithmetic{"add", checked_add, [](double a, double b) { return a + b; }},
    Arithmetic{"mul", checked_multiply, [](double a, double b) { return a * b; }},
    Arithmetic{"multiply", checked_multiply, [](double a, double b) { return a * b; }},
    Arithmetic{"div", nullptr, [](double a, double b) { return a / b; }},
    Arithmetic{"max", [](std::int64_t a, std::int64_t b) -> std::optional<std::int64_t> { return std::max(a, b); },
               [](double a, double b) { return std::max(a, b); }},
};

std::optional<std::string> calculate(const Arithmetic& operation, const Number& a, const Number& b) {
  if (operation.whole != nullptr && a.whole && b.whole) {
    const std::optional<std::int64_t> value = operation.whole(a.integer, b.integer);
    return value ? std::optional(fmt::format("{}", *value)) : std::nullopt;
  }
  if (operation.name == "div" && b.as_real() == 0) return std::nullopt;
  return text_of(operation.real(a.as_real(), b.as_real()));
}

/// Keys of a reference's text: `a.b`, `a[0].b`.
std::optional<Path> keys_of(std::string_view text) {
  Path keys;
  std::string key;
  for (const char c : text) {
    if (c == ']') continue;
    if (c != '.' && c != '[') {
      key.push_back(c);
      continue;
    }
    if (key.empty()) return std::nullopt;
    keys.push_back(std::move(key));
    key.clear();
  }
  if (!key.empty()) keys.push_back(std::move(key));
  return keys;
}

}  // namespace

/// A value of the tree, or a text that was put together.
struct Interpolator::Result {
  Located at{};
  std::string text{};
  bool composed = false;

  [[nodiscard]] std::optional<std::string> scalar() const {
    if (composed) return text;
    if (at.node->kind == Kind::Scalar) return at.node->text;
    return at.node->kind == Kind::Null ? std::optional<std::string>("None") : std::nullopt;
  }
};

bool has_interpolation(std::string_view text) { return find_open(text, 0) != std::string_view::npos; }

std::string unescaped(std::string_view text) {
  std::string out;
  std::size_t backslashes = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text.substr(at, 2) == "${") out.resize(out.size() - (backslashes + 1) / 2);
    backslashes = text[at] == '\\' ? backslashes + 1 : 0;
    out.push_back(text[at]);
  }
  return out;
}

bool Interpolator::spend(std::size_t work) {
  spent_ += std::min(work + 1, kMaxWork);
  return spent_ < kMaxWork;
}

std::optional<Located> Interpolator::find(std::string_view path) {
  const std::optional<Path> keys = keys_of(path);
  std::optional<Located> at = keys ? walk(*keys, 0) : std::nullopt;
  return at ? follow(*std::move(at), 0) : std::nullopt;
}

/// References inside the path are followed; one at its end is not.
std::optional<Located> Interpolator::walk(Path keys, std::size_t depth) {
  Located at{&root_, {}};
  for (std::string& key : keys) {
    std::optional<Located> map = follow(std::move(at), depth);
    if (!map) return std::nullopt;
    at = *std::move(map);
    const Node* next = nullptr;
    if (at.node->kind == Kind::Map) {
      if (!spend(at.node->entries.size())) return std::nullopt;
      next = readers::find(*at.node, key);
    } else if (at.node->kind == Kind::List) {
      const auto index = parse_int(key);
      if (index.value && *index.value >= 0 && static_cast<std::uint64_t>(*index.value) < at.node->items.size())
        next = &at.node->items[static_cast<std::size_t>(*index.value)];
    }
    if (next == nullptr) return std::nullopt;
    at.node = next;
    at.path.push_back(std::move(key));
  }
  return at;
}

/// The value itself, or the one that it is a reference to.
std::optional<Located> Interpolator::follow(Located at, std::size_t depth) {
  if (at.node->kind != Kind::Scalar || !has_interpolation(at.node->text)) return at;
  std::optional<Result> value = evaluate(at, depth + 1);
  if (!value || value->composed) return at;
  return std::move(value->at);
}

std::optional<Interpolator::Result> Interpolator::evaluate(const Located& at, std::size_t depth) {
  if (at.node->kind != Kind::Scalar || !has_interpolation(at.node->text)) return Result{at, {}, false};
  return expand(at.node->text, at.path, depth);
}

/// `path` leads to the value that has the text.
std::optional<Interpolator::Result> Interpolator::expand(std::string_view text, const Path& path, std::size_t depth) {
  if (depth > kMaxReferences || !spend(text.size())) return std::nullopt;
  Result whole{{}, {}, true};
  std::size_t done = 0;
  for (std::size_t open = find_open(text, 0); open != std::string_view::npos; open = find_open(text, done)) {
    const std::size_t close = find_close(text, open);
    if (close == std::string_view::npos) return std::nullopt;
    const std::string_view inner = text.substr(open + 2, close - open - 2);
    const std::size_t colon = find_resolver_end(inner);
    std::optional<Result> value = colon == std::string_view::npos
                                      ? reference(inner, path, depth)
                                      : resolver(trimmed(inner.substr(0, colon)), inner.substr(colon + 1), path, depth);
    if (!value || (open == 0 && close + 1 == text.size())) return value;
    const std::optional<std::string> part = value->scalar();
    if (!part) return std::nullopt;
    whole.text.append(unescaped(text.substr(done, open + 2 - done)));
    whole.text.replace(whole.text.size() - 2, 2, *part);
    done = close + 1;
    if (whole.text.size() > kMaxText || !spend(whole.text.size())) return std::nullopt;
  }
  whole.text.append(unescaped(text.substr(done)));
  return whole;
}

/// `.a` is beside the value that holds the reference, `..a` beside the group that the value is in.
std::optional<Interpolator::Result> Interpolator::reference(std::string_view text, const Path& path,
                                                            std::size_t depth) {
  std::string name(trimmed(text));
  if (has_interpolation(name)) {
    const std::optional<Result> inner = expand(name, path, depth + 1);
    const std::optional<std::string> key = inner ? inner->scalar() : std::nullopt;
    if (!key) return std::nullopt;
    name = *key;
  }
  Path keys;
  const std::size_t dots = std::min(name.find_first_not_of('.'), name.size());
  if (dots > path.size()) return std::nullopt;
  if (dots > 0) keys.assign(path.begin(), path.end() - static_cast<std::ptrdiff_t>(dots));
  const std::optional<Path> rest = keys_of(std::string_view(name).substr(dots));
  if (!rest) return std::nullopt;
  keys.insert(keys.end(), rest->begin(), rest->end());
  const std::optional<Located> at = walk(std::move(keys), depth + 1);
  return at ? evaluate(*at, depth + 1) : std::nullopt;
}

std::optional<Interpolator::Result> Interpolator::resolver(std::string_view name, std::string_view arguments,
                                                           const Path& path, std::size_t depth) {
  const std::vector<std::string_view> parts = split_arguments(arguments);
  if (name == "oc.env") {
    const auto known = std::find_if(env_.begin(), env_.end(), [&](const Variable& v) { return v.name == parts[0]; });
    return known == env_.end() ? std::nullopt : std::optional(Result{{}, known->value, true});
  }
  const auto* operation =
      std::find_if(kArithmetic.begin(), kArithmetic.end(), [&](const Arithmetic& row) { return row.name == name; });
  if (operation == kArithmetic.end() || parts.size() != 2) return std::nullopt;
  std::array<Number, 2> numbers;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::optional<Result> part = expand(parts[i], path, depth + 1);
    if (!part || (!part->composed && part->at.node->quoted)) return std::nullopt;
    const std::optional<std::string> text = part->scalar();
    const std::optional<Number> number = text ? number_of(*text) : std::nullopt;
    if (!number) return std::nullopt;
    numbers[i] = *number;
  }
  const std::optional<std::string> value = calculate(*operation, numbers[0], numbers[1]);
  return value ? std::optional(Result{{}, *value, true}) : std::nullopt;
}

Node Interpolator::resolved(const Located& at) { return resolved(at, 0); }

Node Interpolator::resolved(const Located& at, std::size_t depth) {
  const std::optional<Result> value = evaluate(at, 1);
  const Node& from = value && !value->composed ? *value->at.node : *at.node;
  Node node;
  node.kind = from.kind;
  node.quoted = from.quoted;
  node.block = from.block;
  node.place = at.node->place;
  node.text = value && value->composed ? value->text : has_interpolation(from.text) ? from.text : unescaped(from.text);
  if (value && value->composed) node.quoted = false;
  nodes_ += from.items.size() + from.entries.size();
  if (depth >= kMaxDepth || nodes_ > kMaxNodes || !spend(node.text.size())) return node;
  const Path& path = value && !value->composed ? value->at.path : at.path;
  for (std::size_t i = 0; i < from.items.size(); ++i) {
    Located item{&from.items[i], path};
    item.path.push_back(fmt::format("{}", i));
    node.items.push_back(resolved(item, depth + 1));
  }
  for (const Entry& entry : from.entries) {
    if (entry.overridden) continue;
    Located child{&entry.value, path};
    child.path.push_back(entry.key);
    node.entries.push_back({entry.key, entry.key_place, resolved(child, depth + 1), false});
  }
  return node;
}

}  // namespace gtp::readers
