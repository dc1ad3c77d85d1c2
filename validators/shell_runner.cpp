#include "validators/shell_runner.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "validators/env_file.hpp"
#include "validators/shell_merge.hpp"
#include "validators/shell_test.hpp"

namespace gtp::readers::shell {

namespace {

/// Functions that call functions.
constexpr std::size_t kMaxCalls = 16;

enum class Builtin { Declare, Unset, Read, Source, Eval, Exit, Return, Nothing, True, False, Test, Let };

constexpr std::array<std::pair<std::string_view, Builtin>, 39> kBuiltins{
    {{"export", Builtin::Declare}, {"declare", Builtin::Declare},  {"typeset", Builtin::Declare},
     {"local", Builtin::Declare},  {"readonly", Builtin::Declare}, {"unset", Builtin::Unset},
     {"read", Builtin::Read},      {"mapfile", Builtin::Read},     {"readarray", Builtin::Read},
     {"getopts", Builtin::Read},   {"source", Builtin::Source},    {".", Builtin::Source},
     {"eval", Builtin::Eval},      {"exit", Builtin::Exit},        {"return", Builtin::Return},
     {"echo", Builtin::Nothing},   {"printf", Builtin::Nothing},   {"cat", Builtin::Nothing},
     {"grep", Builtin::Nothing},   {"sed", Builtin::Nothing},      {"awk", Builtin::Nothing},
     {"set", Builtin::Nothing},    {"shift", Builtin::Nothing},    {"cd", Builtin::Nothing},
     {"mkdir", Builtin::Nothing},  {"rm", Builtin::Nothing},       {"cp", Builtin::Nothing},
     {"ls", Builtin::Nothing},     {"pip", Builtin::Nothing},      {"trap", Builtin::Nothing},
     {"module", Builtin::Nothing}, {"ulimit", Builtin::Nothing},   {":", Builtin::True},
     {"true", Builtin::True},      {"false", Builtin::False},      {"[", Builtin::Test},
     {"test", Builtin::Test},      {"[[", Builtin::Test},          {"let", Builtin::Let}}};

bool is_shell(std::string_view program) {
  program = program.substr(program.rfind('/') + 1);
  return program == "bash" || program == "sh";
}

/// `-c`, `-lc`: the next word is a script.
bool takes_script(std::string_view word) { return word.size() >= 2 && word[0] == '-' && word.ends_with('c'); }

class Runner {
 public:
  Runner(std::string_view text, Variables variables, const std::function<bool(std::span<const Field>)>& wanted)
      : text_(text), variables_(std::move(variables)), wanted_(wanted), expander_(text, variables_, budget_) {}

  Run run(const List& list) {
    run_list(list);
    const auto bodies = functions_;
    for (const auto& [name, body] : bodies)  // a function that only another file calls
      if (run_.started.empty() && !called_.contains(name)) run_list(*body);
    run_.complete = !budget_.empty();
    return std::move(run_);
  }

 private:
  using Status = std::optional<bool>;

  void run_list(const List& list) {
    for (const Item& item : list) {
      if (ended_ || !budget_.spend(sizeof(Item))) return;
      if (item.join == Item::Join::Always) {
        run_item(item);
        continue;
      }
      const bool runs_on = item.join == Item::Join::And;
      if (!status_)
        run_perhaps([&] { run_item(item); });
      else if (*status_ == runs_on)
        run_item(item);
    }
  }

  void run_item(const Item& item) {
    if (item.piped) {
      const Variables before = copy();
      run_command(item.command);
      variables_ = before;
      status_.reset();
    } else {
      run_command(item.command);
    }
    if (item.negated && status_) status_ = !*status_;
  }

  Variables copy() {
    constexpr std::size_t kBytesOfOne = 64;
    budget_.spend(variables_.size() * kBytesOfOne);
    return variables_;
  }

  /// One way: what is true after it, unless it ends the script.
  template <class Body>
  void run_way(std::vector<Variables>& ways, Body&& body) {
    ++conditions_;
    body();
    --conditions_;
    if (!std::exchange(ended_, false)) ways.push_back(copy());
  }

