// Inputs that lead to other files, and scripts.
#include <doctest/doctest.h>

#include <string>

#include "tests/cli/gtplan.hpp"

using namespace gtp::test;

namespace {

const char* const kBase =
    "policy:\n  megatron_cfg:\n    enabled: true\n    tensor_model_parallel_size: 2\n    context_parallel_size: 3\n"
    "cluster:\n  num_nodes: 1\n  gpus_per_node: 8\n";

}  // namespace

TEST_CASE("a NeMo-RL file is read with the files that it builds on and errors stand in theirs") {
  const Folder folder;
  std::filesystem::create_directory(folder.path() / "recipes");
  folder.file("base.yaml", kBase);
  const std::string recipe = folder.file("recipes/a.yaml", "defaults: ../base.yaml\ncluster:\n  num_nodes: 2\n");
  const auto outcome = gtplan({"check", "--format", "concise", recipe});
  CHECK(outcome.exit == 1);
  CHECK(outcome.output.find("recipes/a.yaml:3:14: error[GTP951]") != std::string::npos);
  CHECK(gtplan({"check", "--world-size", "12", recipe}).exit == 0);
}

TEST_CASE("a file of the chain that is missing is told at its name") {
  const Folder folder;
  const std::string recipe = folder.file("a.yaml", "defaults: no.yaml\n");
  const auto outcome = gtplan({"check", "--format", "concise", recipe});
  CHECK(outcome.exit == 2);
  CHECK(outcome.output.find("a.yaml:1:11: error[GTP901]") != std::string::npos);
  CHECK(outcome.output.find("`no.yaml`: no such file or directory") != std::string::npos);
  const std::string loop = folder.file("loop.yaml", "defaults: ./loop.yaml\n");
  CHECK(gtplan({"check", loop}).exit == 2);
  CHECK(gtplan({"check", folder.file("folder.yaml", "defaults: ./folder.yaml/x.yaml\n")}).exit == 2);
}

TEST_CASE("a launch script is checked and nothing in it is run") {
  const Folder folder;
  const std::string mark = (folder.path() / "mark").string();
  const std::string script = folder.file("train.sh", "touch " + mark + "\nTP=$(touch " + mark +
                                                         "; echo 2)\nN=${N:-8}\n"
                                                         "torchrun --nproc-per-node $N pretrain_gpt.py "
                                                         "--tensor-model-parallel-size 3 --bf16\n");
  const auto outcome = gtplan({"check", "--format", "concise", script});
  CHECK(outcome.exit == 1);
  CHECK(outcome.output.find("train.sh:3:8: error[GTP021]") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(mark));
}

TEST_CASE("variables of --env-file are those of the job") {
  const Folder folder;
  const std::string script =
      folder.file("train.sh", "torchrun --nproc-per-node $GPUS a.py --tensor-model-parallel-size 2\n");
  const std::string variables = folder.file("job.env", "GPUS=4\nNCCL_PROTO=LL128\n");
  const auto outcome = gtplan({"plan", "--env-file", variables, script});
  CHECK(outcome.output.find("\"NCCL_PROTO\": \"LL128\"") != std::string::npos);
  CHECK(outcome.output.find("\"world_size\": 4") != std::string::npos);
  CHECK(gtplan({"check", "--env-file", (folder.path() / "no").string(), script}).exit == 2);
  CHECK(gtplan({"check", "--input-format", "env", variables}).exit == 0);
}
