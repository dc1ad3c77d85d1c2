// What Megatron-Bridge has beside Megatron's options. No flag sets these, and only a Bridge target knows them.
#pragma once

#include <gtp/option.hpp>

namespace gtp::options {

inline constexpr Option kBridge[] = {
    {"check_for_nan_in_loss", Section::Bridge, Type::Bool, true, "Stops the run at a loss that is no number", "", "",
     "rerun_state_machine.check_for_nan_in_loss"},
    {"comm_overlap", Section::Bridge, Type::Bool, false,
     "Whether a comm_overlap section chooses what communication is overlapped"},
    {"dataset_config", Section::Bridge, Type::String, kNone, "Class of the dataset section, such as GPTDatasetConfig"},
    {"dataset_seq_length", Section::Bridge, Type::Int, kNone,
     "Sequence length of the dataset section; must equal the model's", "", "", "dataset.seq_length"},
    {"enable_in_batch_packing", Section::Bridge, Type::Bool, false,
     "Packs the sequences of one micro batch into a single row", "", "", "dataset.enable_in_batch_packing"},
    {"enable_offline_packing", Section::Bridge, Type::Bool, false, "Trains on rows that were packed ahead of time", "",
     "", "dataset.enable_offline_packing"},
    {"eval_context_parallel_size", Section::Bridge, Type::Int, kNone,
     "Context-parallel size during evaluation; null uses the training size", "", "", "dist.eval_context_parallel_size"},
    {"max_steps", Section::Bridge, Type::Int, kNone,
     "Iterations that the schedules are laid out for, at least train_iters", "", "", "scheduler.max_steps"},
    {"mixed_precision", Section::Bridge, Type::String, kNone,
     "Mixed-precision recipe, which sets all precision options",
     "bf16_mixed fp16_mixed bf16_with_fp8_delayed_scaling_mixed fp16_with_fp8_delayed_scaling_mixed "
     "bf16_with_mxfp8_mixed fp16_with_mxfp8_mixed bf16_with_fp8_current_scaling_mixed "
     "nemotron_h_bf16_with_fp8_current_scaling_mixed nanov2_bf16_with_fp8_current_scaling_mixed "
     "fp16_with_fp8_current_scaling_mixed bf16_with_fp8_subchannel_scaling_mixed "
     "fp16_with_fp8_subchannel_scaling_mixed bf16_with_nvfp4_mixed nemotron_3_super_bf16_with_nvfp4_mixed",
     "", "mixed_precision"},
    {"num_epochs", Section::Bridge, Type::Float, kNone,
     "Passes over a finite dataset, in place of train_iters or train_samples", "", "", "train.num_epochs"},
};

}  // namespace gtp::options
