// A shell script as a tree: what its words are made of and which commands stand under which condition. Only the
// parts of the language that launch scripts use; the rest is skipped. Nothing is ever run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtp/diagnostic.hpp>
#include <gtp/place.hpp>

namespace gtp::readers::shell {

/// A piece of a word.
struct Part {
  enum class Kind : std::uint8_t {
    Text,
    Parameter,     ///< `$NAME` or `${...}`; `text` is what stands inside
    Arithmetic,    ///< `$((...))`; `text` is the expression
    Substitution,  ///< `$(...)`, backquotes, `<(...)`
  } kind = Kind::Text;
  bool quoted = false;
  std::string text{};
  Place place{};

  /// Whether the place holds exactly the text.
  [[nodiscard]] bool exact() const { return kind == Kind::Text && place.end - place.begin == text.size(); }
};

struct Word {
  std::vector<Part> parts{};
  Place place{};

  /// The text of a word that nothing has to be expanded in.
  [[nodiscard]] std::optional<std::string> literal() const {
    std::string text;
    for (const Part& part : parts) {
      if (part.kind != Part::Kind::Text) return std::nullopt;
      text += part.text;
    }
    return text;
  }
};

struct Assignment {
  std::string name{};
  bool append = false;      ///< `NAME+=`
  bool is_array = false;    ///< `NAME=( ... )`
  bool is_element = false;  ///< `NAME[i]=`
  Word value{};
  std::vector<Word> items{};
};

struct Item;
using List = std::vector<Item>;

/// `if`/`elif` condition and body, `case` patterns and body.
struct Branch {
  List condition;  // without an initializer: clang would need Item to be complete here
  std::vector<Word> patterns{};
  List body;
};

struct Command {
  enum class Kind : std::uint8_t { Simple, Group, Subshell, If, Loop, Case, Function, Arithmetic } kind = Kind::Simple;
  Place place{};
  std::vector<Assignment> assignments{};  ///< before the words, or arguments of `export` and its like
  std::vector<Word> words{};
  std::vector<Branch> branches;  ///< If: one without condition is `else`. Loop: one. Case: one a pattern list.
  List body;                     ///< of Group, Subshell and Function
  std::string name{};            ///< of a function or a loop's variable; the text of Arithmetic
  Word subject{};                ///< of Case
};

/// A command of a list and what it depends on.
struct Item {
  enum class Join : std::uint8_t { Always, And, Or } join = Join::Always;
  bool piped = false;    ///< part of a pipeline, which runs in a subshell
  bool negated = false;  ///< after `!`
  Command command{};
};

/// Deeper nesting is refused, so that nothing runs out of stack.
inline constexpr std::size_t kMaxNesting = 64;

/// Parses bytes `begin` to `end` of a script. Nothing, and one `kUnreadable`, at a quote without an end or
/// too deep nesting.
[[nodiscard]] std::optional<List> parse_script(std::string_view text, std::uint32_t source, std::size_t begin,
                                               std::size_t end, Diagnostics& out);

/// Bytes `begin` to `end` as one word: what stands after `:-` in `${NAME:-...}`.
[[nodiscard]] Word parse_fragment(std::string_view text, std::uint32_t source, std::size_t begin, std::size_t end,
                                  bool quoted);

}  // namespace gtp::readers::shell
