// Every subcommand that this version has; each is set up in the file of its name.
#pragma once

#include <array>
#include <functional>
#include <string_view>

#include "tools/arguments.hpp"
#include "tools/could_not_run.hpp"

namespace gtp::cli {

/// What a command does once its words are parsed.
using Action = std::function<Exit()>;

Action setup_check(Arguments& arguments);
Action setup_plan(Arguments& arguments);
Action setup_ranks(Arguments& arguments);
Action setup_batch(Arguments& arguments);
Action setup_launch(Arguments& arguments);
Action setup_diff(Arguments& arguments);
Action setup_explain(Arguments& arguments);

/// `setup` declares a command's options and returns what is to be run after parsing.
struct Command {
  std::string_view name;
  std::string_view summary;
  Action (*setup)(Arguments& arguments);
};

inline constexpr std::array<Command, 7> kCommands{{
    {"check", "validate configurations; every problem in one run", setup_check},
    {"plan", "resolve a configuration into one canonical plan (JSON)", setup_plan},
    {"ranks", "process groups and rank map of a configuration", setup_ranks},
    {"batch", "batch, sample, LR-scheduler and evaluation accounting", setup_batch},
    {"launch", "the files that start a job, for a launcher and a framework", setup_launch},
    {"diff", "what differs between two configurations, groups and diagnostics included", setup_diff},
    {"explain", "what a diagnostic or an option means, why, and how to mend it", setup_explain},
}};

}  // namespace gtp::cli
