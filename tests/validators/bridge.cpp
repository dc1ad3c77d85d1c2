#include "validators/bridge.hpp"

#include <doctest/doctest.h>

#include <string>

#include <gtp/check.hpp>

#include "loading.hpp"

using namespace gtp;
using namespace gtp::test;

namespace {

constexpr const char* kRunConfig = R"(_target_: megatron.bridge.training.config.ConfigContainer
checkpoint:
  _target_: megatron.bridge.training.config.CheckpointConfig
  ckpt_format: torch_dist
  load_optim: false
comm_overlap: null
dataset:
  _target_: megatron.bridge.training.config.GPTDatasetConfig
  seq_length: 4096
ddp:
  _target_: megatron.bridge.training.config.DistributedDataParallelConfig
  use_distributed_optimizer: false
env_vars: {NCCL_ALGO: Ring}
mixed_precision:
  _target_: megatron.bridge.training.mixed_precision.MixedPrecisionConfig
  bf16: true
  params_dtype: {_call_: false, _target_: torch.bfloat16}
model:
  _target_: megatron.bridge.models.gpt_provider.GPTModelProvider
  activation_func: {_call_: false, _target_: torch.nn.functional.silu}
  attention_backend: {_args_: [5], _call_: true, _name_: auto, _target_: megatron.core.transformer.enums.AttnBackend}
  bf16: false
  bias_activation_fusion: true
  context_parallel_size: 1
  expert_model_parallel_size: 8
  expert_tensor_parallel_size: null
  gated_linear_unit: true
  gtp_weight_remat_size: 1
  hidden_size: 1024
  moe_layer_freq: [0, 1, 1, 1]
  num_attention_heads: 16
  num_layers: 4
  num_moe_experts: 16
  num_query_groups: 4
  pipeline_model_parallel_layout: [[embedding, decoder], [decoder], [decoder], [decoder, loss]]
  pipeline_model_parallel_size: 4
  rotary_base: 500000.0
  seq_length: 4096
  sequence_parallel: true
  share_embeddings_and_output_weights: false
  tensor_model_parallel_size: 2
  vocab_size: 32000
  unheard_of_field: 1
optimizer:
  _target_: megatron.bridge.training.config.OptimizerConfig
  main_grads_dtype: {_call_: false, _target_: torch.float32}
  use_distributed_optimizer: true
train: {_target_: megatron.bridge.training.config.TrainingConfig, global_batch_size: 64, micro_batch_size: 1, train_iters: 10}
validation: {eval_iters: 2, eval_interval: 5}
)";

Loaded load_overrides(std::string text) { return load_text(std::move(text), "overrides"); }

std::string derived(const Loaded& loaded, std::string_view option) {
  const Derivation d = derive(loaded.config);
  const Value* found = d.facts.find(*find_option(option));
  return found == nullptr ? "?" : to_text(*found);
}

}  // namespace

TEST_CASE("a run_config is recognized, read and checked for Megatron-Bridge") {
  const Loaded loaded = load_text(kRunConfig, "run_config.yaml");
  CHECK(loaded.format == InputFormat::BridgeYaml);
  CHECK(loaded.config.target() == kBridgeTarget);
  CHECK(codes(loaded) == "");
  CHECK_FALSE(loaded.config.partial);
  CHECK(value(loaded, "tensor_model_parallel_size") == "2");
  CHECK(value(loaded, "num_experts") == "16");
  CHECK(value(loaded, "no_load_optim") == "true");
  CHECK(value(loaded, "untie_embeddings_and_output_weights") == "true");
  CHECK(value(loaded, "group_query_attention") == "true");
  CHECK(value(loaded, "swiglu") == "true");
  CHECK(value(loaded, "bias_swiglu_fusion") == "true");
  CHECK(value(loaded, "attention_backend") == "auto");
  CHECK(value(loaded, "main_grads_dtype") == "fp32");
  CHECK(value(loaded, "rotary_base") == "500000");
  CHECK(value(loaded, "moe_layer_freq") == "[0, 1, 1, 1]");
  CHECK(value(loaded, "pipeline_model_parallel_layout") == "Et|t|t|tL");
  CHECK(value(loaded, "vocab_size") == "32000");
  CHECK(value(loaded, "dataset_config") == "GPTDatasetConfig");
  CHECK(variable(loaded, "NCCL_ALGO") == "Ring");
  CHECK(start_of(loaded, setting(loaded, "tensor_model_parallel_size")->place) == "41:31");
}

