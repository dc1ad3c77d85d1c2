// gtplan launch: the files that start the job of a valid configuration.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include <gtp/assign.hpp>

#include "tools/commands.hpp"
#include "tools/file.hpp"
#include "tools/launch/launch.hpp"
#include "tools/launch/write_files.hpp"
#include "tools/render.hpp"
#include "tools/suggest.hpp"
#include "validators/reading.hpp"

namespace gtp::cli {

namespace {

constexpr std::array<std::string_view, 2> kFormats{"text", "json"};

constexpr const char* kDescription =
    "Writes the files that start the job of a valid configuration into a folder (-o): a script or manifest for the\n"
    "launcher, the arguments of the framework, the environment that follows from upstream's rules, high-priority NCCL\n"
    "communicators, the rank map and the plan. Every value arrives at the trainer byte for byte, and what is launched\n"
    "is what `gtplan check` reads back from the arguments.";
constexpr const char* kExamples =
    "Examples:\n"
    "  gtplan launch config.yaml --launcher slurm -o job           then: cd job && sbatch launch.sbatch\n"
    "  gtplan launch config.yaml --launcher kubernetes -o -        the manifest, to standard output\n"
    "  gtplan launch config.yaml --file env.sh                     any one file, to standard output\n"
    "  gtplan launch config.yaml --launcher local -o smoke         then: smoke/local.sh\n"
    "\n"
    "Files that are there already stay as they are, and nothing is written, unless --force is given.";

template <class T, std::size_t N>
using Choices = std::array<std::pair<std::string_view, T>, N>;

constexpr Choices<LaunchFramework, 2> kFrameworks{
    {{"megatron-lm", LaunchFramework::MegatronLm}, {"megatron-bridge", LaunchFramework::MegatronBridge}}};
constexpr Choices<Launcher, 5> kLaunchers{{{"torchrun", Launcher::Torchrun},
                                           {"slurm", Launcher::Slurm},
                                           {"slurm-native", Launcher::SlurmNative},
                                           {"kubernetes", Launcher::Kubernetes},
                                           {"local", Launcher::Local}}};
constexpr Choices<KubernetesKind, 3> kKinds{{{"trainjob", KubernetesKind::TrainJob},
                                             {"jobset", KubernetesKind::JobSet},
                                             {"pytorchjob", KubernetesKind::PyTorchJob}}};

template <class T, std::size_t N>
T choose(std::string_view option, std::string_view word, const Choices<T, N>& choices) {
  std::vector<std::string_view> names;
  for (const auto& [name, value] : choices) {
    if (name == word) return value;
    names.push_back(name);
  }
  expect_choice(option, word, names);
  return choices.front().second;
}

template <class T, std::size_t N>
std::string names_of(const Choices<T, N>& choices) {
  std::vector<std::string_view> names;
  for (const auto& [name, value] : choices) names.push_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

struct Options {
  InputOptions input;
  std::string framework{kFrameworks.front().first}, launcher{kLaunchers.front().first}, kind{kKinds.front().first};
  std::string script, recipe, image, job_name, file;
  std::string master_port = fmt::format("{}", kDefaultMasterPort);
  bool force = false;
};

/// Names of jobs stand in places that have no quotes.
void expect_job_name(const std::string& name, Launcher launcher) {
  const bool kubernetes = launcher == Launcher::Kubernetes;
  constexpr std::size_t kLongest = 63, kLongestOfKubernetes = 40;  // which makes names of pods of it
  const auto small = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  const auto fits = [&](char c) {
    return small(c) || c == '-' || (!kubernetes && ((c >= 'A' && c <= 'Z') || c == '.' || c == '_'));
  };
  if (!name.empty() && name.size() <= (kubernetes ? kLongestOfKubernetes : kLongest) &&
      std::all_of(name.begin(), name.end(), fits) && name.front() != '-' && name.front() != '.' && name.back() != '-' &&
      (!kubernetes || name.front() > '9'))
    return;
  throw CouldNotRun{fmt::format("--job-name `{}` is no name of a job", name),
                    kubernetes ? "Kubernetes takes up to 40 small letters, digits and `-`, a letter first"
                               : "use up to 63 letters, digits, `-`, `_` and `.`, a letter or digit first"};
}

void expect_text(std::string_view option, const std::string& text) {
  if (const auto problem = readers::find_not_text(text))
    throw CouldNotRun{fmt::format("{} cannot be written to a file: {}", option, problem->what)};
}

LaunchOptions understand(const Options& options) {
  (void)format_of(options.input, kFormats);
  LaunchOptions launch;
  launch.framework = choose("--framework", options.framework, kFrameworks);
  launch.launcher = choose("--launcher", options.launcher, kLaunchers);
  launch.kubernetes_kind = choose("--kubernetes-kind", options.kind, kKinds);
  constexpr std::int64_t kLastPort = 65535;
  const auto port = parse_int(options.master_port).value;
  if (!port || *port < 1 || *port > kLastPort)
    throw CouldNotRun{fmt::format("--master-port `{}` is no port", options.master_port), "use 1 to 65535"};
  launch.master_port = *port;
  if (!options.job_name.empty()) expect_job_name(options.job_name, launch.launcher);
  expect_text("--script", options.script);
  expect_text("--recipe", options.recipe);
  expect_text("--image", options.image);
  launch.script = options.script;
  launch.recipe = options.recipe;
  launch.job_name = options.job_name;
  if (!options.image.empty()) launch.image = options.image;
  return launch;
}

/// Whether one file goes to standard output.
bool prints(const Options& options) { return options.input.output == "-" || !options.file.empty(); }

void expect_destination(const Options& options) {
  const std::string& folder = options.input.output;
  if (!options.file.empty() && !folder.empty() && folder != "-")
    throw CouldNotRun{"--file prints one file, and -o names a folder for all of them", "leave out one of the two"};
  if (prints(options) && options.input.format == "json")
    throw CouldNotRun{"one printed file is not JSON", "--format json lists the files that -o FOLDER writes"};
  if (folder.empty() && options.file.empty())
    throw CouldNotRun{"no folder is named for the files", "add -o FOLDER, or --file NAME to print one of them"};
}

void print(const Options& options, const Launch& launch) {
  const OutputFile* wanted = &launch.files.front();
  if (!options.file.empty()) {
    std::vector<std::string_view> names;
    wanted = nullptr;
    for (const OutputFile& file : launch.files) {
      if (file.path == options.file) wanted = &file;
      names.push_back(file.path);
    }
    if (wanted == nullptr)
      throw CouldNotRun{fmt::format("this launch has no file `{}`", options.file),
                        suggest(options.file, names, fmt::format("it has {}", fmt::join(names, ", ")))};
  }
  Output output({});
  output.write(wanted->text);
  output.finish();
}

std::string list_as_json(const std::vector<std::string>& paths, const Launch& launch) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.field("files", paths);
  json.field("warnings", launch.remarks);
  json.end();
  return text;
}

void write(const Options& options, const Launch& launch) {
  write_files(options.input.output, launch.files, options.force);
  std::vector<std::string> paths;
  for (const OutputFile& file : launch.files)
    paths.push_back((std::filesystem::path(options.input.output) / file.path).string());
  Output output({});
  if (options.input.format == "json")
    output.write(list_as_json(paths, launch));
  else
    output.write(fmt::format("{}\n", fmt::join(paths, "\n")));
  output.finish();
}

Verdict verdict_of(const Checked& checked, bool strict) {
  const Counts counts = count(checked.diagnostics);
  return counts.errors > 0 || (strict && counts.warnings > 0) ? Verdict::Invalid : checked.verdict;
}

Exit run(const Options& options) {
  using namespace literals;
  const LaunchOptions launch_options = understand(options);
  if (list_targets(options.input)) return Exit::Valid;
  expect_destination(options);
  CheckedList list = load_and_check(options.input);
  need_topology(list, "launch");
  Checked& checked = list.configs.front();
  if (launch_options.launcher != Launcher::Local) need(checked, "launch", std::array{"gpus_per_node"_opt});
  Launch launch;
  if (checked.verdict == Verdict::Valid) {
    launch = make_launch(checked, launch_options);
    checked.diagnostics.insert(checked.diagnostics.end(), launch.problems.begin(), launch.problems.end());
    checked.verdict = verdict_of(checked, options.input.strict);
  }
  if (!report_unless_valid(list, options.input)) return list.exit();
  for (const std::string& remark : launch.remarks) write_error(fmt::format("warning: {}\n", remark));
  if (prints(options))
    print(options, launch);
  else
    write(options, launch);
  return Exit::Valid;
}

}  // namespace

Action setup_launch(Arguments& arguments) {
  const auto options = std::make_shared<Options>();
  arguments.describe(kDescription, kExamples);
  arguments.word("--framework", options->framework, "NAME", "What trains: " + names_of(kFrameworks));
  arguments.word("--launcher", options->launcher, "NAME", "What starts it: " + names_of(kLaunchers));
  arguments.word("--kubernetes-kind", options->kind, "NAME", "Kind of manifest: " + names_of(kKinds));
  arguments.word("--script", options->script, "PATH", "The training script, if not the framework's own for this model");
  arguments.word("--recipe", options->recipe, "NAME", "The recipe of Megatron-Bridge that is overridden");
  arguments.word("--image", options->image, "NAME", "Container image of a manifest");
  arguments.word("--job-name", options->job_name, "NAME", "Name of the job; `gtp-` and the world size otherwise");
  arguments.word("--master-port", options->master_port, "N", "Port at which the ranks meet");
  arguments.word("--file", options->file, "NAME", "Print this file instead of writing all");
  arguments.flag("--force", options->force, "Replace files that are there already");
  add_input_options(arguments, HowMany::One, kFormats, options->input);
  return [options] { return run(*options); };
}

}  // namespace gtp::cli
