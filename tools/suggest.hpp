// What a misspelt word was probably meant to be, as advice.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include <gtp/nearest.hpp>

namespace gtp::cli {

/// "did you mean ...?", or `otherwise` when no candidate is near.
template <class Candidates>
[[nodiscard]] std::string suggest(std::string_view word, const Candidates& candidates, std::string otherwise = {}) {
  const std::string_view meant = nearest(word, candidates);
  return meant.empty() ? std::move(otherwise) : fmt::format("did you mean `{}`?", meant);
}

}  // namespace gtp::cli
