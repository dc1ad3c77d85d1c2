#include "validators/env_file.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace gtp::readers {

namespace {

constexpr std::string_view kBlanks = " \t\r\f";

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

/// A value's text and its bytes in the source, without quotes.
struct Unquoted {
  std::string text;
  std::size_t begin;
  std::size_t end;
};

/// One quoted value that starts at `at`. A double quote may be written `\"` in it. Nothing without its end.
std::optional<Unquoted> quoted_value(std::string_view text, std::size_t at) {
  const char quote = text[at];
  Unquoted value{{}, at + 1, at + 1};
  for (std::size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == quote) {
      value.end = i;
      return value;
    }
    if (quote == '"' && text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == '"' || text[i + 1] == '\\')) ++i;
    value.text.push_back(text[i]);
  }
  return std::nullopt;
}

class EnvReader {
 public:
  EnvReader(std::string_view text, std::uint32_t source, Diagnostics& out) : text_(text), source_(source), out_(out) {
    if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
  }

  std::vector<Variable> read() {
    std::vector<Variable> variables;
    for (; at_ < text_.size(); at_ = std::min(line_end() + 1, text_.size())) {
      skip_blanks();
      if (at_ >= line_end() || text_[at_] == '#') continue;
      if (full(out_)) {
        report_rest(out_);
        return variables;
      }
      if (auto variable = read_line()) variables.push_back(*std::move(variable));
    }
    return variables;
  }

 private:
  [[nodiscard]] std::size_t line_end() const { return std::min(text_.find('\n', at_), text_.size()); }

  [[nodiscard]] Place place(std::size_t begin, std::size_t end) const {
    return {source_, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
  }

  void skip_blanks() {
    while (at_ < text_.size() && kBlanks.find(text_[at_]) != std::string_view::npos) ++at_;
  }

  std::optional<Variable> not_understood(std::size_t begin, const char* label) {
    std::size_t end = line_end();
    while (end > begin + 1 && kBlanks.find(text_[end - 1]) != std::string_view::npos) --end;
    out_.push_back(rules::at_place(rules::kNotUnderstood, "", place(begin, end), label));
    return std::nullopt;
  }

  std::optional<Variable> read_line() {
    const std::size_t begin = at_;
    if (text_.substr(at_).starts_with("export ")) {
      at_ += 7;
      skip_blanks();
    }
    const std::size_t equals = text_.substr(0, line_end()).find('=', at_);
    if (equals == std::string_view::npos) return not_understood(begin, "no `NAME=value`");
    const std::string_view name = text_.substr(at_, equals - at_);
    if (!is_variable_name(name)) return not_understood(begin, "no variable's name before `=`");
    at_ = equals + 1;
    return value_of(std::string(name), begin);
  }

  std::optional<Variable> value_of(std::string name, std::size_t line_begin) {
    if (at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\'')) {
      auto value = quoted_value(text_, at_);
      if (!value) return not_understood(line_begin, "a quote without an end");
      at_ = value->end;
      return Variable{std::move(name), std::move(value->text), place(value->begin, value->end)};
    }
    std::size_t end = line_end();
    const std::size_t comment = text_.substr(0, end).find(" #", at_);
    end = std::min(comment, end);
    while (end > at_ && kBlanks.find(text_[end - 1]) != std::string_view::npos) --end;
    return Variable{std::move(name), std::string(text_.substr(at_, end - at_)), place(at_, end)};
  }

  std::string_view text_;
  std::uint32_t source_;
  Diagnostics& out_;
  std::size_t at_ = 0;
};

}  // namespace

bool is_variable_name(std::string_view name) {
  if (name.empty() || !is_name_start(name[0])) return false;
  return std::all_of(name.begin(), name.end(), [](char c) { return is_name_start(c) || (c >= '0' && c <= '9'); });
}

std::vector<Variable> read_env_file(const Source& source, std::uint32_t index, Diagnostics& out) {
  return EnvReader(source.text, index, out).read();
}

}  // namespace gtp::readers
