// A project file adds to the command line, for all files or for some, and never takes away from it.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "tests/cli/gtplan.hpp"

namespace {

using gtp::test::Folder;
using gtp::test::gtplan;

/// Wrong at 6 ranks (TP 4), right at 8.
constexpr const char* kConfig = "tensor_model_parallel_size: 4\n";

std::string concise(const Folder& folder, std::vector<std::string> words = {}) {
  words.insert(words.begin(), {"check", "--format", "concise"});
  return gtplan(words, folder.path().string()).output;
}

}  // namespace

TEST_CASE("a project file says what is checked, and at which size, file by file") {
  const Folder folder;
  std::filesystem::create_directories(folder.path() / "configs" / "large");
  folder.file("configs/a.yaml", kConfig);
  folder.file("configs/large/b.yaml", kConfig);
  folder.file(".gtplan.yaml",
              "configs: configs/\nworld-size: 8\nfiles:\n  - match: configs/large\n    world-size: 6\n");
  const std::string report = concise(folder);
  CHECK(report.find("configs/large/b.yaml") != std::string::npos);
  CHECK(report.find("GTP021") != std::string::npos);
  CHECK(report.find("configs/a.yaml:") == std::string::npos);
  CHECK(gtplan({"check"}, folder.path().string()).exit == 1);
}

TEST_CASE("the command line wins over a project file, and the last matching entry over the ones before") {
  const Folder folder;
  folder.file("a.yaml", kConfig);
  folder.file(".gtplan.yaml",
              "configs: [a.yaml]\nfiles:\n  - {match: '*.yaml', world-size: 6}\n  - {match: a.yaml, world-size: 8}\n");
  CHECK(gtplan({"check"}, folder.path().string()).exit == 0);
  CHECK(gtplan({"check", "--world-size", "6"}, folder.path().string()).exit == 1);
  CHECK(gtplan({"check", "--no-project", "a.yaml"}, folder.path().string()).exit == 0);
  folder.file("other.yaml", "world-size: 6\n");
  CHECK(gtplan({"check", "--project", "other.yaml", "a.yaml"}, folder.path().string()).exit == 1);
}

TEST_CASE("a project names the cluster and the environment that its configurations run in") {
  const Folder folder;
  folder.file("a.yaml", "world_size: 16\ntensor_model_parallel_size: 4\n");
  folder.file("job.env", "CUDA_DEVICE_MAX_CONNECTIONS=1\n");
  const auto without = gtplan({"check", "--format", "json", "a.yaml"}, folder.path().string()).output;
  folder.file(".gtplan.yaml", "cluster: h100-8\nfiles:\n  - {match: a.yaml, env-file: job.env}\n");
  const auto with = gtplan({"check", "--format", "json", "a.yaml"}, folder.path().string()).output;
  const std::string needs_hardware = R"("gpu_arch")", needs_environment = R"("needs": ["env")";
  CHECK(without.find(needs_hardware) != std::string::npos);
  CHECK(without.find(needs_environment) != std::string::npos);
  CHECK(with.find(needs_hardware) == std::string::npos);
  CHECK(with.find(needs_environment) == std::string::npos);
  CHECK(gtplan({"check", "--no-project", "--format", "json", "a.yaml"}, folder.path().string()).output == without);
}

TEST_CASE("rules that a project ignores are not reported, and strictness holds") {
  const Folder folder;
  folder.file("a.yaml",
              "tensor_parallel_num_weight_shards: 2\nnum_layers: 2\nuntie_embeddings_and_output_weights: true\n");
  CHECK(concise(folder, {"a.yaml"}).find("GTP011") != std::string::npos);
  folder.file(".gtplan.yaml", "strict: true\n");
  CHECK(gtplan({"check", "a.yaml"}, folder.path().string()).exit == 1);
  folder.file(".gtplan.yaml", "strict: true\nignore: [GTP011, GTP015]\n");
  CHECK(concise(folder, {"a.yaml"}).find("GTP011") == std::string::npos);
}

TEST_CASE("a mistake in a project file is named with its place") {
  const Folder folder;
  folder.file("a.yaml", kConfig);
  folder.file(".gtplan.yaml", "strict: true\nworld-sise: 8\n");
  const auto outcome = gtplan({"check", "a.yaml"}, folder.path().string());
  CHECK(outcome.exit == 2);
  CHECK(outcome.error.find(".gtplan.yaml:2:1: `world-sise` is no key of a project file") != std::string::npos);
  CHECK(outcome.error.find("world-size") != std::string::npos);
  folder.file(".gtplan.yaml", "files:\n  - strict: true\n");
  CHECK(gtplan({"check", "a.yaml"}, folder.path().string()).exit == 2);
  folder.file(".gtplan.yaml", "strict: maybe\n");
  CHECK(gtplan({"check", "a.yaml"}, folder.path().string()).exit == 2);
  folder.file(".gtplan.yaml", "[1, 2");
  CHECK(gtplan({"check", "a.yaml"}, folder.path().string()).exit == 2);
}
