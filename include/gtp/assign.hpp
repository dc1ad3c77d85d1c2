// From words to typed values: every reader, the command line and `--set` end here, so that a value
// means the same wherever it stands. Follows Python's int() and float() as argparse applies them.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtp/config.hpp>
#include <gtp/diagnostic.hpp>
#include <gtp/layer_freq.hpp>
#include <gtp/nearest.hpp>
#include <gtp/rules/form.hpp>

namespace gtp {

/// One scalar as the input spells it. A quoted word is text: it is no number and no boolean.
struct Word {
  std::string text;
  Place place{};
  bool quoted = false;
};

/// What a type is called in a message.
[[nodiscard]] constexpr std::string_view to_text(Type type) {
  switch (type) {
    case Type::Bool:
      return "true or false";
    case Type::Int:
      return "an integer";
    case Type::Float:
      return "a number";
    case Type::String:
      return "text";
    case Type::Integers:
      return "a list of integers";
    case Type::Floats:
      return "a list of numbers";
    case Type::Words:
      return "a list of words";
    case Type::Frequency:
      return "an integer or a list such as ([0]*3+[1]*58)";
  }
  return "";
}

[[nodiscard]] constexpr bool is_list(Type type) {
  return type == Type::Integers || type == Type::Floats || type == Type::Words;
}

enum class ParseError : std::uint8_t { WrongType, OutOfRange };

template <class T>
struct Parsed {
  std::optional<T> value{};
  ParseError error = ParseError::WrongType;
};

namespace detail {

constexpr std::string_view kSpaces = " \t\n\r\f\v";

inline std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

/// Drops single underscores between digits, which Python allows in numbers; nothing if one is misplaced.
inline std::optional<std::string> without_underscores(std::string_view text) {
  std::string digits;
  const auto digit = [&](std::size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits.push_back(text[i]);
    } else if (i == 0 || !digit(i - 1) || !digit(i + 1)) {
      return std::nullopt;
    }
  }
  return digits;
}

}  // namespace detail

/// Python's `int(text)`: spaces around, a sign, decimal digits with single underscores.
[[nodiscard]] inline Parsed<std::int64_t> parse_int(std::string_view text) {
  const auto digits = detail::without_underscores(detail::trim(text));
  if (!digits || digits->empty()) return {};
  const char* begin = digits->data();
  const char* end = begin + digits->size();
  if (*begin == '+') ++begin;
  if (begin == end || *begin == '+' || (begin != digits->data() && *begin == '-')) return {};
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error == std::errc::result_out_of_range && stop == end) return {std::nullopt, ParseError::OutOfRange};
  if (error != std::errc{} || stop != end) return {};
  return {value};
}

/// Python's `float(text)`: also `1e-4`, `.5`, `inf`, `nan`, single underscores between digits.
[[nodiscard]] inline Parsed<double> parse_float(std::string_view text) {
  const auto digits = detail::without_underscores(detail::trim(text));
  if (!digits || digits->empty()) return {};
  const char* begin = digits->data();
  const char* end = begin + digits->size();
  if (*begin == '+') ++begin;
  if (begin == end || *begin == '+' || (begin != digits->data() && *begin == '-')) return {};
  double value = 0;
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error == std::errc::result_out_of_range && stop == end) {
    // Python rounds a number too large to infinity and one too small to zero.
    const bool tiny = std::string_view(begin, end).find("e-") != std::string_view::npos ||
                      std::string_view(begin, end).find("E-") != std::string_view::npos;
    const double magnitude = tiny ? 0.0 : HUGE_VAL;
    return {*begin == '-' ? -magnitude : magnitude};
  }
  if (error != std::errc{} || stop != end || text.find('(') != std::string_view::npos) return {};
  return {value};
}

/// `true` and `false` in any capitals.
[[nodiscard]] inline Parsed<bool> parse_bool(std::string_view text) {
  const auto is = [&](std::string_view word) {
    if (text.size() != word.size()) return false;
    for (std::size_t i = 0; i < word.size(); ++i)
      if ((text[i] | 0x20) != word[i]) return false;
    return true;
  };
  if (is("true")) return {true};
  if (is("false")) return {false};
  return {};
}

