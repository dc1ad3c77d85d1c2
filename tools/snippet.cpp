#include "tools/snippet.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "tools/utf8.hpp"

namespace gtp::cli {

namespace {

// A line of up to so many bytes is shown whole; of a longer one, some text before the mark and so many columns.
constexpr std::size_t kWholeLine = 120, kBytesBefore = 40, kColumns = 110;
constexpr std::string_view kTab = "    ", kCut = "...";

struct Bytes {
  std::size_t begin, end;
};

/// The line at an offset, without its line end.
Bytes line_at(std::string_view text, std::size_t offset) {
  offset = std::min(offset, text.size());
  const std::size_t before = offset == 0 ? std::string_view::npos : text.rfind('\n', offset - 1);
  Bytes line{before == std::string_view::npos ? 0 : before + 1, std::min(text.find('\n', offset), text.size())};
  if (line.end > line.begin && text[line.end - 1] == '\r') --line.end;
  return line;
}

/// A line as it is printed, and where in it a mark goes.
struct Printed {
  std::string text;
  std::size_t column = 0;
  std::size_t width = 1;
};

std::size_t start_of_code_point(std::string_view text, std::size_t at) {
  for (int step = 0; step < 3 && at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U; ++step) --at;
  return at;
}

Printed print_line(std::string_view line, std::size_t begin, std::size_t end) {
  const bool whole = line.size() <= kWholeLine;
  std::size_t at = whole || begin <= kBytesBefore ? 0 : start_of_code_point(line, begin - kBytesBefore);
  Printed printed;
  if (at > 0) printed.text = kCut;
  std::size_t columns = printed.text.size(), stop = 0;
  while (at < line.size() && (whole || columns < kColumns)) {
    if (at <= begin) printed.column = columns;
    const CodePoint point = decode(line, at);
    if (point.value == '\t') {
      printed.text += kTab;
      columns += kTab.size();
    } else {
      const char32_t shown = printable(point.value);
      append_utf8(shown, printed.text);
      columns += static_cast<std::size_t>(width_of(shown));
    }
    at += point.size;
    if (at <= end) stop = columns;
  }
  if (begin >= at) printed.column = columns;
  printed.width = std::max<std::size_t>(stop > printed.column ? stop - printed.column : 1, 1);
  if (at < line.size()) printed.text += kCut;
  return printed;
}

}  // namespace

std::size_t gutter_of(const std::vector<Mark>& marks) {
  std::uint32_t last = 1;
  for (const Mark& mark : marks) last = std::max(last, mark.line);
  return fmt::formatted_size("{}", last) + 2;
}

void append_snippet(const Source& source, std::vector<Mark> marks, std::size_t gutter, Ink ink, Paint paint,
                    std::string& out) {
  std::stable_sort(marks.begin(), marks.end(), [](const Mark& a, const Mark& b) { return a.begin < b.begin; });
  const std::string frame = fmt::format("{:{}} {}", "", gutter, paint(Ink::Frame, "|"));
  out += frame + '\n';
  std::uint32_t last = 0;
  std::string shown;
  for (const Mark& mark : marks) {
    const Bytes line = line_at(source.text, mark.begin);
    const std::string_view text = std::string_view(source.text).substr(line.begin, line.end - line.begin);
    const std::size_t begin = std::min<std::size_t>(mark.begin, line.end) - line.begin;
    const std::size_t end = std::clamp<std::size_t>(mark.end, line.begin + begin, line.end) - line.begin;
    const Printed printed = print_line(text, begin, end);
    if (mark.line != last || printed.text != shown) {
      if (last != 0 && mark.line > last + 1) out += paint(Ink::Frame, kCut) + '\n';
      const std::string number = paint(Ink::Frame, fmt::format("{:>{}} |", mark.line, gutter));
      out += printed.text.empty() ? number + '\n' : fmt::format("{} {}\n", number, printed.text);
    }
    last = mark.line;
    shown = printed.text;
    const std::string signs(printed.width, mark.primary ? '^' : '-');
    std::string row = signs;
    if (!mark.text.empty()) row += ' ' + mark.text;
    out += fmt::format("{} {:{}}{}\n", frame, "", printed.column, paint(mark.primary ? ink : Ink::Frame, row));
  }
}

}  // namespace gtp::cli
