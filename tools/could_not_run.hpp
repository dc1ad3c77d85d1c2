// Why the program could not do its work at all: usage, files, output. What is wrong inside an input is a Diagnostic.
#pragma once

#include <string>

namespace gtp::cli {

/// Exit status of the program.
enum class Exit : int {
  Valid = 0,        ///< warnings allowed
  Invalid = 1,      ///< errors in the input; under --strict also warnings
  CouldNotRun = 2,  ///< usage, unreadable file, bad syntax, output that cannot be written
};

/// Thrown anywhere in tools/, answered once in app.cpp with `Exit::CouldNotRun`.
struct CouldNotRun {
  std::string message;
  std::string help{};
  /// The reader of our output went away: nothing is left to tell anyone.
  bool silent = false;
};

}  // namespace gtp::cli
