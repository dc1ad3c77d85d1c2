#include "validators/flat.hpp"

#include <doctest/doctest.h>

#include "loading.hpp"

using namespace gtp;
using namespace gtp::test;

TEST_CASE("groups of any name are walked into") {
  const Loaded loaded =
      load_text("parallel:\n  sizes: {tensor_model_parallel_size: 2}\nbatch: {micro_batch_size: 4}\n");
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "tensor_model_parallel_size") == "2");
  CHECK(value(loaded, "micro_batch_size") == "4");
  CHECK(loaded.config.described(Section::Topology));
  CHECK_FALSE(loaded.config.described(Section::Model));
}

TEST_CASE("env, checkpoint and scenario are not groups of options") {
  const Loaded loaded = load_text(
      R"({"env": {"CUDA_DEVICE_MAX_CONNECTIONS": 1, "NCCL_ALGO": "Ring", "UNSET": null},
          "checkpoint": {"tensor_model_parallel_size": 2, "data_parallel_size": 4, "iteration": 5, "has_rng": true},
          "scenario": {"anything": [1, 2]}, "tensor_model_parallel_size": 8})");
  CHECK(codes(loaded) == "");
  CHECK(variable(loaded, "CUDA_DEVICE_MAX_CONNECTIONS") == "1");
  CHECK(variable(loaded, "NCCL_ALGO") == "Ring");
  CHECK(variable(loaded, "UNSET") == std::nullopt);
  REQUIRE(loaded.config.checkpoint.size() == 4);
  CHECK(name_of(loaded.config.checkpoint[0].option) == "tensor_model_parallel_size");
  CHECK(to_text(loaded.config.checkpoint[0].value) == "2");
  CHECK(text_at(loaded, loaded.config.checkpoint[1].place) == "4");
  CHECK(loaded.config.checkpoint_value(*find_option("iteration")) != nullptr);
  CHECK(*loaded.config.checkpoint_value(*find_option("has_rng")) == Value(true));
  CHECK(given(loaded) == "tensor_model_parallel_size");
}

TEST_CASE("values of the wrong type are reported at the value and make the option unknown") {
  const Loaded loaded = load_text(
      R"({"micro_batch_size": 8.0, "seq_length": "4096", "bf16": 1, "num_layers": [1], "hidden_size": {"a": 1},
          "num_experts": true})");
  CHECK(codes(loaded) == "GTP903 GTP903 GTP903 GTP903 GTP903 GTP903");
  CHECK(value(loaded, "micro_batch_size") == "?");
  CHECK(loaded.diagnostics[0].primary.text == "`8.0` is not an integer");
  CHECK(text_at(loaded, loaded.diagnostics[1].primary.place) == "\"4096\"");
  CHECK(loaded.diagnostics[3].primary.text == "a list is not an integer");
  CHECK(loaded.diagnostics[4].primary.text == "a group of keys is not an integer");
  CHECK(loaded.config.described(Section::Batch));
}

TEST_CASE("a number beyond 64 bits is out of range") {
  CHECK(codes(load_text("{\"micro_batch_size\": 99999999999999999999}")) == "GTP907");
  CHECK(codes(load_text("{\"micro_batch_size\": -9223372036854775808}")) == "");
}

TEST_CASE("an unknown name is reported at the key with the name that was meant") {
  const Loaded loaded = load_text("tensor_model_paralel_size: 2\n");
  REQUIRE(codes(loaded) == "GTP902");
  CHECK(text_at(loaded, loaded.diagnostics[0].primary.place) == "tensor_model_paralel_size");
  CHECK(loaded.diagnostics[0].help.find("`tensor_model_parallel_size`") != std::string::npos);
}

TEST_CASE("a flag's spelling is an unknown name and the help says the right one") {
  for (const char* key : {"tensor-model-parallel-size", "--tensor-model-parallel-size"}) {
    const Loaded loaded = load_text(std::string(key) + ": 2\n", "a.yaml", InputFormat::Yaml);
    REQUIRE(codes(loaded) == "GTP902");
    CHECK(loaded.diagnostics[0].help == "write `tensor_model_parallel_size`");
    CHECK(text_at(loaded, loaded.diagnostics[0].primary.place) == key);
  }
  const Loaded off = load_text("disable-bias-linear: true\n");
  CHECK(off.diagnostics.at(0).help == "write `add_bias_linear`");
}

