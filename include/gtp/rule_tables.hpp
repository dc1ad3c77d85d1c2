// The rules of every area. Included by rules.hpp, or by one file of a program that compiles the rules once (rule.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include <gtp/change_tables.hpp>
#include <gtp/rules.hpp>
#include <gtp/rules/batch.hpp>
#include <gtp/rules/bridge.hpp>
#include <gtp/rules/bridge_runtime.hpp>
#include <gtp/rules/checkpoint.hpp>
#include <gtp/rules/cuda_graphs.hpp>
#include <gtp/rules/data.hpp>
#include <gtp/rules/environment.hpp>
#include <gtp/rules/expert.hpp>
#include <gtp/rules/expert_dispatch.hpp>
#include <gtp/rules/expert_router.hpp>
#include <gtp/rules/form.hpp>
#include <gtp/rules/graph_limits.hpp>
#include <gtp/rules/gtp_runtime.hpp>
#include <gtp/rules/hardware.hpp>
#include <gtp/rules/library_variables.hpp>
#include <gtp/rules/model.hpp>
#include <gtp/rules/model_kernels.hpp>
#include <gtp/rules/optimizer.hpp>
#include <gtp/rules/pipeline.hpp>
#include <gtp/rules/pipeline_limits.hpp>
#include <gtp/rules/precision.hpp>
#include <gtp/rules/precision_state.hpp>
#include <gtp/rules/process_groups.hpp>
#include <gtp/rules/rank_order.hpp>
#include <gtp/rules/recompute.hpp>
#include <gtp/rules/resume.hpp>
#include <gtp/rules/schedule.hpp>
#include <gtp/rules/sequence.hpp>
#include <gtp/rules/transformer_engine.hpp>
#include <gtp/rules/weight_shards.hpp>
#include <gtp/rules/world_size.hpp>

namespace gtp {

namespace detail {

inline constexpr std::array<std::span<const Rule>, 30> kRuleAreas{
    rules::kWeightShards,   rules::kGtpRuntime,     rules::kWorldSizes,        rules::kRankOrder,
    rules::kPrecision,      rules::kPrecisionState, rules::kTransformerEngine, rules::kHardware,
    rules::kPipeline,       rules::kPipelineLimits, rules::kSequences,         rules::kExperts,
    rules::kExpertDispatch, rules::kExpertRouter,   rules::kBatches,           rules::kSchedules,
    rules::kModelShape,     rules::kModelKernels,   rules::kEnvironment,       rules::kLibraryVariables,
    rules::kCudaGraphs,     rules::kGraphLimits,    rules::kRecompute,         rules::kOptimizers,
    rules::kCheckpoints,    rules::kResumes,        rules::kDataRules,         rules::kProcessGroups,
    rules::kBridge,         rules::kBridgeRuntime,
};

}  // namespace detail

GTP_RULES_INLINE const std::vector<const Rule*>& all_rules() {
  static const std::vector<const Rule*> all = [] {
    std::vector<const Rule*> rows(std::begin(rules::kForm), std::end(rules::kForm));
    const auto add = [&](std::span<const std::span<const Rule>> areas) {
      for (const std::span<const Rule> area : areas)
        for (const Rule& rule : area) rows.push_back(&rule);
    };
    add(detail::kRuleAreas);
    add(detail::kChangeAreas);
    std::sort(rows.begin(), rows.end(), [](const Rule* a, const Rule* b) { return a->code < b->code; });
    return rows;
  }();
  return all;
}

}  // namespace gtp
