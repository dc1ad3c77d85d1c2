#include "tools/input.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <filesystem>
#include <iterator>
#include <memory>
#include <utility>
#include <variant>

#include <gtp/rules/form.hpp>

#include "tools/config_paths.hpp"
#include "tools/file.hpp"
#include "tools/in_parallel.hpp"
#include "tools/lacking.hpp"
#include "tools/project.hpp"
#include "tools/suggest.hpp"

namespace gtp::cli {

namespace {

constexpr std::string_view kStandardInput = "<stdin>", kArgumentsName = "<arguments>";

std::vector<OptionId> required_options(const InputOptions& options) {
  std::vector<OptionId> required;
  for (const std::string& name : options.require) {
    const std::optional<OptionId> option = find_settable(name);
    if (!option) {
      std::vector<std::string_view> names;
      for (const OptionId id : sorted_options()) names.push_back(name_of(id));
      throw CouldNotRun{fmt::format("--require names the unknown option `{}`", name), suggest(name, names)};
    }
    required.push_back(*option);
  }
  return required;
}

std::optional<InputFormat> forced_format(const InputOptions& options) {
  if (options.input_format.empty()) return std::nullopt;
  const std::optional<InputFormat> format = find_input_format(options.input_format);
  if (format) return format;
  std::vector<std::string_view> names;
  for (std::uint8_t i = 0; i <= static_cast<std::uint8_t>(InputFormat::Plan); ++i)
    names.push_back(gtp::to_text(static_cast<InputFormat>(i)));
  throw CouldNotRun{fmt::format("unknown --input-format `{}`", options.input_format),
                    fmt::format("use one of {}", fmt::join(names, ", "))};
}

/// The codes of rules that are not to be reported.
std::vector<std::string_view> ignored_codes(const InputOptions& options) {
  std::vector<std::string_view> codes;
  for (const std::string& name : options.ignore) {
    const auto rules = all_rules();
    const auto known = std::ranges::find_if(rules, [&](const Rule* r) { return r->code == name || r->id == name; });
    if (known == rules.end()) {
      std::vector<std::string_view> names;
      for (const Rule* rule : rules) names.insert(names.end(), {rule->code, rule->id});
      throw CouldNotRun{fmt::format("--ignore names the unknown rule `{}`", name), suggest(name, names)};
    }
    codes.push_back((*known)->code);
  }
  return codes;
}

/// What is common to all configurations of one run.
struct Request {
  InputOptions options;
  std::optional<Target> target;  ///< nothing: the input's format decides
  std::optional<InputFormat> format;
  std::vector<OptionId> required;
  std::vector<std::string_view> ignored;
};

/// Nothing, and a diagnostic, when the file cannot be read.
std::optional<Text> read_text(Checked& checked, const std::string& path) {
  const std::string name = path == "-" ? std::string(kStandardInput) : path;
  auto content = read_input(path);
  const auto* failure = std::get_if<Unreadable>(&content);
  if (failure == nullptr) return Text{name, std::move(std::get<std::string>(content))};
  const std::string label = name == checked.file ? failure->reason : fmt::format("`{}`: {}", name, failure->reason);
  checked.diagnostics.push_back(rules::at_place(rules::kUnreadable, "", {}, label));
  checked.diagnostics.back().help.clear();
  return std::nullopt;
}

/// A line for each variable that Slurm sets for a job.
std::string slurm_variables() {
  std::string text;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view line = *variable;
    if (line.starts_with("SLURM_") && line.find('\n') == std::string_view::npos) text.append(line).append("\n");
  }
  return text;
}

/// The file that a configuration names, relative to the one that names it.
Included include(std::string_view from, std::string_view path) {
  namespace fs = std::filesystem;
  const fs::path folder = from == kStandardInput ? fs::path() : fs::path(from).parent_path();
  const std::string name = (folder / fs::path(path)).lexically_normal().string();
  auto content = read_input(fs::path(name).is_absolute() ? name : "./" + name);
  if (const auto* failure = std::get_if<Unreadable>(&content)) return {std::nullopt, failure->reason};
  return {Text{name, std::move(std::get<std::string>(content))}, {}};
}

/// A preset, `slurm` for the variables of the job that this runs in, or a file. Neither, and a diagnostic, when there
/// is no such thing.
ClusterInput cluster_input(Checked& checked, const std::string& name) {
  if (name == "slurm") return {nullptr, Text{"<environment>", slurm_variables()}};
  const ClusterPreset* preset = find_cluster_preset(name);
  if (preset != nullptr) return {preset, std::nullopt};
  ClusterInput input{nullptr, read_text(checked, name)};
  if (!input.text) {
    std::vector<std::string_view> names{"slurm"};
    for (const ClusterPreset& known : kClusterPresets) names.push_back(known.name);
    checked.diagnostics.back().help =
        suggest(name, names, fmt::format("use a file or one of {}", fmt::join(names, ", ")));
  }
  return input;
}

/// `text`: what the file is to be taken to hold, instead of what it holds.
std::optional<LoadRequest> make_load_request(Checked& checked, const Request& request, const std::string* path,
                                             const std::string* text) {
  const InputOptions& options = request.options;
  LoadRequest load{.target = request.target,
                   .format = request.format,
                   .config = std::nullopt,
                   .argv = {},
                   .model = std::nullopt,
                   .env_file = std::nullopt,
                   .clusters = {},
                   .include = include,
                   .set = options.set,
                   .world_size = options.world_size,
                   .nodes = options.nodes,
                   .gpus_per_node = options.gpus_per_node};
  bool readable = true;
  if (path != nullptr) {
    load.config = text == nullptr ? read_text(checked, *path) : std::optional(Text{*path, *text});
    readable = load.config.has_value();
  } else {
    load.argv = *options.arguments;
    if (!load.format) load.format = InputFormat::MegatronArgs;
  }
  if (!options.model.empty()) {
    load.model = read_text(checked, options.model);
    readable = readable && load.model.has_value();
  }
  if (!options.env_file.empty()) {
    load.env_file = read_text(checked, options.env_file);
    readable = readable && load.env_file.has_value();
  }
  for (const std::string& name : options.clusters) {
    load.clusters.push_back(cluster_input(checked, name));
    readable = readable && (load.clusters.back().preset != nullptr || load.clusters.back().text);
  }
  if (!readable) return std::nullopt;
  return load;
}

Verdict verdict_of(const Checked& checked, bool strict) {
  if (!checked.report) return Verdict::Unreadable;
  const Counts counts = count(checked.diagnostics);
  return counts.errors > 0 || (strict && counts.warnings > 0) ? Verdict::Invalid : Verdict::Valid;
}

void check_loaded(Checked& checked, const Request& request) {
  checked.report.emplace(check(checked.loaded.config));
  Report& report = *checked.report;
  std::vector<OptionId> required = request.required;
  if (request.options.complete)
    for (const Lack& lack : lacking(report))
      if (std::find(required.begin(), required.end(), lack.option) == required.end()) required.push_back(lack.option);
  require(report.derivation.facts, required, report.diagnostics);
  std::move(report.diagnostics.begin(), report.diagnostics.end(), std::back_inserter(checked.diagnostics));
  report.diagnostics.clear();
}

void fill(Checked& checked, const Request& request, const std::string* path, const std::string* text = nullptr) {
  checked.file = path == nullptr ? std::string(kArgumentsName) : *path == "-" ? std::string(kStandardInput) : *path;
  if (request.format) checked.input_format = gtp::to_text(*request.format);
  const std::optional<LoadRequest> load_request = make_load_request(checked, request, path, text);
  if (!load_request) return;
  checked.loaded = load(*load_request);
  checked.input_format = gtp::to_text(checked.loaded.format);
  checked.diagnostics = std::move(checked.loaded.diagnostics);
  if (checked.loaded.readable) check_loaded(checked, request);
  std::erase_if(checked.diagnostics, [&](const Diagnostic& d) {
    return std::ranges::find(request.ignored, d.code) != request.ignored.end();
  });
  checked.verdict = verdict_of(checked, request.options.strict);
}

Request make_request(const InputOptions& options) {
  const Target target = find_target_or_fail(options.target);
  return {options, options.target.empty() ? std::nullopt : std::optional(target), forced_format(options),
          required_options(options), ignored_codes(options)};
}

/// The target of all configurations, or the one asked for when they have several.
Target common_target(const CheckedList& list, const Target& asked) {
  std::optional<Target> common;
  for (const Checked& checked : list.configs) {
    if (checked.verdict == Verdict::Unreadable) continue;
    const Target& target = checked.loaded.config.target();
    if (common && !(*common == target)) return asked;
    common = target;
  }
  return common.value_or(asked);
}

void expect_configs(const InputOptions& options) {
  if (!options.configs.empty() && options.arguments)
    throw CouldNotRun{"both files and `-- ARGS...` are given",
                      "give one of them; --set OPTION=VALUE changes single options of a file"};
  if (options.configs.empty() && !options.arguments)
    throw CouldNotRun{"no CONFIG is given", "name a file, `-` for standard input, or put `-- ARGS...` at the end"};
  if (options.how_many == HowMany::One && options.configs.size() > 1)
    throw CouldNotRun{fmt::format("one CONFIG is taken, and `{}` is one too many", options.configs[1]),
                      "run the command once for each"};
  if (std::count(options.configs.begin(), options.configs.end(), "-") + (options.model == "-" ? 1 : 0) +
          (options.env_file == "-" ? 1 : 0) + std::count(options.clusters.begin(), options.clusters.end(), "-") >
      1)
    throw CouldNotRun{"standard input is named more than once", "standard input can be read only once"};
}

}  // namespace

