#include "tools/app.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <gtp/target.hpp>

#include "tools/commands.hpp"
#include "tools/file.hpp"
#include "tools/render.hpp"
#include "tools/suggest.hpp"

namespace gtp::cli {

namespace {

constexpr std::string_view kIntroduction =
    "gtplan plans and validates Generalized Tensor Parallelism (GTP) for Megatron training jobs.\n"
    "GTP is experimental upstream: every rule names the upstream version that it is from.\n";
constexpr std::string_view kEpilogue =
    "\nCONFIG is a file, `-` for standard input, or `-- ARGS...` for the arguments of Megatron itself. Formats are\n"
    "detected: JSON or YAML of option names, Megatron's functional-test YAML, a Megatron argument list, a launch\n"
    "script, NeMo-RL's YAML, a plan.\n"
    "\n"
    "Examples:\n"
    "  gtplan check --world-size 64 config.yaml\n"
    "  gtplan explain GTP003\n"
    "  gtplan plan --nodes 8 --gpus-per-node 8 config.yaml -o plan.json\n"
    "\n"
    "`gtplan COMMAND --help` tells more. Exit status: 0 valid, 1 errors in the input, 2 could not run.\n";

std::string help_text() {
  std::string text = fmt::format("{}\nUsage: gtplan COMMAND [OPTIONS] CONFIG...\n\nCommands:\n", kIntroduction);
  for (const Command& command : kCommands) text += fmt::format("  {:8} {}\n", command.name, command.summary);
  return text.append(kEpilogue);
}

std::string version_text() {
  return fmt::format("gtplan {} (default target {}; GTP is experimental upstream)\n", GTPLAN_VERSION,
                     kDefaultTarget.name);
}

void print(std::string_view text) {
  Output output({});
  output.write(text);
  output.finish();
}

/// The words of the command line before CLI11 sees them.
struct CommandLine {
  std::vector<std::string> words;                ///< up to the first `--`
  std::optional<std::vector<std::string>> rest;  ///< what follows it
};

CommandLine split_at_dashes(std::vector<std::string> words) {
  const auto dashes = std::find(words.begin(), words.end(), "--");
  CommandLine line;
  if (dashes != words.end())
    line.rest.emplace(std::make_move_iterator(dashes + 1), std::make_move_iterator(words.end()));
  words.erase(dashes, words.end());
  line.words = std::move(words);
  return line;
}

/// `--format json` or `--format=json`, even on a command line that is wrong otherwise.
bool wants_json(const std::vector<std::string>& words) {
  bool json = false;
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (words[i].starts_with("--format=")) json = words[i] == "--format=json";
    if (words[i] == "--format" && i + 1 < words.size()) json = words[i + 1] == "json";
  }
  return json;
}

const Command& find_command(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Command& command : kCommands) {
    if (command.name == name) return command;
    names.push_back(command.name);
  }
  if (name.starts_with("-"))
    throw CouldNotRun{fmt::format("`{}` stands where a command should", name), "`gtplan --help` lists the commands"};
  throw CouldNotRun{fmt::format("there is no command `{}`", name),
                    suggest(name, names, "`gtplan --help` lists the commands")};
}

/// CLI11's pages, with the usage line of our own.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    const bool configs = app->get_option_no_throw("CONFIG") != nullptr;
    const std::string_view what = name.ends_with(" diff") ? "A B" : configs ? "CONFIG" : "TOPIC";
    return fmt::format("\nUsage: {} [OPTIONS] {}\n", name, what);
  }
};

Exit run_command(const Command& command, CommandLine line) {
  CLI::App app;
  app.name(fmt::format("gtplan {}", command.name));
  app.formatter(std::make_shared<HelpFormatter>());
  app.get_formatter()->column_width(30);
  app.set_help_flag("-h,--help", "Print this page");
  Arguments arguments(app, std::move(line.rest));
  const Action action = command.setup(arguments);
  if (const std::optional<std::string> page = parse(app, std::move(line.words))) {
    print(*page);
    return Exit::Valid;
  }
  return action();
}

Exit dispatch(CommandLine line) {
  if (line.words.empty()) {
    write_error(help_text());
    return Exit::CouldNotRun;
  }
  std::string name = std::move(line.words.front());
  line.words.erase(line.words.begin());
  if (name == "help" && !line.words.empty()) {
    name = std::exchange(line.words.front(), "--help");
    line.words.resize(1);
  }
  if (name == "--help" || name == "-h" || name == "help") return print(help_text()), Exit::Valid;
  if (name == "--version" || name == "-V") return print(version_text()), Exit::Valid;
  return run_command(find_command(name), std::move(line));
}

void answer(const CouldNotRun& failure, bool json) {
  if (failure.silent) return;
  write_error(render_text(failure, Paint(wants_color("auto", ::isatty(STDERR_FILENO) == 1))));
  if (json) print(render_json(failure));
}

Exit fail(const CouldNotRun& failure, bool json) {
  try {
    answer(failure, json);
  } catch (const CouldNotRun&) {
    // Standard output is what failed: standard error has said so.
  }
  return Exit::CouldNotRun;
}

}  // namespace

int run(std::vector<std::string> words) {
  const bool json = wants_json(words);
  Exit exit = Exit::CouldNotRun;
  try {
    exit = dispatch(split_at_dashes(std::move(words)));
  } catch (const CouldNotRun& failure) {
    exit = fail(failure, json);
  } catch (const std::exception& error) {
    exit = fail({fmt::format("the program itself failed: {}", error.what())}, json);
  }
  return static_cast<int>(exit);
}

}  // namespace gtp::cli
