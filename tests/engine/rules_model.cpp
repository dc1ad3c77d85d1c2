// The shape of the model: derived sizes, boundary values and versions.
#include <gtp/check.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "../support/config.hpp"

using namespace gtp;
using namespace gtp::literals;
using gtp::test::violated;
using Ids = std::vector<std::string>;

namespace {

constexpr Target kOlder = kTargets[0];

std::optional<std::int64_t> derived(std::initializer_list<std::pair<std::string_view, std::string_view>> settings,
                                    OptionId option) {
  Diagnostics none;
  const Config config = test::make_config(settings, none);
  return derive(config).facts.integer(option);
}

}  // namespace

TEST_CASE("the vocabulary is padded to its multiple times the tensor-parallel size, without GTP") {
  const auto padded = "padded_vocab_size"_opt;
  CHECK(derived({{"num_layers", "4"}, {"vocab_size", "50257"}, {"tensor_model_parallel_size", "8"}}, padded) == 51200);
  CHECK(derived({{"num_layers", "4"},
                 {"vocab_size", "50257"},
                 {"tensor_model_parallel_size", "8"},
                 {"tensor_parallel_num_weight_shards", "64"}},
                padded) == 51200);
  CHECK(derived({{"num_layers", "4"}, {"vocab_size", "51200"}, {"tensor_model_parallel_size", "8"}}, padded) == 51200);
  CHECK(derived({{"num_layers", "4"}, {"vocab_size", "51201"}, {"tensor_model_parallel_size", "8"}}, padded) == 52224);
  CHECK(derived({{"num_layers", "4"}, {"padded_vocab_size", "50257"}, {"tensor_model_parallel_size", "8"}}, padded) ==
        50257);
  CHECK(!derived({{"num_layers", "4"}, {"tensor_model_parallel_size", "8"}}, padded));
  CHECK(!derived({{"num_layers", "4"}, {"vocab_size", "9223372036854775807"}, {"tensor_model_parallel_size", "8"}},
                 padded));
}

TEST_CASE("the width of a head is derived when the heads divide the hidden size") {
  const auto channels = "kv_channels"_opt;
  CHECK(derived({{"hidden_size", "4096"}, {"num_attention_heads", "32"}}, channels) == 128);
  CHECK(derived({{"hidden_size", "4096"}, {"num_attention_heads", "24"}, {"kv_channels", "160"}}, channels) == 160);
  CHECK(!derived({{"hidden_size", "4096"}, {"num_attention_heads", "24"}}, channels));
}

TEST_CASE("query groups divide the tensor-parallel size or are a multiple of it") {
  const auto with = [](const char* groups) {
    return violated({{"num_layers", "4"},
                     {"num_attention_heads", "12"},
                     {"tensor_model_parallel_size", "4"},
                     {"group_query_attention", "true"},
                     {"num_query_groups", groups}});
  };
  for (const char* groups : {"1", "2", "4", "12"}) CHECK(with(groups).empty());
  CHECK(with("3") == Ids{"gqa-groups-vs-tp"});
  CHECK(with("6") == Ids{"gqa-groups-vs-tp"});
  CHECK(with("8") == Ids{"gqa-heads-divisible"});
}

TEST_CASE("Mamba groups are repeated over context parallelism when they are fewer than its ranks") {
  const auto with = [](const char* groups) {
    return violated({{"hybrid_layer_pattern", "M-M-"},
                     {"hidden_size", "256"},
                     {"mamba_num_heads", "32"},
                     {"mamba_num_groups", groups},
                     {"tensor_model_parallel_size", "2"},
                     {"context_parallel_size", "4"},
                     {"num_attention_heads", "4"}});
  };
  CHECK(with("4").empty());
  CHECK(with("16").empty());
  CHECK(with("2").empty());
  CHECK(with("1") == Ids{"mamba-divisibility"});
  CHECK(with("64") == Ids{"mamba-divisibility"});
}

TEST_CASE("the legacy rotary flag does not satisfy the check of multi-token prediction") {
  CHECK(violated({{"num_layers", "4"}, {"mtp_num_layers", "1"}, {"use_rotary_position_embeddings", "true"}}) ==
        Ids{"mtp-position-embedding"});
  CHECK(violated({{"num_layers", "4"}, {"mtp_num_layers", "1"}, {"position_embedding_type", "rope"}}).empty());
  CHECK(violated({{"num_layers", "4"}, {"mtp_num_layers", "0"}}).empty());
}

TEST_CASE("MTP parts given apart make one hybrid pattern") {
  Diagnostics none;
  const Config config = test::make_config({{"hidden_size", "64"},
                                           {"hybrid_override_pattern", "M*M-"},
                                           {"mtp_hybrid_override_pattern", "MM"},
                                           {"mtp_num_layers", "2"}},
                                          none);
  CHECK(derive(config).facts.text("hybrid_layer_pattern"_opt) == "M*M-/MM/MM");
}

TEST_CASE("a clamp of SwiGLU without experts is refused from the newer version on") {
  CHECK(violated({{"num_layers", "4"}, {"swiglu", "true"}, {"activation_func_clamp_value", "7"}}) ==
        Ids{"swiglu-clamp-limits"});
  CHECK(violated({{"num_layers", "4"}, {"swiglu", "true"}, {"activation_func_clamp_value", "7"}}, kOlder).empty());
}

TEST_CASE("extreme numbers are judged without overflow") {
  for (const char* number : {"0", "-1", "9223372036854775807", "-9223372036854775808"})
    for (const std::string_view option :
         {"num_query_groups", "kv_channels", "vocab_size", "make_vocab_size_divisible_by", "mamba_num_heads",
          "mamba_num_groups", "mamba_head_dim", "mamba_state_dim", "linear_num_key_heads", "linear_num_value_heads",
          "moe_router_num_groups", "moe_router_group_topk", "no_rope_freq", "q_lora_rank", "kv_lora_rank",
          "ffn_hidden_size", "moe_ffn_hidden_size", "mtp_num_layers", "num_experts"})
      CHECK_NOTHROW(violated({{option, number},
                              {"hidden_size", "64"},
                              {"num_attention_heads", "4"},
                              {"hybrid_layer_pattern", "M*-E"},
                              {"experimental_attention_variant", "gdn"},
                              {"mla_down_proj_fusion", "true"},
                              {"multi_latent_attention", "true"},
                              {"fp8", "e4m3"},
                              {"seq_length", "64"},
                              {"micro_batch_size", "1"},
                              {"tensor_model_parallel_size", "2"},
                              {"context_parallel_size", "2"}}));
}
