#include "validators/edit.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace gtp {

namespace {

/// How a format writes an option. `Tree` keeps an option somewhere in nested keys: a value can be replaced there, but
/// nothing added.
enum class Style : std::uint8_t { Json, Yaml, Tree, TestYaml, Words, None };

Style style_of(InputFormat format) {
  switch (format) {
    case InputFormat::Json:
      return Style::Json;
    case InputFormat::Yaml:
      return Style::Yaml;
    case InputFormat::BridgeYaml:
    case InputFormat::BridgeOverrides:
    case InputFormat::NemoRl:
      return Style::Tree;
    case InputFormat::MegatronTestYaml:
      return Style::TestYaml;
    case InputFormat::MegatronArgs:
      return Style::Words;
    case InputFormat::Shell:  // a word may come out of variables
    case InputFormat::Env:
    case InputFormat::HuggingFace:  // describes a model; what a fix changes is not in it
    case InputFormat::Plan:         // written by `gtplan plan`, whose derived part would no longer agree
      return Style::None;
  }
  return Style::None;
}

bool is_plain(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
         std::string_view("_-+.,/@%").find(letter) != std::string_view::npos;
}

bool is_plain(std::string_view word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char letter) { return is_plain(letter); });
}

/// The value's words, as a command line takes them.
std::vector<std::string> words_of(const Value& value) {
  return std::visit(
      [&](const auto& v) -> std::vector<std::string> {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, IntList> || std::is_same_v<T, FloatList> || std::is_same_v<T, StringList>) {
          std::vector<std::string> words;
          for (const auto& each : v) words.push_back(to_text(Value(each)));
          return words;
        } else {
          return {to_text(value)};
        }
      },
      value);
}

/// A text in quotes that JSON and YAML read alike.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char letter : text) {
    if (static_cast<unsigned char>(letter) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(letter));
    else
      out += letter == '"' || letter == '\\' ? std::string{'\\', letter} : std::string(1, letter);
  }
  return out + '"';
}

/// JSON, which is YAML too: what needs no quotes in YAML comes without them there.
std::string json_text(const Value& value) {
  return std::visit(
      [&](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return "null";
        } else if constexpr (std::is_same_v<T, std::string>) {
          return quoted(v);
        } else if constexpr (std::is_same_v<T, StringList>) {
          std::vector<std::string> words;
          for (const std::string& word : v) words.push_back(quoted(word));
          return fmt::format("[{}]", fmt::join(words, ", "));
        } else {
          return to_text(value);
        }
      },
      value);
}

std::string yaml_text(const Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  const bool word =
      text != nullptr && is_plain(*text) && std::string_view("-+.,%@").find((*text)[0]) == std::string::npos;
  constexpr std::string_view kNotText[] = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"};
  const bool digits = word && (*text)[0] >= '0' && (*text)[0] <= '9';
  return word && !digits && std::find(std::begin(kNotText), std::end(kNotText), *text) == std::end(kNotText)
             ? *text
             : json_text(value);
}

/// Nothing for words that a shell would have to have quoted: no fix has such.
std::optional<std::string> shell_words(const Value& value) {
  const std::vector<std::string> words = words_of(value);
  if (!std::all_of(words.begin(), words.end(), [](const std::string& word) { return is_plain(word); }))
    return std::nullopt;
  return fmt::format("{}", fmt::join(words, " "));
}

/// The flag that makes the option `wanted` (a switch), or takes words (`wanted` absent).
std::optional<std::string> flag_for(const Option& row, std::optional<bool> wanted) {
  for (const Flag& flag : flags_of(row))
    if (flag.constant == wanted) return flag.text;
  return std::nullopt;
}

class Editor {
 public:
  Editor(const Loaded& loaded, OptionId option, const Value& value)
      : config_(loaded.config),
        text_(loaded.sources[0].text),
        style_(style_of(loaded.format)),
        option_(option),
        row_(row_of(option, loaded.config.version())),
        value_(value) {}

  std::optional<Edit> edit(const Diagnostic& diagnostic) const {
    if (style_ == Style::None || config_.given_unknown(option_)) return std::nullopt;
    if (const Setting* given = config_.given(option_))
      return given->place.source == 0 ? replace(given->place) : std::nullopt;
    const std::optional<Place> beside = anchor(diagnostic);
    return beside ? insert(*beside) : std::nullopt;
  }

 private:
  [[nodiscard]] const bool* boolean() const { return std::get_if<bool>(&value_); }
  [[nodiscard]] bool by_flags() const { return style_ == Style::TestYaml || style_ == Style::Words; }

  std::optional<Edit> replace(Place at) const {
    if (!by_flags()) return Edit{at.begin, at.end, style_ == Style::Json ? json_text(value_) : yaml_text(value_)};
    if (is_none(value_)) return std::nullopt;
    if (boolean() == nullptr) {
      const std::optional<std::string> words = shell_words(value_);
      return words ? std::optional(Edit{at.begin, at.end, *words}) : std::nullopt;
    }
    // The place of a switch is that of its flag.
    if (const auto flag = flag_for(row_, *boolean())) return Edit{at.begin, at.end, *flag};
    return row_.default_value.boolean == *boolean() ? std::optional(remove(at)) : std::nullopt;
  }

