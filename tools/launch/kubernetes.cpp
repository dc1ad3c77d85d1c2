// Kubernetes manifests: TrainJob, JobSet, and PyTorchJob for old clusters.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>

#include "tools/launch/bridge.hpp"
#include "tools/launch/job.hpp"
#include "tools/launch/quote.hpp"

namespace gtp::cli {

namespace {

/// Any text that Kubernetes hands on as it is.
std::string scalar(std::string_view text) { return yaml_quoted(kubernetes_escaped(text)); }

/// The words after `torchrun`'s own. No file travels with a manifest, so the groups are named as an argument.
std::vector<std::string> trainer_words(const Job& job) {
  std::vector<std::string> words{job.options.script};
  if (job.bridge() && !job.options.recipe.empty()) words.insert(words.end(), {"--recipe", job.options.recipe});
  for (const TrainerArgument& argument : job.arguments) words.insert(words.end(), argument.begin(), argument.end());
  if (job.high_priority.empty()) return words;
  if (job.bridge()) {
    words.push_back("dist.high_priority_stream_groups=" + hydra_list(job.high_priority));
  } else {
    words.emplace_back("--high-priority-stream-groups");
    words.insert(words.end(), job.high_priority.begin(), job.high_priority.end());
  }
  return words;
}

/// `key:` and a list of words at a depth of that many spaces.
std::string list(std::size_t depth, std::string_view key, const std::vector<std::string>& words) {
  std::string text = fmt::format("{:{}}{}:\n", "", depth, key);
  for (const std::string& word : words) text += fmt::format("{:{}}- {}\n", "", depth + 2, word);
  return text;
}

std::string arguments(const Job& job, std::size_t depth, std::vector<std::string> words) {
  for (const std::string& word : trainer_words(job)) words.push_back(scalar(word));
  return list(depth, "args", words);
}

std::string environment(const Job& job, std::size_t depth) {
  if (job.environment.list.empty()) return {};
  std::string text = fmt::format("{:{}}env:\n", "", depth);
  for (const Assignment& variable : job.environment.list)
    text += fmt::format("{0:{1}}# {2}\n{0:{1}}- name: {3}\n{0:{1}}  value: {4}\n", "", depth + 2,
                        comment_text(variable.why), yaml_quoted(variable.name), scalar(variable.value));
  return text;
}

std::string gpus(const Job& job, std::size_t depth, std::string_view key) {
  return fmt::format("{:{}}{}:\n{:{}}limits:\n{:{}}nvidia.com/gpu: {}\n", "", depth, key, "", depth + 2, "", depth + 4,
                     job.processes_per_node);
}

std::string metadata(const Job& job) {
  return fmt::format("metadata:\n  name: {}\n", yaml_quoted(job.options.job_name));
}

std::string train_job(const Job& job) {
  return "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\n" + metadata(job) +
         fmt::format(
             "spec:\n"
             "  runtimeRef:\n"
             "    apiGroup: trainer.kubeflow.org\n"
             "    kind: ClusterTrainingRuntime\n"
             "    name: torch-distributed\n"
             "  trainer:\n"
             "    image: {}\n    numNodes: {}\n    numProcPerNode: {}\n    command: [torchrun]\n",
             scalar(job.options.image), job.nodes, job.processes_per_node) +
         arguments(job, 4, {}) + environment(job, 4) + gpus(job, 4, "resourcesPerNode");
}

std::string container(const Job& job, std::size_t depth, std::string_view name, std::vector<std::string> words) {
  return fmt::format("{0:{1}}- name: {2}\n{0:{1}}  image: {3}\n{0:{1}}  command: [torchrun]\n", "", depth, name,
                     yaml_quoted(job.options.image)) +
         arguments(job, depth + 2, std::move(words)) + environment(job, depth + 2) + gpus(job, depth + 2, "resources");
}

/// The controller of jobs numbers the nodes; the first one is where all meet.
std::string job_set(const Job& job) {
  const std::vector<std::string> torchrun{
      yaml_quoted(fmt::format("--nnodes={}", job.nodes)),
      yaml_quoted(fmt::format("--nproc-per-node={}", job.processes_per_node)),
      yaml_quoted("--node-rank=$(JOB_COMPLETION_INDEX)"),
      yaml_quoted(fmt::format("--master-addr={0}-node-0-0.{0}", job.options.job_name)),
      yaml_quoted(fmt::format("--master-port={}", job.options.master_port))};
  return "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\n" + metadata(job) +
         fmt::format(
             "spec:\n"
             "  replicatedJobs:\n"
             "    - name: node\n"
             "      replicas: 1\n"
             "      template:\n"
             "        spec:\n"
             "          parallelism: {0}\n"
             "          completions: {0}\n"
             "          completionMode: Indexed\n"
             "          backoffLimit: 0\n"
             "          template:\n"
             "            spec:\n"
             "              restartPolicy: Never\n"
             "              containers:\n",
             job.nodes) +
         container(job, 16, "trainer", torchrun);
}

std::string replicas(const Job& job, std::string_view role, std::int64_t count) {
  return fmt::format(
             "    {}:\n"
             "      replicas: {}\n"
             "      restartPolicy: Never\n"
             "      template:\n"
             "        spec:\n"
             "          containers:\n",
             role, count) +
         container(job, 12, "pytorch", {});
}

std::string pytorch_job(const Job& job) {
  std::string text = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\n" + metadata(job) +
                     fmt::format("spec:\n  nprocPerNode: \"{}\"\n  pytorchReplicaSpecs:\n", job.processes_per_node) +
                     replicas(job, "Master", 1);
  if (job.nodes > 1) text += replicas(job, "Worker", job.nodes - 1);
  return text;
}

}  // namespace

std::string kubernetes_manifest(const Job& job) {
  switch (job.options.kubernetes_kind) {
    case KubernetesKind::TrainJob:
      return heading(job, "Kubeflow TrainJob") + train_job(job);
    case KubernetesKind::JobSet:
      return heading(job, "JobSet: a pod a node, each of them a torchrun") + job_set(job);
    case KubernetesKind::PyTorchJob:
      return heading(job, "Kubeflow PyTorchJob, for clusters without TrainJob") + pytorch_job(job);
  }
  return {};
}

}  // namespace gtp::cli
