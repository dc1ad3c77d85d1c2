#include "validators/hugging_face.hpp"

#include <doctest/doctest.h>

#include "loading.hpp"

using namespace gtp;
using namespace gtp::test;

namespace {

/// A model of our own with the keys that every family has; `more` replaces or adds keys.
Loaded load_model(const std::string& type, const std::string& more) {
  return load_text("{\"model_type\": \"" + type +
                   "\", \"num_hidden_layers\": 6, \"hidden_size\": 64, \"num_attention_heads\": 8,"
                   " \"vocab_size\": 1000, \"intermediate_size\": 256" +
                   (more.empty() ? "" : ", " + more) + "}");
}

}  // namespace

TEST_CASE("a dense model gives its shape with places") {
  const Loaded loaded = load_model("llama",
                                   "\"num_key_value_heads\": 2, \"tie_word_embeddings\": false,"
                                   " \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-6, \"rope_theta\": 500000.0");
  CHECK(loaded.format == InputFormat::HuggingFace);
  CHECK(codes(loaded) == "");
  CHECK(loaded.config.described(Section::Model));
  CHECK(value(loaded, "num_layers") == "6");
  CHECK(text_at(loaded, setting(loaded, "num_layers")->place) == "6");
  CHECK(value(loaded, "ffn_hidden_size") == "256");
  CHECK(value(loaded, "group_query_attention") == "true");
  CHECK(value(loaded, "num_query_groups") == "2");
  CHECK(value(loaded, "untie_embeddings_and_output_weights") == "true");
  CHECK(value(loaded, "swiglu") == "true");
  CHECK(value(loaded, "normalization") == "RMSNorm");
  CHECK(value(loaded, "add_bias_linear") == "false");
  CHECK(value(loaded, "rotary_base") == "500000");
  CHECK(value(loaded, "kv_channels") == "-");
  CHECK(value(loaded, "num_experts") == "-");
}

TEST_CASE("as many key-value heads as heads is no grouped attention") {
  CHECK(value(load_model("llama", "\"num_key_value_heads\": 8"), "group_query_attention") == "-");
  CHECK(value(load_model("llama", ""), "group_query_attention") == "-");
}

TEST_CASE("a text model inside a larger one is found and its keys win") {
  const Loaded loaded = load_text(
      R"({"model_type": "qwen3_vl", "hidden_size": 1, "tie_word_embeddings": true, "text_config": {"num_hidden_layers": 3,
          "hidden_size": 32, "num_attention_heads": 4, "vocab_size": 10, "intermediate_size": 64, "head_dim": 16}})");
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "hidden_size") == "32");
  CHECK(value(loaded, "kv_channels") == "16");
  CHECK(value(loaded, "qk_layernorm") == "true");
  CHECK(value(loaded, "untie_embeddings_and_output_weights") == "false");
}

TEST_CASE("Qwen2 has biases on QKV only") {
  const Loaded loaded = load_model("qwen2", "");
  CHECK(value(loaded, "add_qkv_bias") == "true");
  CHECK(value(loaded, "add_bias_linear") == "false");
}

TEST_CASE("experts without a width of their own have the model's") {
  const Loaded loaded = load_model("mixtral", "\"num_local_experts\": 8, \"num_experts_per_tok\": 2");
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "num_experts") == "8");
  CHECK(value(loaded, "moe_router_topk") == "2");
  CHECK(value(loaded, "moe_ffn_hidden_size") == "256");
  CHECK(value(loaded, "moe_layer_freq") == "-");
}

TEST_CASE("multi-latent attention replaces grouped attention") {
  const Loaded loaded =
      load_model("deepseek_v3",
                 "\"kv_lora_rank\": 512, \"q_lora_rank\": null, \"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, "
                 "\"v_head_dim\": 128,"
                 " \"num_key_value_heads\": 2, \"head_dim\": 64, \"n_routed_experts\": 16, \"num_experts_per_tok\": 4,"
                 " \"moe_intermediate_size\": 32, \"n_shared_experts\": 2, \"first_k_dense_replace\": 2, \"n_group\": "
                 "4, \"topk_group\": 2,"
                 " \"num_nextn_predict_layers\": 1, \"scoring_func\": \"sigmoid\"");
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "multi_latent_attention") == "true");
  CHECK(value(loaded, "kv_lora_rank") == "512");
  CHECK(value(loaded, "q_lora_rank") == "-");
  CHECK(value(loaded, "qk_head_dim") == "128");
  CHECK(value(loaded, "qk_pos_emb_head_dim") == "64");
  CHECK(value(loaded, "group_query_attention") == "-");
  CHECK(value(loaded, "kv_channels") == "-");
  CHECK(value(loaded, "moe_shared_expert_intermediate_size") == "64");
  CHECK(value(loaded, "moe_layer_freq") == "[0, 0, 1, 1, 1, 1]");
  CHECK(text_at(loaded, setting(loaded, "moe_layer_freq")->place) == "2");
  CHECK(value(loaded, "moe_router_num_groups") == "4");
  CHECK(value(loaded, "mtp_num_layers") == "1");
}

