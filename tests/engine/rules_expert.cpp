// Experts: boundary values, versions and unknown options, which the golden cases do not show.
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

}  // namespace

TEST_CASE("an expert width beside no experts is refused unless some layers are dense anyway") {
  CHECK(violated({{"num_layers", "4"}, {"num_experts", "0"}, {"moe_ffn_hidden_size", "64"}}) ==
        Ids{"moe-ffn-without-experts"});
  CHECK(violated({{"num_layers", "4"}, {"moe_ffn_hidden_size", "64"}, {"moe_layer_freq", "[0,1,1,1]"}}).empty());
  CHECK(violated({{"num_layers", "4"}, {"moe_ffn_hidden_size", "64"}, {"moe_layer_freq", "[1]*4"}}) ==
        Ids{"moe-ffn-without-experts"});
}

TEST_CASE("one tensor for all experts needs the op fuser in the older version and grouped tensors in the newer one") {
  CHECK(violated({{"num_layers", "4"}, {"moe_single_grouped_weight", "true"}, {"moe_grouped_gemm", "true"}}) ==
        Ids{"single-grouped-requires"});
  CHECK(violated({{"num_layers", "4"}, {"moe_single_grouped_weight", "true"}, {"moe_grouped_gemm", "true"}}, kOlder) ==
        Ids{"single-grouped-requires"});
  CHECK(violated({{"num_layers", "4"},
                  {"moe_single_grouped_weight", "true"},
                  {"moe_grouped_gemm", "true"},
                  {"moe_use_grouped_tensor", "true"}})
            .empty());
  for (const Target target : kTargets)
    CHECK(violated({{"num_layers", "4"},
                    {"moe_single_grouped_weight", "true"},
                    {"moe_grouped_gemm", "true"},
                    {"num_experts", "8"},
                    {"use_transformer_engine_op_fuser", "true"}},
                   target)
              .empty());
}

TEST_CASE("a TransformerEngine that is too old for one expert tensor is named only when it is known") {
  const auto with = [](const char* version) {
    return violated({{"num_layers", "4"},
                     {"moe_single_grouped_weight", "true"},
                     {"moe_grouped_gemm", "true"},
                     {"moe_use_grouped_tensor", "true"},
                     {"te_version", version}});
  };
  CHECK(with("2.13.0") == Ids{"single-grouped-requires"});
  CHECK(with("2.14.0").empty());
}

TEST_CASE("an overlapped expert all-to-all is not blamed for sections of which nothing is known") {
  CHECK(violated({{"overlap_moe_expert_parallel_comm", "true"}}).empty());
  CHECK(violated({{"overlap_moe_expert_parallel_comm", "true"}, {"recompute_method", "uniform"}}) ==
        Ids{"ep-overlap-requirements"});
  CHECK(violated({{"overlap_moe_expert_parallel_comm", "true"}, {"bf16", "false"}}) == Ids{"ep-overlap-requirements"});
}

TEST_CASE("choosing one expert after a softmax is refused except with sinkhorn balancing alone") {
  CHECK(violated({{"num_layers", "4"}, {"moe_router_topk", "1"}}) == Ids{"topk1-softmax"});
  CHECK(violated({{"num_layers", "4"}, {"moe_router_topk", "1"}, {"moe_router_load_balancing_type", "sinkhorn"}})
            .empty());
  CHECK(violated({{"num_layers", "4"}, {"moe_router_topk", "1"}, {"moe_router_score_function", "sigmoid"}}).empty());
}

TEST_CASE("a token may choose as many groups as there are and no more") {
  const auto with = [](const char* groups, const char* chosen) {
    return violated({{"num_layers", "4"},
                     {"num_experts", "8"},
                     {"moe_router_num_groups", groups},
                     {"moe_router_group_topk", chosen}});
  };
  CHECK(with("4", "4").empty());
  CHECK(with("4", "5") == Ids{"group-topk"});
  CHECK(with("3", "1") == Ids{"group-topk"});
  CHECK(with("0", "1") == Ids{"group-topk"});
  CHECK(with("3", "0").empty());
}

TEST_CASE("training experts over tensor parallelism needs sequence parallelism and inference does not") {
  CHECK(violated({{"num_layers", "4"},
                  {"num_experts", "8"},
                  {"add_bias_linear", "false"},
                  {"tensor_model_parallel_size", "2"}}) == Ids{"moe-tp-needs-sp-training"});
  CHECK(violated({{"num_layers", "4"},
                  {"num_experts", "8"},
                  {"add_bias_linear", "false"},
                  {"tensor_model_parallel_size", "2"},
                  {"inference_max_seq_length", "4096"}})
            .empty());
}

TEST_CASE("a negative capacity means none, but its balancing is checked all the same") {
  CHECK(violated({{"num_layers", "4"},
                  {"moe_expert_capacity_factor", "-1"},
                  {"moe_pad_expert_input_to_capacity", "true"}}) == Ids{"pad-to-capacity-needs-factor"});
  CHECK(violated({{"num_layers", "4"},
                  {"moe_expert_capacity_factor", "-1"},
                  {"moe_router_load_balancing_type", "sinkhorn"}}) == Ids{"capacity-load-balancing"});
}
