// gtplan diff: what differs between two configurations, with all that follows from it.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/commands.hpp"
#include "tools/diff.hpp"
#include "tools/file.hpp"
#include "tools/render.hpp"

namespace gtp::cli {

namespace {

constexpr std::array<std::string_view, 2> kFormats{"text", "json"};

constexpr const char* kDescription =
    "Compares two configurations or plans, each in whatever format it is written: the options that they set or leave\n"
    "at a default, the environment, the values that follow, the families of process groups, and what `gtplan check`\n"
    "says of one and not of the other. How a file is written makes no difference. An invalid configuration is\n"
    "compared too, but for its groups, which it does not have.";
constexpr const char* kExamples =
    "Examples:\n"
    "  gtplan diff old.yaml new.yaml --world-size 64\n"
    "  gtplan diff plan.json config.yaml                                     is this still what was planned?\n"
    "  gtplan diff config.yaml config.yaml --set-b context_parallel_size=2   what one change leads to\n"
    "  gtplan diff config.yaml -- --tensor-model-parallel-size 8             B is a Megatron command line\n"
    "\n"
    "Exit status, as of `diff`: 0 nothing differs, 1 something does, 2 could not run. The other options hold for both.";

struct Options {
  InputOptions input;
  std::vector<std::string> set_a, set_b;
};

struct Pair {
  InputOptions a, b;
};

/// The options of each side. Throws CouldNotRun unless two inputs are named.
Pair split(const Options& options) {
  std::vector<std::string> files = options.input.configs;
  const std::size_t inputs = files.size() + (options.input.arguments ? 1 : 0);
  if (inputs != 2)
    throw CouldNotRun{fmt::format("two configurations are compared, and {} given",
                                  inputs == 1 ? "one is" : fmt::format("{} are", inputs)),
                      "name two files; one of them may be `-` for standard input, or `-- ARGS...` at the end"};
  if (std::ranges::count(files, "-") > 1)
    throw CouldNotRun{"standard input is named more than once", "standard input can be read only once"};
  Pair pair{options.input, options.input};
  pair.a.configs = {files.front()};
  pair.a.arguments.reset();
  pair.b.configs.assign(files.begin() + 1, files.end());
  for (InputOptions* side : {&pair.a, &pair.b}) side->how_many = HowMany::One;
  pair.a.set.insert(pair.a.set.end(), options.set_a.begin(), options.set_a.end());
  pair.b.set.insert(pair.b.set.end(), options.set_b.begin(), options.set_b.end());
  return pair;
}

Exit run(const Options& options) {
  const std::string_view format = format_of(options.input, kFormats);
  if (list_targets(options.input)) return Exit::Valid;
  const Pair pair = split(options);
  const CheckedList a = load_and_check(pair.a), b = load_and_check(pair.b);
  for (const CheckedList* list : {&a, &b})
    if (list->exit() == Exit::CouldNotRun) {
      (void)report_unless_valid(*list, options.input);
      return Exit::CouldNotRun;
    }
  const Difference difference = compare(a.configs.front(), b.configs.front());
  Output output(options.input.output);
  output.write(format == "json" ? diff_json(difference)
                                : diff_text(difference, Paint(wants_color(options.input.color, output.terminal()))));
  output.finish();
  return difference.any() ? Exit::Invalid : Exit::Valid;
}

}  // namespace

Action setup_diff(Arguments& arguments) {
  const auto options = std::make_shared<Options>();
  arguments.describe(kDescription, kExamples);
  add_input_options(arguments, HowMany::Two, kFormats, options->input);
  arguments.words("--set-a", options->set_a, "OPTION=VALUE", "As --set, for A alone");
  arguments.words("--set-b", options->set_b, "OPTION=VALUE", "As --set, for B alone");
  return [options] { return run(*options); };
}

}  // namespace gtp::cli
