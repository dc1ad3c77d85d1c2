// What upstream fills in or silently changes, in the order in which it is applied (derive.hpp); the rows are in
// changes/, one file an area. Sizes, batches and layers have functions of their own in derive.hpp instead.
#pragma once

#include <vector>

#include <gtp/rule.hpp>

namespace gtp {

namespace detail {

GTP_RULES_INLINE std::vector<const Rule*> make_changes(const Target& target);

}  // namespace detail

/// The changes of this target, in their order.
[[nodiscard]] inline const std::vector<const Rule*>& changes_of(const Target& target) {
  return once_for<detail::make_changes>(target);
}

}  // namespace gtp

#ifndef GTP_RULES_COMPILED
#include <gtp/change_tables.hpp>
#endif
