// Hydra's override grammar, as far as one run uses it: `key=value`, `+key=value`, `++key=value` and `~key`, one a line
// or several, also in a shell's quotes. Values are quoted text, lists, dicts and plain words.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "validators/bridge.hpp"
#include "validators/bridge_homes.hpp"
#include "validators/bridge_values.hpp"
#include "validators/shell_quotes.hpp"

namespace gtp::readers {

namespace {

constexpr std::string_view kBlanks = " \t\r\f";
constexpr std::string_view kSpaces = " \t\r\f\n";
/// What a backslash takes its meaning from outside quotes.
constexpr std::string_view kEscaped = "\\()[]{}:=, \t";

bool is_key_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

/// Bytes of the key that a text begins with, after `+`, `++` or `~`; 0 when it begins with none.
std::size_t key_size(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && is_key_character(text[at])) ++at;
  return at;
}

/// In letters of either case.
bool is_null(std::string_view text) {
  constexpr std::string_view kNull = "null";
  return std::equal(text.begin(), text.end(), kNull.begin(), kNull.end(),
                    [](char a, char b) { return (a | 0x20) == b; });
}

std::string_view without_operator(std::string_view text) {
  for (const std::string_view op : {"++", "+", "~"})
    if (text.starts_with(op)) return text.substr(op.size());
  return text;
}

/// One override as Hydra is given it, and where in the input each byte of it stands.
struct Spelled {
  std::string text{};
  std::vector<std::size_t> origins{};  ///< of each byte

  void add(char c, std::size_t origin) {
    text.push_back(c);
    origins.push_back(origin);
  }
  [[nodiscard]] Place place(const Reading& reading, std::size_t begin, std::size_t end) const {
    if (text.empty()) return reading.place(0, 0);
    const std::size_t first = begin < origins.size() ? origins[begin] : origins.back() + 1;
    return reading.place(first, end > begin && end <= origins.size() ? origins[end - 1] + 1 : first);
  }
};

/// Reads the value of an override from byte `at` on into a tree. Reports at the first byte that no value can have
/// there.
class ValueParser {
 public:
  ValueParser(const Reading& reading, const Spelled& word, std::size_t at)
      : reading_(reading), word_(word), text_(word.text), at_(at), end_(text_.size()) {}

  /// Nothing, and a problem, when the text up to the end is no value.
  std::optional<Node> parse() {
    Node value;
    skip_blanks();
    if (!read(value, 0, "")) return std::nullopt;
    skip_blanks();
    if (at_ == end_) return value;
    fail(text_[at_] == ',' ? "several values, of which one run takes one" : "not expected after the value");
    return std::nullopt;
  }

  [[nodiscard]] Place problem_place() const { return problem_place_; }
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  bool fail(std::string problem) {
    problem_ = std::move(problem);
    problem_place_ = word_.place(reading_, std::min(at_, end_), std::min(at_ + 1, end_));
    return false;
  }

  void skip_blanks() {
    while (at_ < end_ && kSpaces.find(text_[at_]) != std::string_view::npos) ++at_;
  }

  bool next_is(char c) const { return at_ < end_ && text_[at_] == c; }

  bool read(Node& value, std::size_t depth, std::string_view stops) {
    if (depth >= kMaxDepth) return fail(fmt::format("nested deeper than {} levels", kMaxDepth));
    if (++nodes_ > kMaxNodes) return fail(fmt::format("more than {} values", kMaxNodes));
    const std::size_t begin = at_;
    bool good = true;
    if (next_is('['))
      good = read_list(value, depth);
    else if (next_is('{'))
      good = read_dict(value, depth);
    else if (next_is('\'') || next_is('"'))
      good = read_quoted(value);
    else
      read_plain(value, stops);
    value.place = word_.place(reading_, begin, std::max(begin, last_));
    return good;
  }

  bool read_list(Node& list, std::size_t depth) {
    list.kind = Kind::List;
    ++at_;
    for (skip_blanks(); !next_is(']'); skip_blanks()) {
      if (!read(list.items.emplace_back(), depth + 1, ",]")) return false;
      if (!read_separator(']')) return false;
    }
    last_ = ++at_;
    return true;
  }

