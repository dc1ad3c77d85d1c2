// The options that every command reads its configurations with, and a configuration as every command gets it: loaded
// and checked. Shared, so that no command can judge a configuration in another way than `check` does.
#pragma once

#include <gtp/check.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/arguments.hpp"
#include "tools/could_not_run.hpp"
#include "validators/load.hpp"

namespace gtp::cli {

enum class HowMany : std::uint8_t { One, Many, Two };

/// Words of the command line, not yet judged.
struct InputOptions {
  HowMany how_many = HowMany::Many;  ///< CONFIGs that the command takes
  std::vector<std::string> configs;
  std::optional<std::vector<std::string>> arguments;  ///< after `--`
  std::string input_format;
  std::string model;
  std::string env_file;
  std::vector<std::string> clusters;  ///< presets and files
  std::optional<std::string> world_size, nodes, gpus_per_node;
  std::vector<std::string> set;
  std::string target;
  std::string format;  ///< empty: the command's default
  std::string output;
  std::vector<std::string> require;
  std::vector<std::string> ignore;
  bool complete = false;
  bool strict = false;
  std::string project;  ///< empty: `.gtplan.yaml`, if there is one
  bool no_project = false;
  bool fix = false;
  bool dry_run = false;
  std::string color = "auto";
};

/// Declares CONFIG and the shared options. `formats` are those of `--format`, the default first.
void add_input_options(Arguments& arguments, HowMany configs, std::span<const std::string_view> formats,
                       InputOptions& options);

/// The `--format` to be used: the one given, or the first. Throws as `expect_choice`.
[[nodiscard]] std::string_view format_of(const InputOptions& options, std::span<const std::string_view> formats);

/// Throws CouldNotRun, with the nearest choice, unless the word is one of the choices.
void expect_choice(std::string_view option, std::string_view word, std::span<const std::string_view> choices);

/// The named target, or the default. Throws CouldNotRun for an unknown name.
[[nodiscard]] Target find_target_or_fail(std::string_view name);

/// For `--target list`: writes the targets and returns true.
bool list_targets(const InputOptions& options);

enum class Verdict : std::uint8_t { Valid, Invalid, Unreadable };

[[nodiscard]] std::string_view to_text(Verdict verdict);

struct Counts {
  std::size_t errors = 0;
  std::size_t warnings = 0;
};

[[nodiscard]] Counts count(const Diagnostics& diagnostics);

/// One configuration. Neither moved nor copied: the report refers to what was loaded.
struct Checked {
  explicit Checked(Target target) : loaded{Config(target), {}, {}, {}, false} {}
  Checked(const Checked&) = delete;
  Checked& operator=(const Checked&) = delete;

  std::string file;               ///< as the command line names it
  std::string_view input_format;  ///< empty: could not be read
  Loaded loaded;
  std::optional<Report> report;  ///< absent: unreadable
  Diagnostics diagnostics;       ///< the reader's, then the rules'
  Verdict verdict = Verdict::Unreadable;
};

/// All configurations of one run. A deque, because its elements must stay where they are.
struct CheckedList {
  Target target;
  std::deque<Checked> configs;
  std::vector<std::string> texts{};  ///< what `Tell` made of each

  [[nodiscard]] Counts count() const;
  /// The worst of all.
  [[nodiscard]] Exit exit() const;
};

struct Project;  // project.hpp

/// What a report says of one configuration, `alone` or among others. Called on the thread that checked it.
using Tell = std::function<std::string(const Checked&, bool alone)>;

/// Loads and checks. Throws CouldNotRun for wrong usage; everything about the inputs is in the result. A project, when
/// there is one, adds to the options of each file. With `tell`, `texts` holds what it said, and configurations that are
/// not alone keep their verdicts and diagnostics only: so that memory does not grow with what thousands of files say.
[[nodiscard]] CheckedList load_and_check(const InputOptions& options, const Project* project = nullptr,
                                         const Tell& tell = {});

/// As `load_and_check`, for one file that is taken to hold `text`.
[[nodiscard]] std::unique_ptr<Checked> check_text(const InputOptions& options, const Project* project,
                                                  const std::string& path, const std::string& text);

/// For a command that cannot go on without some values: appends an error for each one that is unknown.
void need(Checked& checked, std::string_view command, std::span<const OptionId> options);

/// As `need`, for a command that lays out ranks.
void need_topology(CheckedList& list, std::string_view command);

}  // namespace gtp::cli
