#include "validators/shell_lexer.hpp"

#include <algorithm>
#include <utility>

namespace gtp::readers::shell {

namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\f'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool ends_word(char c) { return is_blank(c) || std::string_view("\n;&|()<>").find(c) != std::string_view::npos; }

}  // namespace

Place Lexer::place(std::size_t begin, std::size_t end) const {
  return {source_, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
}

bool Lexer::take(std::string_view token) {
  if (!next_is(token)) return false;
  at_ += token.size();
  return true;
}

void Lexer::skip_blanks() {
  while (!ended()) {
    if (is_blank(text_[at_]))
      ++at_;
    else if (next_is("\\\n"))
      at_ += 2;
    else if (next_is("\\\r\n"))
      at_ += 3;
    else
      return;
  }
}

void Lexer::skip_lines() {
  for (skip_blanks(); !ended(); skip_blanks()) {
    if (text_[at_] == '#')
      at_ = std::min(text_.find('\n', at_), text_.size());
    else if (text_[at_] == '\n')
      line_end();
    else
      return;
  }
}

/// Past the line end, and past the here-documents that begin after it.
void Lexer::line_end() {
  ++at_;
  for (const auto& [mark, tabs] : std::exchange(here_documents_, {})) {
    while (!ended()) {
      const std::size_t end = std::min(text_.find('\n', at_), text_.size());
      std::string_view line = text_.substr(at_, end - at_);
      at_ = std::min(end + 1, text_.size());
      if (tabs) line.remove_prefix(std::min(line.find_first_not_of('\t'), line.size()));
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line == mark) break;
    }
  }
}

bool Lexer::skip_redirection() {
  std::size_t at = at_;
  while (at < text_.size() && is_digit(text_[at])) ++at;
  const bool both = text_.substr(at, 2) == "&>";
  if (both) ++at;
  if (at >= text_.size() || (text_[at] != '<' && text_[at] != '>')) return false;
  const bool here = text_.substr(at, 2) == "<<" && text_.substr(at, 3) != "<<<";
  if (!here && text_.substr(at + 1, 1) == "(") return false;
  const bool tabs = here && text_.substr(at + 2, 1) == "-";
  at_ = at;
  while (!ended() && std::string_view("<>&|").find(text_[at_]) != std::string_view::npos) ++at_;
  if (tabs) ++at_;
  skip_blanks();
  const Word target = read_word();
  if (here) here_documents_.emplace_back(target.literal().value_or(""), tabs);
  return true;
}

/// `joins`: the character stands in the text as it is, so that it can go into the same part as the one before.
void Lexer::append(Word& word, char c, std::size_t begin, bool quoted, bool joins) {
  const bool fits = joins && !word.parts.empty() && word.parts.back().kind == Part::Kind::Text &&
                    word.parts.back().quoted == quoted && word.parts.back().place.end == begin;
  if (!fits) word.parts.push_back({Part::Kind::Text, quoted, {}, place(begin, begin)});
  word.parts.back().text.push_back(c);
  word.parts.back().place.end = static_cast<std::uint32_t>(at_);
}

void Lexer::read_escape(Word& word, bool quoted) {
  const std::size_t begin = at_++;
  if (ended()) return;
  const char c = text_[at_];
  if (c == '\n') {
    ++at_;
    return;
  }
  const bool kept = quoted && std::string_view("\"\\$`").find(c) == std::string_view::npos;
  if (kept) return append(word, '\\', begin, quoted, true);
  ++at_;
  append(word, c, begin + 1, quoted, false);
}

void Lexer::read_single_quotes(Word& word) {
  const std::size_t begin = ++at_;
  const std::size_t end = text_.find('\'', begin);
  if (end == std::string_view::npos) {
    if (!open_quote_) open_quote_ = place(begin - 1, begin);
    at_ = text_.size();
    return;
  }
  word.parts.push_back({Part::Kind::Text, true, std::string(text_.substr(begin, end - begin)), place(begin, end)});
  at_ = end + 1;
}

void Lexer::read_double_quotes(Word& word) {
  const std::size_t begin = at_++;
  const std::size_t parts = word.parts.size();
  while (!ended() && text_[at_] != '"') {
    const char c = text_[at_];
    if (c == '\\')
      read_escape(word, true);
    else if (c == '$' || c == '`')
      read_dollar(word, true);
    else {
      ++at_;
      append(word, c, at_ - 1, true, true);
    }
  }
  if (ended() && !open_quote_) open_quote_ = place(begin, begin + 1);
  if (word.parts.size() == parts) word.parts.push_back({Part::Kind::Text, true, {}, place(begin + 1, begin + 1)});
  advance(1);
}