  bool read_dict(Node& dict, std::size_t depth) {
    dict.kind = Kind::Map;
    ++at_;
    for (skip_blanks(); !next_is('}'); skip_blanks()) {
      Node key;
      if (!read(key, depth + 1, ":,}")) return false;
      skip_blanks();
      if (!next_is(':')) return fail("expected `:` after a key");
      ++at_;
      skip_blanks();
      Entry& entry = dict.entries.emplace_back();
      entry.key = std::move(key.text);
      entry.key_place = key.place;
      if (!read(entry.value, depth + 1, ",}")) return false;
      if (!read_separator('}')) return false;
    }
    last_ = ++at_;
    return true;
  }

  /// A comma, or nothing before the closing bracket.
  bool read_separator(char close) {
    skip_blanks();
    if (at_ >= end_) return fail(fmt::format("`{}` is missing", close));
    if (next_is(close)) return true;
    if (!next_is(',')) return fail(fmt::format("expected `,` or `{}`", close));
    ++at_;
    return true;
  }

  bool read_quoted(Node& value) {
    value.kind = Kind::Scalar;
    value.quoted = true;
    const char quote = text_[at_];
    const std::size_t begin = at_++;
    while (at_ < end_ && text_[at_] != quote) {
      if (text_[at_] == '\\')
        read_backslashes(value.text, quote);
      else
        value.text += text_[at_++];
    }
    if (at_ >= end_) {
      at_ = begin;
      return fail("this quote has no end");
    }
    last_ = ++at_;
    return true;
  }

  /// Before the quote that would end the text, two backslashes are one and a last one takes the quote along; elsewhere
  /// they are themselves.
  void read_backslashes(std::string& out, char quote) {
    const std::size_t next = std::min(text_.find_first_not_of('\\', at_), end_);
    const std::size_t count = next - at_;
    const bool before_quote = next < end_ && text_[next] == quote;
    at_ = next;
    out.append(before_quote ? count / 2 : count, '\\');
    if (before_quote && count % 2 == 1) out += text_[at_++];
  }

  /// Up to a separator of the list or dict around it; `${...}` is one piece. A backslash escapes what means something.
  void read_plain(Node& value, std::string_view stops) {
    const std::size_t begin = at_;
    for (std::size_t braces = 0; at_ < end_; ++at_) {
      const char c = text_[at_];
      if (c == '$' && at_ + 1 < end_ && text_[at_ + 1] == '{') ++braces;
      if (c == '}' && braces > 0) {
        --braces;
      } else if (braces == 0 && (stops.find(c) != std::string_view::npos || (stops.empty() && c == ','))) {
        break;
      }
      if (c == '\\' && at_ + 1 < end_ && kEscaped.find(text_[at_ + 1]) != std::string_view::npos) ++at_;
      value.text += text_[at_];
    }
    last_ = at_;
    while (last_ > begin && kSpaces.find(text_[last_ - 1]) != std::string_view::npos) --last_;
    value.text.resize(value.text.find_last_not_of(kSpaces) + 1);
    value.kind = value.text.empty() || is_null(value.text) ? Kind::Null : Kind::Scalar;
  }

  const Reading& reading_;
  const Spelled& word_;
  std::string_view text_;
  std::size_t at_;
  std::size_t end_;
  std::size_t last_ = 0;  ///< end of the value read last
  std::size_t nodes_ = 0;
  std::string problem_{};
  Place problem_place_{};
};

class OverrideReader {
 public:
  OverrideReader(Reading& reading, std::string_view text) : reading_(reading), text_(text), values_(reading, true) {
    if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
  }

  bool read() {
    for (skip_between(); at_ < text_.size(); skip_between()) {
      if (full(reading_.out)) {
        report_rest(reading_.out);
        break;
      }
      if (!read_word()) return false;
    }
    values_.apply();
    return true;
  }

 private:
  bool unreadable(Place place, std::string label) {
    reading_.out.push_back(rules::at_place(rules::kUnreadable, "", place, std::move(label)));
    return false;
  }

  void skip_between() {
    while (at_ < text_.size()) {
      if (kSpaces.find(text_[at_]) != std::string_view::npos || is_continuation(at_))
        ++at_;
      else if (text_[at_] == '#')
        at_ = std::min(text_.find('\n', at_), text_.size());
      else
        return;
    }
  }

  /// Whether a backslash ends its line.
  [[nodiscard]] bool is_continuation(std::size_t at) const {
    if (text_[at] != '\\') return false;
    const std::size_t next = text_.find_first_not_of(kBlanks, at + 1);
    return next == std::string_view::npos || text_[next] == '\n';
  }

