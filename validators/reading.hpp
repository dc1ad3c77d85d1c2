// What all readers share: where they write, how a value becomes an option, and when they give up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <gtp/assign.hpp>
#include <gtp/config.hpp>
#include <gtp/diagnostic.hpp>
#include <gtp/place.hpp>

namespace gtp::readers {

/// No person reads more problems than this, and each unknown name costs a search through all options.
inline constexpr std::size_t kMostDiagnostics = 200;

/// A text may start with it; it is no part of the content.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

[[nodiscard]] inline bool full(const Diagnostics& out) { return out.size() >= kMostDiagnostics; }

/// One source being read into a configuration.
struct Reading {
  Config& config;
  Diagnostics& out;
  std::uint32_t source;

  [[nodiscard]] Place place(std::size_t begin, std::size_t end) const {
    return {source, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
  }
};

/// `$NAME`, `${...}`, `$(...)`: what only a shell can fill in.
[[nodiscard]] bool has_variable(std::string_view text);

/// Sets an option from words. A variable is kept in an option that is any text (a path, say); in every
/// other option it is reported and makes the option unknown.
void set_option(Reading& reading, OptionId option, std::span<const Word> words, Place place);

/// Precondition: `is_list(type)`.
[[nodiscard]] Value empty_list(Type type);

/// As if the input had said nothing of the option, except that its section stays described.
void forget(Config& config, OptionId option);

/// The option unknown again, whatever an earlier word said.
void make_unknown(Config& config, OptionId option);

/// Says once that the rest was left out; to be called when a reader stops because the diagnostics are `full`.
void report_rest(Diagnostics& out);

struct NotText {
  std::size_t offset;
  const char* what;
};

/// The first byte that no text of a supported format has: control characters and what is not UTF-8.
[[nodiscard]] std::optional<NotText> find_not_text(std::string_view bytes);

}  // namespace gtp::readers
