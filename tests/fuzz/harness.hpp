// What a fuzz target does with its bytes: they are loaded, judged, and every offered fix is applied to the text.
// tests/fuzz/run.sh builds and runs the targets.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gtp::fuzz {

/// `format` names the reader; null: the whole of `check`, where the first byte chooses name of the file and target.
void try_input(const char* format, const std::uint8_t* data, std::size_t size);

}  // namespace gtp::fuzz
