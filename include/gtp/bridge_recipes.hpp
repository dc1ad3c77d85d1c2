// Megatron-Bridge's mixed-precision recipes: one name stands for all precision options
// (src/megatron/bridge/training/mixed_precision.py:168-430).
#pragma once

#include <string_view>

namespace gtp {

/// What differs between recipes. The rest is the same in all: no loss scale, TransformerEngine's own margin and
/// history.
struct BridgeRecipe {
  std::string_view name;
  bool fp16 = false;          ///< else bf16
  std::string_view fp8 = {};  ///< format; empty: off
  std::string_view fp8_recipe = "tensorwise";
  int bf16_at_start = 0;
  int bf16_at_end = 0;
  bool fp8_param_gather = false;
  bool reuse_grad_buffer = false;
  std::string_view fp4 = {};
  bool first_last_bf16 = false;
};

inline constexpr BridgeRecipe kBridgeRecipes[] = {
    {"bf16_mixed"},
    {"fp16_mixed", true},
    {"bf16_with_fp8_delayed_scaling_mixed", false, "hybrid", "delayed", 0, 0, true},
    {"fp16_with_fp8_delayed_scaling_mixed", true, "hybrid", "delayed", 0, 0, true},
    {"bf16_with_mxfp8_mixed", false, "e4m3", "mxfp8", 0, 0, true, true},
    {"fp16_with_mxfp8_mixed", true, "e4m3", "mxfp8", 0, 0, true, true},
    {"bf16_with_fp8_current_scaling_mixed", false, "hybrid", "tensorwise", 1, 1, true, false, {}, true},
    {"nemotron_h_bf16_with_fp8_current_scaling_mixed", false, "hybrid", "tensorwise", 2, 2, true, false, {}, true},
    {"nanov2_bf16_with_fp8_current_scaling_mixed", false, "hybrid", "blockwise", 2, 2, true, false, {}, true},
    {"fp16_with_fp8_current_scaling_mixed", true, "hybrid", "tensorwise", 1, 1, true, false, {}, true},
    {"bf16_with_fp8_subchannel_scaling_mixed", false, "hybrid", "blockwise"},
    {"fp16_with_fp8_subchannel_scaling_mixed", true, "hybrid", "blockwise"},
    {"bf16_with_nvfp4_mixed", false, {}, "tensorwise", 0, 0, false, false, "e2m1"},
    {"nemotron_3_super_bf16_with_nvfp4_mixed", false, {}, "tensorwise", 0, 14, false, false, "e2m1", true},
};

/// Null for a name that Bridge does not register itself.
[[nodiscard]] constexpr const BridgeRecipe* find_bridge_recipe(std::string_view name) {
  for (const BridgeRecipe& recipe : kBridgeRecipes)
    if (recipe.name == name) return &recipe;
  return nullptr;
}

}  // namespace gtp
