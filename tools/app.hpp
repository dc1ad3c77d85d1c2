// The program: finds the command, parses its words with CLI11, runs it, and answers every failure once.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace gtp::cli {

/// `words` are those after the program's name. Returns the exit status; never throws.
[[nodiscard]] int run(std::vector<std::string> words);

}  // namespace gtp::cli
