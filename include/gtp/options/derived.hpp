// What upstream computes and a user cannot set. Rules and reports name these like options.
#pragma once

#include <gtp/option.hpp>

namespace gtp::options {

inline constexpr Option kDerived[] = {
    {"gtp_weight_remat_size", Section::Derived, Type::Int, kNone,
     "GTP_remat: dense weight shards / TP, the ranks a weight is all-gathered over"},
    {"expert_gtp_weight_remat_size", Section::Derived, Type::Int, kNone,
     "EGTP_remat: expert weight shards / ETP, the ranks an expert weight is all-gathered over"},
    {"data_parallel_size", Section::Derived, Type::Int, kNone, "Replicate DP: world size / (TP x PP x CP x GTP_remat)"},
    {"expert_data_parallel_size", Section::Derived, Type::Int, kNone,
     "Expert replicate DP: world size / (ETP x EP x PP x EGTP_remat)"},
    {"data_distribution_size", Section::Derived, Type::Int, kNone,
     "Replicate DP x GTP_remat: ranks that read different samples"},
    {"virtual_pipeline_model_parallel_size", Section::Derived, Type::Int, kNone,
     "VPP: model chunks on each pipeline rank; None without interleaving"},
    {"num_microbatches", Section::Derived, Type::Int, kNone, "Microbatches of one step on each rank"},
    {"running_global_batch_size", Section::Derived, Type::Int, kNone,
     "Samples of one step after rounding down to whole microbatches"},
    {"eval_num_microbatches", Section::Derived, Type::Int, kNone, "Microbatches of one evaluation step on each rank"},
    {"dense_order", Section::Derived, Type::String, kNone, "Axes of the dense grid, fastest first"},
    {"expert_order", Section::Derived, Type::String, kNone, "Axes of the expert grid, fastest first"},
    {"env", Section::Derived, Type::Bool, kNone,
     "Whether the variables of the job's environment are known: an input listed them"},
    {"iteration", Section::Derived, Type::Int, kNone, "Iteration at which a checkpoint was saved"},
    {"has_rng", Section::Derived, Type::Bool, kNone, "Whether a checkpoint holds random states"},
    {"optimizer_sharding", Section::Derived, Type::String, kNone,
     "How a checkpoint holds the state of the distributed optimizer, such as dp_reshardable"},
};

}  // namespace gtp::options
