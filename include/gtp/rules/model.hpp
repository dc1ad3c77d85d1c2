// 50x to 52x: the shape of the model, its attention and positions. Activations, Mamba layers and quantized shapes:
// model_kernels.hpp.
#pragma once

#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/ask.hpp>
#include <gtp/rules/expert.hpp>
#include <gtp/rules/names.hpp>
#include <gtp/rules/sequence.hpp>

namespace gtp::rules {

namespace detail {

inline constexpr OptionId kHidden = "hidden_size"_opt, kKvChannels = "kv_channels"_opt,
                          kPosition = "position_embedding_type"_opt, kRopeFusion = "apply_rope_fusion"_opt,
                          kMtp = "mtp_num_layers"_opt, kNoRope = "no_rope_freq"_opt, kLayers = "num_layers"_opt,
                          kFfn = "ffn_hidden_size"_opt, kDownFusion = "mla_down_proj_fusion"_opt;

/// The position embedding before use_rotary_position_embeddings replaces it, which is when MTP is checked.
inline std::string_view original_position(const Facts& f) {
  const Value* value = f.original(kPosition);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return text == nullptr ? std::string_view() : std::string_view(*text);
}

/// A dense MLP in some layer. A hybrid pattern says it by letter.
inline bool builds_dense_mlp(const Facts& f) {
  if (const auto pattern = f.text("hybrid_layer_pattern"_opt)) return pattern->find('-') != std::string_view::npos;
  return !f.has(kNumExperts) || mixes_dense_layers(f);
}

/// The widths that tensor parallelism cuts, and the sizes that cut them; GTP007 asks the same of ffn_hidden_size.
inline Findings widths_that_do_not_split(const Facts& f) {
  const auto wrong = [&](OptionId width, OptionId ranks) {
    const auto rows = f.integer(width), parts = f.integer(ranks);
    return rows && parts && !divides(*parts, *rows);
  };
  const auto label = [&](OptionId width, OptionId ranks) {
    return fmt::format("{} is not a multiple of {}", ask::shown(f, width), ask::shown(f, ranks));
  };
  const auto padded = "padded_vocab_size"_opt;
  const bool moe = f.has(kNumExperts);
  return ask::clashes(
      {{!ask::above(f, kGtpRemat, 1) && builds_dense_mlp(f) && wrong(kFfn, kTp), kFfn, label(kFfn, kTp)},
       {moe && wrong(kSharedSize, kTp), kSharedSize, label(kSharedSize, kTp)},
       {moe && wrong(kMoeFfn, kEtp), kMoeFfn, label(kMoeFfn, kEtp)},
       {ask::given(f, padded) && wrong(padded, kTp), padded, label(padded, kTp)}});
}

/// A list with one entry for each layer, of another length than the model.
inline Findings list_of_other_length(const Facts& f, OptionId option) {
  const auto layers = f.integer(kLayers);
  const Value* value = f.find(option);
  const auto* list = value == nullptr ? nullptr : std::get_if<IntList>(value);
  if (list == nullptr || !layers || static_cast<std::int64_t>(list->size()) == *layers) return {};
  return at(option, fmt::format("{} entries", list->size())).also(kLayers, fmt::format("{} layers", *layers));
}

inline Findings no_rope_pattern(const Facts& f) {
  const auto every = f.integer(kNoRope);
  if (!f.has(kNoRope) || every == 0) return {};
  if (f.on("flash_decode"_opt)) return at("flash_decode"_opt, "on").also(kNoRope, "layers without rotation");
  const auto layers = f.integer(kLayers);
  if (!every || !layers) return list_of_other_length(f, kNoRope);
  if (ask::multiple(*layers, *every)) return {};
  return at(kNoRope, fmt::format("{} does not divide {}", *every, *layers)).also(kLayers, "layers");
}

/// Sparse attention; with a hybrid pattern `D` layers turn it on.
inline Findings dsa_limits(const Facts& f) {
  const auto freq = "dsa_indexer_topk_freq"_opt, skip = "dsa_indexer_skip_topk_offset"_opt;
  if (!ask::is(f, kVariant, "dsa")) return {};
  return ask::also(ask::clashes({{f.on(kBias), kBias, "on"},
                                 {ask::below(f, freq, 1), freq, "below 1"},
                                 {ask::below(f, skip, 0), skip, "negative"},
                                 {f.on(kRopeFusion), kRopeFusion, "on"}}),
                   kVariant, "dsa");
}

inline Findings inference_optimized_limits(const Facts& f) {
  const auto norm = "normalization"_opt;
  if (!ask::is(f, kImpl, "inference_optimized")) return {};
  return ask::also(ask::clashes({{ask::is_other(f, norm, "RMSNorm"), norm, "not RMSNorm"},
                                 {f.on("layernorm_zero_centered_gamma"_opt), "layernorm_zero_centered_gamma"_opt, "on"},
                                 {f.on(kBias), kBias, "on"},
                                 {!f.on(kBias) && f.on("add_qkv_bias"_opt), "add_qkv_bias"_opt, "on"}}),
                   kImpl, "inference_optimized");
}

/// mHC carries several residual streams; the rest of its limits are about recomputation.
inline Findings mhc_stages(const Facts& f) {
  if (!f.on("enable_mhc_connections"_opt) || f[kPp] <= 1) return {};
  return at("enable_mhc_connections"_opt, "on").also(kPp, fmt::format("{} stages", f[kPp]));
}

}  // namespace detail

inline constexpr Rule kModelShape[] = {
    {"GTP501",
     "heads-divisible-by-tp",
     Severity::Error,
     Phase::Startup,
     {detail::kHeads, kTp},
     "the attention heads must be a multiple of the tensor-parallel size",
     "Every tensor-parallel rank computes the same number of whole heads.",
     "use a tensor-parallel size that divides num_attention_heads",
     "megatron/core/transformer/transformer_config.py:1446",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.has(detail::kHeads) || divides(f[kTp], f[detail::kHeads])) return {};
       return at(detail::kHeads, fmt::format("{} is not a multiple of {}", f[detail::kHeads], f[kTp]))
           .also(kTp, "tensor-parallel size");
     }},
    {"GTP502",
     "kv-channels-default-cli",
     Severity::Error,
     Phase::Startup,
     {detail::kHidden, detail::kHeads},
     "without kv_channels the hidden size must be a multiple of the attention heads",
     "The width of a head is then hidden_size / num_attention_heads. Upstream asks for it in MLA models as well, which "
     "have head widths of their own.",
     "set kv_channels, or change hidden_size or num_attention_heads",
     "megatron/training/arguments.py:1331",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const Value* channels = f.original(detail::kKvChannels);
       if (channels == nullptr || !is_none(*channels) || !f.has(detail::kHidden) || !f.has(detail::kHeads)) return {};
       if (divides(f[detail::kHeads], f[detail::kHidden])) return {};
       return at(detail::kHidden, fmt::format("{} is not a multiple of {}", f[detail::kHidden], f[detail::kHeads]))
           .also(detail::kHeads, "heads");
     }},
    {"GTP503",
     "gqa-groups-vs-tp",
     Severity::Error,
     Phase::Startup,
     {detail::kGroups, kTp, detail::kHeads},
     "the query groups must be a multiple or a divisor of the tensor-parallel size",
     "Each rank holds whole key-value heads, or several ranks hold the same one.",
     "use a number of query groups that divides TP or is a multiple of it",
     "megatron/core/transformer/transformer_config.py:1461",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto groups = f.integer(detail::kGroups);
       if (!groups || !f.has(detail::kHeads) || !divides(f[kTp], f[detail::kHeads])) return {};
       if (ask::multiple(*groups, f[kTp]) || ask::multiple(f[kTp], *groups)) return {};
       return at(detail::kGroups, fmt::format("{} groups", *groups)).also(kTp, fmt::format("{} ranks", f[kTp]));
     }},
    {"GTP504",
     "gqa-heads-divisible",
     Severity::Error,
     Phase::FirstStep,
     {detail::kGroups, detail::kHeads, "group_query_attention"_opt},
     "the attention heads must be a multiple of the query groups",
     "Every key-value head serves equally many query heads; TransformerEngine says so when the model is built.",
     "use a number of query groups that divides num_attention_heads",
     "transformer_engine/pytorch/attention/dot_product_attention/dot_product_attention.py:741",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto groups = f.integer(detail::kGroups);
       if (!f.on("group_query_attention"_opt) || !groups || !f.has(detail::kHeads)) return {};
       if (divides(*groups, f[detail::kHeads])) return {};
       return at(detail::kGroups, fmt::format("{} does not divide {}", *groups, f[detail::kHeads]))
           .also(detail::kHeads, "heads");
     }},
    {"GTP506",
     "mla-excludes-gqa",
     Severity::Error,
     Phase::Startup,
     {detail::kMla, "group_query_attention"_opt},
     "multi-latent attention excludes grouped queries",
     "MLA compresses keys and values instead of sharing them between heads.",
     "turn group_query_attention off",
     "megatron/training/arguments.py:1973",
     [](const Derivation& d) { return ask::both_on(d.facts, "group_query_attention"_opt, detail::kMla); }},
    {"GTP507",
     "mla-down-proj-fusion",
     Severity::Error,
     Phase::Startup,
     {detail::kDownFusion, detail::kMla},
     "fusing the MLA down-projections needs multi-latent attention",
     "Only MLA has down-projections of queries and keys.",
     "turn mla_down_proj_fusion off",
     "megatron/training/arguments.py:1976",
     [](const Derivation& d) { return ask::on_without(d.facts, detail::kDownFusion, detail::kMla); }},
    {"GTP508",
     "mla-down-proj-fusion-ranks",
     Severity::Error,
     Phase::FirstStep,
     {detail::kDownFusion, detail::kMla, "q_lora_rank"_opt, "kv_lora_rank"_opt, "qk_pos_emb_head_dim"_opt, kTp},
     "the fused MLA down-projection must split over tensor parallelism",
     "The rows of both projections lie in one weight, and each of its two parts is cut over the ranks.",
     "make q_lora_rank, and kv_lora_rank + qk_pos_emb_head_dim, multiples of TP",
     "megatron/core/transformer/multi_latent_attention.py:1362",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto q = f.integer("q_lora_rank"_opt), kv = f.integer("kv_lora_rank"_opt);
       if (!f.on(detail::kDownFusion) || !f.on(detail::kMla) || !q || !kv) return {};
       const auto keys = checked_add(*kv, f.integer("qk_pos_emb_head_dim"_opt).value_or(0));
       return ask::clashes({{!divides(f[kTp], *q), "q_lora_rank"_opt, fmt::format("{} over {} ranks", *q, f[kTp])},
                            {keys && !divides(f[kTp], *keys), "kv_lora_rank"_opt,
                             fmt::format("{} rows over {} ranks", keys.value_or(0), f[kTp])}});
     }},
    {"GTP509",
     "linear-divisible-by-tp",
     Severity::Error,
     Phase::FirstStep,
     {kTp},
     "a width that tensor parallelism cuts must be a multiple of its size",
     "Linear layers and the embedding are cut exactly, experts over the expert-tensor-parallel size; nothing checks it "
     "before the model is built.",
     "use a multiple",
     "megatron/core/utils.py:598",
     [](const Derivation& d) { return detail::widths_that_do_not_split(d.facts); }},
    {"GTP510",
     "vocab-inputs-positive",
     Severity::Error,
     Phase::FirstStep,
     {},
     "the vocabulary and the multiple it is padded to must be positive",
     "The embedding gets one row for each token, rounded up to make_vocab_size_divisible_by x TP.",
     "use 1 or more",
     "megatron/training/vocab_utils.py:51",
     [](const Derivation& d) {
       Findings findings;
       for (const OptionId option : {"vocab_size"_opt, "make_vocab_size_divisible_by"_opt, "padded_vocab_size"_opt})
         if (ask::given(d.facts, option) && ask::below(d.facts, option, 1))
           findings.list.push_back(at(option, fmt::format("{} is not positive", d.facts[option])));
       return findings;
     }},
    {"GTP511",
     "num-layers-exclusive",
     Severity::Error,
     Phase::Startup,
     {},
     "num_layers and encoder_num_layers exclude each other",
     "Upstream fills in the one that is missing from the one that is given; a hybrid pattern gives num_layers as well.",
     "drop encoder_num_layers",
     "megatron/training/arguments.py:1304",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const OptionId layers = f.has("hybrid_layer_pattern"_opt) ? "hybrid_layer_pattern"_opt : detail::kLayers;
       if (!ask::given(f, "encoder_num_layers"_opt) || !ask::given(f, layers)) return {};
       return at("encoder_num_layers"_opt, "given as well").also(layers, "given");
     }},
    {"GTP512",
     "no-position-embedding-deprecated",
     Severity::Error,
     Phase::Startup,
     {"add_position_embedding"_opt, detail::kPosition},
     "add_position_embedding can be off only with rotary embeddings",
     "position_embedding_type says what positions get; the old switch stays for rope, which adds none.",
     "use position_embedding_type, e.g. none",
     "megatron/training/arguments.py:1634",
     [](const Derivation& d) -> Findings {
       const auto option = "add_position_embedding"_opt;
       if (!ask::off(d.facts, option) || !ask::is_other(d.facts, detail::kPosition, "rope")) return {};
       return at(option, "off").also(detail::kPosition, ask::shown(d.facts, detail::kPosition));
     }},
    {"GTP513",
     "relative-position-needs-te",
     Severity::Error,
     Phase::Startup,
     {detail::kPosition, detail::kImpl},
     "relative positions need the TransformerEngine layers",
     "They are a bias on attention scores, which the other layers do not take.",
     "set transformer_impl to transformer_engine",
     "megatron/training/arguments.py:1638",
     [](const Derivation& d) -> Findings {
       if (!ask::is(d.facts, detail::kPosition, "relative")) return {};
       if (!ask::is_other(d.facts, detail::kImpl, "transformer_engine")) return {};
       return at(detail::kImpl, ask::shown(d.facts, detail::kImpl)).also(detail::kPosition, "relative");
     }},
    {"GTP514",
     "mrope-needs-section",
     Severity::Error,
     Phase::Startup,
     {detail::kPosition, "mrope_section"_opt},
     "multimodal rotary embeddings need their sections",
     "mrope_section says how many dimensions turn with time, height and width.",
     "set mrope_section",
     "megatron/training/arguments.py:1643",
     [](const Derivation& d) -> Findings {
       if (!ask::is(d.facts, detail::kPosition, "mrope") || d.facts.has("mrope_section"_opt)) return {};
       return at(detail::kPosition, "mrope").also("mrope_section"_opt, "not set");
     }},
    {"GTP515",
     "mtp-position-embedding",
     Severity::Error,
     Phase::Startup,
     {detail::kMtp, detail::kPosition},
     "multi-token prediction needs rotary positions or none",
     "MTP layers see shifted tokens, whose learned positions they would have to shift too. Upstream looks at "
     "position_embedding_type before use_rotary_position_embeddings replaces it, and its default is learned_absolute.",
     "set position_embedding_type to rope",
     "megatron/training/arguments.py:883",
     [](const Derivation& d) -> Findings {
       const auto position = detail::original_position(d.facts);
       if (d.facts.integer(detail::kMtp).value_or(0) == 0 || position == "rope" || position == "none") return {};
       return at(detail::kMtp, "set").also(detail::kPosition, std::string(position));
     }},
    {"GTP516",
     "no-rope-freq",
     Severity::Error,
     Phase::Startup,
     {detail::kNoRope},
     "no_rope_freq must tile the layers",
     "A number repeats over the layers without a rest, a list has one entry a layer; flash decoding knows neither.",
     "use a number that divides num_layers, or a list of that length",
     "megatron/core/transformer/transformer_config.py:3138",
     [](const Derivation& d) { return detail::no_rope_pattern(d.facts); }},
    {"GTP517",
     "layer-list-length",
     Severity::Error,
     Phase::FirstStep,
     {detail::kLayers},
     "a list with an entry for each layer must have num_layers entries",
     "The list says for every layer which kind it is; nothing checks it before the model is built.",
     "use a list of num_layers entries, or a number",
     "megatron/core/models/gpt/experimental_attention_variant_module_specs.py:448",
     [](const Derivation& d) -> Findings {
       if (d.facts.has("hybrid_layer_pattern"_opt)) return {};
       Findings all;
       if (d.facts.has(kNumExperts)) all = detail::list_of_other_length(d.facts, "moe_layer_freq"_opt);
       if (!detail::is_gated_delta_net(d.facts)) return all;
       for (Finding& finding : detail::list_of_other_length(d.facts, "linear_attention_freq"_opt).list)
         all.list.push_back(std::move(finding));
       return all;
     }},
    {"GTP518",
     "mla-rope-fusion-needs-yarn",
     Severity::Error,
     Phase::Startup,
     {detail::kMla, detail::kRopeFusion, "rope_type"_opt},
     "fused rotary embeddings of multi-latent attention need YaRN",
     "The fused kernel of MLA takes YaRN's scaled frequencies. apply_rope_fusion is on by default.",
     "set rope_type to yarn, or turn apply_rope_fusion off (--no-rope-fusion)",
     "megatron/core/transformer/transformer_config.py:3345",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.on(detail::kMla) || !f.on(detail::kRopeFusion) || !ask::is_other(f, "rope_type"_opt, "yarn")) return {};
       return at("rope_type"_opt, "rope").also(detail::kRopeFusion, "on");
     }},
    {"GTP519",
     "rope-type-needs-mla",
     Severity::Error,
     Phase::Startup,
     {detail::kMla, "rope_type"_opt},
     "rope_type yarn needs multi-latent attention",
     "Other attention gets YaRN by position_embedding_type yarn.",
     "leave rope_type out",
     "megatron/training/argument_utils.py:339",
     [](const Derivation& d) -> Findings {
       if (d.facts.on(detail::kMla) || !ask::is_other(d.facts, "rope_type"_opt, "rope")) return {};
       return at("rope_type"_opt, ask::shown(d.facts, "rope_type"_opt)).also(detail::kMla, "off");
     }},
    {"GTP520",
     "mla-excludes",
     Severity::Error,
     Phase::Startup,
     {detail::kMla},
     "multi-latent attention does not work with this option",
     "It has no output gate, no interleaved rotation and no heterogeneous layers, and cached latents cannot be rotated "
     "by the fused kernel.",
     "turn the option off",
     "megatron/core/transformer/transformer_config.py:3348",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto latents = "cache_mla_latents"_opt, path = "heterogeneous_layers_config_path"_opt;
       if (!f.on(detail::kMla)) return {};
       return ask::also(
           ask::clashes({{f.has(path), path, "heterogeneous layers"},
                         {f.on("rotary_interleaved"_opt), "rotary_interleaved"_opt, "on"},
                         {f.on("attention_output_gate"_opt), "attention_output_gate"_opt, "on"},
                         {f.on(latents) && f.on(detail::kRopeFusion), latents, "on, with apply_rope_fusion"}}),
           detail::kMla, "on");
     }},
    {"GTP521",
     "gdn-needs-attention-freq",
     Severity::Error,
     Phase::Startup,
     {detail::kVariant, "linear_attention_freq"_opt},
     "gated delta net needs linear_attention_freq",
     "It says which layers keep softmax attention.",
     "set linear_attention_freq",
     "megatron/core/transformer/transformer_config.py:1473",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::is_gated_delta_net(f) || ask::is(f, detail::kVariant, "gdn2")) return {};
       if (f.has("linear_attention_freq"_opt)) return {};
       return at(detail::kVariant, ask::shown(f, detail::kVariant)).also("linear_attention_freq"_opt, "not set");
     }},
    {"GTP522",
     "dsa-limits",
     Severity::Error,
     Phase::Startup,
     {detail::kVariant},
     "sparse attention does not work with this option",
     "DSA absorbs the MLA projections, so it has no biases and rotates keys itself; its indexer counts layers from 1.",
     "turn biases and apply_rope_fusion off (--disable-bias-linear, --no-rope-fusion), or correct the number",
     "megatron/core/transformer/transformer_config.py:1512",
     [](const Derivation& d) { return detail::dsa_limits(d.facts); }},
    {"GTP523",
     "inference-optimized-limits",
     Severity::Error,
     Phase::Startup,
     {detail::kImpl},
     "inference-optimized layers need RMSNorm and no biases",
     "Their fused kernels exist for plain RMSNorm and bias-free projections.",
     "change what is marked, or transformer_impl",
     "megatron/core/transformer/transformer_config.py:3155",
     [](const Derivation& d) { return detail::inference_optimized_limits(d.facts); }},
    {"GTP524",
     "inference-options-need-optimized",
     Severity::Error,
     Phase::Startup,
     {detail::kImpl},
     "this option is only for inference-optimized layers without experts",
     "inference_fuse_tp_communication and inference_disable_triton_nvls_kernels tune those layers; the first has no "
     "path "
     "through experts.",
     "turn the option off",
     "megatron/core/transformer/transformer_config.py:3179",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto fuse = "inference_fuse_tp_communication"_opt, nvls = "inference_disable_triton_nvls_kernels"_opt;
       const bool optimized = ask::is(f, detail::kImpl, "inference_optimized");
       return ask::clashes(
           {{f.on(fuse) && (!optimized || f.has(kNumExperts)), fuse, "on"}, {f.on(nvls) && !optimized, nvls, "on"}});
     }},
    {"GTP525",
     "mhc-no-pp",
     Severity::Error,
     Phase::Startup,
     {"enable_mhc_connections"_opt, kPp},
     "hyper-connections do not work with pipeline stages",
     "They carry several residual streams, but the buffers between stages have the width of one.",
     "set pipeline_model_parallel_size to 1",
     "megatron/core/transformer/transformer_config.py:2092",
     [](const Derivation& d) { return detail::mhc_stages(d.facts); },
     Version::kd98e8a64},
    {"GTP526",
     "hybrid-override-exclusive",
     Severity::Error,
     Phase::Startup,
     {},
     "hybrid_override_pattern and hybrid_layer_pattern exclude each other",
     "The first is the deprecated name of the second.",
     "drop hybrid_override_pattern",
     "megatron/training/arguments.py:743",
     [](const Derivation& d) -> Findings {
       const auto old = "hybrid_override_pattern"_opt, pattern = "hybrid_layer_pattern"_opt;
       if (!ask::given(d.facts, old) || !ask::given(d.facts, pattern)) return {};
       return at(old, "given as well").also(pattern, "given");
     }},
};

}  // namespace gtp::rules
