// Puts files into one folder: all of them or none, never outside of it, and never over what is there unasked.
#pragma once

#include <span>
#include <string>

#include "tools/launch/launch.hpp"

namespace gtp::cli {

/// Makes the folder if it is missing. Without `force` every file must be new; with it regular files are replaced. A
/// symbolic link, a folder or a device under one of the names is never touched. Throws CouldNotRun, and leaves the
/// folder as it was.
void write_files(const std::string& folder, std::span<const OutputFile> files, bool force);

}  // namespace gtp::cli
