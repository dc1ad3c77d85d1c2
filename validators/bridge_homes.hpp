// Where Megatron-Bridge keeps Megatron's options, beside the `bridge` column of the table of options: second homes, and
// values that are written another way. Private to bridge.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace gtp::readers {

enum class BridgeForm : std::uint8_t {
  Same,
  Not,    ///< the option is the negation
  Given,  ///< any value switches the option on
};

/// Which home wins when several speak: what overlap and training override comes before an option's own home, which
/// comes before the others.
enum class BridgeRank : std::uint8_t { Override, Home, Other };

struct BridgeHome {
  std::string_view path;
  std::string_view option;
  BridgeForm form = BridgeForm::Same;
  BridgeRank rank = BridgeRank::Other;
};

inline constexpr BridgeHome kBridgeHomes[] = {
    {"checkpoint.load_optim", "no_load_optim", BridgeForm::Not},
    {"checkpoint.load_rng", "no_load_rng", BridgeForm::Not},
    {"checkpoint.save_optim", "no_save_optim", BridgeForm::Not},
    {"checkpoint.save_rng", "no_save_rng", BridgeForm::Not},
    {"model.persist_layer_norm", "no_persist_layer_norm", BridgeForm::Not},
    {"model.share_embeddings_and_output_weights", "untie_embeddings_and_output_weights", BridgeForm::Not},
    {"mixed_precision.grad_reduce_in_fp32", "grad_reduce_in_bf16", BridgeForm::Not},
    {"model.num_query_groups", "group_query_attention", BridgeForm::Given},

    {"comm_overlap.align_param_gather", "align_param_gather", BridgeForm::Same, BridgeRank::Override},
    {"comm_overlap.bucket_size", "ddp_bucket_size", BridgeForm::Same, BridgeRank::Override},
    {"comm_overlap.defer_embedding_wgrad_compute", "defer_embedding_wgrad_compute", BridgeForm::Same,
     BridgeRank::Override},
    {"comm_overlap.delay_wgrad_compute", "delay_wgrad_compute", BridgeForm::Same, BridgeRank::Override},
    {"comm_overlap.overlap_grad_reduce", "overlap_grad_reduce", BridgeForm::Same, BridgeRank::Override},
    {"comm_overlap.overlap_moe_expert_parallel_comm", "overlap_moe_expert_parallel_comm", BridgeForm::Same,
     BridgeRank::Override},
    {"comm_overlap.overlap_p2p_comm", "overlap_p2p_comm", BridgeForm::Same, BridgeRank::Override},
    {"comm_overlap.overlap_param_gather", "overlap_param_gather", BridgeForm::Same, BridgeRank::Override},
    {"comm_overlap.overlap_param_gather_with_optimizer_step", "overlap_param_gather_with_optimizer_step",
     BridgeForm::Same, BridgeRank::Override},
    {"comm_overlap.tp_comm_bootstrap_backend", "tp_comm_bootstrap_backend", BridgeForm::Same, BridgeRank::Override},
    {"comm_overlap.tp_comm_overlap", "tp_comm_overlap", BridgeForm::Same, BridgeRank::Override},
    {"comm_overlap.wgrad_deferral_limit", "wgrad_deferral_limit", BridgeForm::Same, BridgeRank::Override},
    {"train.eval_interval", "eval_interval", BridgeForm::Same, BridgeRank::Override},
    {"train.eval_iters", "eval_iters", BridgeForm::Same, BridgeRank::Override},
    {"train.skip_train", "skip_train", BridgeForm::Same, BridgeRank::Override},

    {"dataset.seq_length", "seq_length"},
    {"dataset.context_parallel_size", "context_parallel_size"},
    {"dataset.hybrid_context_parallel", "hybrid_context_parallel"},
    {"dataset.trust_remote_code", "trust_remote_code"},
    {"ddp.delay_wgrad_compute", "delay_wgrad_compute"},
    {"ddp.fp4_param_gather", "fp4_param_gather"},
    {"ddp.fp8_param_gather", "fp8_param_gather"},
    {"ddp.grad_reduce_in_fp32", "accumulate_allreduce_grads_in_fp32"},
    {"ddp.reuse_grad_buf_for_mxfp8_param_ag", "reuse_grad_buf_for_mxfp8_param_ag"},
    {"dist.use_megatron_fsdp", "use_megatron_fsdp"},
    {"logger.log_max_attention_logit", "log_max_attention_logit"},
    {"logger.log_num_zeros_in_grad", "log_num_zeros_in_grad"},
    {"model.bf16", "bf16"},
    {"model.first_last_layers_bf16", "first_last_layers_bf16"},
    {"model.fp16", "fp16"},
    {"model.fp4", "fp4"},
    {"model.fp4_recipe", "fp4_recipe"},
    {"model.fp8", "fp8"},
    {"model.fp8_amax_compute_algo", "fp8_amax_compute_algo"},
    {"model.fp8_amax_history_len", "fp8_amax_history_len"},
    {"model.fp8_margin", "fp8_margin"},
    {"model.fp8_recipe", "fp8_recipe"},
    {"model.fp8_wgrad", "fp8_wgrad"},
    {"model.inference_rng_tracker", "inference_rng_tracker"},
    {"model.num_layers_at_end_in_bf16", "num_layers_at_end_in_bf16"},
    {"model.num_layers_at_start_in_bf16", "num_layers_at_start_in_bf16"},
    {"model.use_te_rng_tracker", "te_rng_tracker"},
    {"model.vocab_size", "vocab_size"},
    {"optimizer.bf16", "bf16"},
    {"optimizer.fp16", "fp16"},
    {"optimizer.hysteresis", "hysteresis"},
    {"optimizer.initial_loss_scale", "initial_loss_scale"},
    {"optimizer.loss_scale", "loss_scale"},
    {"optimizer.loss_scale_window", "loss_scale_window"},
    {"optimizer.min_loss_scale", "min_loss_scale"},
    {"optimizer.overlap_param_gather", "overlap_param_gather"},
    {"optimizer.overlap_param_gather_with_optimizer_step", "overlap_param_gather_with_optimizer_step"},
    {"optimizer.reuse_grad_buf_for_mxfp8_param_ag", "reuse_grad_buf_for_mxfp8_param_ag"},
    {"optimizer.use_distributed_optimizer", "use_distributed_optimizer"},
    {"tokenizer.make_vocab_size_divisible_by", "make_vocab_size_divisible_by"},
    {"tokenizer.padded_vocab_size", "padded_vocab_size"},
    {"tokenizer.tensor_model_parallel_size", "tensor_model_parallel_size"},
    {"validation.full_validation", "full_validation"},
    {"validation.multiple_validation_sets", "multiple_validation_sets"},
};

