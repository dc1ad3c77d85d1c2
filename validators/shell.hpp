// Launch scripts, best effort: the command that starts Megatron, its options, the size of the job and the variables
// that it exports. What the script itself does not say is reported as unresolved, never guessed, and nothing is run.
#pragma once

#include <string_view>

#include "validators/reading.hpp"

namespace gtp::readers {

/// Variables of the configuration's environment are known to the script. False, and one `kUnreadable`, if the text
/// is no shell script.
[[nodiscard]] bool read_shell(Reading& reading, std::string_view text);

}  // namespace gtp::readers
