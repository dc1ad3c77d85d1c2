// Which variables a job gets, and why; what contradicts them is said.
#include <doctest/doctest.h>

#include "tests/cli/launch.hpp"
#include "tools/launch/environment.hpp"

namespace {

using namespace gtp;
using namespace gtp::test;
using cli::Environment;

constexpr std::string_view kSizes = "world_size: 32\ngpus_per_node: 8\n";
constexpr std::string_view kGtp =
    "world_size: 32\ngpus_per_node: 8\ntensor_parallel_num_weight_shards: 4\nadd_bias_linear: false\n";

Environment environment_of(std::string_view base, std::string_view more) {
  const auto checked = checked_of(std::string(base) + std::string(more));
  REQUIRE(checked->report.has_value());
  REQUIRE(checked->report->derivation.topology.has_value());
  return cli::make_environment(checked->loaded.config, checked->report->derivation);
}

std::string value_of(const Environment& environment, std::string_view name) {
  for (const cli::Assignment& variable : environment.list)
    if (variable.name == name) return variable.value;
  return "unset";
}

std::string value_of(std::string_view base, std::string_view more, std::string_view name) {
  return value_of(environment_of(base, more), name);
}

/// The rules that the input's variables break, in order.
std::string broken(std::string_view base, std::string_view more) {
  std::string rules;
  for (const Diagnostic& d : environment_of(base, more).problems) {
    CHECK(d.primary.place.known());
    CHECK(!d.notes.empty());
    rules += (rules.empty() ? "" : " ") + std::string(d.severity == Severity::Error ? "!" : "") + std::string(d.rule);
  }
  return rules;
}

}  // namespace

TEST_CASE("CUDA_DEVICE_MAX_CONNECTIONS follows parallelism and the generation of the GPU") {
  const auto value = [](std::string_view more) { return value_of(kSizes, more, "CUDA_DEVICE_MAX_CONNECTIONS"); };
  CHECK(value("tensor_model_parallel_size: 2\ngpu_arch: hopper\n") == "1");
  CHECK(value("context_parallel_size: 2\ngpu_arch: ampere\n") == "1");
  CHECK(value("tensor_model_parallel_size: 2\ngpu_arch: blackwell\n") == "32");
  CHECK(value("pipeline_model_parallel_size: 2\ngpu_arch: hopper\n") == "unset");
  CHECK(value("tensor_model_parallel_size: 2\ngpu_arch: hopper\nuse_megatron_fsdp: true\n") == "32");
  CHECK(value("tensor_model_parallel_size: 2\ngpu_arch: hopper\noverlap_moe_expert_parallel_comm: true\n") == "32");
  CHECK(value_of(kGtp, "gpu_arch: hopper\ncuda_graph_impl: local\n", "CUDA_DEVICE_MAX_CONNECTIONS") == "32");
}

TEST_CASE("what depends on an unknown generation is not guessed") {
  const Environment environment = environment_of(kSizes, "tensor_model_parallel_size: 2\n");
  CHECK(value_of(environment, "CUDA_DEVICE_MAX_CONNECTIONS") == "unset");
  REQUIRE(environment.undecided.size() == 1);
  CHECK(environment.undecided[0].find("gpu_arch is not known") != std::string::npos);
  CHECK(environment_of(kSizes, "tensor_model_parallel_size: 2\nenv: {CUDA_DEVICE_MAX_CONNECTIONS: '1'}\n")
            .undecided.empty());
}

TEST_CASE("graphs of GTP keep stream priorities from Blackwell on") {
  const auto value = [](std::string_view base, std::string_view more) {
    return value_of(base, more, "CUDA_GRAPHS_USE_NODE_PRIORITY");
  };
  CHECK(value(kGtp, "gpu_arch: blackwell\ncuda_graph_impl: local\n") == "1");
  CHECK(value(kGtp, "cuda_graph_impl: local\n") == "1");
  CHECK(value(kGtp, "gpu_arch: hopper\ncuda_graph_impl: local\n") == "unset");
  CHECK(value(kGtp, "gpu_arch: blackwell\n") == "unset");
  CHECK(value(kSizes, "pipeline_model_parallel_size: 2\ngpu_arch: blackwell\ncuda_graph_impl: local\n") == "unset");
}

TEST_CASE("NCCL and TransformerEngine get what options ask of them") {
  CHECK(value_of(kSizes, "pipeline_model_parallel_size: 2\n", "NCCL_P2P_NET_CHUNKSIZE") == "2097152");
  CHECK(value_of(kSizes, "context_parallel_size: 2\n", "NCCL_P2P_NET_CHUNKSIZE") == "unset");
  CHECK(value_of(kGtp, "", "TORCH_NCCL_HIGH_PRIORITY") == "1");
  CHECK(value_of(kSizes, "context_parallel_size: 2\n", "TORCH_NCCL_HIGH_PRIORITY") == "unset");
  CHECK(value_of(kSizes, "context_parallel_size: 2\napply_query_key_layer_scaling: true\n",
                 "NVTE_APPLY_QK_LAYER_SCALING") == "1");
  CHECK(value_of(kSizes, "context_parallel_size: 2\nfine_grained_activation_offloading: true\n",
                 "NVTE_CPU_OFFLOAD_V1") == "1");
  CHECK(value_of(kSizes,
                 "context_parallel_size: 2\ncuda_graph_impl: transformer_engine\n"
                 "env: {PYTORCH_CUDA_ALLOC_CONF: 'expandable_segments:True'}\n",
                 "NCCL_GRAPH_REGISTER") == "0");
  const Environment deterministic = environment_of(kSizes, "context_parallel_size: 2\ndeterministic_mode: true\n");
  CHECK(value_of(deterministic, "NCCL_ALGO") == "Ring");
  CHECK(value_of(deterministic, "NVTE_ALLOW_NONDETERMINISTIC_ALGO") == "0");
  CHECK(value_of(deterministic, "CUBLAS_WORKSPACE_CONFIG") == ":4096:8");
}