/// The end of what `open` began just before `from`: past quotes, and past `open` again.
std::size_t Lexer::find_close(std::size_t from, char open, char close) const {
  std::size_t depth = 1;
  for (std::size_t i = from; i < text_.size(); ++i) {
    if (text_[i] == '\\') {
      ++i;
    } else if (text_[i] == '\'' || text_[i] == '"') {
      const std::size_t end = text_.find(text_[i], i + 1);
      if (end != std::string_view::npos) i = end;
    } else if (text_[i] == open) {
      ++depth;
    } else if (text_[i] == close && --depth == 0) {
      return i;
    }
  }
  return text_.size();
}

void Lexer::add_part(Word& word, Part::Kind kind, std::string_view inner, std::size_t begin, bool quoted) {
  word.parts.push_back({kind, quoted, std::string(inner), place(begin, std::min(at_, text_.size()))});
}

/// `$...` or a backquote.
void Lexer::read_dollar(Word& word, bool quoted) {
  const std::size_t begin = at_;
  const auto bracketed = [&](Part::Kind kind, std::size_t opening, char open, char close, std::size_t closing) {
    const std::size_t end = find_close(at_ + opening, open, close);
    const std::string_view inner = text_.substr(begin + opening, end - begin - opening);
    at_ = std::min(end + closing, text_.size());
    add_part(word, kind, inner, begin, quoted);
  };
  if (text_[at_] == '`') {
    const std::size_t end = std::min(text_.find('`', at_ + 1), text_.size());
    at_ = std::min(end + 1, text_.size());
    return add_part(word, Part::Kind::Substitution, text_.substr(begin + 1, end - begin - 1), begin, quoted);
  }
  if (next_is("$((")) return bracketed(Part::Kind::Arithmetic, 3, '(', ')', 2);
  if (next_is("$(")) return bracketed(Part::Kind::Substitution, 2, '(', ')', 1);
  if (next_is("${")) return bracketed(Part::Kind::Parameter, 2, '{', '}', 1);
  std::size_t end = at_ + 1;
  if (end < text_.size() && is_letter(text_[end]))
    while (end < text_.size() && (is_letter(text_[end]) || is_digit(text_[end]))) ++end;
  else if (end < text_.size() && (is_digit(text_[end]) || std::string_view("@*#?$!-").find(text_[end]) < 7))
    ++end;
  at_ = end;
  if (end == begin + 1) return append(word, '$', begin, quoted, true);
  add_part(word, Part::Kind::Parameter, text_.substr(begin + 1, end - begin - 1), begin, quoted);
}

Word Lexer::read_word(std::string_view closing) {
  Word word;
  const std::size_t begin = at_;
  while (!ended()) {
    const char c = text_[at_];
    const bool process = (c == '<' || c == '>') && text_.substr(at_ + 1, 1) == "(";
    if (process) {
      const std::size_t from = at_;
      at_ = std::min(find_close(at_ + 2, '(', ')') + 1, text_.size());
      add_part(word, Part::Kind::Substitution, text_.substr(from, at_ - from), from, false);
      continue;
    }
    if (ends_word(c) || (!closing.empty() && closing.find(c) != std::string_view::npos)) break;
    if (c == '\'')
      read_single_quotes(word);
    else if (c == '"' || next_is("$\""))
      at_ += c == '$' ? 1U : 0U, read_double_quotes(word);
    else if (next_is("$'"))
      ++at_, read_single_quotes(word);
    else if (c == '\\')
      read_escape(word, false);
    else if (c == '$' || c == '`')
      read_dollar(word, false);
    else {
      ++at_;
      append(word, c, at_ - 1, false, true);
    }
  }
  word.place = place(begin, at_);
  return word;
}

Word Lexer::read_rest(bool quoted) {
  Word word;
  const std::size_t begin = at_;
  while (!ended()) {
    const char c = text_[at_];
    if (c == '\'' && !quoted)
      read_single_quotes(word);
    else if (c == '"')
      read_double_quotes(word);
    else if (c == '\\')
      read_escape(word, quoted);
    else if (c == '$' || c == '`')
      read_dollar(word, quoted);
    else {
      ++at_;
      append(word, c, at_ - 1, quoted, true);
    }
  }
  word.place = place(begin, at_);
  return word;
}

std::string_view Lexer::peek_name() const {
  std::size_t end = at_;
  while (end < text_.size() && !ends_word(text_[end]) && text_[end] != '=' && text_[end] != '+' && text_[end] != '[')
    ++end;
  return text_.substr(at_, end - at_);
}

std::string_view Lexer::read_arithmetic() {
  const std::size_t begin = at_ + 2;
  const std::size_t end = find_close(begin, '(', ')');
  at_ = std::min(end + 2, text_.size());
  return text_.substr(begin, std::min(end, text_.size()) - begin);
}

}  // namespace gtp::readers::shell
