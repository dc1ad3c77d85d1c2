// From libyaml's marks, which count code points, to tight byte spans. Private to yaml_events.cpp.
#pragma once

#include <yaml.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <gtp/place.hpp>

#include "validators/reading.hpp"

namespace gtp::readers {

class YamlPlaces {
 public:
  YamlPlaces(std::string_view text, std::uint32_t source) : text_(text), source_(source) {
    if (text.starts_with(kByteOrderMark)) mark_size_ = kByteOrderMark.size();
    byte_ = mark_size_;
  }

  /// What libyaml is given: marks count from here.
  [[nodiscard]] std::string_view text_without_mark() const { return text_.substr(mark_size_); }

  [[nodiscard]] std::size_t byte_of_offset(std::size_t offset) const {
    return std::min(offset + mark_size_, text_.size());
  }

  /// Marks mostly grow, so the search goes on from the last one.
  [[nodiscard]] std::size_t byte_of(std::size_t index) {
    for (; index_ < index && byte_ < text_.size(); ++index_) do
        ++byte_;
      while (byte_ < text_.size() && continues(byte_));
    for (; index_ > index && byte_ > mark_size_; --index_) do
        --byte_;
      while (byte_ > mark_size_ && continues(byte_));
    return byte_;
  }

  /// The bytes of an event's value, without the anchor and tag before it and the line ends after it.
  [[nodiscard]] Place of(const yaml_event_t& event, bool has_properties) {
    std::size_t begin = byte_of(event.start_mark.index);
    std::size_t end = byte_of(event.end_mark.index);
    if (has_properties) begin = skip_properties(begin, end);
    while (end > begin && is_space(text_[end - 1])) --end;
    return {source_, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
  }

  [[nodiscard]] Place one_character(std::size_t at) const {
    std::size_t end = std::min(at + 1, text_.size());
    while (end < text_.size() && continues(end)) ++end;
    return {source_, static_cast<std::uint32_t>(std::min(at, text_.size())), static_cast<std::uint32_t>(end)};
  }

 private:
  [[nodiscard]] bool continues(std::size_t at) const {
    return (static_cast<unsigned char>(text_[at]) & 0xC0U) == 0x80U;
  }
  static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

  [[nodiscard]] std::size_t skip_properties(std::size_t at, std::size_t end) const {
    while (at < end && (text_[at] == '&' || text_[at] == '!')) {
      while (at < end && !is_space(text_[at])) ++at;
      while (at < end && is_space(text_[at])) ++at;
    }
    return at;
  }

  std::string_view text_;
  std::uint32_t source_;
  std::size_t mark_size_ = 0;
  std::size_t index_ = 0;  // code points before byte_
  std::size_t byte_ = 0;
};

}  // namespace gtp::readers
