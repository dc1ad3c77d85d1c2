// What is wrong with an input, as values: no I/O, no colours, no JSON. Renderers are in tools/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gtp/place.hpp>
#include <gtp/value.hpp>

namespace gtp {

enum class Severity : std::uint8_t { Error, Warning, Note };

/// When upstream would notice.
enum class Phase : std::uint8_t {
  Startup,    ///< it refuses to start
  FirstStep,  ///< it starts and fails in the first step
  Later,      ///< a schedule entry, a resume, a save
  Silent,     ///< never: it trains wrong, slow, or loses data
};

[[nodiscard]] constexpr std::string_view to_text(Severity severity) {
  switch (severity) {
    case Severity::Error:
      return "error";
    case Severity::Warning:
      return "warning";
    case Severity::Note:
      return "note";
  }
  return "";
}

[[nodiscard]] constexpr std::string_view to_text(Phase phase) {
  switch (phase) {
    case Phase::Startup:
      return "startup";
    case Phase::FirstStep:
      return "first-step";
    case Phase::Later:
      return "later";
    case Phase::Silent:
      return "silent";
  }
  return "";
}

/// One place of the input and what is to be said there. `option` is empty for a place that is not an
/// option's value; the place is unknown for a value that no input gave (a default, a derived value).
struct Label {
  std::string option;
  Place place;
  std::string text;
};

/// One change of the input that mends it; offered only if exactly one answer is right.
struct Fix {
  std::string option;
  Value value;
};

struct Diagnostic {
  Severity severity = Severity::Error;
  Phase phase = Phase::Startup;
  std::string_view code;  ///< stable, `GTP003`
  std::string_view rule;  ///< upstream rule id, `dense-shards-multiple-of-tp`
  std::string message;
  Label primary;
  std::vector<Label> related;
  std::vector<std::string> notes;
  std::string help;
  std::vector<Fix> fix;
};

using Diagnostics = std::vector<Diagnostic>;

[[nodiscard]] inline bool has_errors(const Diagnostics& diagnostics) {
  for (const Diagnostic& d : diagnostics)
    if (d.severity == Severity::Error) return true;
  return false;
}

}  // namespace gtp
