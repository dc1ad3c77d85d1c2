#include "validators/source.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace gtp {

namespace {

bool starts_code_point(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }

Position position_at(std::string_view text, std::size_t offset, Position from, std::size_t from_offset) {
  Position at = from;
  for (std::size_t i = from_offset; i < offset; ++i) {
    if (text[i] == '\n')
      at = {at.line + 1, 1};
    else if (starts_code_point(text[i]))
      ++at.column;
  }
  return at;
}

}  // namespace

std::uint32_t Sources::add(std::string name, std::string text) {
  sources_.push_back({std::move(name), std::move(text)});
  return static_cast<std::uint32_t>(sources_.size() - 1);
}

const Source& Sources::operator[](std::uint32_t index) const {
  assert(index < sources_.size());
  return sources_[index];
}

Range locate(const Source& source, std::uint32_t begin, std::uint32_t end) {
  const std::string_view text = source.text;
  const std::size_t first = std::min<std::size_t>(begin, text.size());
  const std::size_t last = std::clamp<std::size_t>(end, first, text.size());
  const Position start = position_at(text, first, {}, 0);
  return {start, position_at(text, last, start, first)};
}

std::string_view line_text(const Source& source, std::uint32_t line) {
  std::string_view text = source.text;
  for (std::uint32_t at = 1; at < line; ++at) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  text = text.substr(0, text.find('\n'));
  if (text.ends_with('\r')) text.remove_suffix(1);
  return line == 0 ? std::string_view{} : text;
}

}  // namespace gtp
