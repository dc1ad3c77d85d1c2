#include "validators/megatron_test.hpp"

#include <doctest/doctest.h>

#include "loading.hpp"

using namespace gtp;
using namespace gtp::test;

namespace {

Loaded load_args(const std::string& lines) { return load_text("MODEL_ARGS:\n" + lines); }

}  // namespace

TEST_CASE("MODEL_ARGS become flags and ENV_VARS the environment") {
  const Loaded loaded = load_text(
      "ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 1\n  CUBLAS_WORKSPACE_CONFIG: :4096:8\n"
      "MODEL_ARGS:\n  --tensor-model-parallel-size: 2\n  --bf16: true\n  --lr: 1e-4\n"
      "TEST_TYPE: regular\nLAUNCHER: ft_launcher\nMETRICS:\n  - lm loss\nMODEL_ARGS_2:\n  --bf16: true\n"
      "BEFORE_SCRIPT: |\n  echo a\n");
  CHECK(loaded.format == InputFormat::MegatronTestYaml);
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "tensor_model_parallel_size") == "2");
  CHECK(start_of(loaded, setting(loaded, "tensor_model_parallel_size")->place) == "5:33");
  CHECK(value(loaded, "bf16") == "true");
  CHECK(text_at(loaded, setting(loaded, "bf16")->place) == "--bf16");
  CHECK(std::get<double>(setting(loaded, "lr")->value) == 1e-4);
  CHECK(variable(loaded, "CUBLAS_WORKSPACE_CONFIG") == ":4096:8");
  CHECK(variable(loaded, "CUDA_DEVICE_MAX_CONNECTIONS") == "1");
}

TEST_CASE("true in any spelling that YAML reads as a boolean is the bare flag") {
  const Loaded loaded = load_args("  --bf16: True\n  --swiglu: \"true\"\n  --sequence-parallel: TRUE\n");
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "bf16") == "true");
  CHECK(value(loaded, "swiglu") == "true");
  CHECK(value(loaded, "sequence_parallel") == "true");
  CHECK(codes(load_args("  --bf16: \"True\"\n")) == "GTP908");
}

TEST_CASE("false becomes a word and a switch takes none") {
  const Loaded loaded = load_args("  --bf16: false\n");
  REQUIRE(codes(loaded) == "GTP908");
  CHECK(text_at(loaded, loaded.diagnostics[0].primary.place) == "false");
}

TEST_CASE("empty values follow the runner") {
  CHECK(value(load_args("  --bf16:\n"), "bf16") == "true");
  CHECK(codes(load_args("  --micro-batch-size:\n")) == "GTP908");
  CHECK(codes(load_args("  --micro-batch-size: null\n")) == "GTP903");
  const Loaded dropped = load_args("  --micro-batch-size: \"\"\n  --bf16: true\n");
  CHECK(codes(dropped) == "");
  CHECK(given(dropped) == "bf16");
}

TEST_CASE("brackets are dropped and split, parentheses are one word") {
  const Loaded loaded = load_args(
      "  --recompute-modules: \"[mlp  moe]\"\n  --hierarchical-context-parallel-sizes: [2 4]\n"
      "  --moe-layer-freq: ([0]*1+[1]*2)\n  --pipeline-model-parallel-layout: Et*3|(tt|)*6mL\n"
      "  --step-batch-size-schedule: \"0:384 200B:768\"\n");
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "recompute_modules") == "[mlp, moe]");
  CHECK(text_at(loaded, setting(loaded, "recompute_modules")->place) == "mlp  moe");
  CHECK(value(loaded, "hierarchical_context_parallel_sizes") == "[2, 4]");
  CHECK(value(loaded, "moe_layer_freq") == "[0, 1, 1]");
  CHECK(value(loaded, "pipeline_model_parallel_layout") == "Et*3|(tt|)*6mL");
  CHECK(value(loaded, "step_batch_size_schedule") == "0:384 200B:768");
}

TEST_CASE("commas in brackets reach the flag as they do upstream") {
  CHECK(codes(load_args("  --hierarchical-context-parallel-sizes: [2, 4]\n")) == "GTP903");
}

