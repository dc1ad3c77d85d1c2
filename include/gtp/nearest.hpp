// The name a user probably meant.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

namespace gtp {

/// Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours. Any number from
/// `limit` on means "at least `limit`". Costs O(|a| x |b|) at most; callers bound the lengths.
[[nodiscard]] inline std::size_t edit_distance(std::string_view a, std::string_view b,
                                               std::size_t limit = std::numeric_limits<std::size_t>::max()) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  std::size_t last_least = 0;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    std::size_t least = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
      least = std::min(least, now[j]);
    }
    // A swap reaches back two rows; from two rows that are too far away nothing nearer can follow.
    if (least >= limit && last_least >= limit) return limit;
    last_least = least;
    before.swap(last);
    last.swap(now);
  }
  return last[b.size()];
}

namespace detail {

/// How often each letter occurs, letters told apart by their low five bits.
using Letters = std::array<std::int16_t, 32>;

[[nodiscard]] inline Letters letters_of(std::string_view text) {
  Letters letters{};
  for (const char letter : text) ++letters[static_cast<unsigned char>(letter) % letters.size()];
  return letters;
}

/// Every letter that one text has more often has to be put in or taken out: no edit distance is smaller.
[[nodiscard]] inline std::size_t least_distance(const Letters& a, std::string_view text) {
  Letters rest = a;
  for (const char letter : text) --rest[static_cast<unsigned char>(letter) % rest.size()];
  int missing = 0, extra = 0;
  for (const std::int16_t count : rest) (count > 0 ? missing : extra) += count > 0 ? count : -count;
  return static_cast<std::size_t>(std::max(missing, extra));
}

}  // namespace detail

/// The candidate nearest to `name`, or an empty view when none is near enough (a third of its length).
template <class Candidates>
[[nodiscard]] std::string_view nearest(std::string_view name, const Candidates& candidates) {
  constexpr std::size_t kLongestName = 128;
  if (name.empty() || name.size() > kLongestName) return {};
  const detail::Letters letters = detail::letters_of(name);
  std::string_view best;
  std::size_t best_distance = name.size() / 3 + 1;
  for (const std::string_view candidate : candidates) {
    const std::size_t difference =
        candidate.size() > name.size() ? candidate.size() - name.size() : name.size() - candidate.size();
    if (difference >= best_distance || detail::least_distance(letters, candidate) >= best_distance) continue;
    const std::size_t distance = edit_distance(name, candidate, best_distance);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace gtp
