// GitHub Actions workflow commands: one annotation a diagnostic.
// https://docs.github.com/actions/reference/workflow-commands-for-github-actions
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/render.hpp"

namespace gtp::cli {

namespace {

/// A `%`, a line end and, in a property, a separator would end the command early.
std::string escaped(std::string_view text, bool property) {
  std::string out;
  for (const char letter : text) {
    const bool separates = property && (letter == ':' || letter == ',');
    if (letter == '%' || letter == '\r' || letter == '\n' || separates) {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(letter));
    } else {
      out += letter;
    }
  }
  return out;
}

std::string_view command_of(Severity severity) {
  switch (severity) {
    case Severity::Error:
      return "error";
    case Severity::Warning:
      return "warning";
    case Severity::Note:
      return "notice";
  }
  return "";
}

std::string place_of(const Checked& checked, const Place& place) {
  const Source* source = file_of(checked, place);
  if (source == nullptr) return fmt::format("file={}", escaped(checked.file, true));
  const auto [start, end] = locate(*source, place.begin, place.end);
  std::string out = fmt::format("file={},line={},endLine={}", escaped(source->name, true), start.line, end.line);
  if (start.line == end.line) out += fmt::format(",col={},endColumn={}", start.column, end.column);
  return out;
}

std::string commands_of(const Checked& checked) {
  std::string out;
  for (const Diagnostic& d : checked.diagnostics) {
    std::string text = d.message;
    if (!d.primary.text.empty()) text += ": " + d.primary.text;
    for (const std::string& note : d.notes) text += "\n" + note;
    if (!d.help.empty()) text += "\nhelp: " + d.help;
    out += fmt::format("::{} {},title={}::{}\n", command_of(d.severity), place_of(checked, d.primary.place),
                       escaped(fmt::format("{} {}", d.code, d.rule), true), escaped(text, false));
  }
  return out;
}

}  // namespace

Renderer github_renderer() {
  return {[](const Checked& checked, bool) { return commands_of(checked); },
          [](const CheckedList& list) { return fmt::format("{}", fmt::join(list.texts, "")); }};
}

}  // namespace gtp::cli
