// The rules: all of them, those of a target, and one by its name.
#pragma once

#include <string_view>
#include <vector>

#include <gtp/rule.hpp>

namespace gtp {

/// Sorted by code, the order in which they are reported.
[[nodiscard]] GTP_RULES_INLINE const std::vector<const Rule*>& all_rules();

namespace detail {

inline std::vector<const Rule*> make_judges(const Target& target) {
  std::vector<const Rule*> rows;
  for (const Rule* rule : all_rules())
    if (rule->violation != nullptr && rule->in(target)) rows.push_back(rule);
  return rows;
}

}  // namespace detail

/// The rules that judge a configuration for this target, sorted by code.
[[nodiscard]] inline const std::vector<const Rule*>& rules_of(const Target& target) {
  return once_for<detail::make_judges>(target);
}

/// By code or by rule id; null when there is none.
[[nodiscard]] inline const Rule* find_rule(std::string_view code_or_id) {
  for (const Rule* rule : all_rules())
    if (rule->code == code_or_id || rule->id == code_or_id) return rule;
  return nullptr;
}

}  // namespace gtp

#ifndef GTP_RULES_COMPILED
#include <gtp/rule_tables.hpp>
#endif
