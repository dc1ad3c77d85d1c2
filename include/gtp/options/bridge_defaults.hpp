// Where Megatron-Bridge's defaults differ from those of Megatron-LM's command line: most of them because Bridge takes
// the default of Megatron Core's own class.
#pragma once

#include <array>
#include <string_view>

#include <gtp/option.hpp>

namespace gtp {

struct BridgeDefault {
  std::string_view option;
  Literal value;
};

inline constexpr BridgeDefault kBridgeDefaults[] = {
    {"align_param_gather", false},
    {"apply_rope_fusion", false},
    {"bias_dropout_fusion", false},
    {"bias_gelu_fusion", false},
    {"bias_swiglu_fusion", false},
    {"check_for_nan_in_loss_and_grad", false},
    {"cp_comm_type", kNone},
    {"cross_entropy_loss_fusion", true},
    {"data_parallel_sharding_strategy", "no_shard"},
    {"muon_momentum", 0.95},
    {"optimizer_offload_fraction", 0.0},
    {"overlap_p2p_comm", false},
    {"rerun_mode", "disabled"},
    {"rope_scaling_factor", 1.0},
    {"strict_fsdp_dtensor_load", false},
    {"use_persistent_ckpt_worker", true},
};

/// Bridge has no default for these: a recipe or the configuration says them, so absent is unknown.
inline constexpr std::array<std::string_view, 3> kFromBridgeRecipe{"global_batch_size", "seq_length", "train_iters"};

}  // namespace gtp
