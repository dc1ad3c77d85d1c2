// From the CONFIGs of a command line to files: folders and patterns stand for what is in them.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace gtp::cli {

/// In order of the words; within a folder or pattern in order of name, each file once. A folder stands for all files
/// below it whose names end in .yaml, .yml, .json or .args, hidden ones left out; links to folders are not followed. A
/// word with `*`, `?` or `[` that names no file is a pattern of the shell's kind, in which `**` crosses folders.
/// Throws CouldNotRun for a folder or a pattern without a file.
[[nodiscard]] std::vector<std::string> config_paths(std::span<const std::string> words);

/// Whether a path, below the working folder, is meant by a pattern of a project file: a pattern as above, a folder that
/// it is in, or, where the pattern has no slash, the name of the file or of one of its folders.
[[nodiscard]] bool matches(const std::string& pattern, const std::string& path);

}  // namespace gtp::cli