TEST_CASE("every way of saying which layers are MoE is understood") {
  const std::string experts = "\"num_experts\": 4, \"num_experts_per_tok\": 1, ";
  const auto frequency = [&](const std::string& keys) {
    return value(load_model("x", experts + keys), "moe_layer_freq");
  };
  CHECK(frequency("\"moe_layer_freq\": [0, 1, 0, 1, 1, 0]") == "[0, 1, 0, 1, 1, 0]");
  CHECK(frequency("\"mlp_layer_types\": [\"dense\", \"sparse\", \"sparse\", \"sparse\", \"sparse\", \"dense\"]") ==
        "[0, 1, 1, 1, 1, 0]");
  CHECK(frequency("\"interleave_moe_layer_step\": 2") == "[0, 1, 0, 1, 0, 1]");
  CHECK(frequency("\"decoder_sparse_step\": 1, \"mlp_only_layers\": [0, 5]") == "[0, 1, 1, 1, 1, 0]");
  CHECK(frequency("\"decoder_sparse_step\": 1, \"mlp_only_layers\": []") == "-");
  CHECK(frequency("\"moe_layer_freq\": 1, \"first_k_dense_replace\": 1") == "[0, 1, 1, 1, 1, 1]");
}

TEST_CASE("a hybrid pattern gets a part for each MTP depth") {
  const Loaded loaded = load_model(
      "nemotron_h",
      "\"hybrid_override_pattern\": \"MEM*E-\", \"mtp_hybrid_override_pattern\": \"*E\", \"num_nextn_predict_layers\": "
      "2,"
      " \"mamba_num_heads\": 16, \"mamba_head_dim\": 64, \"n_groups\": 8, \"ssm_state_size\": 128, \"mlp_hidden_act\": "
      "\"relu2\","
      " \"layer_norm_epsilon\": 1e-5, \"n_routed_experts\": 8, \"num_experts_per_tok\": 2, \"moe_latent_size\": 32,"
      " \"time_step_limit\": [0.0, Infinity]");
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "hybrid_layer_pattern") == "MEM*E-/*E/*E");
  CHECK(value(loaded, "mtp_num_layers") == "2");
  CHECK(value(loaded, "mamba_num_heads") == "16");
  CHECK(value(loaded, "mamba_num_groups") == "8");
  CHECK(value(loaded, "mamba_state_dim") == "128");
  CHECK(value(loaded, "moe_latent_size") == "32");
  CHECK(value(loaded, "swiglu") == "-");
  CHECK(value(loaded, "squared_relu") == "true");
  CHECK(value(loaded, "normalization") == "RMSNorm");
  CHECK(value(loaded, "position_embedding_type") == "none");
  CHECK(value(loaded, "moe_layer_freq") == "-");
}

TEST_CASE("a list of block types is a hybrid pattern and gives the number of layers") {
  const Loaded loaded = load_text(
      R"({"model_type": "nemotron_h", "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 10, "intermediate_size": 8,
          "layers_block_type": ["mamba", "moe", "attention", "mlp"], "mtp_layers_block_type": ["attention", "moe"],
          "num_nextn_predict_layers": 1})");
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "hybrid_layer_pattern") == "ME*-/*E");
  CHECK(value(loaded, "num_layers") == "4");
}

TEST_CASE("a list called hybrid_layer_pattern is another family's and no pattern") {
  CHECK(value(load_model("mimo", "\"hybrid_layer_pattern\": [0, 1, 1, 1, 1, 0]"), "hybrid_layer_pattern") == "-");
}

TEST_CASE("blocks that differ give the largest") {
  const Loaded loaded = load_text(
      R"({"model_type": "nemotron-nas", "num_hidden_layers": 2, "hidden_size": 8192, "num_attention_heads": 64, "vocab_size": 10,
          "intermediate_size": null, "num_key_value_heads": null, "block_configs": [
          {"attention": {"n_heads_in_group": 8}, "ffn": {"ffn_mult": 5.25}},
          {"attention": {"n_heads_in_group": null, "no_op": true}, "ffn": {"ffn_mult": 2.625}}]})");
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "num_query_groups") == "8");
  CHECK(value(loaded, "ffn_hidden_size") == "28672");
}

