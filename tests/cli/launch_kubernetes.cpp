// Manifests have what their kinds require, and say the same as the scripts.
#include <doctest/doctest.h>

#include "tests/cli/launch.hpp"
#include "validators/yaml_events.hpp"

namespace {

using namespace gtp;
using namespace gtp::test;
using cli::KubernetesKind;
using readers::Kind;
using readers::Node;

constexpr std::string_view kJob =
    "world_size: 16\ngpus_per_node: 4\ngpu_arch: blackwell\ntensor_model_parallel_size: 2\n"
    "tensor_parallel_num_weight_shards: 4\nadd_bias_linear: false\nuntie_embeddings_and_output_weights: true\n";

class Manifest {
 public:
  Manifest(std::string_view config, KubernetesKind kind, std::string_view name, cli::LaunchOptions options = {}) {
    options.launcher = cli::Launcher::Kubernetes;
    options.kubernetes_kind = kind;
    Diagnostics out;
    const auto root = readers::read_yaml({"m.yaml", file_of(launch_of(config, options), name)}, 0, out);
    CHECK(out.empty());
    REQUIRE(root.has_value());
    root_ = *root;
  }

  /// The value at a path of keys and indices such as `spec.items.0.name`.
  [[nodiscard]] const Node& at(std::string_view path) const {
    const Node* node = &root_;
    for (std::size_t begin = 0; begin <= path.size();) {
      const std::size_t end = std::min(path.find('.', begin), path.size());
      const std::string key(path.substr(begin, end - begin));
      if (node->kind == Kind::List)
        node = &node->items.at(static_cast<std::size_t>(std::stoi(key)));
      else
        node = readers::find(*node, key);
      REQUIRE_MESSAGE(node != nullptr, path);
      begin = end + 1;
    }
    return *node;
  }
  [[nodiscard]] std::string text(std::string_view path) const { return at(path).text; }
  [[nodiscard]] std::vector<std::string> list(std::string_view path) const {
    std::vector<std::string> texts;
    for (const Node& item : at(path).items) {
      CHECK(item.kind == Kind::Scalar);
      texts.push_back(item.text);
    }
    return texts;
  }

 private:
  Node root_;
};

const std::vector<std::string> kWords{"pretrain_gpt.py",
                                      "--tensor-model-parallel-size",
                                      "2",
                                      "--tensor-parallel-num-weight-shards",
                                      "4",
                                      "--disable-bias-linear",
                                      "--untie-embeddings-and-output-weights",
                                      "--high-priority-stream-groups",
                                      "gtp_remat"};

bool is_quoted(const Node& node) { return node.quoted; }

void check_variables(const Node& env) {
  REQUIRE(env.kind == Kind::List);
  CHECK(!env.items.empty());
  bool queues = false;
  for (const Node& variable : env.items) {
    const Node* name = readers::find(variable, "name");
    const Node* value = readers::find(variable, "value");
    REQUIRE((name != nullptr && value != nullptr));
    CHECK(is_quoted(*value));  // the API takes no numbers here
    queues = queues || (name->text == "CUDA_DEVICE_MAX_CONNECTIONS" && value->text == "32");
  }
  CHECK(queues);
}

}  // namespace

TEST_CASE("a TrainJob has nodes, processes, the command and its arguments") {
  const Manifest m(kJob, KubernetesKind::TrainJob, "trainjob.yaml");
  CHECK(m.text("apiVersion") == "trainer.kubeflow.org/v1alpha1");
  CHECK(m.text("kind") == "TrainJob");
  CHECK(m.text("metadata.name") == "gtp-16");
  CHECK(m.text("spec.runtimeRef.name") == "torch-distributed");
  CHECK(m.text("spec.trainer.image") == "nvcr.io/nvidia/nemo:26.06");
  CHECK(m.text("spec.trainer.numNodes") == "4");
  CHECK(m.text("spec.trainer.numProcPerNode") == "4");
  CHECK(!m.at("spec.trainer.numNodes").quoted);
  CHECK(m.list("spec.trainer.command") == std::vector<std::string>{"torchrun"});
  CHECK(m.list("spec.trainer.args") == kWords);
  for (const Node& word : m.at("spec.trainer.args").items) CHECK(word.quoted);
  const Node* gpus = readers::find(m.at("spec.trainer.resourcesPerNode.limits"), "nvidia.com/gpu");
  REQUIRE(gpus != nullptr);
  CHECK(gpus->text == "4");
  check_variables(m.at("spec.trainer.env"));
}

