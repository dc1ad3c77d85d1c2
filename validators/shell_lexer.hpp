// Words of a shell script: quotes, escapes, expansions, comments and here-documents. Private to the parser.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "validators/shell_script.hpp"

namespace gtp::readers::shell {

class Lexer {
 public:
  Lexer(std::string_view text, std::uint32_t source, std::size_t begin, std::size_t end)
      : text_(text.substr(0, end)), source_(source), at_(begin) {}

  [[nodiscard]] bool ended() const { return at_ >= text_.size(); }
  [[nodiscard]] std::size_t at() const { return at_; }
  [[nodiscard]] std::string_view rest() const { return text_.substr(std::min(at_, text_.size())); }
  /// From `begin` to where it stands.
  [[nodiscard]] std::string_view text_from(std::size_t begin) const { return text_.substr(begin, at_ - begin); }
  [[nodiscard]] bool next_is(std::string_view token) const { return rest().starts_with(token); }
  /// Takes the token if it comes next.
  bool take(std::string_view token);
  void advance(std::size_t bytes) { at_ = std::min(at_ + bytes, text_.size()); }
  [[nodiscard]] Place place(std::size_t begin, std::size_t end) const;

  /// Blanks and continued lines.
  void skip_blanks();
  /// Blanks, comments and line ends, here-documents after them included.
  void skip_lines();
  /// Redirections; true if there was one.
  bool skip_redirection();
  /// The word that comes next; empty if none does. `closing` ends it as well.
  [[nodiscard]] Word read_word(std::string_view closing = {});
  /// All that is left, as one word.
  [[nodiscard]] Word read_rest(bool quoted);
  /// The reserved word or name that comes next, not taken.
  [[nodiscard]] std::string_view peek_name() const;
  /// Up to the end of `((...))`, which starts here; its expression.
  [[nodiscard]] std::string_view read_arithmetic();
  /// Where a quote without an end begins.
  [[nodiscard]] const std::optional<Place>& open_quote() const { return open_quote_; }

 private:
  void line_end();
  void append(Word& word, char c, std::size_t begin, bool quoted, bool joins);
  void read_escape(Word& word, bool quoted);
  void read_single_quotes(Word& word);
  void read_double_quotes(Word& word);
  void read_dollar(Word& word, bool quoted);
  void add_part(Word& word, Part::Kind kind, std::string_view inner, std::size_t begin, bool quoted);
  std::size_t find_close(std::size_t from, char open, char close) const;

  std::string_view text_;
  std::uint32_t source_;
  std::size_t at_;
  std::vector<std::pair<std::string, bool>> here_documents_{};  // their ends; whether tabs before them count not
  std::optional<Place> open_quote_{};
};

}  // namespace gtp::readers::shell
