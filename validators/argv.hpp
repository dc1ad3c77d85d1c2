// A Megatron command line, read as Python's argparse reads it without abbreviations.
#pragma once

#include <span>

#include "validators/reading.hpp"

namespace gtp::readers {

/// Sets what the words say. The last of several equal flags wins. Flags that only some upstream script
/// adds to the parser are skipped with their values; other unknown flags, words that belong to no
/// flag, and wrong numbers of values are reported.
void read_argv(Reading& reading, std::span<const Word> words);

}  // namespace gtp::readers
