#include "validators/nemo_rl.hpp"

#include <doctest/doctest.h>

#include <map>
#include <string>

#include "loading.hpp"

using namespace gtp;
using namespace gtp::test;

namespace {

/// Loads `main.yaml` of some files that are nowhere but here.
Loaded load_files(const std::map<std::string, std::string>& files) {
  LoadRequest request = request_for(files.at("main.yaml"), "main.yaml");
  request.include = [&](std::string_view, std::string_view path) -> Included {
    const auto file = files.find(std::string(path));
    if (file == files.end()) return {std::nullopt, "no such file or directory"};
    return {Text{file->first, file->second}, {}};
  };
  return load(request);
}

Loaded load_nemo(const std::string& text) { return load_files({{"main.yaml", text}}); }

/// A small file: `megatron` are lines of `policy.megatron_cfg`, `rest` whatever follows.
std::string nemo_text(const std::string& megatron, const std::string& rest = "") {
  std::string text = "policy:\n  max_grad_norm: 1.0\n  megatron_cfg:\n    enabled: true\n";
  std::string line;
  for (const char c : megatron + "\n") {
    line += c;
    if (c == '\n') text += "    " + line, line.clear();
  }
  return text + rest;
}

const char* const kCluster = "cluster: {num_nodes: 2, gpus_per_node: 8}\n";

}  // namespace

TEST_CASE("options of policy.megatron_cfg and its groups are Megatron's under their own names") {
  const Loaded loaded = load_nemo(nemo_text(
      "tensor_model_parallel_size: 4\nnum_layers_in_first_pipeline_stage: 7\nmoe_router_dtype: null\n"
      "optimizer: {optimizer: adam, lr: 5.0e-6, bf16: false, params_dtype: float32, use_distributed_optimizer: true}\n"
      "scheduler: {lr_warmup_iters: 13}\n"
      "distributed_data_parallel_config: {overlap_grad_reduce: True, grad_reduce_in_fp32: false}\n"
      "env_vars: {NCCL_ALGO: Ring}\n",
      "  train_global_batch_size: 512\n  train_micro_batch_size: 4\n  max_total_sequence_length: 4096\n"
      "  precision: bfloat16\ncluster: {num_nodes: 2, gpus_per_node: 8}\n"));
  CHECK(loaded.format == InputFormat::NemoRl);
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "tensor_model_parallel_size") == "4");
  CHECK(value(loaded, "decoder_first_pipeline_num_layers") == "7");
  CHECK(value(loaded, "moe_router_dtype") == "-");
  CHECK(value(loaded, "optimizer") == "adam");
  CHECK(value(loaded, "use_distributed_optimizer") == "true");
  CHECK(value(loaded, "lr_warmup_iters") == "13");
  CHECK(value(loaded, "overlap_grad_reduce") == "true");
  CHECK(value(loaded, "accumulate_allreduce_grads_in_fp32") == "false");
  CHECK(value(loaded, "global_batch_size") == "512");
  CHECK(value(loaded, "micro_batch_size") == "4");
  CHECK(value(loaded, "seq_length") == "4096");
  CHECK(value(loaded, "bf16") == "true");
  CHECK(variable(loaded, "NCCL_ALGO") == "Ring");
  CHECK(value(loaded, "world_size") == "16");
  CHECK(value(loaded, "gpus_per_node") == "8");
  CHECK(text_at(loaded, setting(loaded, "tensor_model_parallel_size")->place) == "4");
}

TEST_CASE("experts are not split by tensor parallelism where the file does not say so") {
  CHECK(value(load_nemo(nemo_text("tensor_model_parallel_size: 4", kCluster)), "expert_tensor_parallel_size") == "1");
  CHECK(value(load_nemo(nemo_text("expert_tensor_parallel_size: 2", kCluster)), "expert_tensor_parallel_size") == "2");
}

