// `check --fix`: the offered fixes written into the files. A fix counts only when the file, read again, has lost that
// diagnostic and gained no other; then a file is replaced whole or not at all.
#pragma once

#include <string>
#include <vector>

#include "tools/input.hpp"

namespace gtp::cli {

/// A file and what it is to hold.
struct MendedFile {
  std::string path;
  std::string before;
  std::string after;
};

/// A fix that was offered but has no place in the file.
struct LeftFix {
  std::string file;
  std::string code;
  std::string option;
};

struct Mending {
  std::vector<MendedFile> files;
  std::vector<LeftFix> left;
  int fixes = 0;

  /// For a person: what was done, and what could not be. Empty when no fix was offered.
  [[nodiscard]] std::string summary(bool dry_run) const;
  /// Unified, three lines of context.
  [[nodiscard]] std::string diff() const;
  /// Throws CouldNotRun at the first file that cannot be replaced; those before it stay mended.
  void write() const;
};

/// Throws CouldNotRun when an input is no file (standard input, `-- ARGS...`).
[[nodiscard]] Mending mend(const InputOptions& options, const Project* project, const CheckedList& list);

}  // namespace gtp::cli
