#include "tools/paint.hpp"

#include <cstdlib>

namespace gtp::cli {

bool wants_color(std::string_view when, bool terminal) {
  if (when != "auto") return when == "always";
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool refused =
      (no_color != nullptr && *no_color != '\0') || (term != nullptr && std::string_view(term) == "dumb");
  return terminal && !refused;
}

}  // namespace gtp::cli
