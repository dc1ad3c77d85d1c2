#include "tools/utf8.hpp"

#include <algorithm>
#include <array>
#include <iterator>

namespace gtp::cli {

namespace {

struct Interval {
  char32_t first, last;
};

// Combining marks, joiners and variation selectors that occur in practice.
constexpr Interval kZeroWidth[] = {{0x0300, 0x036F}, {0x0483, 0x0489}, {0x0591, 0x05BD}, {0x064B, 0x065F},
                                   {0x0E31, 0x0E31}, {0x0E34, 0x0E3A}, {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF},
                                   {0x200B, 0x200D}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};
// Unicode's East Asian Width W and F, joined where gaps hold nothing that is in use.
constexpr Interval kWide[] = {{0x1100, 0x115F},  {0x2E80, 0x303E},   {0x3041, 0xA4CF},   {0xA960, 0xA97F},
                              {0xAC00, 0xD7A3},  {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},
                              {0xFFE0, 0xFFE6},  {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1FAFF},
                              {0x20000, 0x3FFFD}};
// Direction marks could show a value other than the one that is there.
constexpr Interval kUnprintable[] = {{0x00, 0x1F},     {0x7F, 0x9F},     {0x200E, 0x200F}, {0x2028, 0x202E},
                                     {0x2066, 0x2069}, {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}};

template <std::size_t N>
bool in(const Interval (&sorted)[N], char32_t value) {
  const Interval* at = std::lower_bound(std::begin(sorted), std::end(sorted), value,
                                        [](const Interval& interval, char32_t v) { return interval.last < v; });
  return at != std::end(sorted) && at->first <= value;
}

constexpr std::size_t kLongestText = 600;
constexpr std::size_t kKeptEachSide = 280;

void append_printable(std::string_view text, std::string& out) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode(text, at);
    append_utf8(printable(point.value), out);
    at += point.size;
  }
}

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

}  // namespace

CodePoint decode(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return at + i < text.size() ? static_cast<char32_t>(static_cast<unsigned char>(text[at + i])) : char32_t{0};
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xC2 || lead > 0xF4) return {};
  const std::size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  char32_t value = lead & (0x7FU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return {};
    value = value << 6U | (byte(i) & 0x3FU);
  }
  constexpr std::array<char32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  if (value < kLeast[size] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return {};
  return {value, size};
}

void append_utf8(char32_t value, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (value < 0x80) return put(value);
  if (value < 0x800) {
    put(0xC0U | value >> 6U);
  } else {
    if (value < 0x10000) {
      put(0xE0U | value >> 12U);
    } else {
      put(0xF0U | value >> 18U);
      put(0x80U | (value >> 12U & 0x3FU));
    }
    put(0x80U | (value >> 6U & 0x3FU));
  }
  put(0x80U | (value & 0x3FU));
}

int width_of(char32_t value) {
  if (value < 0x300) return 1;
  if (in(kZeroWidth, value)) return 0;
  return in(kWide, value) ? 2 : 1;
}

char32_t printable(char32_t value) { return in(kUnprintable, value) ? kReplacement : value; }

std::string printable(std::string_view text) {
  std::string out;
  if (text.size() <= kLongestText) {
    append_printable(text, out);
    return out;
  }
  std::size_t head = kKeptEachSide, tail = text.size() - kKeptEachSide;
  for (int step = 0; step < 3 && continues(text[head]); ++step) --head;
  for (int step = 0; step < 3 && continues(text[tail]); ++step) ++tail;
  append_printable(text.substr(0, head), out);
  out += " ... ";
  append_printable(text.substr(tail), out);
  return out;
}

std::size_t width_of(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode(text, at);
    width += static_cast<std::size_t>(width_of(point.value));
    at += point.size;
  }
  return width;
}

}  // namespace gtp::cli
