// 26x to 29x: sequence length, sequence parallelism, context parallelism.
#pragma once

#include <algorithm>

#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/ask.hpp>
#include <gtp/rules/names.hpp>

namespace gtp::rules {

namespace detail {

inline constexpr OptionId kSeq = "seq_length"_opt, kSp = "sequence_parallel"_opt, kCpComm = "cp_comm_type"_opt,
                          kLevels = "hierarchical_context_parallel_sizes"_opt,
                          kVariant = "experimental_attention_variant"_opt, kHybridCp = "hybrid_context_parallel"_opt,
                          kMla = "multi_latent_attention"_opt, kHeads = "num_attention_heads"_opt,
                          kGroups = "num_query_groups"_opt, kPositions = "max_position_embeddings"_opt;

/// The sequence is cut into two chunks for each context-parallel rank.
inline Findings two_chunks_a_rank(const Facts& f, OptionId option) {
  if (f[kCp] <= 1 || !f.has(kSeq)) return {};
  const auto unit = checked_multiply(2, f[kCp]);
  if (unit && divides(*unit, f[kSeq])) return {};
  return at(option, fmt::format("{} is not a multiple of 2 x {}", f[kSeq], f[kCp])).also(kCp, "context-parallel size");
}

/// A window that is one: not unlimited to the left with 0 or no limit to the right.
inline bool window_is_on(const Facts& f) {
  std::string text(f.text("window_size"_opt).value_or(""));
  std::erase_if(text, [](char c) { return c == ' ' || c == '(' || c == ')' || c == '[' || c == ']'; });
  return !text.empty() && text != "-1,0" && text != "-1,-1";
}

/// The first communication type of a context-parallel run that is none of these.
inline Findings cp_type_other_than(const Facts& f, std::initializer_list<std::string_view> allowed, OptionId reason,
                                   std::string why) {
  if (f[kCp] <= 1) return {};
  const std::string* type = ask::word_other_than(f, kCpComm, allowed);
  if (type == nullptr) return {};
  return at(kCpComm, fmt::format("`{}`", *type)).also(reason, std::move(why)).also(kCp, "context-parallel size");
}

inline bool is_gated_delta_net(const Facts& f) {
  const auto variant = f.text(kVariant).value_or("");
  return variant == "gdn" || variant == "gdn2" || variant == "gated_delta_net";
}

/// Heads that must split over TP x CP, and value heads over key heads (transformer_config.py:1491).
inline Findings gated_delta_net_heads(const Facts& f) {
  constexpr auto kKeys = "linear_num_key_heads"_opt, kValues = "linear_num_value_heads"_opt;
  if (!is_gated_delta_net(f)) return {};
  for (const OptionId needed :
       {"linear_conv_kernel_dim"_opt, "linear_key_head_dim"_opt, "linear_value_head_dim"_opt, kKeys, kValues})
    if (!f.has(needed)) return {};
  const auto ranks = checked_multiply(f[kTp], f[kCp]);
  if (!ask::multiple(f[kValues], f[kKeys]))
    return at(kValues, fmt::format("{} is not a multiple of {} key heads", f[kValues], f[kKeys]))
        .also(kKeys, "key heads");
  for (const OptionId heads : {kKeys, kValues})
    if (!ranks || !divides(*ranks, f[heads]))
      return at(heads, fmt::format("{} is not a multiple of TP {} x CP {}", f[heads], f[kTp], f[kCp]))
          .also(kTp, "tensor-parallel size")
          .also(kCp, "context-parallel size");
  return {};
}

/// What batch-invariant kernels need beyond FlashAttention 3 or 4; the checks on MoE and on the dtype came with
/// 2026-08-22.
inline Findings batch_invariant_limits(const Facts& f) {
  if (!f.on("batch_invariant_mode"_opt)) return {};
  const auto flash = "flash_attention_version"_opt;
  const bool newer = f.version() >= Version::kd98e8a64;
  const bool moe = newer && ask::above(f, kNumExperts, 0);
  const auto dropout = ask::number(f, "attention_dropout"_opt);
  const auto dispatcher = "moe_token_dispatcher_type"_opt;
  return ask::also(
      ask::clashes({{newer && ask::off(f, "bf16"_opt), "bf16"_opt, "off"},
                    {ask::is_other(f, "attention_backend"_opt, "flash"), "attention_backend"_opt, "not flash"},
                    {f.known(flash) && f.integer(flash) != 3 && f.integer(flash) != 4, flash, "neither 3 nor 4"},
                    {ask::above(f, kCp, 1), kCp, "above 1"},
                    {dropout && *dropout != 0, "attention_dropout"_opt, "not 0"},
                    {moe && ask::is_other(f, "transformer_impl"_opt, "inference_optimized") &&
                         ask::is_other(f, dispatcher, "alltoall"),
                     dispatcher, "not alltoall"},
                    {moe && f.has("fp8"_opt), "fp8"_opt, "set"},
                    {moe && f.has("fp4"_opt), "fp4"_opt, "set"},
                    {moe && f.on("moe_permute_fusion"_opt), "moe_permute_fusion"_opt, "on"},
                    {moe && f.on("moe_permute_fusion_into_hybridep"_opt), "moe_permute_fusion_into_hybridep"_opt, "on"},
                    {moe && f.on("moe_pad_expert_input_to_capacity"_opt), "moe_pad_expert_input_to_capacity"_opt, "on"},
                    {moe && f.on("moe_pad_experts_for_cuda_graph_inference"_opt),
                     "moe_pad_experts_for_cuda_graph_inference"_opt, "on"}}),
      "batch_invariant_mode"_opt, "on");
}

}  // namespace detail

inline constexpr Rule kSequences[] = {
    {"GTP262",
     "tp-comm-overlap-needs-sp",
     Severity::Error,
     Phase::Startup,
     {"tp_comm_overlap"_opt, detail::kSp, kTp},
     "tensor-parallel overlap needs sequence parallelism",
     "The overlapped GEMMs are fused with the collectives of sequence parallelism, which is off by default and turned "
     "off when the tensor-parallel size is 1.",
     "turn sequence_parallel on with TP above 1, or tp_comm_overlap off",
     "megatron/training/arguments.py:1441",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.on("tp_comm_overlap"_opt) || f.on(detail::kSp)) return {};
       return f[kTp] == 1 ? at("tp_comm_overlap"_opt, "on, with TP 1").also(kTp, "turns sequence parallelism off")
                          : at("tp_comm_overlap"_opt, "on").also(detail::kSp, "off");
     }},
    {"GTP263",
     "seq-divisible-by-2cp",
     Severity::Error,
     Phase::Startup,
     {detail::kSeq, kCp},
     "the sequence length must be a multiple of twice the context-parallel size",
     "Causal attention costs more towards the end, so every rank gets one chunk from the front and one from the back.",
     "use a multiple of 2 x context_parallel_size",
     "megatron/training/arguments.py:1335",
     [](const Derivation& d) -> Findings {
       if (!ask::given(d.facts, detail::kSeq)) return {};
       return detail::two_chunks_a_rank(d.facts, detail::kSeq);
     }},
    {"GTP264",
     "te-cp-local-seq-even",
     Severity::Error,
     Phase::FirstStep,
     {detail::kSeq, kCp},
     "the encoder's sequence length must be a multiple of twice the context-parallel size",
     "Upstream checks seq_length at startup but not an encoder_seq_length that stands in for it; the attention kernel "
     "then cannot halve its part of the sequence.",
     "use a multiple of 2 x context_parallel_size",
     "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py:1569",
     [](const Derivation& d) -> Findings {
       if (ask::given(d.facts, detail::kSeq)) return {};
       return detail::two_chunks_a_rank(d.facts, "encoder_seq_length"_opt);
     }},
    {"GTP265",
     "sp-seq-divisible-by-tp",
     Severity::Error,
     Phase::FirstStep,
     {detail::kSp, detail::kSeq, kTp, kCp},
     "sequence parallelism needs a sequence that splits over the tensor-parallel ranks",
     "The tokens of one context-parallel rank are scattered over TP in equal parts; nothing checks it before the first "
     "scatter.",
     "use a multiple of TP x CP",
     "megatron/core/tensor_parallel/mappings.py:72",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.on(detail::kSp) || !f.has(detail::kSeq) || !divides(f[kCp], f[detail::kSeq])) return {};
       const std::int64_t local = f[detail::kSeq] / f[kCp];
       if (divides(f[kTp], local)) return {};
       return at(detail::kSeq, fmt::format("{} tokens a rank are not a multiple of TP {}", local, f[kTp]))
           .also(kTp, "tensor-parallel size");
     }},
    {"GTP266",
     "max-position-ge-seq",
     Severity::Error,
     Phase::Startup,
     {detail::kPositions},
     "max_position_embeddings must not be below the sequence length",
     "Every position of a sequence needs its embedding. Upstream checks it for rotary embeddings too.",
     "raise max_position_embeddings to the sequence length",
     "megatron/training/arguments.py:1353",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto positions = f.integer(detail::kPositions);
       if (!positions) return {};
       for (const OptionId length : {detail::kSeq, "decoder_seq_length"_opt})
         if (const auto tokens = f.integer(length); tokens && *positions < *tokens)
           return at(detail::kPositions, fmt::format("{} is below {}", *positions, *tokens)).also(length, "tokens");
       return {};
     }},
    {"GTP267",
     "seq-length-exclusive",
     Severity::Error,
     Phase::Startup,
     {},
     "seq_length and encoder_seq_length exclude each other",
     "Upstream fills in the one that is missing from the one that is given.",
     "drop encoder_seq_length",
     "megatron/training/arguments.py:1346",
     [](const Derivation& d) -> Findings {
       if (!ask::given(d.facts, detail::kSeq) || !ask::given(d.facts, "encoder_seq_length"_opt)) return {};
       return at("encoder_seq_length"_opt, "given as well").also(detail::kSeq, "given");
     }},
    {"GTP268",
     "cp-comm-list-length",
     Severity::Error,
     Phase::Startup,
     {kCp, detail::kCpComm, "num_layers"_opt},
     "cp_comm_type takes one word, or one for every layer",
     "A list says how each layer's attention communicates over context parallelism.",
     "give one word or num_layers words",
     "megatron/core/transformer/transformer_config.py:3105",
     [](const Derivation& d) -> Findings {
       const auto words = static_cast<std::int64_t>(gtp::words(d.facts, detail::kCpComm).size());
       if (d.facts[kCp] <= 1 || words <= 1 || words == d.facts.integer("num_layers"_opt)) return {};
       return at(detail::kCpComm, fmt::format("{} words", words))
           .also("num_layers"_opt, fmt::format("{} layers", ask::shown(d.facts, "num_layers"_opt)));
     }},
    {"GTP269",
     "te-cp-unknown-type",
     Severity::Error,
     Phase::FirstStep,
     {kCp, detail::kCpComm},
     "cp_comm_type is p2p, all_gather, a2a or a2a+p2p",
     "The word is handed to TransformerEngine unchecked, which refuses another one in the first attention layer. "
     "`allgather` is not one of them: mind the underscore.",
     "use one of the four words",
     "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py:5138",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const std::string* type = ask::word_other_than(f, detail::kCpComm, {"p2p", "all_gather", "a2a", "a2a+p2p"});
       if (f[kCp] <= 1 || type == nullptr) return {};
       Finding finding = at(detail::kCpComm, fmt::format("`{}`", *type));
       if (*type == "allgather") finding.help = "use all_gather";
       return finding;
     }},
    {"GTP270",
     "te-cp-a2a-heads",
     Severity::Error,
     Phase::FirstStep,
     {kCp, kTp, detail::kCpComm, detail::kHeads, detail::kGroups, detail::kMla},
     "all-to-all context parallelism needs heads that split over it",
     "It trades heads for sequence: each rank gets the whole sequence of some of its query and key-value heads.",
     "use p2p or all_gather, or head counts that are multiples of TP x CP",
     "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py:4246",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (f[kCp] <= 1 || !ask::has_word(f, detail::kCpComm, "a2a") || !divides(f[kTp], f[detail::kHeads])) return {};
       const std::int64_t heads = f[detail::kHeads] / f[kTp];
       if (!divides(f[kCp], heads))
         return at(detail::kHeads, fmt::format("{} heads a rank are not a multiple of CP {}", heads, f[kCp]))
             .also(detail::kCpComm, "a2a");
       const auto groups = f.integer(detail::kGroups);
       if (f.on(detail::kMla) || !groups || *groups < 1) return {};
       const std::int64_t local = std::max<std::int64_t>(*groups / f[kTp], 1);
       if (divides(f[kCp], local)) return {};
       return at(detail::kGroups, fmt::format("{} key-value heads a rank are not a multiple of CP {}", local, f[kCp]))
           .also(detail::kCpComm, "a2a");
     }},
    {"GTP271",
     "te-cp-a2a-p2p-two-levels",
     Severity::Error,
     Phase::FirstStep,
     {kCp, detail::kCpComm, detail::kLevels},
     "a2a+p2p needs exactly two levels",
     "The first level exchanges by all-to-all, the second by point-to-point; TransformerEngine takes two groups.",
     "give two sizes whose product is the context-parallel size",
     "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py:5021",
     [](const Derivation& d) -> Findings {
       const auto* levels = std::get_if<IntList>(d.facts.find(detail::kLevels));
       if (d.facts[kCp] <= 1 || levels == nullptr || levels->size() == 2) return {};
       if (!ask::has_word(d.facts, detail::kCpComm, "a2a+p2p")) return {};
       return at(detail::kLevels, fmt::format("{} levels", levels->size())).also(detail::kCpComm, "a2a+p2p");
     }},
    {"GTP273",
     "te-cp-swa",
     Severity::Error,
     Phase::FirstStep,
     {kCp, detail::kCpComm, "window_size"_opt},
     "a sliding window needs a2a or all_gather context parallelism",
     "A ring passes key-value chunks on one by one and cannot cut them at a window.",
     "set cp_comm_type to a2a or all_gather",
     "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py:5057",
     [](const Derivation& d) -> Findings {
       if (!detail::window_is_on(d.facts)) return {};
       return detail::cp_type_other_than(d.facts, {"a2a", "all_gather"}, "window_size"_opt, "a window");
     }},
    {"GTP274",
     "te-cp-softmax-type",
     Severity::Error,
     Phase::FirstStep,
     {kCp, detail::kCpComm, "softmax_type"_opt},
     "this softmax needs a2a context parallelism",
     "Sink and learnable softmaxes have a term of each head's own, which only all-to-all keeps together; it also needs "
     "the fused attention backend.",
     "set cp_comm_type to a2a, or softmax_type to vanilla",
     "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py:5065",
     [](const Derivation& d) -> Findings {
       if (!ask::is_other(d.facts, "softmax_type"_opt, "vanilla")) return {};
       return detail::cp_type_other_than(d.facts, {"a2a"}, "softmax_type"_opt, "not vanilla");
     }},
    {"GTP275",
     "dsa-cp-allgather-only",
     Severity::Error,
     Phase::Startup,
     {detail::kVariant, kCp, detail::kCpComm},
     "sparse attention knows only all_gather context parallelism",
     "The indexer of DSA scores all keys, so they are gathered.",
     "set cp_comm_type to all_gather",
     "megatron/core/transformer/transformer_config.py:3162",
     [](const Derivation& d) -> Findings {
       if (!ask::is(d.facts, detail::kVariant, "dsa")) return {};
       return detail::cp_type_other_than(d.facts, {"all_gather", "allgather"}, detail::kVariant, "dsa");
     }},
    {"GTP276",
     "hybrid-cp-restrictions",
     Severity::Error,
     Phase::Startup,
     {detail::kHybridCp},
     "hybrid context parallelism cannot be combined with this option",
     "Its schedule gives every microbatch a context-parallel size of its own: without pipeline stages, with the single "
     "dataloader, without Megatron-FSDP and with a loss per token.",
     "change what is marked, or turn hybrid_context_parallel off",
     "megatron/training/arguments.py:1444",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.on(detail::kHybridCp)) return {};
       return ask::also(
           ask::clashes({{ask::above(f, kPp, 1), kPp, "more than one stage"},
                         {f.on("enable_cuda_graph"_opt), "enable_cuda_graph"_opt, "on"},
                         {f.on("use_megatron_fsdp"_opt), "use_megatron_fsdp"_opt, "on"},
                         {ask::is_other(f, "dataloader_type"_opt, "single"), "dataloader_type"_opt, "not single"},
                         {ask::off(f, "calculate_per_token_loss"_opt), "calculate_per_token_loss"_opt, "off"}}),
           detail::kHybridCp, "on");
     }},
    {"GTP277",
     "hybrid-cp-cuda-graph-check-is-legacy",
     Severity::Warning,
     Phase::Silent,
     {detail::kHybridCp, "cuda_graph_impl"_opt},
     "hybrid context parallelism is not meant for CUDA graphs",
     "A graph replays one shape, but the context-parallel size changes between microbatches. Upstream looks only at "
     "the deprecated enable_cuda_graph.",
     "set cuda_graph_impl to none",
     "megatron/training/arguments.py:1446",
     [](const Derivation& d) -> Findings {
       if (!d.facts.on(detail::kHybridCp) || !ask::is_other(d.facts, "cuda_graph_impl"_opt, "none")) return {};
       return at("cuda_graph_impl"_opt, "not checked by upstream").also(detail::kHybridCp, "on");
     }},
    {"GTP278",
     "hybrid-cp-no-mla",
     Severity::Error,
     Phase::FirstStep,
     {detail::kHybridCp, detail::kMla},
     "hybrid context parallelism does not work with multi-latent attention",
     "The forward pass of MLA refuses packed sequences that carry a context-parallel size of their own.",
     "turn hybrid_context_parallel off",
     "megatron/core/transformer/multi_latent_attention.py:685",
     [](const Derivation& d) { return ask::both_on(d.facts, detail::kHybridCp, detail::kMla); }},
    {"GTP280",
     "batch-invariant-no-cp",
     Severity::Error,
     Phase::Startup,
     {"batch_invariant_mode"_opt},
     "batch-invariant kernels exist for one narrow setup",
     "They cover BF16 parameters with FlashAttention 3 or 4, without dropout and context parallelism; with experts, "
     "also dropless all-to-all routing without quantization or fused permutation.",
     "change what is marked, or turn batch_invariant_mode off",
     "megatron/core/transformer/transformer_config.py:3200",
     [](const Derivation& d) { return detail::batch_invariant_limits(d.facts); }},
    {"GTP281",
     "gdn-heads-divisible-tp-cp",
     Severity::Error,
     Phase::Startup,
     {detail::kVariant, "linear_num_key_heads"_opt, "linear_num_value_heads"_opt, kTp, kCp},
     "gated delta net heads must split over TP x CP, and value heads over key heads",
     "Each rank computes whole heads, and each key head serves equally many value heads.",
     "use head counts that are multiples of TP x CP",
     "megatron/core/transformer/transformer_config.py:1502",
     [](const Derivation& d) { return detail::gated_delta_net_heads(d.facts); }},
};

}  // namespace gtp::rules
