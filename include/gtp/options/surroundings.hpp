// What the job runs on and where it resumes: facts upstream reads from its surroundings.
#pragma once

#include <gtp/option.hpp>

namespace gtp::options {

inline constexpr Option kSurroundings[] = {
    {"world_size", Section::Surroundings, Type::Int, kNone, "Number of ranks, one GPU each, that the launcher starts",
     "", "", "", Arity::One, true},
    {"gpus_per_node", Section::Surroundings, Type::Int, kNone, "GPUs of one host that the job uses", "", "", "",
     Arity::One, true},
    {"visible_gpus_per_node", Section::Surroundings, Type::Int, kNone,
     "GPUs of one host that its processes see (CUDA_VISIBLE_DEVICES)", "", "", "", Arity::One, true},
    {"gpu_arch", Section::Surroundings, Type::String, kNone, "GPU generation the job runs on",
     "volta ampere hopper blackwell", "", "", Arity::One, true},
    {"gpu_memory_gib", Section::Surroundings, Type::Float, kNone, "Memory of one GPU in GiB", "", "", "", Arity::One,
     true},
    {"host_memory_gib", Section::Surroundings, Type::Float, kNone, "Memory of one host in GiB", "", "", "", Arity::One,
     true},
    {"te_version", Section::Surroundings, Type::String, kNone, "Version of TransformerEngine, such as 2.19.0", "", "",
     "", Arity::One, true},
    {"consumed_train_samples", Section::Surroundings, Type::Int, 0,
     "Training samples consumed before this run starts (a resume)"},
    {"skipped_train_samples", Section::Surroundings, Type::Int, 0,
     "Training samples skipped before this run starts (a resume)"},
    {"use_decentralized_pg", Section::Surroundings, Type::Bool, false,
     "Process groups come from a grid of their own for each module (HyperCommGrid), not from Megatron's two grids", "",
     "", "dist.use_decentralized_pg"},
};

}  // namespace gtp::options