  void join(std::vector<Variables>& ways) {
    ended_ = ways.empty();
    if (!ways.empty()) variables_ = merge(ways, next_condition_, budget_);
    status_.reset();
  }

  template <class Body>
  void run_perhaps(Body&& body) {
    std::vector<Variables> ways{copy()};
    run_way(ways, body);
    join(ways);
  }

  void run_command(const Command& command) {
    switch (command.kind) {
      case Command::Kind::Simple:
        return run_simple(command);
      case Command::Kind::Group:
        return run_list(command.body);
      case Command::Kind::Subshell: {
        const Variables before = copy();
        run_list(command.body);
        variables_ = before;
        ended_ = false;
        return;
      }
      case Command::Kind::If:
        return run_if(command);
      case Command::Kind::Loop:
        return run_loop(command);
      case Command::Kind::Case:
        return run_case(command);
      case Command::Kind::Function:
        functions_.insert_or_assign(command.name, &command.body);
        return;
      case Command::Kind::Arithmetic:
        status_.reset();
        return change_in(command.name);
    }
  }

  void run_if(const Command& command) {
    std::vector<Variables> ways;
    for (const Branch& branch : command.branches) {
      status_ = true;
      if (!branch.condition.empty()) run_list(branch.condition);
      if (ended_) break;
      const Status taken = status_;
      if (taken && !*taken) continue;
      if (taken && ways.empty()) return run_list(branch.body);
      const Variables before = copy();
      run_way(ways, [&] { run_list(branch.body); });
      if (taken) return join(ways);
      variables_ = before;
    }
    if (!ended_) ways.push_back(copy());
    join(ways);
  }

  void run_loop(const Command& command) {
    std::vector<Variables> ways{copy()};
    run_way(ways, [&] {
      if (is_variable_name(command.name))
        forget(command.name);
      else
        change_in(command.name);
      run_list(command.branches.front().condition);
      run_list(command.branches.front().body);
    });
    join(ways);
  }

  void run_case(const Command& command) {
    const std::optional<std::string> subject = expander_.plain_text(command.subject);
    const Variables before = copy();
    std::vector<Variables> ways;
    for (const Branch& branch : command.branches) {
      const Status taken = matches(subject, branch.patterns);
      if (taken && !*taken) continue;
      variables_ = before;
      if (taken && ways.empty()) return run_list(branch.body);
      run_way(ways, [&] { run_list(branch.body); });
      if (taken) return join(ways);
    }
    ways.push_back(before);
    join(ways);
  }

  static Status matches(const std::optional<std::string>& subject, const std::vector<Word>& patterns) {
    Status any = false;
    for (const Word& word : patterns) {
      const std::optional<std::string> pattern = word.literal();
      if (pattern == "*" || (subject && pattern == subject)) return true;
      const bool plain = pattern && pattern->find_first_of("*?[") == std::string::npos;
      if (!subject || !plain) any.reset();
    }
    return any;
  }

  void set(const std::string& name, Value value) {
    const auto before = variables_.find(name);
    value.exported = value.exported || (before != variables_.end() && before->second->exported);
    variables_.insert_or_assign(name, std::make_shared<const Value>(std::move(value)));
  }

  void forget(const std::string& name) {
    Value value;
    value.known = false;
    set(name, std::move(value));
  }

  /// Names that an arithmetic command assigns to.
  void change_in(std::string_view expression) {
    for (std::size_t at = 0; at < expression.size();) {
      std::size_t end = at;
      while (end < expression.size() && is_variable_name(expression.substr(at, 1)) &&
             (is_variable_name(expression.substr(end, 1)) || (expression[end] >= '0' && expression[end] <= '9')))
        ++end;
      if (end > at) forget(std::string(expression.substr(at, end - at)));
      at = std::max(end, at + 1);
    }
  }