TEST_CASE("what no key gives is reported once for each quantity") {
  const Loaded loaded = load_text(R"({"model_type": "new", "num_experts": 8})");
  CHECK(loaded.readable);
  CHECK(codes(loaded) == "GTP911 GTP911 GTP911 GTP911 GTP911 GTP911");
  CHECK(loaded.diagnostics[0].primary.option == "num_layers");
  CHECK(text_at(loaded, loaded.diagnostics[0].primary.place) == "\"new\"");
  CHECK(loaded.diagnostics[1].primary.text == "no key gives `hidden_size`; looked for hidden_size, n_embd, d_model");
}

TEST_CASE("values of the wrong type in a model file are reported") {
  const Loaded loaded = load_text(R"({"model_type": "x", "num_hidden_layers": "6", "hidden_size": 1.5,
                                      "num_attention_heads": 8, "vocab_size": 1, "intermediate_size": 1})");
  CHECK(codes(loaded) == "GTP903 GTP903");
}

TEST_CASE("hostile numbers of layers make no list") {
  const std::string experts = "\"num_experts\": 4, \"num_experts_per_tok\": 1, \"first_k_dense_replace\": 1";
  const Loaded loaded = load_text(
      "{\"model_type\": \"x\", \"num_hidden_layers\": 9000000000000000000, \"hidden_size\": 1, "
      "\"num_attention_heads\": 1,"
      " \"vocab_size\": 1, \"intermediate_size\": 1, " +
      experts + "}");
  CHECK(codes(loaded) == "GTP911");
  CHECK(value(loaded, "moe_layer_freq") == "-");
  const Loaded deep = load_model("x",
                                 "\"hybrid_override_pattern\": \"M\", \"mtp_hybrid_override_pattern\": \"E\","
                                 " \"num_nextn_predict_layers\": 9000000000000000000");
  CHECK(value(deep, "hybrid_layer_pattern") == "M");
}

TEST_CASE("a model file is the lowest layer and disagreements are reported at the configuration") {
  LoadRequest request = request_for("num_layers: 4\nffn_hidden_size: 256\nmax_position_embeddings: 128\n");
  request.model = Text{"config.json",
                       R"({"model_type": "llama", "num_hidden_layers": 6, "hidden_size": 64, "num_attention_heads": 8,
                           "vocab_size": 1000, "intermediate_size": 256, "max_position_embeddings": 4096})"};
  const Loaded loaded = load(request);
  CHECK(loaded.format == InputFormat::Yaml);
  REQUIRE(codes(loaded) == "GTP912");
  CHECK(value(loaded, "num_layers") == "4");
  CHECK(value(loaded, "hidden_size") == "64");
  CHECK(value(loaded, "max_position_embeddings") == "128");
  const Diagnostic& conflict = loaded.diagnostics[0];
  CHECK(text_at(loaded, conflict.primary.place) == "4");
  CHECK(conflict.primary.text == "4 here");
  CHECK(loaded.sources[conflict.related.at(0).place.source].name == "config.json");
  CHECK(text_at(loaded, conflict.related.at(0).place) == "6");
}

TEST_CASE("--set differs from a model file without a word and an unknown value stays unknown") {
  LoadRequest request = request_for("hidden_size: ${H}\n");
  request.set = {"num_layers=2"};
  request.model = Text{"config.json", R"({"model_type": "llama", "num_hidden_layers": 6, "hidden_size": 64,
                       "num_attention_heads": 8, "vocab_size": 1000, "intermediate_size": 256})"};
  const Loaded loaded = load(request);
  CHECK(codes(loaded) == "GTP906");
  CHECK(value(loaded, "num_layers") == "2");
  CHECK(value(loaded, "hidden_size") == "?");
}

TEST_CASE("pipeline cuts in a hybrid pattern do not disagree with the model") {
  LoadRequest request = request_for("hybrid_layer_pattern: MEM|*E-\n");
  request.model =
      Text{"config.json", R"({"model_type": "nemotron_h", "hybrid_override_pattern": "MEM*E-", "hidden_size": 64,
                       "num_attention_heads": 8, "vocab_size": 1000, "intermediate_size": 256})"};
  CHECK(codes(load(request)) == "");
}
