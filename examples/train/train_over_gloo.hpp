// Training with a process a rank, started by torchrun or whatever sets the same variables.
#pragma once

#include "train.hpp"

namespace gtp::train {

/// Joins the job that the environment describes and trains its rank of the plan. Throws kInvalidPlan if the job is not
/// of the plan's world size, and what GlooWorld and train() throw. `trace` is not owned.
TrainLog train_over_gloo(const PlanValues& plan, const ModelShape& shape, const TrainOptions& options,
                         TraceSink* trace = nullptr);

}  // namespace gtp::train
