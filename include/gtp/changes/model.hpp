// What upstream fills in or replaces about the shape of the model.
#pragma once

#include <gtp/hybrid_pattern.hpp>
#include <gtp/rule.hpp>

namespace gtp::rules {

using namespace literals;

inline constexpr Rule kModelChanges[] = {
    changes("GTP505", "gqa-flag-needed",
            {"group_query_attention"_opt, "num_query_groups"_opt, "num_attention_heads"_opt},
            "without group_query_attention every head is a query group",
            "num_query_groups is read only together with group_query_attention; without it attention is plain "
            "multi-head attention, and nothing says so.",
            "turn group_query_attention on, or leave num_query_groups out", "megatron/training/argument_utils.py:330",
            [](const Facts& f) -> Changes {
              const auto heads = f.integer("num_attention_heads"_opt);
              if (!heads || f.on("group_query_attention"_opt)) return {};
              return {{"num_query_groups"_opt, *heads, "group_query_attention is off"}};
            }),
    changes(
        "GTP550", "hybrid-mtp-inferred", {"hybrid_layer_pattern"_opt, "mtp_num_layers"_opt},
        "the MTP parts of the hybrid pattern say how many MTP layers there are",
        "Each part after a slash is one depth.", "leave mtp_num_layers out", "megatron/training/arguments.py:870",
        [](const Facts& f) -> Changes {
          const auto text = f.text("hybrid_layer_pattern"_opt);
          if (!text) return {};
          const HybridParse parse = parse_hybrid_pattern(*text);
          if (!parse.pattern || parse.pattern->mtp_num_depths < 1) return {};
          return {{"mtp_num_layers"_opt, parse.pattern->mtp_num_depths, "the hybrid pattern has that many MTP parts"}};
        }),
    changes("GTP551", "hybrid-mla-inferred", {"hybrid_layer_pattern"_opt},
            "a hybrid pattern with + or D layers turns multi-latent attention on",
            "Both kinds of layers are MLA; D also sets experimental_attention_variant to dsa.",
            "leave multi_latent_attention out", "megatron/training/arguments.py:923",
            [](const Facts& f) -> Changes {
              const auto text = f.text("hybrid_layer_pattern"_opt);
              const HybridParse parse = parse_hybrid_pattern(text.value_or(""));
              if (!parse.pattern || !parse.pattern->implies_multi_latent_attention()) return {};
              Changes all{{"multi_latent_attention"_opt, true, "the hybrid pattern has MLA layers"}};
              if (parse.pattern->count(HybridLayer::DsAttention) > 0)
                all.push_back(
                    {"experimental_attention_variant"_opt, std::string("dsa"), "the hybrid pattern has D layers"});
              return all;
            }),
    changes(
        "GTP552", "mtp-hsm-needs-two-layers", {"mtp_hsm"_opt, "mtp_num_layers"_opt},
        "mixing of hidden states is turned off with fewer than two MTP layers",
        "It mixes the states of several MTP layers.", "set mtp_num_layers to 2 or more, or leave mtp_hsm out",
        "megatron/training/arguments.py:888",
        [](const Facts& f) -> Changes {
          if (f.integer("mtp_num_layers"_opt).value_or(0) >= 2) return {};
          return {{"mtp_hsm"_opt, false, "mtp_num_layers is below 2"}};
        },
        Version::kd98e8a64),
    changes("GTP553", "bias-sync", {"add_bias_linear"_opt, "add_qkv_bias"_opt},
            "the QKV projection gets a bias wherever linear layers have one",
            "add_qkv_bias is for models that have no other biases; add_bias_linear is on by default.",
            "turn add_bias_linear off (--disable-bias-linear) as well", "megatron/training/arguments.py:1609",
            [](const Facts& f) -> Changes {
              if (!f.on("add_bias_linear"_opt)) return {};
              return {{"add_qkv_bias"_opt, true, "add_bias_linear is on"}};
            }),
    changes("GTP554", "no-bias-disables-gelu-fusion", {"add_bias_linear"_opt, "bias_gelu_fusion"_opt},
            "without biases no bias is fused into the activation",
            "bias_gelu_fusion adds the bias within the activation's kernel.", "leave bias_gelu_fusion out",
            "megatron/training/arguments.py:1605",
            [](const Facts& f) -> Changes {
              if (f.on("add_bias_linear"_opt)) return {};
              return {{"bias_gelu_fusion"_opt, false, "add_bias_linear is off"}};
            }),
    changes("GTP555", "legacy-rotary-flag", {"use_rotary_position_embeddings"_opt, "position_embedding_type"_opt},
            "use_rotary_position_embeddings makes the position embedding rotary",
            "The legacy flag stands for position_embedding_type rope.", "set position_embedding_type to rope",
            "megatron/training/arguments.py:1626",
            [](const Facts& f) -> Changes {
              if (!f.on("use_rotary_position_embeddings"_opt)) return {};
              return {{"position_embedding_type"_opt, std::string("rope"), "use_rotary_position_embeddings is on"}};
            }),
    changes("GTP556", "rope-fusion-only-rope", {"position_embedding_type"_opt, "apply_rope_fusion"_opt},
            "rotary embeddings are fused only for position_embedding_type rope",
            "Other kinds are rotated differently or not at all.", "leave apply_rope_fusion out",
            "megatron/training/arguments.py:1628",
            [](const Facts& f) -> Changes {
              if (f.text("position_embedding_type"_opt) == "rope") return {};
              return {{"apply_rope_fusion"_opt, false, "position_embedding_type is not rope"}};
            }),
};

}  // namespace gtp::rules
