// What upstream changes about the distributed optimizer, FSDP and gradient buckets, in its order: Megatron-FSDP
// (arguments.py:1117), emerging optimizers (1724), frozen layers (1839), and what is built after the arguments.
#pragma once

#include <gtp/rule.hpp>
#include <gtp/rules/unsaid.hpp>

namespace gtp::rules {

inline constexpr Rule kOptimizerChanges[] = {
    changes("GTP741", "mfsdp-v1-sets-distopt", {kUsesMegatronFsdp, kDistOpt},
            "Megatron-FSDP turns the distributed optimizer on",
            "Its first version shards by way of the distributed optimizer, and switches it on with a warning.",
            "set use_distributed_optimizer, or leave it out", "megatron/training/arguments.py:1135",
            [](const Facts& f) -> Changes {
              if (!f.on(kUsesMegatronFsdp) || f.integer("megatron_fsdp_version"_opt).value_or(1) == 2) return {};
              return {{kDistOpt, true, "use_megatron_fsdp needs it"}};
            }),
    changes("GTP745", "mfsdp-nccl-ub-sets", {kUsesMegatronFsdp, "nccl_ub"_opt},
            "Megatron-FSDP with NCCL user buffers registers by hand and double-buffers",
            "Both are needed to keep registered memory small; upstream turns them on with a warning.",
            "set fsdp_manual_registration and fsdp_double_buffer, or leave them out",
            "megatron/training/arguments.py:1172",
            [](const Facts& f) -> Changes {
              if (!f.on(kUsesMegatronFsdp) || !f.on("nccl_ub"_opt)) return {};
              const std::string because = "use_megatron_fsdp and nccl_ub are on";
              return {{"fsdp_manual_registration"_opt, true, because}, {"fsdp_double_buffer"_opt, true, because}};
            }),
    changes("GTP748", "max-pool-sets-double-buffer", {"megatron_fsdp_max_pool_double_buffer"_opt},
            "the max-pool allocator turns double buffers on", "It is a kind of double buffer.",
            "set fsdp_double_buffer, or leave it out", "megatron/training/arguments.py:1179",
            [](const Facts& f) -> Changes {
              if (!f.on("megatron_fsdp_max_pool_double_buffer"_opt)) return {};
              return {{"fsdp_double_buffer"_opt, true, "megatron_fsdp_max_pool_double_buffer is on"}};
            }),
    changes("GTP750", "no-weight-decay-cond-type", {"no_weight_decay_cond_type"_opt},
            "no_weight_decay_cond_type is the old spelling of apply_wd_to_qk_layernorm",
            "Upstream prints a warning and turns the new option on.", "use apply_wd_to_qk_layernorm",
            "megatron/training/arguments.py:1382",
            [](const Facts& f) -> Changes {
              if (f.text("no_weight_decay_cond_type"_opt) != "apply_wd_to_qk_layernorm") return {};
              return {{"apply_wd_to_qk_layernorm"_opt, true, "no_weight_decay_cond_type says so"},
                      {"no_weight_decay_cond_type"_opt, Value{}, "the option is deprecated"}};
            }),
    changes("GTP734", "dist-muon-alias", {kOptimizer}, "dist_muon is muon with the layer-wise distributed optimizer",
            "The name is deprecated.", "use muon with use_distributed_optimizer", "megatron/training/arguments.py:1727",
            [](const Facts& f) -> Changes {
              if (f.text(kOptimizer) != "dist_muon") return {};
              return {{kOptimizer, std::string("muon"), "dist_muon is its deprecated name"}};
            }),
    changes(
        "GTP733", "emerging-optimizer-rewrite", {kOptimizer, kDistOpt},
        "the layer-wise optimizer takes the place of the distributed optimizer",
        "Muon and its kin update whole matrices, which the distributed optimizer would cut. Checks that upstream "
        "makes before this point still see the distributed optimizer, those after it do not "
        "(emerging-optimizer-check-order).",
        "keep it: this is how the layer-wise optimizer is asked for", "megatron/training/arguments.py:1735",
        [](const Facts& f) -> Changes {
          if (!detail::emerging_optimizer(f) || !f.on(kDistOpt)) return {};
          return {{kDistOpt, false, "the optimizer is " + std::string(*f.text(kOptimizer)) + ", sharded by layers"}};
        }),
    changes("GTP751", "freeze-all-layers", {"freeze_all_layers"_opt},
            "frozen layers turn the distributed optimizer and its gather overlap off",
            "Nothing is updated, so nothing is sharded or gathered.",
            "leave use_distributed_optimizer and overlap_param_gather out", "megatron/training/arguments.py:1839",
            [](const Facts& f) -> Changes {
              if (!f.on("freeze_all_layers"_opt)) return {};
              Changes off;
              for (const OptionId option : {kDistOpt, kParamGather})
                if (f.on(option)) off.push_back({option, false, "freeze_all_layers is on"});
              return off;
            }),
    changes("GTP729", "bucket-size-default", {kGradReduce, "ddp_bucket_size"_opt},
            "gradients go into one bucket without overlap",
            "Buckets exist to send some gradients while others are computed. An unset size is max(40M, 1M x DP x CP).",
            "turn overlap_grad_reduce on, or leave ddp_bucket_size out", "megatron/training/training.py:2188",
            [](const Facts& f) -> Changes {
              if (f.on(kGradReduce)) return {};
              return {{"ddp_bucket_size"_opt, Value{}, "overlap_grad_reduce is off"}};
            }),
};

}  // namespace gtp::rules
