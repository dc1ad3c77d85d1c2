#include "validators/reading.hpp"

#include <fmt/format.h>

#include <utility>

namespace gtp::readers {

namespace {

bool keeps_variables(const Option& row) {
  return (row.type == Type::String || row.type == Type::Words) && row.choices.empty();
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// Bytes of the code point that starts at `at`; 0 if it is not UTF-8. Overlong forms, surrogates and
/// what lies beyond U+10FFFF are not UTF-8.
std::size_t code_point_size(std::string_view bytes, std::size_t at) {
  const auto byte = [&](std::size_t i) -> unsigned {
    return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0U;
  };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned first = byte(at);
  if (first < 0x80U) return 1;
  if (first >= 0xC2U && first <= 0xDFU) return continues(at + 1) ? 2 : 0;
  if (first >= 0xE0U && first <= 0xEFU) {
    if (!continues(at + 1) || !continues(at + 2)) return 0;
    if ((first == 0xE0U && byte(at + 1) < 0xA0U) || (first == 0xEDU && byte(at + 1) > 0x9FU)) return 0;
    return 3;
  }
  if (first >= 0xF0U && first <= 0xF4U) {
    if (!continues(at + 1) || !continues(at + 2) || !continues(at + 3)) return 0;
    if ((first == 0xF0U && byte(at + 1) < 0x90U) || (first == 0xF4U && byte(at + 1) > 0x8FU)) return 0;
    return 4;
  }
  return 0;
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20U && c != '\t' && c != '\n' && c != '\r' && c != '\f';
}

}  // namespace

bool has_variable(std::string_view text) {
  for (std::size_t at = text.find('$'); at != std::string_view::npos && at + 1 < text.size();
       at = text.find('$', at + 1))
    if (is_name_character(text[at + 1]) || text[at + 1] == '{' || text[at + 1] == '(') return true;
  return false;
}

void set_option(Reading& reading, OptionId option, std::span<const Word> words, Place place) {
  const Option& row = row_of(option, reading.config.version());
  if (!keeps_variables(row))
    for (const Word& word : words)
      if (has_variable(word.text)) {
        reading.out.push_back(rules::at_place(rules::kUnresolved, row.name, word.place,
                                              fmt::format("`{}` is not known here", word.text)));
        make_unknown(reading.config, option);
        return;
      }
  assign(reading.config, option, words, place, reading.out);
}

Value empty_list(Type type) {
  if (type == Type::Integers) return IntList{};
  if (type == Type::Floats) return FloatList{};
  return StringList{};
}

void forget(Config& config, OptionId option) {
  if (config.given(option) == nullptr && !config.given_unknown(option)) return;
  Config kept(config.target());
  for (const Setting& setting : config.settings())
    if (setting.option != option) kept.set(setting.option, setting.value, setting.place);
  for (const OptionId id : gtp::sorted_options())
    if (id != option && config.given_unknown(id)) kept.set_unknown(id);
  for (int section = 0; section < kSectionCount; ++section)
    if (config.described(static_cast<Section>(section))) kept.describe(static_cast<Section>(section));
  kept.partial = config.partial;
  kept.env = std::move(config.env);
  kept.env_known = config.env_known;
  kept.checkpoint = std::move(config.checkpoint);
  config = std::move(kept);
}

void make_unknown(Config& config, OptionId option) {
  if (config.given(option) != nullptr) forget(config, option);
  config.set_unknown(option);
}

void report_rest(Diagnostics& out) {
  if (!out.empty() && out.back().code == rules::kNotUnderstood.code && out.back().primary.text == "too many problems")
    return;
  out.push_back(rules::at_place(rules::kNotUnderstood, "", {}, "too many problems"));
  out.back().help = "mend those above first";
}

std::optional<NotText> find_not_text(std::string_view bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    if (is_control(bytes[at])) return NotText{at, "a control character: this is not a text file"};
    const std::size_t size = code_point_size(bytes, at);
    if (size == 0) return NotText{at, "not UTF-8 text"};
    at += size;
  }
  return std::nullopt;
}

}  // namespace gtp::readers
