// `.gtplan.yaml`: what a repository of configurations always passes to `gtplan check`, for all files or for some. The
// command line wins over it. docs/ci.md describes it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/input.hpp"

namespace gtp::cli {

inline constexpr const char* kProjectFile = ".gtplan.yaml";

/// What can be said for all files and again for some.
struct ProjectOptions {
  std::string target, input_format, model, env_file;
  std::optional<std::string> world_size, nodes, gpus_per_node;
  std::vector<std::string> clusters, set, require, ignore;
  bool strict = false;
  bool complete = false;
};

struct Project {
  struct Files {
    std::vector<std::string> match;
    ProjectOptions options;
  };

  ProjectOptions options;
  std::vector<std::string> configs;  ///< what is checked when the command line names nothing
  std::vector<Files> files;
};

/// Throws CouldNotRun, with line and column, for a text that is no project file.
[[nodiscard]] Project parse_project(const std::string& name, const std::string& text);

/// `given` with what the project says of `path` added where the command line says nothing; lists are joined.
[[nodiscard]] InputOptions with_project(const InputOptions& given, const Project& project, const std::string& path);

/// The project of a run: the file that --project names, or `.gtplan.yaml` in the working folder if there is one.
/// Throws CouldNotRun when it cannot be read.
[[nodiscard]] std::optional<Project> find_project(const InputOptions& options);

}  // namespace gtp::cli
