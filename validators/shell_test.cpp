#include "validators/shell_test.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <gtp/assign.hpp>

namespace gtp::readers::shell {

namespace {

using Compare = bool (*)(std::int64_t, std::int64_t);

constexpr std::array<std::pair<std::string_view, Compare>, 6> kIntegers{
    {{"-eq", [](std::int64_t a, std::int64_t b) { return a == b; }},
     {"-ne", [](std::int64_t a, std::int64_t b) { return a != b; }},
     {"-lt", [](std::int64_t a, std::int64_t b) { return a < b; }},
     {"-le", [](std::int64_t a, std::int64_t b) { return a <= b; }},
     {"-gt", [](std::int64_t a, std::int64_t b) { return a > b; }},
     {"-ge", [](std::int64_t a, std::int64_t b) { return a >= b; }}}};

bool is_pattern(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

std::optional<bool> compare(std::string_view left, std::string_view operation, std::string_view right) {
  if (operation == "=" || operation == "==" || operation == "!=") {
    if (is_pattern(right)) return std::nullopt;
    return (left == right) == (operation != "!=");
  }
  for (const auto& [name, holds] : kIntegers) {
    if (name != operation) continue;
    const auto a = parse_int(left).value, b = parse_int(right).value;
    return a && b ? std::optional(holds(*a, *b)) : std::nullopt;
  }
  return std::nullopt;
}

/// `a || b` and `a && b` of what has neither in it.
std::optional<bool> combine(std::span<const std::string> words, std::size_t at) {
  const std::optional<bool> left = evaluate_test(words.first(at)), right = evaluate_test(words.subspan(at + 1));
  const bool any = words[at] == "||" || words[at] == "-o";
  if ((left && *left == any) || (right && *right == any)) return any;
  return left && right ? std::optional(!any) : std::nullopt;
}

std::size_t find_word(std::span<const std::string> words, std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(
      std::find_if(words.begin(), words.end(), [&](const std::string& w) { return w == a || w == b; }) - words.begin());
}

}  // namespace

std::optional<bool> evaluate_test(std::span<const std::string> words) {
  constexpr std::size_t kMostWords = 64;
  if (words.empty()) return false;
  if (words.size() > kMostWords || find_word(words, "(", ")") < words.size()) return std::nullopt;
  if (const std::size_t at = find_word(words, "||", "-o"); at < words.size()) return combine(words, at);
  if (const std::size_t at = find_word(words, "&&", "-a"); at < words.size()) return combine(words, at);
  if (words[0] == "!" && words.size() > 1) {
    const std::optional<bool> value = evaluate_test(words.subspan(1));
    return value ? std::optional(!*value) : std::nullopt;
  }
  if (words.size() == 1) return !words[0].empty();
  if (words.size() == 2 && words[0] == "-z") return words[1].empty();
  if (words.size() == 2 && words[0] == "-n") return !words[1].empty();
  return words.size() == 3 ? compare(words[0], words[1], words[2]) : std::nullopt;
}

}  // namespace gtp::readers::shell
