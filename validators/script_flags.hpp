// Flags that upstream's scripts add to the training parser (their extra argument providers) at d98e8a64. They
// say nothing of a topology, so only their names are known here: enough not to call them unknown.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

namespace gtp::readers {

namespace detail {

/// Names without the leading `--`, separated by spaces; one row for each place upstream defines them.
inline constexpr std::array kScriptFlags{
    // megatron/inference/utils.py and examples/inference
    std::string_view("async-mode batch-boundaries coordinator-host coordinator-port coordinator-schedule-output-path "
                     "drain-between-batches encoder-prompts frontend-replicas host incoming-requests-duration "
                     "incoming-requests-per-sec incoming-requests-per-step inference-ckpt-non-strict "
                     "inference-repeat-n max-batch-size model-provider moe-routing-trace-max-inference-steps "
                     "no-record-throughput num-tokens-from-file num-tokens-to-generate num-tokens-to-prompt "
                     "output-every-n-results output-path output-request-events parsers port prompt-file "
                     "prompt-file-num-truncate prompts return-log-probs skip-prompt-log-probs stop-words stream "
                     "suspend-resume-interval suspend-timeout temperature termination-id throughput-check-only "
                     "top-n-logprobs top_k top_p use-coordinator use-flashinfer-fused-rope verbose"),
    // megatron/elastification/arguments.py
    std::string_view("add-skipping basemodel-type binary-mask bpe-kv-cache bpe-max-buffer bpe-params bpe-ssm-cache "
                     "budget-list budget-probs budget-type curr-iteration disable-budget distill-coeff distill-only "
                     "distillation emb-int-list emb-per-list enable-router flex-hetero-ffn flex-hetero-mamba "
                     "flex-hetero-moe-expert flex-strict flextron flextron-config-file force-emb force-mamba "
                     "force-mlp force-router-skip freeze-model freeze-router hard-sample-th is-flex-eval "
                     "layer-ranking-list linear-scaler-end linear-scaler-start log-budgets loss-alpha lr-mult-router "
                     "mamba-int-list mamba-per-list mem-batch-size mem-infer-seq-len memory-profile "
                     "memory-profile-path mlp-int-list mlp-per-list moe-expert-int-list moe-expert-per-list "
                     "no-attn-skip normalize-router-logits original-model-sample-prob override-selected-budget "
                     "param-budget-target prefill-chunk-size router-beta router-gbs router-inter-dim router-std "
                     "skip-num-attn-layer-constraint skip-total-layer-constraint slice soft-mask tau-decay tau-init"),
    // megatron/post_training/arguments.py
    std::string_view("enable-gpt-oss export-default-te-spec export-force-local-attention export-kd-cfg "
                     "export-kd-teacher-ckpt-format export-kd-teacher-load export-kd-teacher-model-config "
                     "export-kv-cache-quant export-legacy-megatron export-model-type export-moe-apply-probs-on-input "
                     "export-offline-model export-qk-l2-norm export-quant-cfg export-real-quant-cfg "
                     "export-te-mcore-model finetune-data-files finetune-data-split finetune-hf-dataset "
                     "freeze-base-for-mtp modelopt-enabled qad-train-target"),
    // examples/post_training/modelopt
    std::string_view("algorithm auto-quantize-bits auto-quantize-checkpoint auto-quantize-formats "
                     "auto-quantize-method auto-quantize-score-size calib-batch-size calib-dataset "
                     "calib-dataset-path-or-name calib-max-sequence-length calib-size calib-use-random-offset "
                     "compress disable-qkv-quant disable-tqdm draft-length draft-topk eagle-config export-dir "
                     "export-extra-modules export-vllm-fq extra-model-path few-shots fraction generate-output-len "
                     "ground-truth-path lower-bound mix-hidden-states mmlu-batch-size mmlu-dataset num-samples "
                     "offline-distillation-data osl output-dir pretrained-model-name pretrained-model-path "
                     "prompts-path prune-export-config prune-intermediate-ckpt recipe references "
                     "save-ground-truth-path skip-generate steps sync-expert-weight-amax weight-only"),
    // pretrain_vlm.py and examples/multimodal
    std::string_view("allow-checkpoint-without-temporal-compression allow-cross-sample-attention allow-large-videos "
                     "allow-missing-conv-merge-checkpoint allow-missing-sound-model-checkpoint "
                     "allow-missing-sound-projection-checkpoint allow-missing-vision-projection-checkpoint "
                     "apply-data-augment class-token-len config-path conv-merging dataloader-save dataloader-seed "
                     "dataloader-seq-length dataset-config decoder-tp-comm-overlap disable-vision-class-token "
                     "dynamic-resolution dynamic-resolution-max-patches dynamic-resolution-min-patches "
                     "dynamic-resolution-min-side dynamic-resolution-no-truncate efficient-video-sampling-variant "
                     "enable-fusions eos-id force-system-message freeze-LM freeze-ViT freeze-sound-model "
                     "freeze-sound-projection freeze-vision-projection gt-path image-break-token image-tag-type "
                     "input-image-path language-model-type log-model-act-norms log-model-grad-norms lr-data-range-end "
                     "lr-data-range-start masked-tiling-dynamic-resolution match-tiling-dynamic-resolution "
                     "max-num-tiles no-calculate-per-token-loss num-frames num-partitions num-samples-per-partition "
                     "online-evaluation-config only-keep-samples-with-img optimize-broadcast out-seq-length "
                     "packing-buffer-size packing-knapsack-algorithm packing-seq-length partition-id pixel-shuffle "
                     "prompt-path radio-cpe-aspect-ratio-select radio-disable-cpe radio-force-cpe-eval-mode "
                     "radio-force-eval-mode radio-interpolate-only-cpe recompute-granularity-vision "
                     "recompute-method-vision recompute-sound recompute-sound-projection recompute-vision "
                     "recompute-vision-num-layers recompute-vision-projection relax-sender-check "
                     "relax-thinking-trace-check separate-video-embedder sound-batch-split sound-clip-duration "
                     "sound-embedding-size sound-min-duration sound-model-type sound-pad-to-clip-duration "
                     "sound-target-rate special-tokens task thumbnail-area-threshold tokenizer-keep-history-thinking "
                     "tokenizer-prompt-format unfreeze-router use-area-weighted-aspect-ratio use-loss-scaling "
                     "use-mcore-inference use-new-dataloader-path use-packed-sequence use-te use-thumbnail "
                     "use-tile-tags use-tiling use-vision-backbone-fp8-arch video-aug-scale-frames-up "
                     "video-aug-scale-resolution-only video-aug-scale-resolution-up video-default-fps "
                     "video-frame-temporal-jitter video-maintain-aspect-ratio video-max-num-frames "
                     "video-min-num-frames video-prompt-version video-target-img-size video-target-num-patches "
                     "video-temporal-patch-size vision-model-type"),
    // examples/mimo
    std::string_view("audio-encoder-model dataset-provider encoder-ddp-overlap encoder-dp encoder-tp freeze-lm "
                     "freeze-projection freeze-vit hf-assign-unused-tokens image-seq-length image-size image-token-id "
                     "language-model-checkpoint llm-cp llm-dp llm-ep llm-expt-tp llm-offset llm-only llm-pp llm-tp "
                     "mimo-encoder-prefetch mimo-encoder-prefetch-debug mimo-encoder-prefetch-depth mock-dataset-size "
                     "pad-token-id total-seq-length vision-projection-type"),
    // arguments.py, only with the Kitchen library
    std::string_view("kitchen-config-file kitchen-recipe-number"),
};

inline const std::vector<std::string_view>& script_flags() {
  static const std::vector<std::string_view> flags = [] {
    std::vector<std::string_view> names;
    for (std::string_view row : kScriptFlags)
      while (!row.empty()) {
        const std::size_t end = std::min(row.find(' '), row.size());
        names.push_back(row.substr(0, end));
        row.remove_prefix(std::min(end + 1, row.size()));
      }
    std::sort(names.begin(), names.end());
    return names;
  }();
  return flags;
}

}  // namespace detail

/// Whether some upstream script knows the flag, written `--name`.
[[nodiscard]] inline bool is_script_flag(std::string_view flag) {
  if (!flag.starts_with("--")) return false;
  const auto& names = detail::script_flags();
  return std::binary_search(names.begin(), names.end(), flag.substr(2));
}

/// Whether the flag, written `--name`, gives the heterogeneous MIMO example a grid of its own for each module.
[[nodiscard]] inline bool is_module_grid_flag(std::string_view flag) {
  constexpr std::array<std::string_view, 11> kFlags{
      "--encoder-ddp-overlap", "--encoder-dp", "--encoder-tp", "--llm-cp", "--llm-dp", "--llm-ep",
      "--llm-expt-tp",         "--llm-offset", "--llm-only",   "--llm-pp", "--llm-tp"};
  return std::find(kFlags.begin(), kFlags.end(), flag) != kFlags.end();
}

}  // namespace gtp::readers