namespace detail {

inline Diagnostic value_error(const Rule& rule, const Option& option, const Word& word, std::string label) {
  return rules::at_place(rule, option.name, word.place, std::move(label));
}

/// Appends why the word is not a value of the option.
inline void not_of_type(ParseError error, const Option& option, const Word& word, Diagnostics& out) {
  if (error == ParseError::OutOfRange)
    out.push_back(
        value_error(rules::kOutOfRange, option, word, fmt::format("{} does not fit into 64 bits", word.text)));
  else
    out.push_back(value_error(
        rules::kWrongType, option, word,
        fmt::format("{} is not {}", word.quoted ? "quoted text" : '`' + word.text + '`', to_text(option.type))));
}

template <class T, class Parse>
std::optional<T> typed(Parse parse, const Option& option, const Word& word, Diagnostics& out) {
  const Parsed<T> parsed = word.quoted ? Parsed<T>{} : parse(std::string_view(word.text));
  if (!parsed.value) not_of_type(parsed.error, option, word, out);
  return parsed.value;
}

template <class T, class Parse>
std::optional<Value> typed_list(Parse parse, const Option& option, std::span<const Word> words, Diagnostics& out) {
  std::vector<T> list;
  for (const Word& word : words) {
    const std::optional<T> item = typed<T>(parse, option, word, out);
    if (!item) return std::nullopt;
    list.push_back(*item);
  }
  return list;
}

inline bool check_choice(const Option& option, const Word& word, Diagnostics& out) {
  if (option.choices.empty()) return true;
  const StringList choices = split_words(option.choices);
  for (const std::string& choice : choices)
    if (choice == word.text) return true;
  Diagnostic d = value_error(rules::kNotAChoice, option, word, fmt::format("`{}` is not a choice", word.text));
  d.notes.push_back(fmt::format("choices: {}", fmt::join(choices, ", ")));
  if (const std::string_view meant = nearest(word.text, choices); !meant.empty())
    d.help = fmt::format("did you mean `{}`?", meant);
  out.push_back(std::move(d));
  return false;
}

inline bool check_arity(const Option& option, std::span<const Word> words, Place place, Diagnostics& out) {
  const std::size_t n = words.size();
  const auto fits = [&] {
    switch (option.arity) {
      case Arity::One:
        return n == 1;
      case Arity::OneOrMore:
        return n >= 1;
      case Arity::Any:
        return true;
      case Arity::Three:
        return n == 3;
    }
    return false;
  };
  if (fits()) return true;
  const std::string_view wanted = option.arity == Arity::One     ? "one value"
                                  : option.arity == Arity::Three ? "three values"
                                                                 : "at least one value";
  out.push_back(rules::at_place(rules::kWrongArity, option.name, place, fmt::format("takes {}, {} given", wanted, n)));
  return false;
}

inline std::optional<Value> scalar(const Option& option, const Word& word, Diagnostics& out) {
  switch (option.type) {
    case Type::Bool:
      if (const auto v = typed<bool>(parse_bool, option, word, out)) return Value(*v);
      return std::nullopt;
    case Type::Int:
      if (const auto v = typed<std::int64_t>(parse_int, option, word, out)) return Value(*v);
      return std::nullopt;
    case Type::Float:
      if (const auto v = typed<double>(parse_float, option, word, out)) return Value(*v);
      return std::nullopt;
    case Type::Frequency: {
      LayerFreqParse parsed = parse_layer_freq(word.text);
      if (parsed.value) return std::visit([](auto&& x) { return Value(std::move(x)); }, std::move(*parsed.value));
      not_of_type(ParseError::WrongType, option, word, out);
      return std::nullopt;
    }
    case Type::String:
    case Type::Integers:
    case Type::Floats:
    case Type::Words:
      break;
  }
  return Value(word.text);
}

}  // namespace detail