  /// The flag, and its line when nothing else is on it.
  Edit remove(Place at) const {
    const std::uint32_t line = line_begin(at.begin), end = line_end(at.end);
    const bool alone = trimmed(line, at.begin).empty() && (style_ == Style::TestYaml || trimmed(at.end, end).empty());
    if (alone) return {line, end < text_.size() ? end + 1 : end, ""};
    std::uint32_t begin = at.begin;
    while (begin > line && text_[begin - 1] == ' ') --begin;
    return {begin, at.end, ""};
  }

  /// Where a setting stands that the new one can be put behind: the one to blame, one that takes part, or the last.
  std::optional<Place> anchor(const Diagnostic& diagnostic) const {
    const auto usable = [&](Place place) {
      if (place.source != 0 || place.end > text_.size()) return false;
      return style_ != Style::TestYaml || trimmed(line_begin(place.begin), place.end).starts_with("--");
    };
    if (usable(diagnostic.primary.place)) return diagnostic.primary.place;
    for (const Label& label : diagnostic.related)
      if (usable(label.place)) return label.place;
    std::optional<Place> last;
    for (const Setting& setting : config_.settings())
      if (usable(setting.place) && (!last || setting.place.end > last->end)) last = setting.place;
    return last;
  }

  std::optional<Edit> insert(Place beside) const {
    switch (style_) {
      case Style::Json:
        return Edit{beside.end, beside.end,
                    fmt::format(",{}\"{}\": {}", separator(beside), row_.name, json_text(value_))};
      case Style::Yaml:
        return insert_line(beside, fmt::format("{}: {}", row_.name, yaml_text(value_)));
      case Style::TestYaml: {
        const auto words = flag_words();
        if (!words) return std::nullopt;
        return insert_line(beside, fmt::format("{}: {}", words->first, words->second.empty() ? "true" : words->second));
      }
      case Style::Words: {
        const auto words = flag_words();
        if (!words) return std::nullopt;
        return Edit{
            beside.end, beside.end,
            fmt::format("{}{}{}{}", separator(beside), words->first, words->second.empty() ? "" : " ", words->second)};
      }
      case Style::Tree:
      case Style::None:
        break;
    }
    return std::nullopt;
  }

  /// A flag and what follows it.
  std::optional<std::pair<std::string, std::string>> flag_words() const {
    if (is_none(value_)) return std::nullopt;
    const auto flag = flag_for(row_, boolean() == nullptr ? std::nullopt : std::optional(*boolean()));
    const auto words = boolean() == nullptr ? shell_words(value_) : std::optional<std::string>("");
    if (!flag || !words) return std::nullopt;
    return std::pair(*flag, *words);
  }

  /// After the line of `beside`, indented as that is.
  Edit insert_line(Place beside, const std::string& line) const {
    const std::string indented = std::string(indent(beside)) + line;
    const std::uint32_t end = line_end(beside.end);
    if (end == text_.size()) return {end, end, '\n' + indented};
    return {end + 1, end + 1, indented + '\n'};
  }

  /// A line of its own where the neighbour has one.
  std::string separator(Place beside) const {
    const std::uint32_t line = line_begin(beside.begin);
    const std::string_view before = trimmed(line, beside.begin);
    const bool own_line = style_ == Style::Json ? before.starts_with('"') && before.find(',') == std::string_view::npos
                                                : text_.find('\n') + 1 < text_.size() &&
                                                      trimmed(line, line_end(beside.end)).starts_with("--");
    return own_line ? '\n' + std::string(indent(beside)) : " ";
  }

  std::string_view indent(Place beside) const {
    const std::uint32_t line = line_begin(beside.begin);
    const std::size_t text = std::min(text_.find_first_not_of(" \t", line), text_.size());
    return std::string_view(text_).substr(line, text - line);
  }
  std::uint32_t line_begin(std::uint32_t at) const {
    const std::size_t feed = at == 0 ? std::string::npos : text_.rfind('\n', at - 1);
    return feed == std::string::npos ? 0 : static_cast<std::uint32_t>(feed + 1);
  }
  std::uint32_t line_end(std::uint32_t at) const {
    return static_cast<std::uint32_t>(std::min(text_.find('\n', at), text_.size()));
  }
  std::string_view trimmed(std::uint32_t begin, std::uint32_t end) const {
    std::string_view part = std::string_view(text_).substr(begin, end - begin);
    part.remove_prefix(std::min(part.find_first_not_of(" \t\r"), part.size()));
    part.remove_suffix(part.size() - std::min(part.find_last_not_of(" \t\r") + 1, part.size()));
    return part;
  }

  const Config& config_;
  const std::string& text_;
  Style style_;
  OptionId option_;
  const Option& row_;
  const Value& value_;
};

}  // namespace

std::optional<Edit> edit_for(const Loaded& loaded, const Diagnostic& diagnostic, const Fix& fix) {
  const std::optional<OptionId> option = find_settable(fix.option);
  if (!option || loaded.sources.size() == 0) return std::nullopt;
  return Editor(loaded, *option, fix.value).edit(diagnostic);
}

}  // namespace gtp
