// Short names for the options that several rules speak of.
#pragma once

#include <gtp/options.hpp>

namespace gtp::rules {

using namespace literals;

inline constexpr OptionId kWorldSize = "world_size"_opt, kTp = "tensor_model_parallel_size"_opt,
                          kShards = "tensor_parallel_num_weight_shards"_opt, kGtpRemat = "gtp_weight_remat_size"_opt,
                          kCp = "context_parallel_size"_opt, kPp = "pipeline_model_parallel_size"_opt,
                          kDp = "data_parallel_size"_opt, kLanes = "data_distribution_size"_opt,
                          kEp = "expert_model_parallel_size"_opt, kEtp = "expert_tensor_parallel_size"_opt,
                          kExpertShards = "expert_tensor_parallel_num_weight_shards"_opt,
                          kEgtpRemat = "expert_gtp_weight_remat_size"_opt, kEdp = "expert_data_parallel_size"_opt,
                          kPpBeforeDp = "use_tp_pp_dp_mapping"_opt, kNumExperts = "num_experts"_opt,
                          kInstances = "num_distributed_optimizer_instances"_opt,
                          kVpp = "virtual_pipeline_model_parallel_size"_opt, kMbs = "micro_batch_size"_opt,
                          kGbs = "global_batch_size"_opt, kDecrease = "decrease_batch_size_if_needed"_opt,
                          kSchedule = "step_batch_size_schedule"_opt, kEvalMbs = "eval_micro_batch_size"_opt,
                          kEvalGbs = "eval_global_batch_size"_opt, kNumMicrobatches = "num_microbatches"_opt,
                          kFp8 = "fp8"_opt, kFp8Recipe = "fp8_recipe"_opt, kFp8Gather = "fp8_param_gather"_opt,
                          kFp4 = "fp4"_opt, kFp4Gather = "fp4_param_gather"_opt,
                          kReuseGradBuffer = "reuse_grad_buf_for_mxfp8_param_ag"_opt, kTeVersion = "te_version"_opt,
                          kDistributedOptimizer = "use_distributed_optimizer"_opt, kTorchFsdp2 = "use_torch_fsdp2"_opt,
                          kMegatronFsdp = "use_megatron_fsdp"_opt;

}  // namespace gtp::rules
