// gtplan check: everything that is wrong with a configuration, in one run.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>

#include "tools/commands.hpp"
#include "tools/file.hpp"
#include "tools/input.hpp"
#include "tools/mend.hpp"
#include "tools/project.hpp"
#include "tools/render.hpp"

namespace gtp::cli {

namespace {

constexpr std::array<std::string_view, 6> kFormats{"text", "concise", "json", "sarif", "junit", "github"};

/// A document of SARIF or JSON says of all configurations what it says of each: it is made at the end.
Renderer renderer_of(std::string_view format, Paint paint) {
  if (format == "concise") return concise_renderer();
  if (format == "junit") return junit_renderer();
  if (format == "github") return github_renderer();
  if (format == "sarif") return {{}, render_sarif};
  if (format == "json") return {{}, [](const CheckedList& list) { return render_json(list); }};
  return text_renderer(paint);
}

constexpr const char* kDescription =
    "Validates configurations. Every problem is reported in one run, with its place, its values, the reason and the\n"
    "mend, and with the moment at which upstream itself would notice. An option that the input says nothing of is\n"
    "unknown rather than wrong: rules that need it are counted as not checked.";
constexpr const char* kExamples =
    "Examples:\n"
    "  gtplan check config.yaml                      is it valid, and what follows from it\n"
    "  gtplan check --world-size 64 config.yaml      a file does not say how many GPUs there will be\n"
    "  gtplan check --format json configs/           all files of a folder, for a program\n"
    "  gtplan check --format sarif 'jobs/**/*.yaml'  for code scanning; junit and github are for others\n"
    "  gtplan check --strict --complete job.yaml     in CI: no warnings, and nothing left unchecked\n"
    "  gtplan check --fix --dry-run job.yaml         what the offered fixes would change; without --dry-run, change "
    "it\n"
    "  gtplan check --set micro_batch_size=2 job.yaml\n"
    "  gtplan check -- --tensor-model-parallel-size 2 --tensor-parallel-num-weight-shards 8\n"
    "\n"
    "Exit status: 0 valid (warnings allowed), 1 errors in the input (with --strict also warnings), 2 could not run.";

Exit report(const Renderer& renderer, const CheckedList& list, Output& output) {
  output.write(renderer.finish(list));
  output.finish();
  return list.exit();
}

/// Shows or writes the fixes; the exit status is that of the files as they are afterwards.
Exit run_fix(const InputOptions& options, const Project* project, const Renderer& renderer, Output& output) {
  CheckedList list = load_and_check(options, project);
  const Mending mending = mend(options, project, list);
  write_error(mending.summary(options.dry_run));
  if (!options.dry_run) {
    mending.write();
    if (!mending.files.empty()) return report(renderer, load_and_check(options, project, renderer.tell), output);
    for (const Checked& checked : list.configs)  // standard input cannot be read again
      if (renderer.tell) list.texts.push_back(renderer.tell(checked, list.configs.size() == 1));
    return report(renderer, list, output);
  }
  output.write(mending.diff());
  output.finish();
  return list.exit();
}

Exit run(InputOptions options) {
  const std::string_view format = format_of(options, kFormats);
  if (list_targets(options)) return Exit::Valid;
  if (options.dry_run && !options.fix) throw CouldNotRun{"--dry-run is given without --fix", "add --fix"};
  if (options.no_project && !options.project.empty())
    throw CouldNotRun{"--project and --no-project are both given", "give one of them"};
  const std::optional<Project> found = find_project(options);
  const Project* project = found ? &*found : nullptr;
  if (project != nullptr && options.configs.empty() && !options.arguments) options.configs = project->configs;
  Output output(options.output);
  const Renderer renderer = renderer_of(format, Paint(wants_color(options.color, output.terminal())));
  if (options.fix) return run_fix(options, project, renderer, output);
  return report(renderer, load_and_check(options, project, renderer.tell), output);
}

}  // namespace

Action setup_check(Arguments& arguments) {
  const auto options = std::make_shared<InputOptions>();
  arguments.describe(kDescription, kExamples);
  add_input_options(arguments, HowMany::Many, kFormats, *options);
  // Here only: whatever makes something of a configuration relies on every rule.
  arguments.list("--ignore", options->ignore, "CODE", "Do not report this rule (GTP003, or its name); may be repeated");
  arguments.word("--project", options->project, "FILE", "Options of a repository, instead of those in .gtplan.yaml");
  arguments.flag("--no-project", options->no_project, "Leave .gtplan.yaml unread");
  arguments.flag("--fix", options->fix, "Write the offered fixes into the files, touching only the values concerned");
  arguments.flag("--dry-run", options->dry_run, "With --fix: print what would change, and change nothing");
  return [options] { return run(*options); };
}

}  // namespace gtp::cli
