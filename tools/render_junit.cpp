// JUnit XML as test reporters read it: a suite a configuration, a case a diagnostic, or one case that passed.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tools/render.hpp"
#include "tools/utf8.hpp"

namespace gtp::cli {

namespace {

/// As an attribute or as text. What XML 1.0 cannot hold (most control characters, bytes that are not UTF-8) becomes
/// U+FFFD.
std::string escaped(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode(text, at);
    at += point.size;
    switch (point.value) {
      case U'&':
        out += "&amp;";
        break;
      case U'<':
        out += "&lt;";
        break;
      case U'>':
        out += "&gt;";
        break;
      case U'"':
        out += "&quot;";
        break;
      case U'\n':
      case U'\t':
      case U'\r':
        out += fmt::format("&#{};", static_cast<unsigned>(point.value));
        break;
      default:
        append_utf8(point.value < 0x20 || point.value == 0xFFFE || point.value == 0xFFFF ? kReplacement : point.value,
                    out);
    }
  }
  return out;
}

std::string place_of(const Checked& checked, const Place& place) {
  if (!place.known()) return checked.file;
  const Source& source = checked.loaded.sources[place.source];
  const Position start = locate(source, place.begin, place.end).start;
  return fmt::format("{}:{}:{}", source.name, start.line, start.column);
}

std::string body_of(const Checked& checked, const Diagnostic& d) {
  std::string text = fmt::format("{}: {}", place_of(checked, d.primary.place), d.message);
  if (!d.primary.text.empty()) text += fmt::format("\n{}", d.primary.text);
  for (const Label& label : d.related) text += fmt::format("\n{}: {}", place_of(checked, label.place), label.text);
  for (const std::string& note : d.notes) text += fmt::format("\nnote: {}", note);
  if (!d.help.empty()) text += fmt::format("\nhelp: {}", d.help);
  return text;
}

std::string case_of(const Checked& checked, const Diagnostic& d) {
  const std::string head =
      fmt::format("    <testcase classname=\"{}\" name=\"{} {}\"", escaped(checked.file), d.code, escaped(d.rule));
  const std::string body = escaped(body_of(checked, d));
  if (d.severity != Severity::Error)
    return fmt::format("{}>\n      <system-out>{}</system-out>\n    </testcase>\n", head, body);
  return fmt::format("{}>\n      <failure message=\"{}\" type=\"{}\">{}</failure>\n    </testcase>\n", head,
                     escaped(d.message), d.code, body);
}

std::string suite_of(const Checked& checked) {
  const Counts counts = count(checked.diagnostics);
  std::string cases;
  for (const Diagnostic& d : checked.diagnostics) cases += case_of(checked, d);
  std::size_t tests = checked.diagnostics.size();
  if (tests == 0) {
    cases = fmt::format("    <testcase classname=\"{}\" name=\"valid\"/>\n", escaped(checked.file));
    tests = 1;
  }
  return fmt::format(
      "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"0\">\n{}  </testsuite>\n",
      escaped(checked.file), tests, counts.errors, cases);
}

std::string document_of(const CheckedList& list) {
  std::size_t tests = 0;
  for (const Checked& checked : list.configs) tests += std::max<std::size_t>(1, checked.diagnostics.size());
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"gtplan\" tests=\"{}\" failures=\"{}\" "
      "errors=\"0\">\n{}</testsuites>\n",
      tests, list.count().errors, fmt::join(list.texts, ""));
}

}  // namespace

Renderer junit_renderer() {
  return {[](const Checked& checked, bool) { return suite_of(checked); }, document_of};
}

}  // namespace gtp::cli
