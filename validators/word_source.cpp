#include "validators/word_source.hpp"

#include <algorithm>

namespace gtp::readers {

namespace {

constexpr std::string_view kQuoteInQuotes = R"('\'')";

bool is_plain(char c) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  return letter || std::string_view("-_./=:,+@%").find(c) != std::string_view::npos;
}

/// Bytes that the first `size` bytes of a word take inside single quotes.
std::size_t quoted_size(std::string_view word, std::size_t size) {
  const auto first = word.substr(0, size);
  const auto quotes = static_cast<std::size_t>(std::count(first.begin(), first.end(), '\''));
  return first.size() + quotes * (kQuoteInQuotes.size() - 1);
}

}  // namespace

WordPlace WordSource::add(std::string_view word) {
  if (!text_.empty()) text_ += ' ';
  WordPlace at;
  at.begin = static_cast<std::uint32_t>(text_.size());
  at.quoted = word.empty() || !std::all_of(word.begin(), word.end(), is_plain);
  if (!at.quoted) {
    text_ += word;
  } else {
    text_ += '\'';
    for (const char c : word) {
      if (c == '\'')
        text_ += kQuoteInQuotes;
      else
        text_ += c;
    }
    text_ += '\'';
  }
  at.end = static_cast<std::uint32_t>(text_.size());
  return at;
}

Place WordSource::part(const WordPlace& at, std::string_view word, std::uint32_t source, std::size_t from,
                       std::size_t to) {
  const std::size_t skip = at.quoted ? 1 : 0;
  const auto offset = [&](std::size_t byte) {
    return static_cast<std::uint32_t>(at.begin + skip + (at.quoted ? quoted_size(word, byte) : byte));
  };
  return {source, offset(from), offset(to)};
}

}  // namespace gtp::readers
