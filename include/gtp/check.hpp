// The entry point: derives what upstream would run with and checks every rule of the target.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <gtp/derive.hpp>
#include <gtp/rules.hpp>
#include <gtp/rules/form.hpp>

namespace gtp {

/// A rule that could not be checked, and the unknown options among its needs.
struct NotChecked {
  const Rule* rule;
  std::uint8_t unknown;  ///< bit i: the rule's need i

  [[nodiscard]] Needs needs() const {
    Needs needs;
    for (std::size_t i = 0; i < rule->needs.count; ++i)
      if ((unknown >> i & 1U) != 0) needs.add(rule->needs.ids[i]);
    return needs;
  }
};

namespace detail {

/// A note for each given value that upstream replaces.
inline void report_changes(const Derivation& d, Diagnostics& out) {
  const Config& config = d.facts.config();
  for (const auto& [rule, change] : d.changed) {
    const Setting* given = config.given(change.option);
    if (given == nullptr || is_none(given->value) || given->value == change.value) continue;
    out.push_back(report(
        *rule,
        at(change.option, fmt::format("upstream will use {} because {}", gtp::to_text(change.value), change.because)),
        config));
  }
}

}  // namespace detail

struct Report {
  Derivation derivation;
  Diagnostics diagnostics;
  std::vector<NotChecked> not_checked;
};

/// All violated rules in one run; never throws for bad input. `config` must outlive the report.
[[nodiscard]] inline Report check(const Config& config) {
  Report result{derive(config), {}, {}};
  const Facts& facts = result.derivation.facts;
  for (const Rule* rule : rules_of(config.target())) {
    unsigned unknown = 0;
    for (std::size_t i = 0; i < rule->needs.count; ++i)
      if (!facts.known(rule->needs.ids[i])) unknown |= 1U << i;
    if (unknown != 0) {
      result.not_checked.push_back({rule, static_cast<std::uint8_t>(unknown)});
      continue;
    }
    for (Finding& finding : rule->violation(result.derivation).list)
      result.diagnostics.push_back(report(*rule, std::move(finding), config));
  }
  detail::report_changes(result.derivation, result.diagnostics);
  return result;
}

/// Reports every one of the options that is not known (`--require`).
inline void require(const Facts& facts, std::span<const OptionId> options, Diagnostics& out) {
  for (const OptionId option : options)
    if (!facts.known(option)) out.push_back(report(rules::kRequiredMissing, at(option, "not known"), facts.config()));
}

}  // namespace gtp
