// One fuzz target; GTP_FUZZ_FORMAT is its format or nullptr.
#include "tests/fuzz/harness.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gtp::fuzz::try_input(GTP_FUZZ_FORMAT, data, size);
  return 0;
}