TEST_CASE("a derived value cannot be set") {
  CHECK(codes(load_text("gtp_weight_remat_size: 2\n")) == "GTP009");
  CHECK(codes(load_text("data_parallel_size: 2\n")) == "GTP913");
}

TEST_CASE("Megatron Core's field names are accepted") {
  CHECK(value(load_text("virtual_pipeline_model_parallel_size: 2\n"), "num_virtual_stages_per_pipeline_rank") == "2");
}

TEST_CASE("the same option in two groups is reported and the last wins") {
  const Loaded loaded = load_text("a: {micro_batch_size: 1}\nb: {micro_batch_size: 2}\n");
  CHECK(value(loaded, "micro_batch_size") == "2");
  REQUIRE(codes(loaded) == "GTP905");
  CHECK(start_of(loaded, loaded.diagnostics[0].primary.place) == "2:5");
  CHECK(start_of(loaded, loaded.diagnostics[0].related.at(0).place) == "1:23");
}

TEST_CASE("list options take lists, single words and empty lists") {
  const Loaded loaded = load_text(
      R"({"recompute_modules": ["mlp", "moe"], "hierarchical_context_parallel_sizes": [2, 4],
          "high_priority_stream_groups": "ep", "profile_ranks": []})");
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "recompute_modules") == "[mlp, moe]");
  CHECK(value(loaded, "hierarchical_context_parallel_sizes") == "[2, 4]");
  CHECK(value(loaded, "high_priority_stream_groups") == "[ep]");
  CHECK(value(loaded, "profile_ranks") == "[]");
}

TEST_CASE("a wrong item of a list is reported at the item") {
  const Loaded loaded = load_text("hierarchical_context_parallel_sizes: [2, x]\n");
  REQUIRE(codes(loaded) == "GTP903");
  CHECK(text_at(loaded, loaded.diagnostics[0].primary.place) == "x");
  CHECK(codes(load_text("hierarchical_context_parallel_sizes: [[2]]\n")) == "GTP903");
}

TEST_CASE("a layer frequency may be a number, an expression or a list") {
  CHECK(value(load_text("moe_layer_freq: 2\n"), "moe_layer_freq") == "2");
  CHECK(value(load_text("moe_layer_freq: ([0]*1+[1]*2)\n"), "moe_layer_freq") == "[0, 1, 1]");
  CHECK(value(load_text("{\"moe_layer_freq\": [0, 1, 1]}"), "moe_layer_freq") == "[0, 1, 1]");
  CHECK(codes(load_text("{\"moe_layer_freq\": [0, \"x\"]}")) == "GTP903");
}

TEST_CASE("a pipeline layout given as stages of layer names becomes Megatron's short form") {
  const Loaded loaded = load_text(
      "pipeline_model_parallel_layout: [[embedding, decoder], [decoder, mtp], [], [loss]]\nwindow_size: [128, 0]\n");
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "pipeline_model_parallel_layout") == "Et|tm||L");
  CHECK(value(loaded, "window_size") == "128,0");
  CHECK(codes(load_text("pipeline_model_parallel_layout: [[embedding, what]]\n")) == "GTP903");
  CHECK(codes(load_text("load: [a, b]\n")) == "GTP903");
}

TEST_CASE("a variable is kept in a path and makes any other option unknown") {
  const Loaded loaded = load_text("load: ${ROOT}/ckpt\ntensor_model_parallel_size: ${TP}\nfp8: $FP8\nsave: 100$\n");
  CHECK(codes(loaded) == "GTP906 GTP906");
  CHECK(value(loaded, "load") == "${ROOT}/ckpt");
  CHECK(value(loaded, "tensor_model_parallel_size") == "?");
  CHECK(value(loaded, "fp8") == "?");
  CHECK(text_at(loaded, loaded.diagnostics[0].primary.place) == "${TP}");
  CHECK(loaded.diagnostics[0].severity == Severity::Warning);
}

TEST_CASE("a reader stops after some hundred problems") {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "unknown_name_" + std::to_string(i) + ": 1\n";
  const Loaded loaded = load_text(text);
  CHECK(loaded.readable);
  CHECK(loaded.diagnostics.size() == readers::kMostDiagnostics + 1);
  CHECK(loaded.diagnostics.back().primary.text == "too many problems");
}