std::string_view to_text(Verdict verdict) {
  switch (verdict) {
    case Verdict::Valid:
      return "valid";
    case Verdict::Invalid:
      return "invalid";
    case Verdict::Unreadable:
      return "unreadable";
  }
  return "";
}

Counts count(const Diagnostics& diagnostics) {
  Counts counts;
  for (const Diagnostic& d : diagnostics) {
    if (d.severity == Severity::Error) ++counts.errors;
    if (d.severity == Severity::Warning) ++counts.warnings;
  }
  return counts;
}

Counts CheckedList::count() const {
  Counts sum;
  for (const Checked& checked : configs) {
    const Counts counts = cli::count(checked.diagnostics);
    sum.errors += counts.errors;
    sum.warnings += counts.warnings;
  }
  return sum;
}

Exit CheckedList::exit() const {
  Verdict worst = Verdict::Valid;
  for (const Checked& checked : configs) worst = std::max(worst, checked.verdict);
  switch (worst) {
    case Verdict::Valid:
      return Exit::Valid;
    case Verdict::Invalid:
      return Exit::Invalid;
    case Verdict::Unreadable:
      return Exit::CouldNotRun;
  }
  return Exit::CouldNotRun;
}

CheckedList load_and_check(const InputOptions& options, const Project* project, const Tell& tell) {
  expect_configs(options);
  const Request request = make_request(project == nullptr ? options : with_project(options, *project, {}));
  const Target target = request.target.value_or(kDefaultTarget);
  CheckedList list{target, {}};
  const auto paths = options.how_many == HowMany::Many ? config_paths(options.configs) : options.configs;
  const std::size_t count = options.arguments ? 1 : paths.size();
  for (std::size_t i = 0; i < count; ++i) list.configs.emplace_back(target);
  if (tell) list.texts.resize(count);
  in_parallel(count, [&](std::size_t i) {
    Checked& checked = list.configs[i];
    const std::string* path = options.arguments ? nullptr : &paths[i];
    if (path == nullptr || project == nullptr || project->files.empty())
      fill(checked, request, path);
    else
      fill(checked, make_request(with_project(options, *project, *path)), path);
    if (!tell) return;
    list.texts[i] = tell(checked, count == 1);
    if (count == 1) return;
    checked.report.reset();
    checked.loaded.sources = {};
  });
  list.target = common_target(list, target);
  return list;
}