TEST_CASE("of several homes of an option the one that Bridge lets win counts") {
  const Loaded loaded = load_text(kRunConfig);
  CHECK(value(loaded, "bf16") == "true");                       // the recipe over the model
  CHECK(value(loaded, "use_distributed_optimizer") == "true");  // on in either place
  CHECK(value(load_text("train: {eval_iters: 3}\nvalidation: {eval_iters: 5}\n"), "eval_iters") == "3");
  const Loaded overlap = load_text("comm_overlap: {overlap_grad_reduce: false}\nddp: {overlap_grad_reduce: true}\n");
  CHECK(value(overlap, "overlap_grad_reduce") == "false");
  CHECK(value(overlap, "comm_overlap") == "true");
}

TEST_CASE("sizes follow Bridge's rules") {
  LoadRequest request = request_for(kRunConfig);
  request.world_size = "64";
  const Loaded loaded = load(request);
  CHECK(derived(loaded, "expert_tensor_parallel_size") == "1");
  CHECK(derived(loaded, "data_parallel_size") == "8");
  CHECK(derived(loaded, "expert_data_parallel_size") == "2");
  CHECK(derived(loaded, "num_microbatches") == "8");
  CHECK_FALSE(has_errors(check(loaded.config).diagnostics));
  CHECK(derived(load_text("model: {tensor_model_parallel_size: 2}\ntrain: {}\n"), "expert_tensor_parallel_size") ==
        "2");
}

TEST_CASE("what Bridge changes silently is derived") {
  const std::string sizes =
      "model: {tensor_model_parallel_size: 1, pipeline_model_parallel_size: 2, "
      "virtual_pipeline_model_parallel_size: 2, sequence_parallel: true}\n";
  const Loaded loaded = load_text(sizes +
                                  "comm_overlap: {tp_comm_overlap: true, data_parallel_size: 4}\n"
                                  "ddp: {use_distributed_optimizer: true}\n"
                                  "scheduler: {lr_decay_style: WSD, lr_decay_iters: 100, lr_wsd_decay_iters: null}\n");
  CHECK(derived(loaded, "sequence_parallel") == "false");
  CHECK(derived(loaded, "tp_comm_overlap") == "false");
  CHECK(derived(loaded, "overlap_p2p_comm") == "true");
  CHECK(derived(loaded, "overlap_grad_reduce") == "true");
  CHECK(derived(loaded, "ddp_bucket_size") == "134217728");
  const Loaded fsdp = load_text("ddp: {use_megatron_fsdp: true}\nmodel: {tensor_model_parallel_size: 2}\n");
  CHECK(derived(fsdp, "use_distributed_optimizer") == "true");
  CHECK(derived(fsdp, "gtp_weight_remat_size") == "1");
}

TEST_CASE("Bridge's own options are unknown to Megatron-LM's targets") {
  LoadRequest request = request_for("tensor_model_parallel_size: 2\n");
  request.set = {"max_steps=5"};
  CHECK(codes(load(request)) == "GTP902");
  request.target = kBridgeTarget;
  CHECK(codes(load(request)) == "");
}

TEST_CASE("a target that is asked for is kept") {
  LoadRequest request = request_for("model: {tensor_model_parallel_size: 2}\nmixed_precision: bf16_with_mxfp8_mixed\n");
  request.target = kDefaultTarget;
  const Loaded loaded = load(request);
  CHECK(loaded.config.target() == kDefaultTarget);
  CHECK(value(loaded, "fp8_recipe") == "mxfp8");
  CHECK(codes(loaded) == "");
}

TEST_CASE("a recipe's name stands for all precision options") {
  const Loaded loaded = load_text("mixed_precision: bf16-with-nvfp4-mixed\n");
  CHECK(codes(loaded) == "");
  CHECK(derived(loaded, "bf16") == "true");
  CHECK(derived(loaded, "fp4_param_gather") == "true");
  CHECK(derived(loaded, "fp8_param_gather") == "false");
  CHECK(derived(loaded, "fp8") == "None");
  CHECK(codes(load_text("mixed_precision: bf16_mixd\n")) == "GTP904");
}

TEST_CASE("every recipe that the option offers is known") {
  int recipes = 0;
  for (const std::string& name : detail::split_words(row_of(*find_option("mixed_precision")).choices)) {
    CHECK_MESSAGE(find_bridge_recipe(name) != nullptr, name);
    ++recipes;
  }
  CHECK(recipes == std::size(kBridgeRecipes));
}

TEST_CASE("an override file is a part over a recipe") {
  const Loaded loaded =
      load_text("model:\n  tensor_model_parallel_size: 2\n  num_layers: 4\ntrain:\n  micro_batch_size: 1\n");
  CHECK(loaded.config.partial);
  CHECK(derived(loaded, "pipeline_model_parallel_size") == "1");
  CHECK(derived(loaded, "global_batch_size") == "?");
  CHECK(derived(loaded, "num_experts") == "?");
}

