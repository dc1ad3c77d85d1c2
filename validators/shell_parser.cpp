#include <algorithm>
#include <array>
#include <utility>

#include <gtp/rules/form.hpp>

#include "validators/env_file.hpp"
#include "validators/shell_lexer.hpp"
#include "validators/shell_script.hpp"

namespace gtp::readers::shell {

namespace {

using Names = std::initializer_list<std::string_view>;

bool is_one_of(std::string_view name, Names names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Commands whose arguments may be assignments.
bool declares(const std::vector<Word>& words) {
  if (words.empty()) return false;
  const std::string name = words.front().literal().value_or("");
  return is_one_of(name, {"export", "declare", "typeset", "local", "readonly"});
}

class Parser {
 public:
  Parser(Lexer lexer, Diagnostics& out) : lexer_(std::move(lexer)), out_(out) {}

  std::optional<List> parse() {
    List list;
    while (!lexer_.ended() && !failed_) {
      parse_list(list, {});
      if (!lexer_.ended()) lexer_.advance(std::max<std::size_t>(1, lexer_.peek_name().size()));  // a stray `fi` or `)`
    }
    if (lexer_.open_quote() && !failed_) fail(*lexer_.open_quote(), "this quote has no end");
    if (failed_) return std::nullopt;
    return list;
  }

 private:
  void fail(Place place, std::string label) {
    if (!failed_) out_.push_back(rules::at_place(rules::kUnreadable, "", place, std::move(label)));
    failed_ = true;
  }

  /// One level deeper for as long as it lives.
  struct Level {
    explicit Level(Parser& p) : parser(p) {
      if (++parser.depth_ > kMaxNesting) parser.fail(parser.here(), "nested too deep");
    }
    ~Level() { --parser.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    Parser& parser;
  };

  [[nodiscard]] Place here() const { return lexer_.place(lexer_.at(), lexer_.at() + (lexer_.ended() ? 0 : 1)); }

  bool take_name(std::string_view name) { return lexer_.peek_name() == name && lexer_.take(name); }

  /// Up to one of the reserved words, `)`, `}` or `;;`, which stay; or up to the end.
  void parse_list(List& list, Names ends) {
    const Level level(*this);
    Item::Join join = Item::Join::Always;
    bool piped = false;
    while (!failed_) {
      lexer_.skip_lines();
      if (lexer_.ended() || lexer_.next_is(")") || lexer_.next_is(";;") || lexer_.next_is(";&")) return;
      const std::string_view name = lexer_.peek_name();
      if (is_one_of(name, ends) || is_one_of(name, {"then", "elif", "else", "fi", "do", "done", "esac", "}"})) return;
      const std::size_t before = lexer_.at();
      Item& item = list.emplace_back();
      item.join = join;
      item.negated = take_name("!");
      lexer_.skip_blanks();
      parse_command(item.command);
      lexer_.skip_blanks();
      join = Item::Join::Always;
      const bool pipe_before = std::exchange(piped, false);
      if (lexer_.take("&&"))
        join = Item::Join::And;
      else if (lexer_.take("||"))
        join = Item::Join::Or;
      else if (lexer_.take("|&") || lexer_.take("|"))
        piped = true;
      else if (!lexer_.next_is(";;") && !lexer_.next_is(";&") && !lexer_.take(";"))
        lexer_.take("&");
      list.back().piped = pipe_before || piped;
      if (lexer_.at() == before) lexer_.advance(1);
    }
  }

  void parse_command(Command& command) {
    const Level level(*this);
    if (failed_) return;
    command.place = here();
    const std::string_view name = lexer_.peek_name();
    if (lexer_.next_is("((")) {
      command.kind = Command::Kind::Arithmetic;
      command.name = lexer_.read_arithmetic();
    } else if (lexer_.take("(")) {
      command.kind = Command::Kind::Subshell;
      parse_list(command.body, {});
      lexer_.take(")");
    } else if (name == "{") {
      parse_group(command);
    } else if (name == "if") {
      parse_if(command);
    } else if (is_one_of(name, {"for", "while", "until", "select"})) {
      parse_loop(command, name);
    } else if (name == "case") {
      parse_case(command);
    } else if (!parse_function(command, name)) {
      parse_simple(command);
    }
    if (command.kind != Command::Kind::Simple)
      for (lexer_.skip_blanks(); lexer_.skip_redirection(); lexer_.skip_blanks()) {
      }
  }

  void parse_group(Command& command) {
    command.kind = Command::Kind::Group;
    lexer_.take("{");
    parse_list(command.body, {"}"});
    lexer_.take("}");
  }

  void parse_if(Command& command) {
    command.kind = Command::Kind::If;
    for (bool more = take_name("if"); more; more = take_name("elif")) {
      Branch& branch = command.branches.emplace_back();
      parse_list(branch.condition, {"then"});
      take_name("then");
      parse_list(branch.body, {"elif", "else", "fi"});
    }
    if (take_name("else")) parse_list(command.branches.emplace_back().body, {"fi"});
    take_name("fi");
  }

  void parse_loop(Command& command, std::string_view kind) {
    command.kind = Command::Kind::Loop;
    lexer_.take(kind);
    Branch& branch = command.branches.emplace_back();
    if (is_one_of(kind, {"for", "select"})) {
      lexer_.skip_blanks();
      if (lexer_.next_is("(("))
        command.name = lexer_.read_arithmetic();
      else
        parse_loop_words(command);
      lexer_.skip_blanks();
      lexer_.take(";");
    } else {
      parse_list(branch.condition, {"do"});
    }
    lexer_.skip_lines();
    take_name("do");
    parse_list(branch.body, {"done"});
    take_name("done");
  }

  void parse_loop_words(Command& command) {
    command.name = lexer_.read_word().literal().value_or("");
    lexer_.skip_blanks();
    if (!take_name("in")) return;
    for (lexer_.skip_blanks(); !lexer_.ended() && !lexer_.next_is(";") && !lexer_.next_is("\n"); lexer_.skip_blanks()) {
      const std::size_t before = lexer_.at();
      command.words.push_back(lexer_.read_word());
      if (lexer_.at() == before) lexer_.advance(1);
    }
  }

  void parse_case(Command& command) {
    command.kind = Command::Kind::Case;
    take_name("case");
    lexer_.skip_blanks();
    command.subject = lexer_.read_word();
    lexer_.skip_lines();
    take_name("in");
    for (lexer_.skip_lines(); !lexer_.ended() && lexer_.peek_name() != "esac" && !failed_; lexer_.skip_lines()) {
      const std::size_t before = lexer_.at();
      Branch& branch = command.branches.emplace_back();
      lexer_.take("(");
      do {
        lexer_.skip_blanks();
        branch.patterns.push_back(lexer_.read_word());
        lexer_.skip_blanks();
      } while (lexer_.take("|"));
      lexer_.take(")");
      parse_list(branch.body, {"esac"});
      if (!lexer_.take(";;&") && !lexer_.take(";;")) lexer_.take(";&");
      if (lexer_.at() == before) lexer_.advance(1);
    }
    take_name("esac");
  }

  bool parse_function(Command& command, std::string_view name) {
    const std::size_t size = name == "function" ? name.size() : 0;
    if (size == 0) {
      if (name.empty() || !lexer_.rest().substr(name.size()).starts_with("()")) return false;
      command.name = name;
      lexer_.advance(name.size() + 2);
    } else {
      lexer_.advance(size);
      lexer_.skip_blanks();
      command.name = lexer_.peek_name();
      lexer_.advance(command.name.size());
      lexer_.take("()");
    }
    command.kind = Command::Kind::Function;
    lexer_.skip_lines();
    Command body;
    if (lexer_.next_is("{"))
      parse_group(body);
    else
      lexer_.take("(") && (parse_list(body.body, {}), lexer_.take(")"));
    command.body = std::move(body.body);
    return true;
  }

  void parse_simple(Command& command) {
    while (!lexer_.ended() && !failed_) {
      lexer_.skip_blanks();
      if (lexer_.ended() || std::string_view("\n;&|)").find(lexer_.rest()[0]) != std::string_view::npos) {
        if (!lexer_.next_is("&>")) break;
      }
      if (lexer_.rest().starts_with('#')) break;
      if (lexer_.skip_redirection()) continue;
      if ((command.words.empty() || declares(command.words)) && parse_assignment(command)) continue;
      const std::size_t before = lexer_.at();
      Word word = lexer_.read_word();
      if (lexer_.at() == before) return lexer_.advance(1);  // a `(` where none is expected
      command.words.push_back(std::move(word));
      if (command.words.size() == 1 && command.words[0].literal() == "[[") parse_conditional(command);
    }
    command.place.end = static_cast<std::uint32_t>(std::max<std::size_t>(command.place.begin, lexer_.at()));
  }

  /// Words up to `]]`; operators are words.
  void parse_conditional(Command& command) {
    for (lexer_.skip_lines(); !lexer_.ended(); lexer_.skip_lines()) {
      const std::size_t begin = lexer_.at();
      Word word = lexer_.read_word();
      if (lexer_.at() == begin) {
        lexer_.advance(lexer_.next_is("&&") || lexer_.next_is("||") ? 2 : 1);
        word.place = lexer_.place(begin, lexer_.at());
        word.parts = {{Part::Kind::Text, false, std::string(lexer_.text_from(begin)), word.place}};
      }
      const bool closed = word.literal() == "]]";
      command.words.push_back(std::move(word));
      if (closed) return;
    }
  }

  bool parse_assignment(Command& command) {
    const std::string_view rest = lexer_.rest();
    const std::size_t size = std::min(lexer_.peek_name().size(), rest.size());
    if (!is_variable_name(rest.substr(0, size))) return false;
    std::size_t after = size;
    if (rest.substr(after).starts_with('[')) {
      const std::size_t close = rest.find_first_of("]\n", after);
      if (close == std::string_view::npos || rest[close] != ']') return false;
      after = close + 1;
    }
    const bool append = rest.substr(after).starts_with("+=");
    if (!append && !rest.substr(after).starts_with('=')) return false;
    Assignment& assignment = command.assignments.emplace_back();
    assignment.name = rest.substr(0, size);
    assignment.append = append;
    assignment.is_element = after > size;
    lexer_.advance(after + (append ? 2 : 1));
    if (lexer_.take("("))
      parse_items(assignment);
    else
      assignment.value = lexer_.read_word();
    return true;
  }

  void parse_items(Assignment& assignment) {
    assignment.is_array = true;
    for (lexer_.skip_lines(); !lexer_.ended() && !lexer_.take(")"); lexer_.skip_lines()) {
      const std::size_t before = lexer_.at();
      Word word = lexer_.read_word();
      if (lexer_.at() == before)
        lexer_.advance(1);
      else
        assignment.items.push_back(std::move(word));
    }
  }

  Lexer lexer_;
  Diagnostics& out_;
  std::size_t depth_ = 0;
  bool failed_ = false;
};

}  // namespace

std::optional<List> parse_script(std::string_view text, std::uint32_t source, std::size_t begin, std::size_t end,
                                 Diagnostics& out) {
  return Parser(Lexer(text, source, begin, end), out).parse();
}

Word parse_fragment(std::string_view text, std::uint32_t source, std::size_t begin, std::size_t end, bool quoted) {
  return Lexer(text, source, begin, end).read_rest(quoted);
}

}  // namespace gtp::readers::shell
