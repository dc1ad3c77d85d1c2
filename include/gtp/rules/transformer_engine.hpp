// 15x: what a version of TransformerEngine can do. Rules are checked only for a version that is known; upstream refuses
// to run without TransformerEngine where these options matter.
#pragma once

#include <algorithm>

#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/names.hpp>
#include <gtp/rules/precision.hpp>
#include <gtp/te_version.hpp>

namespace gtp::rules {

namespace detail {

/// Nothing unless the installed version is older than `minimum`.
inline Findings te_too_old(const Facts& f, std::string_view minimum, OptionId user, std::string label = "on") {
  if (!te_older_than(f, minimum)) return {};
  return at(kTeVersion, fmt::format("{} is older than {}", *f.text(kTeVersion), minimum)).also(user, std::move(label));
}

/// A recipe of FP8 training that `minimum` brought.
inline Findings recipe_too_old(const Facts& f, std::string_view recipe, std::string_view minimum) {
  if (!f.has(kFp8) || !recipe_is(f, recipe)) return {};
  return te_too_old(f, minimum, kFp8Recipe, fmt::format("`{}`", recipe));
}

inline bool te_layers(const Facts& f) { return f.text("transformer_impl"_opt) == "transformer_engine"; }

inline bool lists(const Facts& f, OptionId option, std::string_view word) {
  const auto* words = std::get_if<StringList>(f.find(option));
  return words != nullptr && std::ranges::find(*words, word) != words->end();
}

/// Whether some layer attends to a window: by default all do, of a frequency N every Nth does not.
inline bool windowed_attention(const Facts& f) {
  if (!f.has("window_size"_opt)) return false;
  const Value* skip = f.find("window_attn_skip_freq"_opt);
  if (const auto* every = std::get_if<std::int64_t>(skip)) return *every != 1;
  const auto* layers = std::get_if<IntList>(skip);
  return layers == nullptr || std::ranges::any_of(*layers, [](std::int64_t windowed) { return windowed != 0; });
}

/// Rotary embedding by one fused kernel, on pairs of neighbours.
inline bool fused_interleaved_rope(const Facts& f) {
  return f.on("apply_rope_fusion"_opt) && f.on("rotary_interleaved"_opt) && !f.on("multi_latent_attention"_opt) &&
         (f.text("position_embedding_type"_opt) == "rope" || f.on("use_rotary_position_embeddings"_opt));
}

/// Weight gradients that run late inside a captured graph: those of attention, or of a shared expert beside the router.
inline Findings late_gradients_in_graph(const Facts& f) {
  const auto delay = "delay_wgrad_compute"_opt, modules = "cuda_graph_modules"_opt;
  if (!f.on(delay) || !f.on("overlap_grad_reduce"_opt) || te_older_than(f, "2.8.0")) return {};  // GTP169
  const bool attention = lists(f, modules, "attn");
  const bool shared_expert = lists(f, modules, "moe_router") && f.has("moe_shared_expert_intermediate_size"_opt) &&
                             !f.on("moe_shared_expert_overlap"_opt);
  if (!attention && !shared_expert) return {};
  if (te_older_than(f, "2.12.0")) return te_too_old(f, "2.12.0", modules, "captures layers with late gradients");
  const auto fusion = "gradient_accumulation_fusion"_opt;
  if (!f.on(fusion))
    return at(fusion, "off")
        .also(modules, attention ? "attn" : "moe_router with a shared expert")
        .also(delay, "on")
        .mend("turn gradient_accumulation_fusion on: only it adds gradients at addresses that a graph can keep");
  for (const OptionId bias : {"add_bias_linear"_opt, "add_qkv_bias"_opt})
    if (attention && f.on(bias))
      return at(bias, f.config().given(bias) == nullptr ? "on by default" : "on")
          .also(modules, "attn")
          .also(delay, "on")
          .mend("turn the biases off (--disable-bias-linear, no --add-qkv-bias), or capture other modules");
  return {};
}

/// A row whose help is to install a newer version.
constexpr Rule te_rule(std::string_view code, std::string_view id, Phase phase, Needs needs, std::string_view message,
                       std::string_view why, std::string_view help, std::string_view source,
                       Findings (*violation)(const Derivation&), Severity severity = Severity::Error) {
  return {code, id, severity, phase, needs, message, why, help, source, violation};
}

}  // namespace detail

inline constexpr Rule kTransformerEngine[] = {
    detail::te_rule("GTP151", "te-fp4", Phase::Startup, {kFp4, kTeVersion}, "FP4 needs TransformerEngine 2.7 or newer",
                    "NVFP4 block scaling came with 2.7.", "install TransformerEngine 2.7 or newer",
                    "megatron/training/arguments.py:1108",
                    [](const Derivation& d) {
                      if (!d.facts.has(kFp4)) return Findings{};
                      return detail::te_too_old(d.facts, "2.7.0.dev0", kFp4, "FP4 is on");
                    }),
    detail::te_rule("GTP152", "te-mxfp8", Phase::FirstStep, {kFp8, kFp8Recipe, kTeVersion},
                    "the MXFP8 recipe needs TransformerEngine 2.1 or newer",
                    "Older versions have delayed scaling only.", "install TransformerEngine 2.1 or newer",
                    "megatron/core/fp8_utils.py:770",
                    [](const Derivation& d) { return detail::recipe_too_old(d.facts, "mxfp8", "2.1.0"); }),
    detail::te_rule("GTP153", "te-tensorwise", Phase::FirstStep, {kFp8, kFp8Recipe, kTeVersion},
                    "the tensorwise FP8 recipe needs TransformerEngine 2.2 or newer",
                    "Per-tensor current scaling came with 2.2.", "install TransformerEngine 2.2 or newer",
                    "megatron/core/fp8_utils.py:777",
                    [](const Derivation& d) { return detail::recipe_too_old(d.facts, "tensorwise", "2.2.0.dev0"); }),
    detail::te_rule("GTP154", "te-blockwise", Phase::FirstStep, {kFp8, kFp8Recipe, kTeVersion},
                    "the blockwise FP8 recipe needs TransformerEngine 2.3 or newer",
                    "FP8 scaling of blocks in software came with 2.3.", "install TransformerEngine 2.3 or newer",
                    "megatron/core/fp8_utils.py:781",
                    [](const Derivation& d) { return detail::recipe_too_old(d.facts, "blockwise", "2.3.0.dev0"); }),
    detail::te_rule("GTP155", "te-moe-fp8", Phase::Startup, {kNumExperts, kFp8, kTeVersion},
                    "experts in FP8 need TransformerEngine 1.7 or newer",
                    "Older versions fail when an expert gets no tokens.", "install TransformerEngine 1.7 or newer",
                    "megatron/core/transformer/transformer_config.py:2629",
                    [](const Derivation& d) {
                      if (!d.facts.has(kNumExperts) || !d.facts.has(kFp8)) return Findings{};
                      return detail::te_too_old(d.facts, "1.7.0.dev0", kFp8, "FP8 is on");
                    }),
    detail::te_rule("GTP156", "te-moe-fp8-grouped-gemm", Phase::Startup,
                    {kNumExperts, kFp8, "moe_grouped_gemm"_opt, kTeVersion},
                    "grouped FP8 GEMMs need TransformerEngine 1.11 or newer",
                    "Older versions compute experts together in 16 bits only.",
                    "install TransformerEngine 1.11 or newer, or turn moe_grouped_gemm off",
                    "megatron/core/transformer/transformer_config.py:2635",
                    [](const Derivation& d) {
                      const Facts& f = d.facts;
                      if (!f.has(kNumExperts) || !f.has(kFp8) || !f.on("moe_grouped_gemm"_opt) ||
                          te_older_than(f, "1.7.0.dev0"))  // GTP155
                        return Findings{};
                      return detail::te_too_old(f, "1.11.0", "moe_grouped_gemm"_opt);
                    }),
    detail::te_rule("GTP157", "te-recompute-fp8", Phase::Startup,
                    {kFp8, kFp8Recipe, "recompute_granularity"_opt, "recompute_modules"_opt, kTeVersion},
                    "recomputing MoE activations or layer norms in FP8 needs TransformerEngine 2.6 or newer",
                    "Older versions cannot recompute the input of a quantized GEMM after it was discarded.",
                    "install TransformerEngine 2.6 or newer, or recompute other modules",
                    "megatron/core/transformer/transformer_config.py:2007",
                    [](const Derivation& d) {
                      const Facts& f = d.facts;
                      if (!f.has(kFp8) || detail::recipe_is(f, "delayed") || !detail::recomputes_quantized(f))
                        return Findings{};  // GTP125
                      return detail::te_too_old(f, "2.6.0.dev0", "recompute_modules"_opt, "moe_act or layernorm");
                    }),
    detail::te_rule("GTP158", "te-cp", Phase::Startup, {kCp, "transformer_impl"_opt, kTeVersion},
                    "context parallelism needs TransformerEngine 1.0 or newer",
                    "Its attention kernels exchange keys and values between ranks.",
                    "install TransformerEngine 1.0 or newer", "megatron/core/extensions/transformer_engine.py:2130",
                    [](const Derivation& d) {
                      if (d.facts[kCp] <= 1 || !detail::te_layers(d.facts)) return Findings{};
                      return detail::te_too_old(d.facts, "1.0.0", kCp, fmt::format("{} ranks", d.facts[kCp]));
                    }),
    detail::te_rule("GTP159", "te-hierarchical-cp", Phase::Startup,
                    {kCp, "cp_comm_type"_opt, "transformer_impl"_opt, kTeVersion},
                    "hierarchical context parallelism needs TransformerEngine 1.12 or newer",
                    "Older versions know one context-parallel group.", "install TransformerEngine 1.12 or newer",
                    "megatron/core/extensions/transformer_engine.py:2144",
                    [](const Derivation& d) {
                      const Facts& f = d.facts;
                      if (f[kCp] <= 1 || !detail::te_layers(f) || !detail::lists(f, "cp_comm_type"_opt, "a2a+p2p") ||
                          te_older_than(f, "1.0.0"))  // GTP158
                        return Findings{};
                      return detail::te_too_old(f, "1.12.0", "cp_comm_type"_opt, "a2a+p2p");
                    }),
    detail::te_rule("GTP160", "te-swa", Phase::Startup,
                    {"window_size"_opt, "window_attn_skip_freq"_opt, "transformer_impl"_opt, kTeVersion},
                    "sliding-window attention needs TransformerEngine 1.2 or newer",
                    "Older attention kernels have no window.", "install TransformerEngine 1.2 or newer",
                    "megatron/core/extensions/transformer_engine.py:2167",
                    [](const Derivation& d) {
                      if (!detail::te_layers(d.facts) || !detail::windowed_attention(d.facts)) return Findings{};
                      return detail::te_too_old(d.facts, "1.2.0", "window_size"_opt, "a window");
                    }),
    detail::te_rule("GTP161", "te-softmax-type", Phase::Startup,
                    {"softmax_type"_opt, "transformer_impl"_opt, kTeVersion},
                    "this softmax needs TransformerEngine 2.8 or newer",
                    "Older attention kernels have the plain softmax only.", "install TransformerEngine 2.8 or newer",
                    "megatron/core/extensions/transformer_engine.py:2185",
                    [](const Derivation& d) {
                      const auto type = d.facts.text("softmax_type"_opt).value_or("vanilla");
                      if (type == "vanilla" || !detail::te_layers(d.facts)) return Findings{};
                      return detail::te_too_old(d.facts, "2.8.0", "softmax_type"_opt, fmt::format("`{}`", type));
                    }),
    detail::te_rule("GTP162", "te-num-splits", Phase::FirstStep,
                    {"batch_invariant_mode"_opt, "transformer_impl"_opt, kTeVersion},
                    "batch-invariant attention needs TransformerEngine 2.10 or newer",
                    "The mode asks attention for one split of the keys, which older versions cannot be told.",
                    "install TransformerEngine 2.10 or newer", "megatron/core/extensions/transformer_engine.py:2280",
                    [](const Derivation& d) {
                      if (!d.facts.on("batch_invariant_mode"_opt) || !detail::te_layers(d.facts)) return Findings{};
                      return detail::te_too_old(d.facts, "2.10.0", "batch_invariant_mode"_opt);
                    }),
    detail::te_rule("GTP163", "te-qk-clip", Phase::Startup, {"qk_clip"_opt, kTeVersion},
                    "QK clip needs TransformerEngine 2.9 or newer",
                    "It follows the largest attention logit, which older attention kernels do not return.",
                    "install TransformerEngine 2.9 or newer", "megatron/training/arguments.py:1613",
                    [](const Derivation& d) {
                      if (!d.facts.on("qk_clip"_opt)) return Findings{};
                      return detail::te_too_old(d.facts, "2.9.0", "qk_clip"_opt);
                    }),
    detail::te_rule("GTP164", "te-log-max-logit", Phase::Startup, {"log_max_attention_logit"_opt, kTeVersion},
                    "logging the largest attention logit needs TransformerEngine 2.9 or newer",
                    "Older attention kernels do not return it.", "install TransformerEngine 2.9 or newer",
                    "megatron/training/arguments.py:1622",
                    [](const Derivation& d) {
                      if (!d.facts.on("log_max_attention_logit"_opt)) return Findings{};
                      return detail::te_too_old(d.facts, "2.9.0", "log_max_attention_logit"_opt);
                    }),
    detail::te_rule("GTP165", "te-symmetric-ar", Phase::Startup, {"symmetric_ar_type"_opt, kTeVersion},
                    "symmetric-memory all-reduces need TransformerEngine 2.3 or newer",
                    "Linear layers of older versions cannot be told which all-reduce to use. They also need torch 2.7.",
                    "install TransformerEngine 2.3 or newer", "megatron/core/transformer/transformer_config.py:3128",
                    [](const Derivation& d) {
                      const Facts& f = d.facts;
                      // One development build of 2.3 has it already.
                      if (!f.has("symmetric_ar_type"_opt) || f.text(kTeVersion) == "2.3.0.dev0+39c0e70")
                        return Findings{};
                      return detail::te_too_old(f, "2.3.0", "symmetric_ar_type"_opt,
                                                fmt::format("`{}`", f.text("symmetric_ar_type"_opt).value_or("")));
                    }),
    detail::te_rule("GTP166", "te-rope-interleaved", Phase::Startup,
                    {"apply_rope_fusion"_opt, "rotary_interleaved"_opt, "multi_latent_attention"_opt,
                     "position_embedding_type"_opt, kTeVersion},
                    "fused interleaved rotary embedding needs TransformerEngine 2.3 or newer",
                    "The fused kernel of older versions rotates halves only.",
                    "install TransformerEngine 2.3 or newer, or turn apply_rope_fusion off",
                    "megatron/core/transformer/transformer_config.py:2505",
                    [](const Derivation& d) {
                      if (!detail::fused_interleaved_rope(d.facts)) return Findings{};
                      return detail::te_too_old(d.facts, "2.3.0", "rotary_interleaved"_opt);
                    }),
    detail::te_rule("GTP167", "te-permute-fusion", Phase::Startup, {"moe_permute_fusion"_opt, kTeVersion},
                    "fused permutation needs TransformerEngine 2.1 or newer",
                    "The kernels that reorder tokens by expert came with 2.1.",
                    "install TransformerEngine 2.1 or newer, or turn moe_permute_fusion off",
                    "megatron/core/transformer/transformer_config.py:2984",
                    [](const Derivation& d) {
                      if (!d.facts.on("moe_permute_fusion"_opt)) return Findings{};
                      return detail::te_too_old(d.facts, "2.1.0", "moe_permute_fusion"_opt);
                    }),
    detail::te_rule("GTP168", "te-gqa", Phase::Startup,
                    {"group_query_attention"_opt, "num_query_groups"_opt, "num_attention_heads"_opt,
                     "transformer_impl"_opt, kTeVersion},
                    "grouped-query attention needs TransformerEngine 0.11 or newer",
                    "Older attention kernels have one key head for each query head.",
                    "install TransformerEngine 0.11 or newer", "megatron/core/extensions/transformer_engine.py:2091",
                    [](const Derivation& d) {
                      const Facts& f = d.facts;
                      const auto groups = f.integer("num_query_groups"_opt), heads = f.integer("num_attention_heads"_opt);
                      if (!f.on("group_query_attention"_opt) || !detail::te_layers(f) || !groups || groups == heads)
                        return Findings{};
                      return detail::te_too_old(f, "0.11.0", "num_query_groups"_opt, fmt::format("{} groups", *groups));
                    }),
    detail::te_rule("GTP169", "te-delay-wgrad-overlap-grad-reduce", Phase::Startup,
                    {"delay_wgrad_compute"_opt, "overlap_grad_reduce"_opt, kTeVersion},
                    "late weight gradients with overlapped reduction need TransformerEngine 2.8 or newer",
                    "Older versions do not say when a late gradient is ready to be reduced.",
                    "install TransformerEngine 2.8 or newer, or turn overlap_grad_reduce off",
                    "megatron/training/arguments.py:1907",
                    [](const Derivation& d) {
                      if (!d.facts.on("delay_wgrad_compute"_opt) || !d.facts.on("overlap_grad_reduce"_opt))
                        return Findings{};
                      return detail::te_too_old(d.facts, "2.8.0", "delay_wgrad_compute"_opt);
                    }),
    detail::te_rule("GTP170", "te-delay-wgrad-graph", Phase::Startup,
                    {"delay_wgrad_compute"_opt, "overlap_grad_reduce"_opt, "cuda_graph_modules"_opt,
                     "gradient_accumulation_fusion"_opt, "add_bias_linear"_opt, "add_qkv_bias"_opt,
                     "moe_shared_expert_intermediate_size"_opt, "moe_shared_expert_overlap"_opt},
                    "late weight gradients cannot be captured like this",
                    "A graph that holds late weight gradients needs TransformerEngine 2.12, gradients added at fixed "
                    "addresses, and attention without biases. Upstream checks this with overlap_grad_reduce only.",
                    "install TransformerEngine 2.12 or newer, or capture other modules",
                    "megatron/training/arguments.py:1916",
                    [](const Derivation& d) { return detail::late_gradients_in_graph(d.facts); }),
    detail::te_rule("GTP171", "te-delay-wgrad-te-graph", Phase::Startup,
                    {"delay_wgrad_compute"_opt, "overlap_moe_expert_parallel_comm"_opt, "cuda_graph_impl"_opt,
                     kTeVersion},
                    "late weight gradients beside TransformerEngine graphs need TransformerEngine 2.10 or newer",
                    "Graphs of older versions capture the weight gradients with the data gradients.",
                    "install TransformerEngine 2.10 or newer, or turn delay_wgrad_compute off",
                    "megatron/core/transformer/transformer_config.py:3078",
                    [](const Derivation& d) {
                      const Facts& f = d.facts;
                      if (!f.on("delay_wgrad_compute"_opt) || !f.on("overlap_moe_expert_parallel_comm"_opt) ||
                          f.text("cuda_graph_impl"_opt) != "transformer_engine")
                        return Findings{};
                      return detail::te_too_old(f, "2.10.0", "delay_wgrad_compute"_opt);
                    }),
    detail::te_rule("GTP172", "te-delay-wgrad-no-fusion", Phase::Startup,
                    {"delay_wgrad_compute"_opt, "gradient_accumulation_fusion"_opt, "overlap_grad_reduce"_opt,
                     kTeVersion},
                    "late weight gradients without gradient accumulation fusion need TransformerEngine 2.7 or newer",
                    "Older versions write late gradients into the main gradients only.",
                    "install TransformerEngine 2.7 or newer, or turn gradient_accumulation_fusion on",
                    "megatron/training/arguments.py:1929",
                    [](const Derivation& d) {
                      const Facts& f = d.facts;
                      if (!f.on("delay_wgrad_compute"_opt) || f.on("gradient_accumulation_fusion"_opt) ||
                          f.on("overlap_grad_reduce"_opt))  // GTP169
                        return Findings{};
                      return detail::te_too_old(f, "2.7.0", "gradient_accumulation_fusion"_opt, "off");
                    }),
    detail::te_rule("GTP173", "te-shared-expert-grouped", Phase::Startup,
                    {kNumExperts, "use_grouped_gemm_for_shared_expert"_opt, "moe_shared_expert_intermediate_size"_opt,
                     kTeVersion},
                    "a shared expert by grouped GEMM needs TransformerEngine 2.14 or newer",
                    "It is built from fused operations that came with 2.14.",
                    "install TransformerEngine 2.14 or newer, or turn use_grouped_gemm_for_shared_expert off",
                    "megatron/core/transformer/moe/shared_experts.py:408",
                    [](const Derivation& d) {
                      const Facts& f = d.facts;
                      const auto grouped = "use_grouped_gemm_for_shared_expert"_opt;
                      if (!f.has(kNumExperts) || !f.on(grouped) || !f.has("moe_shared_expert_intermediate_size"_opt))
                        return Findings{};
                      return detail::te_too_old(f, "2.14.0", grouped);
                    }),
    detail::te_rule("GTP174", "te-tp-overlap-bootstrap", Phase::Startup,
                    {"tp_comm_overlap"_opt, "tp_comm_bootstrap_backend"_opt, kTeVersion},
                    "tensor-parallel overlap starts up by MPI with this TransformerEngine",
                    "Versions before 1.9 exchange their buffers over MPI, whatever the option says.",
                    "install TransformerEngine 1.9 or newer, or set tp_comm_bootstrap_backend to mpi",
                    "megatron/training/initialize.py:256",
                    [](const Derivation& d) {
                      const auto backend = d.facts.text("tp_comm_bootstrap_backend"_opt).value_or("mpi");
                      if (!d.facts.on("tp_comm_overlap"_opt) || backend == "mpi") return Findings{};
                      return detail::te_too_old(d.facts, "1.9.0", "tp_comm_bootstrap_backend"_opt,
                                                fmt::format("`{}`", backend));
                    },
                    Severity::Warning),
};

}  // namespace gtp::rules