TEST_CASE("HybridEP is told how far NVLink reaches") {
  const auto values = [](std::string_view base, std::string_view arch) {
    const Environment environment = environment_of(
        base, std::string("expert_model_parallel_size: 16\nexpert_tensor_parallel_size: 1\nnum_experts: 16\n"
                          "moe_token_dispatcher_type: flex\nmoe_flex_dispatcher_backend: hybridep\ngpu_arch: ") +
                  std::string(arch) + "\n");
    return value_of(environment, "NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN") + ' ' +
           value_of(environment, "NVLINK_DOMAIN_SIZE") + ' ' + value_of(environment, "USE_MNNVL") + ' ' +
           value_of(environment, "NVTE_FWD_LAYERNORM_SM_MARGIN");
  };
  CHECK(values(kSizes, "hopper") == "8 8 0 20");
  CHECK(values("world_size: 32\ngpus_per_node: 4\n", "blackwell") == "16 72 1 20");
  CHECK(values("world_size: 32\ngpus_per_node: 4\n", "hopper") == "8 8 0 20");
}

TEST_CASE("a variable of the input wins, and one that upstream refuses is an error") {
  CHECK(value_of(kSizes,
                 "tensor_model_parallel_size: 2\ngpu_arch: blackwell\nenv: {CUDA_DEVICE_MAX_CONNECTIONS: '8'}\n",
                 "CUDA_DEVICE_MAX_CONNECTIONS") == "8");
  const std::string tp = "tensor_model_parallel_size: 2\ngpu_arch: hopper\n";
  CHECK(broken(kSizes, tp + "env: {CUDA_DEVICE_MAX_CONNECTIONS: '1'}\n") == "");
  CHECK(broken(kSizes, tp + "env: {CUDA_DEVICE_MAX_CONNECTIONS: '8'}\n") == "!cdmc-one-required");
  CHECK(broken(kSizes, tp + "use_megatron_fsdp: true\nenv: {CUDA_DEVICE_MAX_CONNECTIONS: '1'}\n") ==
        "!cdmc-not-one-mfsdp");
  CHECK(broken(kGtp, "gpu_arch: blackwell\ncuda_graph_impl: local\nenv: {CUDA_GRAPHS_USE_NODE_PRIORITY: '0'}\n") ==
        "!gtp-graph-node-priority");
  CHECK(broken(kGtp, "gpu_arch: hopper\ncuda_graph_impl: local\nenv: {CUDA_DEVICE_MAX_CONNECTIONS: '8'}\n") ==
        "cdmc-gtp-graphs-hint");
  CHECK(broken(kGtp, "env: {NCCL_PROTO: Simple}\n") == "gtp-nccl-proto-simple");
  CHECK(broken(kGtp, "env: {NCCL_PROTO: LL128}\n") == "");
  CHECK(broken(kGtp, "env: {NVTE_APPLY_QK_LAYER_SCALING: '1'}\n") == "!nvte-qk-layer-scaling-env");
  const std::string same = "context_parallel_size: 2\ngpu_arch: blackwell\ndeterministic_mode: true\n";
  CHECK(broken(kSizes, same + "env: {NCCL_ALGO: 'Ring, ^NVLS'}\n") == "");
  CHECK(broken(kSizes, same + "env: {NCCL_ALGO: 'Ring,Tree'}\n") == "!determinism-nccl-algo");
  CHECK(broken(kSizes, same + "env: {CUBLAS_WORKSPACE_CONFIG: ':16:8', MAMBA_DETERMINISTIC: '0'}\n") ==
        "!determinism-env-values");
}

TEST_CASE("names that no shell exports, and those that a launcher sets, are not exported") {
  CHECK(broken(kGtp, "env: {'A;B': x, 'a b': y, UID: '0', '': z}\n") ==
        "!variable-name !variable-name !variable-name !variable-name");
  const Environment launchers = environment_of(kGtp, "env: {RANK: '3', MASTER_ADDR: h, MINE: '1'}\n");
  CHECK(launchers.problems.size() == 2);
  CHECK(!has_errors(launchers.problems));
  CHECK(value_of(launchers, "RANK") == "unset");
  CHECK(value_of(launchers, "MINE") == "1");
}

TEST_CASE("every variable has its reason, once, in the order of names") {
  const Environment environment =
      environment_of(kGtp,
                     "gpu_arch: blackwell\ncuda_graph_impl: local\npipeline_model_parallel_size: 2\nnum_layers: "
                     "4\nenv: {B: '1', B: '2', A: x}\n");
  for (std::size_t i = 0; i < environment.list.size(); ++i) {
    CHECK(!environment.list[i].why.empty());
    if (i > 0) CHECK(environment.list[i - 1].name < environment.list[i].name);
  }
  CHECK(value_of(environment, "B") == "2");
  const cli::Launch launch = launch_of(std::string(kGtp) + "gpu_arch: blackwell\ncuda_graph_impl: local\n");
  CHECK(file_of(launch, "env.sh")
            .find("# captured graphs must keep the priority of GTP's streams [gtp-graph-node-priority, "
                  "megatron/training/arguments.py:1540]\nexport CUDA_GRAPHS_USE_NODE_PRIORITY=1\n") !=
        std::string::npos);
}