  void assign(const Assignment& assignment, bool exported) {
    if (assignment.is_element) return forget(assignment.name);
    const auto before = variables_.find(assignment.name);
    const Value* earlier = before == variables_.end() ? nullptr : before->second.get();
    Value value;
    if (assignment.is_array) {
      value.array = true;
      value.elements = expander_.items(assignment.items);
    } else {
      value = expander_.value(assignment.value);
    }
    if (assignment.append && earlier != nullptr) value = appended(*earlier, std::move(value));
    value.exported = exported;
    set(assignment.name, std::move(value));
  }

  Value appended(Value whole, Value more) {
    if (!whole.known) return whole;
    if (!budget_.spend(whole.elements.size() * sizeof(Element))) return whole;
    if (whole.array || more.array || whole.elements.empty()) {
      std::move(more.elements.begin(), more.elements.end(), std::back_inserter(whole.elements));
      whole.array = true;
      return whole;
    }
    if (more.elements.empty()) return whole;
    auto& chunks = whole.elements.front().chunks;
    auto& added = more.elements.front().chunks;
    std::move(added.begin(), added.end(), std::back_inserter(chunks));
    std::move(more.elements.begin() + 1, more.elements.end(), std::back_inserter(whole.elements));
    return whole;
  }

  void run_simple(const Command& command) {
    status_.reset();
    if (command.words.empty()) {
      for (const Assignment& assignment : command.assignments) assign(assignment, false);
      status_ = true;
      return;
    }
    const std::string name = command.words.front().literal().value_or("");
    const auto* builtin =
        std::find_if(kBuiltins.begin(), kBuiltins.end(), [&](const auto& row) { return row.first == name; });
    if (builtin != kBuiltins.end()) return run_builtin(builtin->second, command);
    if (const auto function = functions_.find(name); function != functions_.end()) return call(*function);
    consider(command);
  }

  void call(const std::pair<const std::string, const List*>& function) {
    called_.insert(function.first);
    if (calls_ >= kMaxCalls) return;
    ++calls_;
    run_list(*function.second);
    --calls_;
    if (std::exchange(returned_, false)) ended_ = false;
    status_.reset();
  }

  void run_builtin(Builtin builtin, const Command& command) {
    switch (builtin) {
      case Builtin::Declare:
        return declare(command);
      case Builtin::Unset:
        for (const Word& word : command.words) variables_.erase(word.literal().value_or(""));
        return;
      case Builtin::Read:
        for (const Word& word : command.words)
          if (const auto name = word.literal(); name && is_variable_name(*name)) forget(*name);
        return;
      case Builtin::Source:
        return add_opaque(command);
      case Builtin::Eval:
        return evaluate(command);
      case Builtin::Return:
        returned_ = calls_ > 0;
        ended_ = true;
        return;
      case Builtin::Exit:
        ended_ = true;
        return;
      case Builtin::Nothing:
        return;
      case Builtin::True:
        for (const Word& word : command.words) static_cast<void>(expander_.value(word));
        status_ = true;
        return;
      case Builtin::False:
        status_ = false;
        return;
      case Builtin::Test:
        status_ = test(command);
        return;
      case Builtin::Let:
        for (std::size_t i = 1; i < command.words.size(); ++i) change_in(command.words[i].literal().value_or(""));
        return;
    }
  }

  void declare(const Command& command) {
    bool exported = command.words.front().literal() == "export";
    for (const Word& word : command.words) {
      const std::string text = word.literal().value_or("");
      if (text.starts_with('-') && text.find('x') != std::string::npos) exported = true;
      const auto known = exported ? variables_.find(text) : variables_.end();
      if (known == variables_.end()) continue;
      Value value = *known->second;
      value.exported = true;
      set(text, std::move(value));
    }
    for (const Assignment& assignment : command.assignments) assign(assignment, exported);
    status_ = true;
  }

