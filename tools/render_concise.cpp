#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/render.hpp"
#include "tools/utf8.hpp"

namespace gtp::cli {

namespace {

std::string where(const Checked& checked, const Place& place) {
  const Source* source = file_of(checked, place);
  if (source == nullptr) return printable(checked.file);
  const Position start = locate(*source, place.begin, place.end).start;
  return fmt::format("{}:{}:{}", printable(source->name), start.line, start.column);
}

std::string lines_of(const Checked& checked) {
  std::string out;
  for (const Diagnostic& d : checked.diagnostics) {
    out += fmt::format("{}: {}[{}] {}", where(checked, d.primary.place), gtp::to_text(d.severity), d.code,
                       printable(d.message));
    if (!d.primary.text.empty()) out += ": " + printable(d.primary.text);
    out += '\n';
  }
  return out;
}

}  // namespace

Renderer concise_renderer() {
  return {[](const Checked& checked, bool) { return lines_of(checked); },
          [](const CheckedList& list) { return fmt::format("{}", fmt::join(list.texts, "")); }};
}

}  // namespace gtp::cli