/// On as soon as one of its homes is (config.py:2114, 1079 and 1415).
inline constexpr auto kOnInAnyHome = std::to_array<std::string_view>(
    {"use_distributed_optimizer", "overlap_param_gather", "use_megatron_fsdp", "te_rng_tracker"});

/// The sections of a ConfigContainer.
inline constexpr auto kBridgeSections = std::to_array<std::string_view>({"checkpoint",
                                                                         "comm_overlap",
                                                                         "dataset",
                                                                         "ddp",
                                                                         "dist",
                                                                         "ft",
                                                                         "inprocess_restart",
                                                                         "logger",
                                                                         "mixed_precision",
                                                                         "model",
                                                                         "peft",
                                                                         "optimizer",
                                                                         "rerun_state_machine",
                                                                         "nvrx_straggler",
                                                                         "profiling",
                                                                         "rng",
                                                                         "scheduler",
                                                                         "train",
                                                                         "straggler",
                                                                         "tensor_inspect",
                                                                         "tokenizer",
                                                                         "validation",
                                                                         "env_vars",
                                                                         "inference",
                                                                         "optimizer_config_override_provider"});

/// Names that a flat file of options would not call its groups.
inline constexpr auto kTellingSections =
    std::to_array<std::string_view>({"comm_overlap", "dataset", "ddp", "dist", "logger", "mixed_precision",
                                     "rerun_state_machine", "rng", "scheduler", "tokenizer", "train", "validation"});

/// Fields of Bridge that look like a slip in another one's name.
inline constexpr auto kLookAlikes = std::to_array<std::string_view>(
    {"in_channels", "k_layernorm", "q_layernorm", "num_labels", "lr_decay_steps", "lr_warmup_steps"});

template <class Words>
[[nodiscard]] constexpr bool contains(const Words& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace gtp::readers