TEST_CASE("quotes inside a value are taken away as by xargs") {
  CHECK(value(load_args("  --load: '\"a  b\" c'\n"), "load") == "a  b c");
  CHECK(codes(load_args("  --load: it's\n")) == "GTP909 GTP908");
}

TEST_CASE("block lists and groups cannot be values of a flag") {
  const Loaded loaded = load_args("  --recompute-modules:\n    - mlp\n  --bf16: {a: 1}\n");
  CHECK(codes(loaded) == "GTP909 GTP909");
  CHECK(value(loaded, "recompute_modules") == "?");
}

TEST_CASE("a flag given twice is reported and the last wins") {
  const Loaded loaded = load_args("  --init-method-std: 0.0198\n  --init-method-std: 0.014\n");
  CHECK(codes(loaded) == "GTP905");
  CHECK(value(loaded, "init_method_std") == "0.014");
}

TEST_CASE("MODEL_ARGS may be null and must not be a list") {
  CHECK(codes(load_text("MODEL_ARGS: null\nTEST_TYPE: regular\n")) == "");
  CHECK(codes(load_text("MODEL_ARGS: [a]\n")) == "GTP909");
}

TEST_CASE("merge keys bring shared flags in") {
  const Loaded loaded = load_text(
      "BASE_MODEL_ARGS: &base\n  --bf16: true\n  --micro-batch-size: 1\n"
      "MODEL_ARGS:\n  <<: *base\n  --micro-batch-size: 2\n");
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "bf16") == "true");
  CHECK(value(loaded, "micro_batch_size") == "2");
}

TEST_CASE("keys that no functional test has are reported") {
  const Loaded loaded = load_text("MODEL_ARGS: {}\nMODEL_ARG: {}\nMODEL_ARGS_x: {}\n");
  CHECK(codes(loaded) == "GTP909 GTP909");
}

TEST_CASE("variables are kept in paths and unresolved elsewhere") {
  const Loaded loaded = load_args("  --load: ${LOAD}\n  --tokenizer-type: ${TYPE}\n  --micro-batch-size: ${MBS}\n");
  CHECK(codes(loaded) == "GTP906 GTP906");
  CHECK(value(loaded, "load") == "${LOAD}");
  CHECK(value(loaded, "tokenizer_type") == "?");
}

TEST_CASE("dotted NeMo keys name the option last and give the world size") {
  const std::string text =
      "  trainer.num_nodes: 2\n  trainer.devices: 8\n  trainer.max_steps: 5\n"
      "  trainer.strategy.tensor_model_parallel_size: 4\n  trainer.strategy.sequence_parallel: True\n";
  const Loaded loaded = load_args(text);
  CHECK(codes(loaded) == "GTP909");
  CHECK(value(loaded, "tensor_model_parallel_size") == "4");
  CHECK(value(loaded, "sequence_parallel") == "true");
  CHECK(value(loaded, "world_size") == "16");
  CHECK(value(loaded, "gpus_per_node") == "8");
  LoadRequest request = request_for("MODEL_ARGS:\n" + text);
  request.world_size = "32";
  CHECK(value(load(request), "world_size") == "32");
}

TEST_CASE("a bare name in MODEL_ARGS is no flag") {
  const Loaded loaded = load_args("  tensor_model_parallel_size: 4\n");
  CHECK(codes(loaded) == "GTP902");
  CHECK(loaded.diagnostics[0].help == "write the flag of `tensor_model_parallel_size`");
}

TEST_CASE("performance tests give sizes in capitals and their runner the world size") {
  const Loaded loaded =
      load_text("MODEL: gpt\nTP: 2\nPP: 3\nDP: 2\nEP: 4\nNUM_OUTPUT_TOKENS: 8\nBATCH_SIZES:\n  - 1\n");
  CHECK(loaded.format == InputFormat::MegatronTestYaml);
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "tensor_model_parallel_size") == "2");
  CHECK(value(loaded, "pipeline_model_parallel_size") == "3");
  CHECK(value(loaded, "expert_model_parallel_size") == "4");
  CHECK(value(loaded, "world_size") == "24");
}