TEST_CASE("values of the files named in defaults are below those of the file that names them") {
  const Loaded loaded = load_files(
      {{"main.yaml", "defaults: base.yaml\npolicy:\n  megatron_cfg:\n    tensor_model_parallel_size: 2\n"},
       {"base.yaml", "defaults: [root.yaml, other.yaml]\npolicy:\n  megatron_cfg: {context_parallel_size: 2}\n"},
       {"other.yaml", "policy: {megatron_cfg: {pipeline_model_parallel_size: 4}}\n"},
       {"root.yaml",
        "policy:\n  megatron_cfg: {enabled: true, tensor_model_parallel_size: 8, context_parallel_size: 1,\n"
        "    pipeline_model_parallel_size: 1, sequence_parallel: true}\ncluster: {num_nodes: 4, gpus_per_node: 4}\n"}});
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "tensor_model_parallel_size") == "2");
  CHECK(value(loaded, "context_parallel_size") == "2");
  CHECK(value(loaded, "pipeline_model_parallel_size") == "4");
  CHECK(value(loaded, "sequence_parallel") == "true");
  CHECK(value(loaded, "world_size") == "16");
  const Place place = setting(loaded, "sequence_parallel")->place;
  CHECK(loaded.sources[place.source].name == "root.yaml");
  CHECK(start_of(loaded, place) == "3:57");
}

TEST_CASE("a group marked as an override replaces the one below it") {
  const std::map<std::string, std::string> files{
      {"main.yaml", "defaults: base.yaml\npolicy:\n  _override_: true\n  megatron_cfg: {enabled: true}\nx: {y: ???}\n"},
      {"base.yaml", nemo_text("context_parallel_size: 2", kCluster)}};
  CHECK(value(load_files(files), "context_parallel_size") == "-");
  CHECK(value(load_files(
                  {{"main.yaml", "defaults: base.yaml\npolicy:\n  megatron_cfg:\n    context_parallel_size: ???\n"},
                   {"base.yaml", files.at("base.yaml")}}),
              "context_parallel_size") == "2");
}

TEST_CASE("a file of the chain that cannot be read is told where it is named") {
  const auto refusal = [](const std::map<std::string, std::string>& files) {
    const Loaded loaded = load_files(files);
    CHECK_FALSE(loaded.readable);
    CHECK(codes(loaded) == "GTP901");
    const Label& label = loaded.diagnostics.at(0).primary;
    return loaded.sources[label.place.source].name + ' ' + text_at(loaded, label.place) + " | " + label.text;
  };
  CHECK(refusal({{"main.yaml", "defaults: no.yaml\n"}}) == "main.yaml no.yaml | `no.yaml`: no such file or directory");
  CHECK(refusal({{"main.yaml", "defaults: [a.yaml]\n"}, {"a.yaml", "defaults: b.yaml\n"}, {"b.yaml", "a: [\n"}})
            .starts_with("b.yaml "));
  CHECK(refusal({{"main.yaml", "defaults: a.yaml\n"}, {"a.yaml", "defaults: main.yaml\n"}}) ==
        "a.yaml main.yaml | `main.yaml`: builds on itself");
  CHECK(refusal({{"main.yaml", "defaults: a.yaml\n"}, {"a.yaml", "- 1\n"}}) ==
        "main.yaml a.yaml | `a.yaml` has no options and values");
  CHECK(refusal({{"main.yaml", "defaults: a.yaml\n"}, {"a.yaml", "a: \xFF\n"}}) ==
        "main.yaml a.yaml | `a.yaml`: is not a text file");
  CHECK(refusal({{"main.yaml", "defaults: [{a: b}, a.yaml]\npolicy: {}\ncluster: {}\n"}}) ==
        "main.yaml {a: b} | expected the path of a file");
  CHECK_FALSE(load(request_for("defaults: a.yaml\n")).readable);
}

TEST_CASE("chains of files end even where every name leads on") {
  LoadRequest request = request_for("defaults: a.yaml\n", "main.yaml");
  std::size_t calls = 0;
  request.include = [&](std::string_view from, std::string_view) -> Included {
    ++calls;
    return {Text{std::string(from) + "x", "defaults: [a.yaml, b.yaml]\n"}, {}};
  };
  CHECK_FALSE(load(request).readable);
  CHECK(calls < 100);
}

