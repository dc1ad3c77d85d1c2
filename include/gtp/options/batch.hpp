// Batch sizes, schedules, and how long to train and evaluate.
#pragma once

#include <gtp/option.hpp>

namespace gtp::options {

inline constexpr Option kBatch[] = {
    {"batch_size", Section::Batch, Type::Int, kNone,
     "Removed option that raises an error when set; micro_batch_size replaces it"},
    {"decrease_batch_size_if_needed", Section::Batch, Type::Bool, false,
     "Rounds the global batch down to a multiple of micro batch times DP size", "", "",
     "train.decrease_batch_size_if_needed"},
    {"eval_global_batch_size", Section::Batch, Type::Int, kNone,
     "Samples per evaluation step over all ranks; null uses the training global batch size", "", "",
     "validation.eval_global_batch_size"},
    {"eval_interval", Section::Batch, Type::Int, kNone,
     "Training iterations between evaluations; null never evaluates during training", "", "",
     "validation.eval_interval"},
    {"eval_iters", Section::Batch, Type::Int, 100, "Iterations in each validation or test pass; 0 skips evaluation", "",
     "", "validation.eval_iters"},
    {"eval_micro_batch_size", Section::Batch, Type::Int, kNone,
     "Samples per forward pass on each rank in evaluation; null uses the training micro batch size", "", "",
     "validation.eval_micro_batch_size"},
    {"full_validation", Section::Batch, Type::Bool, false,
     "Goes through the whole validation set at each evaluation, whatever eval_iters says", "", "",
     "dataset.full_validation"},
    {"global_batch_size", Section::Batch, Type::Int, kNone,
     "Samples per optimizer step over all ranks; null takes micro batch times DP size", "", "",
     "train.global_batch_size"},
    {"iterations_to_skip", Section::Batch, Type::Integers, "",
     "Iteration numbers, counted from 1, whose data is drawn but on which no training step is done", "", "",
     "train.iterations_to_skip", Arity::OneOrMore},
    {"micro_batch_size", Section::Batch, Type::Int, kNone,
     "Samples that one model replica processes in a single forward and backward pass", "", "", "train.micro_batch_size",
     Arity::One, true},
    {"phase_transition_iterations", Section::Batch, Type::String, kNone,
     "Comma list of iterations at which a new data phase begins; global batch must stay fixed"},
    {"rampup_batch_size", Section::Batch, Type::Integers, kNone,
     "Deprecated ramp given as start batch, increment and ramp length, all in samples", "", "",
     "train.rampup_batch_size", Arity::Three},
    {"start_eval_at_iter", Section::Batch, Type::Int, kNone,
     "First iteration after which evaluation may run; null evaluates from the first interval", "", "",
     "validation.start_eval_at_iter"},
    {"step_batch_size_schedule", Section::Batch, Type::String, kNone,
     "Global batch steps as THRESHOLD:SIZE pairs; thresholds in tokens if seq_length is known", "", "",
     "train.step_batch_size_schedule"},
    {"train_iters", Section::Batch, Type::Int, kNone,
     "Iterations in the whole training, restarts included; give this or train_samples", "", "", "train.train_iters"},
    {"train_samples", Section::Batch, Type::Int, kNone,
     "Samples in the whole training, restarts included; give this or train_iters", "", "", "train.train_samples"},
};

}  // namespace gtp::options