/// The typed value of an option given as words; nothing, and diagnostics, when they are not one.
[[nodiscard]] inline std::optional<Value> parse_value(const Option& option, std::span<const Word> words, Place place,
                                                      Diagnostics& out) {
  if (!detail::check_arity(option, words, place, out)) return std::nullopt;
  for (const Word& word : words)
    if (option.type != Type::Bool && !detail::check_choice(option, word, out)) return std::nullopt;
  switch (option.type) {
    case Type::Integers:
      return detail::typed_list<std::int64_t>(parse_int, option, words, out);
    case Type::Floats:
      return detail::typed_list<double>(parse_float, option, words, out);
    case Type::Words: {
      StringList list;
      for (const Word& word : words) list.push_back(word.text);
      return list;
    }
    case Type::Bool:
    case Type::Int:
    case Type::Float:
    case Type::String:
    case Type::Frequency:
      return detail::scalar(option, words.front(), out);
  }
  return std::nullopt;
}

/// What a user sets instead of a derived value; empty when nothing sets it alone.
[[nodiscard]] inline std::string_view settable_for(std::string_view derived) {
  if (derived == "gtp_weight_remat_size") return "tensor_parallel_num_weight_shards";
  if (derived == "expert_gtp_weight_remat_size") return "expert_tensor_parallel_num_weight_shards";
  return {};
}

namespace detail {

inline Diagnostic unknown_option(std::string_view spelled, std::string_view meant, Place place, const Target& target) {
  Diagnostic d = rules::at_place(rules::kUnknownOption, spelled, place, fmt::format("unknown in {}", target.name));
  if (!meant.empty()) d.help = fmt::format("did you mean `{}`?", meant);
  return d;
}

inline Diagnostic derived_option(std::string_view name, Place place) {
  const std::string_view instead = settable_for(name);
  const Rule& rule = instead.empty() ? rules::kDerivedOption : rules::kRematSize;
  Diagnostic d = rules::at_place(rule, name, place, "derived, never set");
  if (!instead.empty()) d.help = fmt::format("set `{}` instead", instead);
  return d;
}

inline std::vector<std::string_view> settable_names(const Target& target) {
  std::vector<std::string_view> names;
  for (const OptionId id : sorted_options())
    if (exists(id, target) && kOptions[id.index].section != Section::Derived) names.push_back(name_of(id));
  return names;
}

}  // namespace detail

/// The option that a name sets. A name that the target does not know, or that upstream derives,
/// appends a diagnostic at `place` and gives nothing.
[[nodiscard]] inline std::optional<OptionId> resolve_name(std::string_view name, Place place, const Target& target,
                                                          Diagnostics& out) {
  const std::optional<OptionId> option = find_settable(name);
  if (option && kOptions[option->index].section == Section::Derived) {
    out.push_back(detail::derived_option(name, place));
    return std::nullopt;
  }
  if (option && exists(*option, target)) return option;
  out.push_back(detail::unknown_option(name, nearest(name, detail::settable_names(target)), place, target));
  if (option) out.back().notes.push_back(fmt::format("another target knows `{}`", name));
  return std::nullopt;
}

/// The option that a flag such as `--context-parallel-size` sets; as `resolve_name` otherwise.
[[nodiscard]] inline std::optional<FlagMatch> resolve_flag(std::string_view flag, Place place, const Target& target,
                                                           Diagnostics& out) {
  if (const std::optional<FlagMatch> match = find_flag(flag, target.version)) return match;
  std::string name(flag.substr(std::min<std::size_t>(2, flag.size())));
  std::replace(name.begin(), name.end(), '-', '_');
  const std::optional<OptionId> option = find_option(name);
  if (option && kOptions[option->index].section == Section::Derived) {
    out.push_back(detail::derived_option(name, place));
    return std::nullopt;
  }
  std::vector<std::string_view> flags;
  for (const auto& [text, match] : detail::flag_index(target.version)) flags.push_back(text);
  out.push_back(detail::unknown_option(flag, nearest(flag, flags), place, target));
  return std::nullopt;
}

/// Sets an option from words that stand at `place`. Words that are no value of it are reported, and
/// the option becomes unknown.
inline void assign(Config& config, OptionId option, std::span<const Word> words, Place place, Diagnostics& out) {
  const Option& row = row_of(option, config.version());
  if (std::optional<Value> value = parse_value(row, words, place, out))
    config.set(option, std::move(*value), place);
  else
    config.set_unknown(option);
}

}  // namespace gtp