TEST_CASE("references and arithmetic are followed") {
  const Loaded loaded = load_nemo(
      "grpo: {prompts: 32, generations: 16}\nsizes: {tp: 4, list: [1, 2]}\nname: tp\n"
      "policy:\n  max_grad_norm: 1.5\n  precision: bfloat16\n"
      "  train_global_batch_size: ${mul:${grpo.prompts}, ${grpo.generations}}\n"
      "  train_micro_batch_size: ${max:1, ${sizes.list[1]}}\n"
      "  max_total_sequence_length: ${add:1000, ${mul:2,12}}\n"
      "  megatron_cfg:\n    enabled: ${.on}\n    on: true\n    tensor_model_parallel_size: ${sizes.${name}}\n"
      "    context_parallel_size: ${.tensor_model_parallel_size}\n"
      "    optimizer: {clip_grad: '${policy.max_grad_norm}', lr: 1.0e-6, min_lr: '${.lr}'}\n"
      "    scheduler: {lr_warmup_init: '${..optimizer.lr}'}\n"
      "cluster: {num_nodes: '${div:8,2}', gpus_per_node: 8}\n");
  CHECK(value(loaded, "global_batch_size") == "512");
  CHECK(value(loaded, "micro_batch_size") == "2");
  CHECK(value(loaded, "seq_length") == "1024");
  CHECK(value(loaded, "tensor_model_parallel_size") == "4");
  CHECK(value(loaded, "context_parallel_size") == "4");
  CHECK(value(loaded, "clip_grad") == "1.5");
  CHECK(value(loaded, "min_lr") == value(loaded, "lr"));
  CHECK(value(loaded, "lr_warmup_init") == value(loaded, "lr"));
  CHECK(value(loaded, "world_size") == "?");  // a division gives 4.0, as in Python
  CHECK(codes(loaded) == "GTP906");
}

TEST_CASE("what a reference cannot reach stays unknown") {
  const auto tensor_size = [](const std::string& text) {
    const Loaded loaded = load_nemo(
        nemo_text("tensor_model_parallel_size: " + text, "a: ${b}\nb: ${a}\nc: {d: 1}\n" + std::string(kCluster)));
    return value(loaded, "tensor_model_parallel_size") + ' ' + codes(loaded);
  };
  CHECK(tensor_size("${oc.env:TP}") == "? GTP906");
  CHECK(tensor_size("${oc.env:TP,2}") == "? GTP906");
  CHECK(tensor_size("${unheard:1,2}") == "? GTP906");
  CHECK(tensor_size("${mul:2}") == "? GTP906");
  CHECK(tensor_size("${mul:2,x}") == "? GTP906");
  CHECK(tensor_size("${mul:9223372036854775807,2}") == "? GTP906");
  CHECK(tensor_size("${div:1,0}") == "? GTP906");
  CHECK(tensor_size("${a}") == "? GTP906");
  CHECK(tensor_size("${no.such}") == "? GTP906");
  CHECK(tensor_size("${..........c}") == "? GTP906");
  CHECK(tensor_size("'${'") == "? GTP906");
  CHECK(tensor_size("${c.d}") == "1 ");
}

TEST_CASE("references that multiply end in time and memory") {
  std::string text = nemo_text("tensor_model_parallel_size: ${x0}\nmodel_overrides: ${m}\nlr: ${m}", kCluster);
  for (int i = 0; i < 40; ++i) {
    const std::string next = "${x" + std::to_string(i + 1) + "}";
    text += "x" + std::to_string(i) + ": a" + next + next + "\n";
  }
  text += "x40: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\nm: {a: '${m}', b: '${m}', c: '${m}'}\n";
  CHECK(value(load_nemo(text), "tensor_model_parallel_size") == "?");
}

