// What Megatron-Bridge derives or changes silently, where Megatron-LM does otherwise. derive.hpp calls these behind the
// target's framework; they judge nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtp/bridge_recipes.hpp>
#include <gtp/facts.hpp>

namespace gtp {

/// One option that a mixed-precision recipe sets.
struct RecipeValue {
  OptionId option;
  Value value;
};

/// All options that a recipe sets, those that it leaves at its class's default included
/// (mixed_precision.py:132-162: every field overwrites the model's, the optimizer's and DDP's).
[[nodiscard]] inline std::vector<RecipeValue> values_of(const BridgeRecipe& recipe) {
  using namespace literals;
  const auto text = [](std::string_view word) { return word.empty() ? Value{} : Value(std::string(word)); };
  const auto count = [](int value) { return Value(std::int64_t{value}); };
  const bool delayed = recipe.fp8_recipe == "delayed";
  return {{"bf16"_opt, !recipe.fp16},
          {"fp16"_opt, recipe.fp16},
          {"accumulate_allreduce_grads_in_fp32"_opt, !recipe.fp16},
          {"fp8"_opt, text(recipe.fp8)},
          {"fp8_recipe"_opt, text(recipe.fp8_recipe)},
          {"fp8_amax_history_len"_opt, count(delayed ? 1024 : 1)},
          {"fp8_amax_compute_algo"_opt, text(delayed ? "max" : "most_recent")},
          {"fp8_param_gather"_opt, recipe.fp8_param_gather},
          {"reuse_grad_buf_for_mxfp8_param_ag"_opt, recipe.reuse_grad_buffer},
          {"first_last_layers_bf16"_opt, recipe.first_last_bf16},
          {"num_layers_at_start_in_bf16"_opt, count(recipe.bf16_at_start)},
          {"num_layers_at_end_in_bf16"_opt, count(recipe.bf16_at_end)},
          {"fp4"_opt, text(recipe.fp4)},
          {"fp4_param_gather"_opt, !recipe.fp4.empty()}};
}

namespace detail {

using namespace literals;

/// An unset ETP is 1 with expert parallelism (models/transformer_config.py:87); Megatron Core's, which is TP, without.
inline void set_bridge_expert_size(Facts& f) {
  constexpr auto kEtp = "expert_tensor_parallel_size"_opt;
  const auto ep = f.integer("expert_model_parallel_size"_opt);
  if (f.known(kEtp) && !f.has(kEtp) && ep && *ep > 1) f.set(kEtp, std::int64_t{1});
}

inline void apply_bridge_recipe(Facts& f) {
  const auto name = f.text("mixed_precision"_opt);
  const BridgeRecipe* recipe = name ? find_bridge_recipe(*name) : nullptr;
  if (recipe == nullptr) return;
  for (RecipeValue& set : values_of(*recipe)) f.set(set.option, std::move(set.value));
}

/// config.py:1079-1106: Megatron-FSDP of the first version.
inline void apply_bridge_fsdp(Facts& f) {
  if (!f.on("use_megatron_fsdp"_opt) || f.integer("megatron_fsdp_version"_opt) == 2) return;
  f.set("use_distributed_optimizer"_opt, true);
  f.set("reuse_grad_buf_for_mxfp8_param_ag"_opt, false);
  if (f.on("ddp_average_in_collective"_opt) && f.known("disable_symmetric_registration"_opt) &&
      !f.on("disable_symmetric_registration"_opt))
    f.set("ddp_average_in_collective"_opt, false);
}

/// comm_overlap.py:442-463 and 576-590; what the input says of an overlap wins.
inline void apply_bridge_overlap(Facts& f) {
  if (!f.on("comm_overlap"_opt)) return;
  const auto choose = [&](OptionId option, Value value) {
    if (f.config().given(option) == nullptr && !f.config().given_unknown(option)) f.set(option, std::move(value));
  };
  const auto tp = f.integer("tensor_model_parallel_size"_opt), pp = f.integer("pipeline_model_parallel_size"_opt),
             dp = f.integer("data_parallel_size"_opt);
  const auto sp = "sequence_parallel"_opt;
  if (f.on("tp_comm_overlap"_opt) && ((tp && *tp < 2) || (f.known(sp) && !f.on(sp))))
    f.set("tp_comm_overlap"_opt, false);
  const auto vpp = "virtual_pipeline_model_parallel_size"_opt;
  if (pp && f.known(vpp)) choose("overlap_p2p_comm"_opt, *pp > 1 && f.has(vpp));
  if (!dp || !f.on("use_distributed_optimizer"_opt)) return;
  choose("overlap_grad_reduce"_opt, *dp > 1);
  choose("overlap_param_gather"_opt, *dp > 1);
  if (*dp > 1) choose("ddp_bucket_size"_opt, std::int64_t{1} << 27U);
}

}  // namespace detail

/// Before the grids: what sizes follow from.
inline void apply_bridge_sizes(Facts& f) { detail::set_bridge_expert_size(f); }

/// Bridge makes its groups without a remat axis (initialize.py:805), whatever the weight shards say.
inline void drop_bridge_remat(Facts& f) {
  using namespace literals;
  if (!f.known("tensor_model_parallel_size"_opt)) return;
  for (const OptionId remat : {"gtp_weight_remat_size"_opt, "expert_gtp_weight_remat_size"_opt})
    f.set(remat, std::int64_t{1});
}

/// After grids, batches and layers.
inline void apply_bridge_sets(Facts& f) {
  using namespace literals;
  detail::apply_bridge_recipe(f);
  detail::apply_bridge_fsdp(f);
  detail::apply_bridge_overlap(f);
  // config.py:1776: the annealing window of WSD is all of the decay.
  if (f.text("lr_decay_style"_opt) == "WSD" && f.known("lr_wsd_decay_iters"_opt) && !f.has("lr_wsd_decay_iters"_opt)) {
    const auto decay = f.integer("lr_decay_iters"_opt), train = f.integer("train_iters"_opt);
    if (const auto iterations = decay ? decay : train) f.set("lr_wsd_decay_iters"_opt, *iterations);
  }
}

}  // namespace gtp
