// Plans with experts.
#pragma once

#include "runs.hpp"

namespace gtp::test {

/// Weight shards, EP, shards of expert weights, and the global batch.
inline train::PlanValues moe_plan(std::int64_t world, std::int64_t shards, std::int64_t ep, std::int64_t expert_shards,
                                  std::int64_t batch, const std::string& more = "\"adam_beta2\": 0.95") {
  return plan_of(fmt::format(R"("world_size": {}, "tensor_model_parallel_size": 1,
      "tensor_parallel_num_weight_shards": {}, "expert_tensor_parallel_size": 1, "expert_model_parallel_size": {},
      "expert_tensor_parallel_num_weight_shards": {}, "num_experts": 4, "global_batch_size": {}, {})",
                             world, shards, ep, expert_shards, batch, more));
}

}  // namespace gtp::test