std::unique_ptr<Checked> check_text(const InputOptions& options, const Project* project, const std::string& path,
                                    const std::string& text) {
  const Request request = make_request(project == nullptr ? options : with_project(options, *project, path));
  auto checked = std::make_unique<Checked>(request.target.value_or(kDefaultTarget));
  fill(*checked, request, &path, &text);
  return checked;
}

void need(Checked& checked, std::string_view command, std::span<const OptionId> options) {
  if (checked.verdict != Verdict::Valid) return;
  for (const OptionId option : lacking(checked.report->derivation.facts, options)) {
    Diagnostic d = rules::at_place(rules::kRequiredMissing, name_of(option), {}, "not known");
    d.message = fmt::format("`gtplan {}` needs a value that is not known", command);
    if (name_of(option) == "world_size") d.help = "give --world-size N, or --nodes N and --gpus-per-node G";
    checked.diagnostics.push_back(std::move(d));
    checked.verdict = Verdict::Invalid;
  }
}

void need_topology(CheckedList& list, std::string_view command) {
  using namespace literals;
  constexpr std::array kNeeds{"data_parallel_size"_opt, "expert_data_parallel_size"_opt, "use_tp_pp_dp_mapping"_opt};
  for (Checked& checked : list.configs) {
    if (checked.report && checked.report->derivation.topology) continue;
    need(checked, command, kNeeds);
    assert(checked.verdict != Verdict::Valid && "a valid configuration with known sizes has a topology");
  }
}

}  // namespace gtp::cli