TEST_CASE("a value that is still to be given leaves its option unknown") {
  const Loaded loaded =
      load_text("train:\n  micro_batch_size: ???\n  global_batch_size: ${gbs}\ncheckpoint:\n  save: ???\n");
  CHECK(codes(loaded) == "GTP906 GTP906");
  CHECK(value(loaded, "micro_batch_size") == "?");
  CHECK(value(loaded, "save") == "?");
}

TEST_CASE("values of a wrong type are reported, forms that only Bridge knows are not") {
  CHECK(codes(load_text("train: {micro_batch_size: two}\n")) == "GTP903");
  CHECK(codes(load_text("train: {micro_batch_size: 1.5}\n")) == "GTP903");
  const Loaded loaded =
      load_text("dataset: {dataloader_type: batch}\nmodel: {window_size: {a: 1}, position_embedding_type: own}\n");
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "dataloader_type") == "?");
}

TEST_CASE("of the many unknown names only those that look like a slip are reported") {
  const Loaded loaded = load_text(
      "model: {tensor_model_paralel_size: 2, freeze_language_model: true, teacher: {seq_length: 4096}}\n"
      "train: {num_labels: 3}\npeft: {dim: 8}\n");
  REQUIRE(codes(loaded) == "GTP909");
  CHECK(text_at(loaded, loaded.diagnostics[0].primary.place) == "tensor_model_paralel_size");
  CHECK(loaded.diagnostics[0].help == "did you mean `model.tensor_model_parallel_size`?");
  CHECK(value(loaded, "seq_length") == "-");
}

TEST_CASE("remat sizes beyond 1 are derived and not set") {
  CHECK(codes(load_text("model: {gtp_weight_remat_size: 2}\ntrain: {}\n")) == "GTP009");
  CHECK(codes(load_text("model: {gtp_weight_remat_size: 1}\ntrain: {}\n")) == "");
}

TEST_CASE("a comm_overlap section may say the size of the job") {
  const Loaded loaded = load_text("comm_overlap: {data_parallel_size: 4}\nmodel: {tensor_model_parallel_size: 2}\n");
  CHECK(value(loaded, "world_size") == "8");
  LoadRequest request = request_for("comm_overlap: {data_parallel_size: 4}\n");
  request.world_size = "16";
  CHECK(value(load(request), "world_size") == "16");
}

TEST_CASE("the options of a model built from its own config class are found") {
  CHECK(value(load_text("model: {transformer: {num_layers: 2}}\ntrain: {}\n"), "num_layers") == "2");
}

TEST_CASE("flat files with groups are not taken for Bridge's") {
  CHECK(load_text("model: {num_layers: 4}\nbatch: {micro_batch_size: 1}\n").format == InputFormat::Yaml);
  CHECK(load_text("world_size: 8\ntrain: {micro_batch_size: 1}\n").format == InputFormat::Yaml);
  CHECK(load_text("model: {num_layers: 4}\n").format == InputFormat::Yaml);
  CHECK(load_text("train: 3\n").format == InputFormat::Yaml);
}

TEST_CASE("overrides are recognized, one a line or several, in a shell's quotes or without") {
  const Loaded loaded = load_overrides(
      "# a comment\n"
      "model.tensor_model_parallel_size=4 ++model.pipeline_model_parallel_size=2 \\\n"
      "  '+train.micro_batch_size=1'   # another\n"
      "\"train.global_batch_size=64\"\n"
      "logger.wandb_exp_name=my run\n");
  CHECK(loaded.format == InputFormat::BridgeOverrides);
  CHECK(loaded.config.target() == kBridgeTarget);
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "tensor_model_parallel_size") == "4");
  CHECK(value(loaded, "pipeline_model_parallel_size") == "2");
  CHECK(value(loaded, "micro_batch_size") == "1");
  CHECK(value(loaded, "global_batch_size") == "64");
  CHECK(value(loaded, "wandb_exp_name") == "my run");
  CHECK(start_of(loaded, setting(loaded, "micro_batch_size")->place) == "3:28");
}

TEST_CASE("override values follow Hydra's grammar") {
  const Loaded loaded = load_overrides(
      "model.hierarchical_context_parallel_sizes=[2, 4]\n"
      "dataset.blend=[[\"a b\", 'c'],null]\n"
      "model.moe_layer_freq=([0]*3+[1]*58)\n"
      "model.sequence_parallel=True\n"
      "optimizer.lr=3e-4\n"
      "model.virtual_pipeline_model_parallel_size=null\n"
      "train={micro_batch_size: 2, global_batch_size: 16}\n"
      "checkpoint.save='/a, b'\n"
      "mixed_precision=bf16_mixed\n"
      "model.pipeline_model_parallel_layout=\"Et|t|t|tL\"\n");
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "hierarchical_context_parallel_sizes") == "[2, 4]");
  CHECK(value(loaded, "sequence_parallel") == "true");
  CHECK(value(loaded, "lr") == "0.0003");
  CHECK(value(loaded, "num_virtual_stages_per_pipeline_rank") == "-");
  CHECK(value(loaded, "micro_batch_size") == "2");
  CHECK(value(loaded, "global_batch_size") == "16");
  CHECK(value(loaded, "save") == "/a, b");
  CHECK(value(loaded, "mixed_precision") == "bf16_mixed");
  CHECK(value(loaded, "pipeline_model_parallel_layout") == "Et|t|t|tL");
}