TEST_CASE("a JobSet has a pod a node that knows its number and the first one") {
  const Manifest m(kJob, KubernetesKind::JobSet, "jobset.yaml");
  CHECK(m.text("apiVersion") == "jobset.x-k8s.io/v1alpha2");
  CHECK(m.text("kind") == "JobSet");
  CHECK(m.text("spec.replicatedJobs.0.name") == "node");
  const std::string job = "spec.replicatedJobs.0.template.spec.", pod = job + "template.spec.containers.0.";
  CHECK(m.text(job + "parallelism") == "4");
  CHECK(m.text(job + "completions") == "4");
  CHECK(m.text(job + "completionMode") == "Indexed");
  CHECK(m.text(job + "template.spec.restartPolicy") == "Never");
  CHECK(m.text(pod + "name") == "trainer");
  CHECK(m.list(pod + "command") == std::vector<std::string>{"torchrun"});
  std::vector<std::string> words{"--nnodes=4", "--nproc-per-node=4", "--node-rank=$(JOB_COMPLETION_INDEX)",
                                 "--master-addr=gtp-16-node-0-0.gtp-16", "--master-port=29500"};
  words.insert(words.end(), kWords.begin(), kWords.end());
  CHECK(m.list(pod + "args") == words);
  check_variables(m.at(pod + "env"));
}

TEST_CASE("a PyTorchJob has one master, and workers only where there are further nodes") {
  const Manifest m(kJob, KubernetesKind::PyTorchJob, "pytorchjob.yaml");
  CHECK(m.text("apiVersion") == "kubeflow.org/v1");
  CHECK(m.text("kind") == "PyTorchJob");
  CHECK(m.text("spec.nprocPerNode") == "4");
  CHECK(m.at("spec.nprocPerNode").quoted);
  for (const auto& [role, count] : {std::pair("Master", "1"), std::pair("Worker", "3")}) {
    const std::string replicas = std::string("spec.pytorchReplicaSpecs.") + role + '.';
    CHECK(m.text(replicas + "replicas") == count);
    CHECK(m.text(replicas + "template.spec.containers.0.name") == "pytorch");
    CHECK(m.list(replicas + "template.spec.containers.0.args") == kWords);
    check_variables(m.at(replicas + "template.spec.containers.0.env"));
  }
  const Manifest one("world_size: 4\ngpus_per_node: 4\ncontext_parallel_size: 2\ngpu_arch: blackwell\n",
                     KubernetesKind::PyTorchJob, "pytorchjob.yaml");
  CHECK(readers::find(one.at("spec.pytorchReplicaSpecs"), "Worker") == nullptr);
}

TEST_CASE("a manifest holds hostile values so that Kubernetes expands nothing in them") {
  const std::string config =
      R"({"world_size": 4, "gpus_per_node": 4, "context_parallel_size": 2, "gpu_arch": "blackwell",
          "load": "$(HOME) $$\n\"'", "env": {"X": "$(PATH) $$(Y)\n- z"}})";
  for (const auto& [kind, name, pod] :
       {std::tuple(KubernetesKind::TrainJob, "trainjob.yaml", "spec.trainer."),
        std::tuple(KubernetesKind::JobSet, "jobset.yaml",
                   "spec.replicatedJobs.0.template.spec.template.spec.containers.0.")}) {
    const Manifest m(config, kind, name, {.script = "a $(b)\n.py", .image = "i: #\n\"x\""});
    const auto words = m.list(std::string(pod) + "args");
    CHECK(std::find(words.begin(), words.end(), "$$(HOME) $$$$\n\"'") != words.end());
    CHECK(std::find(words.begin(), words.end(), "a $$(b)\n.py") != words.end());
    CHECK(m.text(std::string(pod) + "image") == "i: #\n\"x\"");
    bool found = false;
    for (const Node& variable : m.at(std::string(pod) + "env").items)
      found = found || readers::find(variable, "value")->text == "$$(PATH) $$$$(Y)\n- z";
    CHECK(found);
  }
}

TEST_CASE("the communicators of GTP have high priority in a file that upstream reads") {
  const auto groups = [](std::string_view config) {
    Diagnostics out;
    const auto root = readers::read_yaml({"n.yaml", file_of(launch_of(config), "nccl_comm.yaml")}, 0, out);
    REQUIRE(root.has_value());
    std::vector<std::string> names;
    for (const readers::Entry& entry : root->entries) {
      CHECK(readers::find(entry.value, "is_high_priority_stream")->text == "true");
      names.push_back(entry.key);
    }
    return names;
  };
  CHECK(groups(kJob) == std::vector<std::string>{"gtp_remat"});
  CHECK(groups("world_size: 16\ngpus_per_node: 4\nexpert_tensor_parallel_size: 1\n"
               "expert_tensor_parallel_num_weight_shards: 2\nhigh_priority_stream_groups: [ep, tp]\n") ==
        std::vector<std::string>{"ep", "tp", "gtp_remat", "expt_gtp_remat"});
}

TEST_CASE("a file of communicators that the input names is left alone") {
  const cli::Launch launch = launch_of(std::string(kJob) + "nccl_communicator_config_path: mine.yaml\n");
  for (const cli::OutputFile& file : launch.files) CHECK(file.path != "nccl_comm.yaml");
  CHECK(file_of(launch, "launch.sh").find("$folder/nccl") == std::string::npos);
  CHECK(file_of(launch, "train.args").find("--nccl-communicator-config-path mine.yaml\n") != std::string::npos);
}