  /// One override, in a shell's quotes or without.
  bool read_word() {
    const char quote = text_[at_];
    Spelled word;
    const std::size_t begin = at_;
    if (quote == '\'' || quote == '"') {
      if (!read_shell_word(word)) return false;
    } else {
      const std::size_t end = std::max(end_of_word(), at_ + 1);
      while (at_ < end) word.add(text_[at_], at_), ++at_;
    }
    return read_override(word, begin);
  }

  /// As a POSIX shell takes the quotes away; nothing is expanded.
  bool read_shell_word(Spelled& word) {
    while (at_ < text_.size() && kSpaces.find(text_[at_]) == std::string_view::npos) {
      const char c = text_[at_];
      if (c == '\'' || c == '"') {
        const std::size_t begin = at_;
        if (!read_shell_quotes(text_, at_, [&](char byte, std::size_t origin) { word.add(byte, origin); }))
          return unreadable(reading_.place(begin, begin + 1), "this quote has no end");
      } else {
        if (c == '\\' && at_ + 1 < text_.size()) ++at_;
        word.add(text_[at_], at_);
        ++at_;
      }
    }
    return true;
  }

  /// At a space outside quotes and brackets behind which the next override, a comment or the next line begins.
  [[nodiscard]] std::size_t end_of_word() const {
    std::size_t depth = 0;
    char quote = 0;
    for (std::size_t at = at_; at < text_.size(); ++at) {
      const char c = text_[at];
      if (c == '\n') return at;
      if (quote != 0) {
        if (c == '\\') ++at;
        if (c == quote) quote = 0;
      } else if (c == '\'' || c == '"') {
        quote = c;
      } else if (c == '[' || c == '{') {
        ++depth;
      } else if ((c == ']' || c == '}') && depth > 0) {
        --depth;
      } else if (depth == 0 && kBlanks.find(c) != std::string_view::npos) {
        const std::size_t next = std::min(text_.find_first_not_of(kBlanks, at), text_.size());
        if (word_begins(next)) return at;
        at = next - 1;
      }
    }
    return text_.size();
  }

  [[nodiscard]] bool word_begins(std::size_t at) const {
    if (at == text_.size() || text_[at] == '\n' || text_[at] == '#' || text_[at] == '~' || is_continuation(at))
      return true;
    std::string_view rest = text_.substr(at);
    if (rest.starts_with('\'') || rest.starts_with('"')) rest.remove_prefix(1);
    rest = without_operator(rest);
    const std::size_t size = key_size(rest);
    return size > 0 && rest.substr(size).starts_with('=');
  }

  /// `begin`: where the word stands, its quotes included.
  bool read_override(const Spelled& spelled, std::size_t begin) {
    const std::string_view word = spelled.text;
    const std::string_view rest = without_operator(word);
    const std::size_t size = key_size(rest);
    const std::size_t key_begin = word.size() - rest.size();
    const std::string key(rest.substr(0, size));
    const Place key_place = spelled.place(reading_, key_begin, key_begin + size);
    if (word.starts_with('~') && size > 0) {
      values_.drop(key);
      return true;
    }
    std::size_t equals = size;
    if (rest.substr(size).starts_with('@')) equals = std::min(rest.find('=', size), rest.size());
    if (size == 0 || !rest.substr(equals).starts_with('=')) {
      reading_.out.push_back(
          rules::at_place(rules::kNotUnderstood, "", reading_.place(begin, at_), "no override: expected key=value"));
      return true;
    }
    ValueParser parser(reading_, spelled, key_begin + equals + 1);
    const std::optional<Node> value = parser.parse();
    if (!value) return unreadable(parser.problem_place(), parser.problem());
    values_.take(key, *value, key_place);
    return true;
  }

  Reading& reading_;
  std::string_view text_;
  BridgeValues values_;
  std::size_t at_ = 0;
};

}  // namespace

bool starts_with_override(std::string_view content) {
  if (content.starts_with('\'') || content.starts_with('"')) content.remove_prefix(1);
  content = without_operator(content);
  const std::size_t size = key_size(content);
  const std::string_view section = content.substr(0, std::min(content.find('.'), size));
  return contains(kBridgeSections, section) && content.substr(size).starts_with('=') &&
         (section.size() < size || section == "mixed_precision");
}

bool read_bridge_overrides(Reading& reading, std::string_view text) { return OverrideReader(reading, text).read(); }

}  // namespace gtp::readers