  void add_opaque(const Command& command) {
    std::string what;
    for (const Word& word : command.words)
      what +=
          (what.empty() ? "" : " ") + std::string(text_.substr(word.place.begin, word.place.end - word.place.begin));
    run_.opaque.push_back({command.place, std::move(what)});
  }

  /// The words of a test, all known; `[[` takes each as one.
  Status test(const Command& command) {
    const bool conditional = command.words.front().literal() == "[[";
    std::vector<std::string> words;
    for (std::size_t i = 1; i < command.words.size(); ++i)
      for (Field& field : expander_.fields(command.words[i], conditional ? Splitting::None : Splitting::Shell)) {
        if (!field.known || field.condition != 0) return std::nullopt;
        words.push_back(std::move(field.text));
      }
    if (!words.empty() && (words.back() == "]" || words.back() == "]]")) words.pop_back();
    return evaluate_test(words);
  }

  void evaluate(const Command& command) {
    std::vector<Field> fields = prefix_;
    for (std::size_t i = 1; i < command.words.size(); ++i) append(fields, command.words[i], Splitting::All);
    start(std::move(fields), command);
  }

  void append(std::vector<Field>& fields, const Word& word, Splitting splitting) {
    std::vector<Field> found = expander_.fields(word, splitting);
    budget_.spend(found.size() * sizeof(Field));
    std::move(found.begin(), found.end(), std::back_inserter(fields));
  }

  /// A command of which nothing is known but its words.
  void consider(const Command& command) {
    std::vector<Field> fields = prefix_;
    for (std::size_t i = 0; i < command.words.size() && !budget_.empty(); ++i) {
      append(fields, command.words[i], Splitting::Shell);
      const bool script = fields.size() >= 2 && takes_script(fields.back().text) &&
                          is_shell(fields[fields.size() - 2].text) && i + 1 < command.words.size();
      if (!script) continue;
      const Word& inner = command.words[i + 1];
      if (inner.parts.size() == 1 && inner.parts[0].exact()) return run_inner(inner.parts[0], std::move(fields));
      append(fields, inner, Splitting::All);
      break;
    }
    start(std::move(fields), command);
  }

  /// `bash -c '...'`, whose words stand in this script.
  void run_inner(const Part& part, std::vector<Field> prefix) {
    if (calls_ >= kMaxCalls || !budget_.spend(part.text.size())) return;
    Diagnostics ignored;
    auto list = parse_script(text_, part.place.source, part.place.begin, part.place.end, ignored);
    if (!list) return;
    inner_.push_back(*std::move(list));
    ++calls_;
    const Variables before = copy();
    std::swap(prefix_, prefix);
    run_list(inner_.back());
    std::swap(prefix_, prefix);
    variables_ = before;
    ended_ = false;
    --calls_;
  }

  void start(std::vector<Field> fields, const Command& command) {
    if (fields.empty() || budget_.empty() || !wanted_(fields)) return;
    Started& started = run_.started.emplace_back();
    started.fields = std::move(fields);
    started.place = command.place;
    started.variables = copy();
    started.conditional = conditions_ > 0;
    for (const Assignment& assignment : command.assignments)
      if (const auto text = expander_.plain_text(assignment.value))
        started.set.push_back({assignment.name, *text, assignment.value.place});
  }

  std::string_view text_;
  Variables variables_;
  const std::function<bool(std::span<const Field>)>& wanted_;
  Budget budget_{};
  Expander expander_;
  Run run_{};
  std::map<std::string, const List*> functions_{};
  std::set<std::string> called_{};
  std::deque<List> inner_{};
  std::vector<Field> prefix_{};  ///< words before the shell that a command runs in
  Status status_{};
  std::size_t next_condition_ = 1;
  std::size_t conditions_ = 0;
  std::size_t calls_ = 0;
  bool ended_ = false;
  bool returned_ = false;
};

}  // namespace

Run run_script(std::string_view text, const List& list, Variables variables,
               const std::function<bool(std::span<const Field>)>& wanted) {
  return Runner(text, std::move(variables), wanted).run(list);
}

}  // namespace gtp::readers::shell
