#include "tools/launch/quote.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "tools/utf8.hpp"

namespace gtp::cli {

namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool means_nothing_to_a_shell(char c) {
  constexpr std::string_view kOthers = "-./:,+=@%";
  return is_letter(c) || is_digit(c) || kOthers.find(c) != std::string_view::npos;
}

/// YAML's printable characters, without line ends and the byte order mark.
bool is_printable(char32_t point) {
  constexpr char32_t kNextLine = 0x85, kLineSeparator = 0x2028, kParagraphSeparator = 0x2029, kByteOrder = 0xFEFF;
  if (point < 0x20U || (point >= 0x7FU && point < 0xA0U)) return false;
  return point != kNextLine && point != kLineSeparator && point != kParagraphSeparator && point != kByteOrder &&
         (point & 0xFFFEU) != 0xFFFEU;
}

/// `${` with the backslashes before it doubled and one more, as OmegaConf takes them away.
std::string omegaconf_escaped(std::string_view text) {
  std::string out;
  std::size_t backslashes = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text.substr(at, 2) == "${") out.append(backslashes + 1, '\\');
    backslashes = text[at] == '\\' ? backslashes + 1 : 0;
    out.push_back(text[at]);
  }
  return out;
}

/// Hydra takes a backslash away only before a quote, so that those before a quote or the end are doubled.
std::string hydra_double_quoted(std::string_view text) {
  std::string out("\"");
  std::size_t backslashes = 0;
  for (const char c : text) {
    if (c == '"') out.append(backslashes + 1, '\\');
    backslashes = c == '\\' ? backslashes + 1 : 0;
    out.push_back(c);
  }
  out.append(backslashes, '\\');
  return out + '"';
}

}  // namespace

std::string shell_quoted(std::string_view word) {
  if (!word.empty() && std::all_of(word.begin(), word.end(), means_nothing_to_a_shell)) return std::string(word);
  std::string out("'");
  for (const char c : word) {
    if (c == '\'')
      out += "'\\''";
    else
      out.push_back(c);
  }
  return out + '\'';
}

std::string bash_quoted(std::string_view word) {
  if (word.find('\r') == std::string_view::npos) return shell_quoted(word);
  std::string out("$'");
  for (const char c : word) {
    if (c == '\'' || c == '\\') out.push_back('\\');
    if (c == '\r')
      out += "\\r";
    else
      out.push_back(c);
  }
  return out + '\'';
}

std::string yaml_quoted(std::string_view text) {
  std::string out("\"");
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode(text, at);
    if (text[at] == '"' || text[at] == '\\')
      out.append({'\\', text[at]});
    else if (is_printable(point.value))
      out += text.substr(at, point.size);
    else if (point.value == '\n')
      out += "\\n";
    else if (point.value < 0x100U)
      out += fmt::format("\\x{:02x}", static_cast<std::uint32_t>(point.value));
    else
      out += fmt::format("\\U{:08x}", static_cast<std::uint32_t>(point.value));
    at += point.size;
  }
  return out + '"';
}

std::string kubernetes_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) out.append(c == '$' ? 2 : 1, c);
  return out;
}

std::string hydra_quoted(std::string_view text) {
  constexpr std::array<std::string_view, 5> kWords{"true", "false", "null", "nan", "inf"};
  const auto same = [&](std::string_view word) {
    return std::equal(word.begin(), word.end(), text.begin(), text.end(),
                      [](char a, char b) { return a == (b | 0x20); });
  };
  const bool bare = !text.empty() && is_letter(text[0]) &&
                    std::all_of(text.begin(), text.end(), [](char c) { return is_letter(c) || is_digit(c); }) &&
                    std::none_of(kWords.begin(), kWords.end(), same);
  return bare ? std::string(text) : hydra_double_quoted(omegaconf_escaped(text));
}

std::string comment_text(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode(text, at);
    out += is_printable(point.value) ? text.substr(at, point.size) : " ";
    at += point.size;
  }
  return out;
}

}  // namespace gtp::cli
