// What one rule is: a row. The rows are in rules/, one file an area; check.hpp runs them.
// How to add one: docs/rules.md.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtp/diagnostic.hpp>
#include <gtp/facts.hpp>

/// The rules are several hundred functions. A program of many files may compile them once: all of its files define
/// GTP_RULES_COMPILED, and one of them includes <gtp/rule_tables.hpp>.
#ifdef GTP_RULES_COMPILED
#define GTP_RULES_INLINE
#else
#define GTP_RULES_INLINE inline
#endif

namespace gtp {

/// What a violated rule says beyond its row: where, with which values, and how to mend it.
/// Built by chaining: `at(option, "6 is not a multiple of 4").also(tp, "tensor-parallel size").fix(...)`.
struct Finding {
  Label primary;
  std::vector<Label> related{};
  std::vector<std::string> notes{};
  std::string help{};  ///< replaces the row's help when not empty
  std::vector<Fix> fixes{};

  /// Another option that takes part.
  Finding&& also(OptionId option, std::string text) && {
    related.push_back({std::string(name_of(option)), {}, std::move(text)});
    return std::move(*this);
  }
  Finding&& note(std::string text) && {
    notes.push_back(std::move(text));
    return std::move(*this);
  }
  Finding&& mend(std::string text) && {
    help = std::move(text);
    return std::move(*this);
  }
  /// Offered only if exactly one answer is right.
  Finding&& fix(OptionId option, Value value) && {
    fixes.push_back({std::string(name_of(option)), std::move(value)});
    return std::move(*this);
  }
};

/// A finding whose primary label is at `option`.
[[nodiscard]] inline Finding at(OptionId option, std::string text) {
  return {.primary = {std::string(name_of(option)), {}, std::move(text)}};
}

/// What a rule found: nothing when it holds; one entry for each place when several are wrong.
struct Findings {
  std::vector<Finding> list{};

  Findings() = default;
  Findings(Finding finding) { list.push_back(std::move(finding)); }
};

struct Derivation;  // derive.hpp

/// What upstream makes of an option on its own. `because` completes "upstream will use VALUE because ...".
struct Change {
  OptionId option;
  Value value;
  std::string because;
};

/// None when the condition of a row does not hold; a row may change several options at once.
using Changes = std::vector<Change>;

/// Up to eight options that must be known before a rule can be checked.
struct Needs {
  std::array<OptionId, 8> ids{};
  std::uint8_t count = 0;

  constexpr Needs() = default;
  constexpr Needs(std::initializer_list<OptionId> options) {
    for (const OptionId option : options) add(option);
  }
  constexpr void add(OptionId option) { ids.at(count++) = option; }
  [[nodiscard]] constexpr std::span<const OptionId> span() const { return {ids.data(), count}; }
};

/// Rows whose source is Megatron-LM's own code although Megatron Core, or Bridge in a place of its own, refuses the
/// same.
inline constexpr auto kAlsoOnBridge = std::to_array<std::string_view>(
    {"GTP001", "GTP004", "GTP005", "GTP032", "GTP201", "GTP213", "GTP225", "GTP226", "GTP232", "GTP242", "GTP261",
     "GTP301", "GTP303", "GTP401", "GTP402", "GTP416", "GTP417"});

struct Rule {
  std::string_view code;  ///< stable, never reused; docs/rules.md says which area has which numbers
  std::string_view id;    ///< upstream rule id, or a name of our own for what no upstream rule covers
  Severity severity;
  Phase phase;
  Needs needs;
  std::string_view message;  ///< stands alone: lower case, no full stop
  std::string_view why;      ///< the reason, for `explain`
  std::string_view help;     ///< what to change
  std::string_view source;   ///< upstream file and line at the default target
  /// Called only with every need known. Null in a row that readers report themselves (9xx).
  Findings (*violation)(const Derivation&) = nullptr;
  Version first = kOldestVersion;
  Version last = kNewestVersion;
  /// A row of changes/: what upstream fills in or silently changes. Called only with every need known; such a row has
  /// no `violation`, and is told as a note where an input gave another value.
  Changes (*change)(const Facts&) = nullptr;

  /// The source says whom a rule is for: Bridge's own code, Megatron-LM's command line and training loop, or both when
  /// it is Megatron Core's.
  [[nodiscard]] constexpr bool in(Framework framework) const {
    if (violation == nullptr && change == nullptr) return true;  // the form of the input
    const bool also_on_bridge = std::find(kAlsoOnBridge.begin(), kAlsoOnBridge.end(), code) != kAlsoOnBridge.end();
    if (framework == Framework::kBridge) return also_on_bridge || !source.starts_with("megatron/training/");
    return !source.starts_with("Megatron-Bridge ");
  }
  [[nodiscard]] constexpr bool in(const Target& target) const {
    return first <= target.version && target.version <= last && in(target.framework);
  }
};

/// A row of changes/. `message` says what upstream does: "sequence parallelism is turned off".
[[nodiscard]] constexpr Rule changes(std::string_view code, std::string_view id, Needs needs, std::string_view message,
                                     std::string_view why, std::string_view help, std::string_view source,
                                     Changes (*change)(const Facts&), Version first = kOldestVersion,
                                     Version last = kNewestVersion) {
  return {code, id, Severity::Note, Phase::Silent, needs, message, why, help, source, nullptr, first, last, change};
}

/// Makes the diagnostic of a violated rule; labels get the places that the input gave their options.
[[nodiscard]] inline Diagnostic report(const Rule& rule, Finding finding, const Config& config) {
  const auto locate = [&](Label& label) {
    if (label.place.known() || label.option.empty()) return;
    if (const auto option = find_option(label.option))
      if (const Setting* setting = config.given(*option)) label.place = setting->place;
  };
  locate(finding.primary);
  for (Label& label : finding.related) locate(label);
  return {.severity = rule.severity,
          .phase = rule.phase,
          .code = rule.code,
          .rule = rule.id,
          .message = std::string(rule.message),
          .primary = std::move(finding.primary),
          .related = std::move(finding.related),
          .notes = std::move(finding.notes),
          .help = finding.help.empty() ? std::string(rule.help) : std::move(finding.help),
          .fix = std::move(finding.fixes)};
}

}  // namespace gtp
