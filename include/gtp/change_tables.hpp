// The changes of every area. Included by changes.hpp, or by one file of a program that compiles the rules once
// (rule.hpp).
#pragma once

#include <array>
#include <span>
#include <vector>

#include <gtp/changes.hpp>
#include <gtp/changes/checkpoint.hpp>
#include <gtp/changes/cuda_graphs.hpp>
#include <gtp/changes/environment.hpp>
#include <gtp/changes/experts.hpp>
#include <gtp/changes/model.hpp>
#include <gtp/changes/optimizer.hpp>
#include <gtp/changes/parallel.hpp>
#include <gtp/changes/precision.hpp>
#include <gtp/changes/recompute.hpp>
#include <gtp/changes/schedule.hpp>
#include <gtp/changes/sequence.hpp>

namespace gtp {

namespace detail {

inline constexpr std::array<std::span<const Rule>, 11> kChangeAreas{
    rules::kParallelChanges,    rules::kModelChanges,     rules::kExpertChanges,     rules::kSequenceChanges,
    rules::kPrecisionChanges,   rules::kOptimizerChanges, rules::kCheckpointChanges, rules::kScheduleChanges,
    rules::kEnvironmentChanges, rules::kGraphChanges,     rules::kRecomputeChanges,
};

}  // namespace detail

GTP_RULES_INLINE std::vector<const Rule*> detail::make_changes(const Target& target) {
  std::vector<const Rule*> rows;
  for (const std::span<const Rule> area : kChangeAreas)
    for (const Rule& rule : area)
      if (rule.in(target)) rows.push_back(&rule);
  return rows;
}

}  // namespace gtp
