// Questions that the rules on sequences, experts and the model's shape ask of the facts. An unknown value answers none
// of them with yes.
#pragma once

#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/word_lists.hpp>

namespace gtp::rules::ask {

/// Known to be this text.
inline bool is(const Facts& f, OptionId option, std::string_view text) { return f.text(option) == text; }

/// Known to be set to a text other than this one.
inline bool is_other(const Facts& f, OptionId option, std::string_view text) {
  const auto value = f.text(option);
  return value && *value != text;
}

/// Known and false.
inline bool off(const Facts& f, OptionId option) { return f.known(option) && !f.on(option); }

/// Known to be None.
inline bool none(const Facts& f, OptionId option) { return f.known(option) && !f.has(option); }

/// Known and above this.
inline bool above(const Facts& f, OptionId option, std::int64_t least) {
  const auto value = f.integer(option);
  return value && *value > least;
}

/// Known and below this.
inline bool below(const Facts& f, OptionId option, std::int64_t least) {
  const auto value = f.integer(option);
  return value && *value < least;
}

/// The number, whether it was written as an integer or not.
inline std::optional<double> number(const Facts& f, OptionId option) {
  if (const auto value = f.integer(option)) return static_cast<double>(*value);
  const Value* value = f.find(option);
  const auto* real = value == nullptr ? nullptr : std::get_if<double>(value);
  return real == nullptr ? std::nullopt : std::optional(*real);
}

inline bool has_word(const Facts& f, OptionId option, std::string_view word) {
  return contains(words(f, option), word);
}

/// The first word that is none of these.
inline const std::string* word_other_than(const Facts& f, OptionId option,
                                          std::initializer_list<std::string_view> allowed) {
  for (const std::string& each : words(f, option)) {
    bool found = false;
    for (const std::string_view word : allowed) found = found || each == word;
    if (!found) return &each;
  }
  return nullptr;
}

/// The input itself gave a value, and not None.
inline bool given(const Facts& f, OptionId option) {
  const Setting* setting = f.config().given(option);
  return setting != nullptr && !is_none(setting->value);
}

/// As Python's `%`, without its error: nothing is a multiple of 0.
inline bool multiple(std::int64_t value, std::int64_t of) {
  if (of == 0) return false;
  return of == -1 || value % of == 0;
}

/// An option that is in the way, when it is, and what its label says.
struct Clash {
  bool wrong;
  OptionId option;
  std::string label;
};

/// One finding for all that is wrong: the first is blamed, the others take part.
inline Findings clashes(std::initializer_list<Clash> all) {
  Findings findings;
  for (const Clash& clash : all) {
    if (!clash.wrong) continue;
    if (findings.list.empty())
      findings.list.push_back(at(clash.option, clash.label));
    else
      std::move(findings.list.front()).also(clash.option, clash.label);
  }
  return findings;
}

/// Another option that takes part in whatever was found.
inline Findings also(Findings findings, OptionId option, std::string label) {
  for (Finding& finding : findings.list) std::move(finding).also(option, label);
  return findings;
}

/// `option` is on and `needed` is off.
inline Findings on_without(const Facts& f, OptionId option, OptionId needed) {
  if (!f.on(option) || !off(f, needed)) return {};
  return at(option, "on").also(needed, "off");
}

/// Both are on.
inline Findings both_on(const Facts& f, OptionId option, OptionId other) {
  if (!f.on(option) || !f.on(other)) return {};
  return at(option, "on").also(other, "on");
}

/// The value of an option as a label.
inline std::string shown(const Facts& f, OptionId option) {
  const Value* value = f.find(option);
  return value == nullptr ? "unknown" : gtp::to_text(*value);
}

}  // namespace gtp::rules::ask