TEST_CASE("quotes and backslashes are undone by the shell, by Hydra and by OmegaConf, each its own") {
  struct Row {
    const char* override;
    const char* save;
  };
  const Row rows[] = {
      {R"(checkpoint.save="say \"so\"")", R"(say "so")"},
      {R"(checkpoint.save="a\b\\")", R"(a\b\)"},
      {R"(checkpoint.save="a\\b")", R"(a\\b)"},
      {R"(checkpoint.save='\\\'')", R"(\')"},
      {R"(checkpoint.save="\'")", R"(\')"},
      {R"(checkpoint.save=a\,b\ c\d)", R"(a,b c\d)"},
      {R"(checkpoint.save="\${HOME}")", R"(${HOME})"},
      {R"(checkpoint.save="\\\${a}\$\\")", R"(\${a}\$\)"},
      {R"(checkpoint.save=NULL)", "-"},
      {R"('checkpoint.save="it'\''s"')", "it's"},
      {R"("checkpoint.save=\"a b\"")", "a b"},
      {R"('checkpoint.save='"'a b'")", "a b"},
      {"'checkpoint.save=\"two\nlines\"'", "two\nlines"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.override);
    const Loaded loaded = load_overrides(std::string("train.micro_batch_size=1\n") + row.override + "\n");
    CHECK(codes(loaded) == "");
    CHECK(value(loaded, "save") == row.save);
    CHECK(value(loaded, "micro_batch_size") == "1");
  }
  const Loaded spliced = load_overrides(R"('checkpoint.save='\''a b'\''')");
  CHECK(start_of(spliced, setting(spliced, "save")->place) == "1:20");
}

TEST_CASE("the last override wins, and null and a deletion take back what was said") {
  const Loaded loaded = load_overrides(
      "train.micro_batch_size=1\ntrain.micro_batch_size=2\ntrain.train_iters=5\n~train.train_iters\n"
      "model.context_parallel_size=2\nmodel.context_parallel_size=null\nddp.use_distributed_optimizer=true\n~ddp\n");
  CHECK(given(loaded) == "micro_batch_size");
  CHECK(value(loaded, "micro_batch_size") == "2");
}

TEST_CASE("an override that Hydra cannot read makes the text unreadable, at its place") {
  const auto place = [](const std::string& text) {
    const Loaded loaded = load_overrides(text);
    CHECK_FALSE(loaded.readable);
    REQUIRE(codes(loaded) == "GTP901");
    return start_of(loaded, loaded.diagnostics[0].primary.place) + ' ' + loaded.diagnostics[0].primary.text;
  };
  CHECK(place("train.train_iters=1\nmodel.x=[1,2") == "2:13 `]` is missing");
  CHECK(place("model.x={a 1}") == "1:13 expected `:` after a key");
  CHECK(place("model.x=\"a") == "1:9 this quote has no end");
  CHECK(place("model.context_parallel_size=1,2") == "1:30 several values, of which one run takes one");
  CHECK(place("model.x=1\n'model.y=1") == "2:1 this quote has no end");
}

TEST_CASE("a word that is no override is left out and said") {
  const Loaded loaded = load_overrides("train.micro_batch_size=1\n--recipe llama\n");
  CHECK(codes(loaded) == "GTP909");
  CHECK(value(loaded, "micro_batch_size") == "1");
}

TEST_CASE("hostile overrides end soon") {
  CHECK_FALSE(load_overrides("model.x=" + std::string(1000, '[')).readable);
  CHECK_FALSE(load_overrides("model.x=" + std::string(1000, '{')).readable);
  CHECK(load_overrides("model.x=1" + std::string(200'000, ' ') + "y").readable);
  CHECK(load_overrides("model.x=1 " + std::string(200'000, '\\')).readable);
  std::string many = "model.x=1\n";
  for (int i = 0; i < 100'000; ++i) many += "''\n";
  CHECK(load_overrides(many).readable);
  many.clear();
  for (int i = 0; i < 20'000; ++i) many += "model.tensor_model_paralle" + std::to_string(i) + "=1\n~model\n";
  CHECK(load_overrides(many).readable);
  std::string list = "model.cp_comm_type=[";
  for (int i = 0; i < 300'000; ++i) list += "a,";
  CHECK_FALSE(load_overrides(list + "]").readable);
}
