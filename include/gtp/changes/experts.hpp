// What upstream fills in or replaces about experts.
#pragma once

#include <algorithm>

#include <gtp/rule.hpp>

namespace gtp::rules {

using namespace literals;

inline constexpr Rule kExpertChanges[] = {
    changes(
        "GTP316", "op-fuser-sets-grouped-tensor",
        {"use_transformer_engine_op_fuser"_opt, "moe_grouped_gemm"_opt, "moe_use_grouped_tensor"_opt},
        "the op fuser turns grouped tensors on",
        "With the grouped GEMM, TransformerEngine's op fuser takes the tokens of all local experts as one tensor.",
        "leave moe_use_grouped_tensor out", "megatron/core/transformer/transformer_config.py:1410",
        [](const Facts& f) -> Changes {
          if (!f.on("use_transformer_engine_op_fuser"_opt) || !f.on("moe_grouped_gemm"_opt)) return {};
          return {{"moe_use_grouped_tensor"_opt, true, "the op fuser and the grouped GEMM are on"}};
        },
        Version::kd98e8a64),
    changes("GTP323", "moe-ffn-ignored-in-dense-layers",
            {"num_experts"_opt, "moe_ffn_hidden_size"_opt, "moe_layer_freq"_opt},
            "the expert width is dropped in a mixed model without experts",
            "A moe_layer_freq that leaves layers dense lets moe_ffn_hidden_size stand without num_experts, unused.",
            "drop moe_ffn_hidden_size, or set num_experts", "megatron/core/transformer/transformer_config.py:1700",
            [](const Facts& f) -> Changes {
              if (f.has("num_experts"_opt) || !f.has("moe_ffn_hidden_size"_opt)) return {};
              const Value* frequency = f.find("moe_layer_freq"_opt);
              const auto* every = std::get_if<std::int64_t>(frequency);
              const auto* layers = std::get_if<IntList>(frequency);
              const bool mixed = (every != nullptr && *every > 1) ||
                                 (layers != nullptr && std::find(layers->begin(), layers->end(), 0) != layers->end());
              if (!mixed) return {};
              return {{"moe_ffn_hidden_size"_opt, Value{}, "num_experts is not set"}};
            }),
    changes("GTP324", "moe-upcycling", {"moe_use_upcycling"_opt}, "upcycling loads neither optimizer nor random state",
            "Both belong to the dense model that the experts are made from.", "leave the two options out",
            "megatron/training/arguments.py:1863",
            [](const Facts& f) -> Changes {
              if (!f.on("moe_use_upcycling"_opt)) return {};
              return {{"no_load_optim"_opt, true, "moe_use_upcycling is on"},
                      {"no_load_rng"_opt, true, "moe_use_upcycling is on"}};
            }),
    changes("GTP346", "deepep-deprecated-flag", {"moe_enable_deepep"_opt, "moe_flex_dispatcher_backend"_opt},
            "moe_enable_deepep chooses the backend",
            "The deprecated flag stands for moe_flex_dispatcher_backend deepep.", "drop moe_enable_deepep",
            "megatron/core/transformer/transformer_config.py:1743",
            [](const Facts& f) -> Changes {
              if (!f.on("moe_enable_deepep"_opt)) return {};
              return {{"moe_flex_dispatcher_backend"_opt, std::string("deepep"), "moe_enable_deepep is on"}};
            }),
    changes("GTP347", "capacity-factor-negative", {"moe_expert_capacity_factor"_opt},
            "a negative expert capacity means none", "Nothing is dropped then.", "leave moe_expert_capacity_factor out",
            "megatron/core/transformer/transformer_config.py:1837",
            [](const Facts& f) -> Changes {
              const auto* factor = std::get_if<double>(f.find("moe_expert_capacity_factor"_opt));
              if (factor == nullptr || !(*factor < 0)) return {};
              return {{"moe_expert_capacity_factor"_opt, Value{}, "it is negative"}};
            }),
    changes("GTP366", "router-pad-fp8-deprecated",
            {"moe_router_padding_for_fp8"_opt, "moe_router_padding_for_quantization"_opt},
            "moe_router_padding_for_fp8 turns moe_router_padding_for_quantization on",
            "The first name is deprecated; FP4 needs the padding as well.", "use moe_router_padding_for_quantization",
            "megatron/core/transformer/transformer_config.py:2642",
            [](const Facts& f) -> Changes {
              if (!f.on("moe_router_padding_for_fp8"_opt)) return {};
              return {{"moe_router_padding_for_quantization"_opt, true, "moe_router_padding_for_fp8 is on"}};
            }),
};

}  // namespace gtp::rules