TEST_CASE("generation with GPUs of its own takes them from the training") {
  const auto world = [](const std::string& cluster, const std::string& colocated, const std::string& rest = "") {
    const Loaded loaded =
        load_nemo(nemo_text("tensor_model_parallel_size: 1",
                            "  generation: {colocated: " + colocated + "}\ncluster: " + cluster + "\n" + rest));
    return value(loaded, "world_size") + '/' + value(loaded, "gpus_per_node") + ' ' + codes(loaded);
  };
  const std::string two = "{num_nodes: 2, gpus_per_node: 8}", one = "{num_nodes: 1, gpus_per_node: 8}";
  CHECK(world(two, "{enabled: true, resources: {num_nodes: 1}}") == "16/8 ");
  CHECK(world(two, "{enabled: false, resources: {num_nodes: 1, gpus_per_node: 8}}") == "8/8 ");
  CHECK(world(one, "{enabled: false, resources: {num_nodes: null, gpus_per_node: 2}}") == "6/6 ");
  CHECK(world(two, "{enabled: false, resources: {num_nodes: null}}") == "?/- GTP906");
  CHECK(world("{num_nodes: 2, gpus_per_node: x}", "{enabled: true}") == "?/- GTP906");
  CHECK(world("{num_nodes: 2}", "{enabled: true}") == "-/- ");
  CHECK(world(two, "{enabled: true}",
              "on_policy_distillation: {enabled: true, non_colocated_teachers: {enabled: true}}\n") == "?/- GTP906");
  CHECK(world(two, "{enabled: true}", "env: {reward_model: {resources: {num_nodes: 1}}}\n") == "?/- GTP906");
}

TEST_CASE("nodes that serve other models make a world size unknown only where it does not divide") {
  const auto world = [](const std::string& nodes) {
    return value(load_nemo(nemo_text(
                     "tensor_model_parallel_size: 8\ncontext_parallel_size: 2",
                     "cluster: {num_nodes: " + nodes + ", gpus_per_node: 8}\nenv: {nemo_gym: {num_gpu_nodes: 3}}\n")),
                 "world_size");
  };
  CHECK(world("4") == "32");
  CHECK(world("7") == "?");
}

TEST_CASE("8-bit weights and recomputation are read as NeMo-RL switches them") {
  const Loaded off = load_nemo(nemo_text(
      "fp8_cfg: {enabled: false, fp8: e4m3}\nrecompute_granularity: full\nactivation_checkpointing: false", kCluster));
  CHECK(value(off, "fp8") == "-");
  CHECK(value(off, "recompute_granularity") == "-");
  const Loaded on =
      load_nemo(nemo_text("fp8_cfg: {enabled: true, fp8: e4m3, fp8_recipe: mxfp8, fp8_param: true}\n"
                          "activation_checkpointing: true",
                          kCluster));
  CHECK(value(on, "fp8") == "e4m3");
  CHECK(value(on, "fp8_param_gather") == "true");
  CHECK(value(on, "reuse_grad_buf_for_mxfp8_param_ag") == "true");
  CHECK(value(on, "recompute_granularity") == "full");
  CHECK(value(on, "recompute_num_layers") == "1");
  const Loaded selective = load_nemo(
      nemo_text("activation_checkpointing: true\nrecompute_granularity: selective\nrecompute_modules: [core_attn, mlp]",
                kCluster));
  CHECK(value(selective, "recompute_modules") == "[core_attn, mlp]");
  CHECK(value(selective, "recompute_method") == "-");
}

TEST_CASE("a slip in an option's name is told and other keys of NeMo-RL are not") {
  const Loaded loaded =
      load_nemo(nemo_text("tensor_model_paralel_size: 2\nforce_reconvert_from_hf: true\nconverter_type: x", kCluster));
  CHECK(codes(loaded) == "GTP909");
  CHECK(loaded.diagnostics.at(0).help == "did you mean `tensor_model_parallel_size`?");
}

TEST_CASE("a file that does not train with Megatron says nothing of it") {
  const Loaded loaded =
      load_nemo("policy: {megatron_cfg: {enabled: false, tensor_model_parallel_size: 2}}\n" + std::string(kCluster));
  CHECK(codes(loaded) == "GTP909");
  CHECK(given(loaded) == "");
}
