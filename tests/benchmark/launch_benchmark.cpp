// All files of a launch on 8,192 ranks: from the text of the configuration, and as a whole process that writes them.
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/benchmark/spawn.hpp"
#include "tools/launch/launch.hpp"

namespace {

constexpr const char* kConfig =
    "world_size: 8192\ngpus_per_node: 8\ngpu_arch: blackwell\ntensor_model_parallel_size: 2\n"
    "tensor_parallel_num_weight_shards: 16\npipeline_model_parallel_size: 8\nexpert_model_parallel_size: 32\n"
    "expert_tensor_parallel_size: 1\nexpert_tensor_parallel_num_weight_shards: 2\nnum_experts: 128\nnum_layers: 64\n"
    "add_bias_linear: false\nuntie_embeddings_and_output_weights: true\nsequence_parallel: true\n"
    "micro_batch_size: 1\nglobal_batch_size: 4096\nbf16: true\nuse_distributed_optimizer: true\n";

void make(benchmark::State& state) {
  gtp::LoadRequest request;
  request.config = gtp::Text{"a.yaml", kConfig};
  std::size_t bytes = 0;
  for (auto _ : state) {
    gtp::cli::Checked checked(gtp::kDefaultTarget);
    checked.loaded = gtp::load(request);
    checked.report.emplace(gtp::check(checked.loaded.config));
    if (gtp::has_errors(checked.report->diagnostics)) throw std::runtime_error("the configuration is not valid");
    const gtp::cli::Launch launch = gtp::cli::make_launch(checked, {.launcher = gtp::cli::Launcher::Slurm});
    bytes = 0;
    for (const gtp::cli::OutputFile& file : launch.files) bytes += file.text.size();
  }
  state.counters["bytes"] = static_cast<double>(bytes);
}

void process(benchmark::State& state) {
  std::string folder = (std::filesystem::temp_directory_path() / "gtplan-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  const std::string config = folder + "/a.yaml";
  std::ofstream(config) << kConfig;
  for (auto _ : state)
    spawn({GTPLAN_BINARY, "launch", config, "--launcher", "slurm", "-o", folder + "/job", "--force"});
  std::filesystem::remove_all(folder);
}

}  // namespace

BENCHMARK(make)->Unit(benchmark::kMillisecond);
BENCHMARK(process)->Unit(benchmark::kMillisecond)->UseRealTime();

BENCHMARK_MAIN();
