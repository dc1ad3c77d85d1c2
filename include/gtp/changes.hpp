// What upstream fills in or silently changes, in the order in which it is applied (derive.hpp); the rows are in
// changes/, one file an area. Sizes, batches and layers have functions of their own in derive.hpp instead.
#pragma once

#include <array>
#include <span>

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

inline constexpr std::array<std::span<const Rule>, 11> kChanges{
    rules::kParallelChanges,    rules::kModelChanges,     rules::kExpertChanges,     rules::kSequenceChanges,
    rules::kPrecisionChanges,   rules::kOptimizerChanges, rules::kCheckpointChanges, rules::kScheduleChanges,
    rules::kEnvironmentChanges, rules::kGraphChanges,     rules::kRecomputeChanges,
};

}  // namespace gtp
