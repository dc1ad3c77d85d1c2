// Colours of a terminal, or none: whoever writes text asks for a meaning, not for a colour.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gtp::cli {

enum class Ink : std::uint8_t { Error, Warning, Note, Frame, Strong, Good, Faint };

class Paint {
 public:
  explicit Paint(bool on) : on_(on) {}

  [[nodiscard]] std::string operator()(Ink ink, std::string_view text) const {
    if (!on_ || text.empty()) return std::string(text);
    return std::string(code(ink)).append(text).append("\x1b[0m");
  }

 private:
  static constexpr std::string_view code(Ink ink) {
    switch (ink) {
      case Ink::Error:
        return "\x1b[1;31m";
      case Ink::Warning:
        return "\x1b[1;33m";
      case Ink::Note:
        return "\x1b[1;36m";
      case Ink::Frame:
        return "\x1b[1;34m";
      case Ink::Strong:
        return "\x1b[1m";
      case Ink::Good:
        return "\x1b[1;32m";
      case Ink::Faint:
        return "\x1b[2m";
    }
    return {};
  }

  bool on_;
};

/// `when` is auto, always or never; auto paints on a terminal that wants it (NO_COLOR, TERM=dumb).
[[nodiscard]] bool wants_color(std::string_view when, bool terminal);

}  // namespace gtp::cli
