// gtplan plan: one canonical plan of a configuration, for other commands and programs.
#include <array>
#include <memory>

#include "tools/commands.hpp"
#include "tools/file.hpp"
#include "tools/input.hpp"
#include "tools/plan.hpp"
#include "tools/render.hpp"

namespace gtp::cli {

namespace {

constexpr std::array<std::string_view, 1> kFormats{"json"};

constexpr const char* kDescription =
    "Resolves a configuration, in whatever format it is written, into one canonical plan: the options that are set,\n"
    "the values that follow from them, both rank grids and the size of every family of groups. The same\n"
    "configuration gives the same bytes. Every command reads a plan as it reads any other configuration.";
constexpr const char* kExamples =
    "Examples:\n"
    "  gtplan plan --world-size 64 config.yaml -o plan.json\n"
    "  gtplan plan --nodes 8 --gpus-per-node 8 -- --tensor-parallel-num-weight-shards 8\n"
    "  gtplan ranks plan.json\n"
    "\n"
    "An invalid configuration has no plan: its diagnostics are those of `gtplan check`, and the exit status is 1.";

Exit run(const InputOptions& options) {
  (void)format_of(options, kFormats);
  if (list_targets(options)) return Exit::Valid;
  CheckedList list = load_and_check(options);
  need_topology(list, "plan");
  if (!report_unless_valid(list, options)) return list.exit();
  Output output(options.output);
  output.write(write_plan(list.configs.front()));
  output.finish();
  return Exit::Valid;
}

}  // namespace

Action setup_plan(Arguments& arguments) {
  const auto options = std::make_shared<InputOptions>();
  arguments.describe(kDescription, kExamples);
  add_input_options(arguments, HowMany::One, kFormats, *options);
  return [options] { return run(*options); };
}

}  // namespace gtp::cli
