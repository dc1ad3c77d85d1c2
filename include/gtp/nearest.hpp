// The name a user probably meant.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string_view>
#include <vector>

namespace gtp {

/// Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours.
/// Costs O(|a| x |b|); callers bound the lengths.
[[nodiscard]] inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(now);
  }
  return last[b.size()];
}

/// The candidate nearest to `name`, or an empty view when none is near enough (a third of its length).
template <class Candidates>
[[nodiscard]] std::string_view nearest(std::string_view name, const Candidates& candidates) {
  constexpr std::size_t kLongestName = 128;
  if (name.empty() || name.size() > kLongestName) return {};
  std::string_view best;
  std::size_t best_distance = name.size() / 3 + 1;
  for (const std::string_view candidate : candidates) {
    const std::size_t difference =
        candidate.size() > name.size() ? candidate.size() - name.size() : name.size() - candidate.size();
    if (difference >= best_distance) continue;
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace gtp
