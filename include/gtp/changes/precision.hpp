// What upstream fills in or turns off among the options of number formats.
#pragma once

#include <gtp/rule.hpp>
#include <gtp/rules/names.hpp>
#include <gtp/te_version.hpp>

namespace gtp::rules {

using namespace literals;

inline constexpr Rule kPrecisionChanges[] = {
    changes("GTP175", "fsdp2-fp8-gather-off", {kTorchFsdp2, kFp8Gather},
            "FP8 parameter gathers are turned off under torch FSDP2",
            "FSDP2 cannot gather the FP8 weights of TransformerEngine 2.0 and newer, so it gathers bf16.",
            "leave fp8_param_gather out, or use the distributed optimizer", "megatron/training/arguments.py:1051",
            [](const Facts& f) -> Changes {
              if (!f.on(kTorchFsdp2) || !f.on(kFp8Gather) || te_older_than(f, "2.0.0")) return {};
              return {{kFp8Gather, false, "FSDP2 gathers bf16 with TransformerEngine 2.0 and newer"}};
            }),
    changes("GTP176", "fsdp2-fp4-gather-off", {kTorchFsdp2, kFp4Gather, kTeVersion},
            "FP4 parameter gathers are turned off under torch FSDP2 with this TransformerEngine",
            "FSDP2 can gather FP4 weights only from TransformerEngine 2.7 on.",
            "leave fp4_param_gather out, or install TransformerEngine 2.7 or newer",
            "megatron/training/arguments.py:1058",
            [](const Facts& f) -> Changes {
              if (!f.on(kTorchFsdp2) || !f.on(kFp4Gather) || !te_older_than(f, "2.7.0.dev0")) return {};
              return {{kFp4Gather, false, "FSDP2 gathers bf16 before TransformerEngine 2.7"}};
            }),
    changes("GTP135", "mfsdp-clears-reuse-grad-buf", {kMegatronFsdp},
            "the gradient buffer is not reused under Megatron-FSDP",
            "Megatron-FSDP keeps weights in buffers of its own; the reuse belongs to the distributed optimizer.",
            "leave reuse_grad_buf_for_mxfp8_param_ag out", "megatron/training/arguments.py:1137",
            [](const Facts& f) -> Changes {
              if (!f.on(kMegatronFsdp)) return {};
              return {{kReuseGradBuffer, false, "use_megatron_fsdp is on"}};
            }),
    changes("GTP131", "fp16-dynamic-scale-nan-check", {"fp16"_opt, "loss_scale"_opt},
            "the NaN check is turned off under dynamic loss scaling",
            "Infinite and NaN gradients are how the loss scaler learns that its scale is too large.",
            "leave check_for_nan_in_loss_and_grad out, or give a static loss_scale",
            "megatron/training/arguments.py:1200",
            [](const Facts& f) -> Changes {
              if (!f.on("fp16"_opt)) return {};
              const auto* scale = std::get_if<double>(f.find("loss_scale"_opt));
              if (f.has("loss_scale"_opt) && (scale == nullptr || *scale != 0)) return {};
              return {{"check_for_nan_in_loss_and_grad"_opt, false,
                       "fp16 without a static loss_scale scales the loss "
                       "dynamically"}};
            }),
    changes("GTP132", "grad-reduce-bf16", {"bf16"_opt, "grad_reduce_in_bf16"_opt},
            "gradients are accumulated and reduced in bf16",
            "grad_reduce_in_bf16 overrides accumulate_allreduce_grads_in_fp32.", "give one of the two options",
            "megatron/training/arguments.py:1213",
            [](const Facts& f) -> Changes {
              if (!f.on("bf16"_opt) || !f.on("grad_reduce_in_bf16"_opt)) return {};
              return {{"accumulate_allreduce_grads_in_fp32"_opt, false, "grad_reduce_in_bf16 is on"}};
            }),
    changes("GTP133", "bf16-fp32-accumulate-default",
            {"bf16"_opt, "grad_reduce_in_bf16"_opt, "accumulate_allreduce_grads_in_fp32"_opt, "main_grads_dtype"_opt},
            "gradients are accumulated and reduced in fp32 under bf16",
            "bf16 has too few bits to sum many small gradients, so fp32 is the default; grad_reduce_in_bf16 opts out.",
            "set grad_reduce_in_bf16 to keep gradients in bf16", "megatron/training/arguments.py:1215",
            [](const Facts& f) -> Changes {
              if (!f.on("bf16"_opt) || f.on("grad_reduce_in_bf16"_opt) || f.text("main_grads_dtype"_opt) != "fp32")
                return {};
              return {{"accumulate_allreduce_grads_in_fp32"_opt, true, "bf16 is on without grad_reduce_in_bf16"}};
            }),
    changes(
        "GTP134", "fp32-accum-disables-fp32-rs", {"accumulate_allreduce_grads_in_fp32"_opt},
        "reduce-scatters with fp32 accumulation are turned off where gradients are fp32 already",
        "They recover fp32 sums from low-precision messages; with fp32 gradients an ordinary reduce-scatter sums "
        "in fp32, without their extra buffer. Under bf16 fp32 gradients are the default, so these options do "
        "nothing unless grad_reduce_in_bf16 is set.",
        "set grad_reduce_in_bf16 to make them effective, or leave them out", "megatron/training/arguments.py:1219",
        [](const Facts& f) -> Changes {
          if (!f.on("accumulate_allreduce_grads_in_fp32"_opt)) return {};
          Changes off;
          for (const OptionId option :
               {"ddp_reduce_scatter_with_fp32_accumulation"_opt, "gtp_remat_reduce_scatter_with_fp32_accumulation"_opt})
            if (f.on(option)) off.push_back({option, false, "gradients are reduced in fp32 already"});
          return off;
        },
        Version::kd98e8a64),
    changes("GTP136", "qk-layer-scaling-softmax", {"apply_query_key_layer_scaling"_opt},
            "the attention softmax runs in fp32 with query-key layer scaling",
            "Scores are divided by the layer number to fit fp16; the softmax multiplies it back and needs the range.",
            "leave attention_softmax_in_fp32 out", "megatron/training/arguments.py:1714",
            [](const Facts& f) -> Changes {
              if (!f.on("apply_query_key_layer_scaling"_opt)) return {};
              return {{"attention_softmax_in_fp32"_opt, true, "apply_query_key_layer_scaling is on"}};
            }),
};

}  // namespace gtp::rules
