#include "validators/json_reader.hpp"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

#include <gtp/rules/form.hpp>

namespace gtp::readers {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void append_utf8(char32_t code, std::string& out) {
  const auto put = [&](char32_t bits) { out.push_back(static_cast<char>(bits)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6U));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12U));
    put(0x80 | ((code >> 6U) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18U));
    put(0x80 | ((code >> 12U) & 0x3F));
    put(0x80 | ((code >> 6U) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

/// Recursive descent; every function returns false after `fail`.
class JsonReader {
 public:
  JsonReader(std::string_view text, std::uint32_t source, Diagnostics& out) : text_(text), source_(source), out_(out) {}

  std::optional<JsonText> read() {
    if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
    JsonText result;
    skip_spaces();
    if (!read_value(result.root, 0)) return std::nullopt;
    skip_spaces();
    if (at_ < text_.size()) {
      fail(at_, "expected the end of the text after the value");
      return std::nullopt;
    }
    result.not_json = not_json_;
    return result;
  }

 private:
  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  [[nodiscard]] Place place(std::size_t begin, std::size_t end) const {
    return {source_, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
  }

  void skip_spaces() {
    while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  bool fail(std::size_t at, std::string label) {
    const std::size_t end = at < text_.size() ? at + 1 : at;
    out_.push_back(rules::at_place(rules::kUnreadable, "", place(at, end), std::move(label)));
    return false;
  }

  bool read_value(Node& node, std::size_t depth) {
    if (++nodes_ > kMaxNodes) return fail(at_, fmt::format("more than {} values", kMaxNodes));
    if (depth > kMaxDepth) return fail(at_, fmt::format("nested deeper than {} levels", kMaxDepth));
    switch (peek()) {
      case '{':
        return read_map(node, depth);
      case '[':
        return read_list(node, depth);
      case '"':
        node.kind = Kind::Scalar;
        node.quoted = true;
        return read_string(node.text, node.place);
      default:
        return read_literal(node);
    }
  }

  bool read_map(Node& node, std::size_t depth) {
    const std::size_t begin = at_++;
    node.kind = Kind::Map;
    for (bool first = true;; first = false) {
      skip_spaces();
      if (peek() == '}' && first) break;
      if (peek() != '"') return fail(at_, expected_key(first));
      Entry& entry = node.entries.emplace_back();
      if (!read_string(entry.key, entry.key_place)) return false;
      skip_spaces();
      if (peek() != ':') return fail(at_, "expected `:` after the key");
      ++at_;
      skip_spaces();
      if (!read_value(entry.value, depth + 1)) return false;
      skip_spaces();
      if (peek() == '}') break;
      if (peek() != ',') return fail(at_, "expected `,` or `}`");
      ++at_;
    }
    node.place = place(begin, ++at_);
    mark_duplicates(node, out_);
    return true;
  }

  [[nodiscard]] std::string expected_key(bool first) const {
    if (peek() == '}' && !first) return "expected a key: JSON has no comma after the last entry";
    if (peek() == '/' || peek() == '#') return "expected a key: JSON has no comments";
    return "expected a key in double quotes";
  }

  bool read_list(Node& node, std::size_t depth) {
    const std::size_t begin = at_++;
    node.kind = Kind::List;
    for (bool first = true;; first = false) {
      skip_spaces();
      if (peek() == ']' && first) break;
      if (!read_value(node.items.emplace_back(), depth + 1)) return false;
      skip_spaces();
      if (peek() == ']') break;
      if (peek() != ',') return fail(at_, "expected `,` or `]`");
      ++at_;
    }
    node.place = place(begin, ++at_);
    return true;
  }

  bool read_string(std::string& text, Place& where) {
    const std::size_t begin = at_++;
    for (;;) {
      const std::size_t stop = std::min(text_.find_first_of("\"\\\n\t\r", at_), text_.size());
      text.append(text_.substr(at_, stop - at_));
      at_ = stop;
      if (at_ == text_.size()) return fail(begin, "the string that starts here has no end");
      if (text_[at_] == '"') break;
      if (text_[at_] != '\\') return fail(at_, "expected an escape: a string cannot hold a line end or a tab");
      if (!read_escape(text)) return false;
    }
    where = place(begin, ++at_);
    return true;
  }

  bool read_escape(std::string& text) {
    constexpr std::string_view kEscapes = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    const char escape = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    if (escape == 'u') return read_code_point(text);
    const std::size_t known = kEscapes.find(escape);
    if (escape == '\0' || known == std::string_view::npos)
      return fail(at_, "expected one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u");
    text.push_back(kMeanings[known]);
    at_ += 2;
    return true;
  }

  bool read_code_point(std::string& text) {
    const std::size_t begin = at_;
    std::optional<char32_t> code = read_hex();
    if (!code) return false;
    if (*code >= 0xD800 && *code < 0xDC00 && text_.substr(at_, 2) == "\\u") {
      const std::optional<char32_t> low = read_hex();
      if (!low) return false;
      if (*low < 0xDC00 || *low > 0xDFFF) return fail(begin, "expected the second half of a surrogate pair");
      code = 0x10000 + ((*code - 0xD800) << 10U) + (*low - 0xDC00);
    }
    if (*code >= 0xD800 && *code <= 0xDFFF) return fail(begin, "half of a surrogate pair");
    append_utf8(*code, text);
    return true;
  }

  /// The four digits of `\uXXXX`; the text is at the backslash.
  std::optional<char32_t> read_hex() {
    constexpr std::string_view kDigits = "0123456789abcdef";
    char32_t code = 0;
    for (std::size_t i = at_ + 2; i < at_ + 6; ++i) {
      const char c = i < text_.size() ? text_[i] : '\0';
      const std::size_t value = c == '\0' ? std::string_view::npos : kDigits.find(static_cast<char>(c | 0x20));
      if (value == std::string_view::npos) {
        fail(at_, "expected four hexadecimal digits after \\u");
        return std::nullopt;
      }
      code = code * 16 + static_cast<char32_t>(value);
    }
    at_ += 6;
    return code;
  }

  bool read_literal(Node& node) {
    constexpr std::string_view kEnds = " \t\n\r,]}:";
    const std::size_t begin = at_;
    const std::size_t end = std::min(text_.find_first_of(kEnds, begin), text_.size());
    const std::string_view word = text_.substr(begin, end - begin);
    node.place = place(begin, end);
    at_ = end;
    if (word == "null") return true;
    node.kind = Kind::Scalar;
    node.text = word;
    if (word == "true" || word == "false" || is_number(word)) return true;
    if (word == "NaN" || word == "Infinity" || word == "-Infinity") {
      if (!not_json_) not_json_ = node.place;
      return true;
    }
    return fail(begin, expected_value(word));
  }

  static std::string expected_value(std::string_view word) {
    if (word.starts_with('\'')) return "expected double quotes";
    if (word.starts_with("//") || word.starts_with('#')) return "expected a value: JSON has no comments";
    if (!word.empty() && (is_digit(word[0]) || word[0] == '-' || word[0] == '+' || word[0] == '.'))
      return "expected a number such as 8 or 1.5e-4";
    return word.empty() ? "expected a value" : "expected a value: text needs double quotes";
  }

  static bool is_number(std::string_view word) {
    std::size_t at = 0;
    const auto digits = [&] {
      const std::size_t begin = at;
      while (at < word.size() && is_digit(word[at])) ++at;
      return at - begin;
    };
    if (at < word.size() && word[at] == '-') ++at;
    const bool zero = at < word.size() && word[at] == '0';
    const std::size_t whole = digits();
    if (whole == 0 || (zero && whole > 1)) return false;
    if (at < word.size() && word[at] == '.') {
      ++at;
      if (digits() == 0) return false;
    }
    if (at < word.size() && (word[at] == 'e' || word[at] == 'E')) {
      ++at;
      if (at < word.size() && (word[at] == '+' || word[at] == '-')) ++at;
      if (digits() == 0) return false;
    }
    return at == word.size();
  }

  std::string_view text_;
  std::uint32_t source_;
  Diagnostics& out_;
  std::size_t at_ = 0;
  std::size_t nodes_ = 0;
  std::optional<Place> not_json_{};
};

}  // namespace

std::optional<JsonText> read_json(const Source& source, std::uint32_t index, Diagnostics& out) {
  return JsonReader(source.text, index, out).read();
}

}  // namespace gtp::readers
