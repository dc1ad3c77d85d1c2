// What upstream changes about saving and loading.
#pragma once

#include <gtp/rule.hpp>
#include <gtp/rules/unsaid.hpp>

namespace gtp::rules {

inline constexpr Rule kCheckpointChanges[] = {
    changes("GTP829", "ckpt-convert-needs-checkpoint", {"ckpt_convert_format"_opt},
            "a conversion stops when there is no checkpoint", "There would be nothing to convert.",
            "set exit_on_missing_checkpoint, or leave it out", "megatron/training/arguments.py:394",
            [](const Facts& f) -> Changes {
              if (!f.has("ckpt_convert_format"_opt)) return {};
              return {{"exit_on_missing_checkpoint"_opt, true, "ckpt_convert_format is set"}};
            }),
    changes(
        "GTP831", "stream-dequant-tensorwise", {"fp8"_opt, "fp8_recipe"_opt, "stream_ckpt_dequant"_opt},
        "tensorwise FP8 weights are dequantized at once on load",
        "Slices loaded one by one would each get a scale of their own.", "turn stream_ckpt_dequant off",
        "megatron/training/arguments.py:1134",
        [](const Facts& f) -> Changes {
          if (!f.has("fp8"_opt) || f.text("fp8_recipe"_opt) != "tensorwise") return {};
          return {{"stream_ckpt_dequant"_opt, false, "fp8_recipe is tensorwise"}};
        },
        Version::k6513e3e2, Version::k6513e3e2),
    changes("GTP824", "async-needs-persistent-worker",
            {"async_save"_opt, "use_persistent_ckpt_worker"_opt, kSaveFormat},
            "saving in the background is turned off without a persistent worker",
            "Distributed formats write from one process that is kept; upstream prints a warning and saves in the "
            "foreground.",
            "set use_persistent_ckpt_worker, or leave async_save out", "megatron/training/arguments.py:1814",
            [](const Facts& f) -> Changes {
              if (!f.on("async_save"_opt) || f.on("use_persistent_ckpt_worker"_opt) || f.text(kSaveFormat) == "torch")
                return {};
              return {{"async_save"_opt, false, "use_persistent_ckpt_worker is off"}};
            }),
    changes("GTP832", "async-strategy-default", {"async_save"_opt, "async_strategy"_opt},
            "a strategy for background saves means nothing without them",
            "Upstream falls back to its own implementation, mcore.", "set async_save, or leave async_strategy out",
            "megatron/training/arguments.py:1822",
            [](const Facts& f) -> Changes {
              if (f.on("async_save"_opt)) return {};
              return {{"async_strategy"_opt, std::string("mcore"), "async_save is off"}};
            }),
    changes("GTP834", "replication-jump-ignored", {"replication"_opt, "replication_jump"_opt},
            "replication_jump is ignored without replication", "It says where copies go, and there are none.",
            "set replication, or drop replication_jump", "megatron/training/arguments.py:1899",
            [](const Facts& f) -> Changes {
              if (f.on("replication"_opt) || !f.has("replication_jump"_opt)) return {};
              return {{"replication_jump"_opt, Value{}, "replication is off"}};
            }),
    changes("GTP835", "use-checkpoint-args-force", {"use_checkpoint_args"_opt},
            "the checkpoint's model options win over these",
            "With use_checkpoint_args upstream takes most model options from the checkpoint, whatever the input says; "
            "sizes such as num_layers only where the input says nothing.",
            "leave model options to the checkpoint, or drop use_checkpoint_args",
            "megatron/training/checkpointing.py:2277",
            [](const Facts& f) -> Changes {
              if (!f.on("use_checkpoint_args"_opt)) return {};
              constexpr std::array kForced{"num_query_groups"_opt,
                                           "group_query_attention"_opt,
                                           "position_embedding_type"_opt,
                                           "rotary_base"_opt,
                                           "rotary_percent"_opt,
                                           "rotary_interleaved"_opt,
                                           "add_bias_linear"_opt,
                                           "add_qkv_bias"_opt,
                                           "squared_relu"_opt,
                                           "swiglu"_opt,
                                           "untie_embeddings_and_output_weights"_opt,

                                           "normalization"_opt,
                                           "attention_dropout"_opt,
                                           "hidden_dropout"_opt,
                                           "mtp_num_layers"_opt,
                                           "num_experts"_opt,
                                           "moe_layer_freq"_opt,
                                           "moe_ffn_hidden_size"_opt,
                                           "moe_router_topk"_opt,
                                           "moe_grouped_gemm"_opt,
                                           "moe_shared_expert_intermediate_size"_opt,
                                           "moe_router_score_function"_opt,
                                           "moe_router_topk_scaling_factor"_opt};
              Changes forced;
              for (const OptionId option : kForced)
                if (const Value* saved = f.config().checkpoint_value(option))
                  forced.push_back({option, *saved, "the checkpoint says so"});
              return forced;
            }),
};

}  // namespace gtp::rules
