#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "tools/file.hpp"
#include "tools/input.hpp"
#include "tools/json_writer.hpp"
#include "tools/suggest.hpp"

namespace gtp::cli {

namespace {

constexpr std::array<std::string_view, 3> kColors{"auto", "always", "never"};

void add_size_options(Arguments& arguments, InputOptions& o) {
  arguments.word("--world-size", o.world_size, "N", "Number of ranks, one GPU each");
  arguments.word("--nodes", o.nodes, "N", "Number of hosts; with --gpus-per-node it gives the world size");
  arguments.word("--gpus-per-node", o.gpus_per_node, "N", "GPUs of one host");
  arguments.words("--set", o.set, "OPTION=VALUE", "Set an option, whatever the input says; may be repeated");
}

void add_verdict_options(Arguments& arguments, InputOptions& o) {
  arguments.flag("--strict", o.strict, "Warnings count as errors");
  arguments.list("--require", o.require, "OPTION", "It is an error if this option is unknown; may be repeated");
  arguments.flag("--complete", o.complete, "It is an error if a rule cannot be checked because an option is unknown");
}

}  // namespace

void add_input_options(Arguments& arguments, HowMany configs, std::span<const std::string_view> formats,
                       InputOptions& o) {
  o.how_many = configs;
  o.arguments = arguments.rest;
  arguments.positionals(
      "CONFIG", o.configs,
      configs == HowMany::Many  ? "File, folder, pattern, `-` for standard input, or `-- ARGS...` at the end"
      : configs == HowMany::Two ? "A and B: files, `-` for standard input, or for B `-- ARGS...` at the end"
                                : "File, `-` for standard input, or `-- ARGS...` at the end");
  arguments.word("--input-format", o.input_format, "NAME", "Read CONFIG as this format instead of detecting it");
  arguments.word("--model", o.model, "FILE", "Hugging Face config.json that describes the model");
  arguments.word("--env-file", o.env_file, "FILE", "NAME=value lines: variables of the job's environment");
  arguments.words("--cluster", o.clusters, "NAME|FILE",
                  "Hardware: a preset, a file, or `slurm` (this job's variables); may be repeated");
  add_size_options(arguments, o);
  arguments.word("--target", o.target, "NAME", "Upstream version whose behaviour is checked, or `list`");
  arguments.word("--format", o.format, "NAME", fmt::format("Output: {}", fmt::join(formats, ", ")));
  arguments.word("-o,--output", o.output, "FILE", "Write the result to FILE instead of standard output");
  add_verdict_options(arguments, o);
  arguments.word("--color", o.color, "WHEN", "Colour of text: auto, always, never");
}

std::string_view format_of(const InputOptions& options, std::span<const std::string_view> formats) {
  expect_choice("--color", options.color, kColors);
  if (options.format.empty()) return formats.front();
  expect_choice("--format", options.format, formats);
  return options.format;
}

void expect_choice(std::string_view option, std::string_view word, std::span<const std::string_view> choices) {
  if (std::find(choices.begin(), choices.end(), word) != choices.end()) return;
  throw CouldNotRun{fmt::format("unknown {} `{}`", option, word),
                    suggest(word, choices, fmt::format("use one of {}", fmt::join(choices, ", ")))};
}

Target find_target_or_fail(std::string_view name) {
  if (name.empty()) return kDefaultTarget;
  if (const std::optional<Target> target = find_target(name)) return *target;
  std::vector<std::string_view> names;
  for (const Target& target : kTargets) names.push_back(target.name);
  throw CouldNotRun{fmt::format("unknown --target `{}`", name), fmt::format("use one of {}", fmt::join(names, ", "))};
}

bool list_targets(const InputOptions& options) {
  if (options.target != "list") return false;
  std::string text;
  if (options.format == "json") {
    JsonWriter json(text);
    json.begin_object();
    json.key("targets");
    json.begin_array();
    for (const Target& target : kTargets) {
      json.begin_object(JsonWriter::Layout::Inline);
      json.field("name", target.name);
      json.field("date", target.date);
      json.field("default", target == kDefaultTarget);
      json.end();
    }
    json.end();
    json.end();
  } else {
    for (const Target& target : kTargets)
      text += fmt::format("{}  {}{}\n", target.name, target.date, target == kDefaultTarget ? "  (default)" : "");
  }
  Output output(options.output);
  output.write(text);
  output.finish();
  return true;
}

}  // namespace gtp::cli
