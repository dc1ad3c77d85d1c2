// Engine check of one configuration, and the whole `gtplan check` process beside /bin/true and reading the same files.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <gtp/check.hpp>

#include "tests/benchmark/spawn.hpp"
#include "validators/load.hpp"

namespace {

namespace fs = std::filesystem;

const std::string kExample = std::string(GTP_SOURCE_ROOT) + "/examples/dense_gtp.yaml";

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

gtp::LoadRequest request() {
  gtp::LoadRequest request;
  request.config = gtp::Text{kExample, read_file(kExample)};
  return request;
}

void load(benchmark::State& state) {
  const gtp::LoadRequest input = request();
  for (auto _ : state) benchmark::DoNotOptimize(gtp::load(input));
}

void engine_check(benchmark::State& state) {
  const gtp::Loaded loaded = gtp::load(request());
  for (auto _ : state) benchmark::DoNotOptimize(gtp::check(loaded.config));
}

void process(benchmark::State& state, std::vector<std::string> words) {
  for (auto _ : state) spawn(words);
}

/// A folder with many copies of the example, gone at the end.
class Folder {
 public:
  static constexpr std::int64_t kFiles = 2000;

  Folder() : path_(fs::temp_directory_path() / fmt::format("gtplan-benchmark-{}", ::getpid())) {
    fs::create_directory(path_);
    for (std::int64_t i = 0; i < kFiles; ++i) fs::copy_file(kExample, path_ / fmt::format("{}.yaml", i));
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string path() const { return path_.string(); }
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(path_)) files.push_back(entry.path().string());
    return files;
  }

 private:
  fs::path path_;
};

void whole_folder(benchmark::State& state, const char* format) {
  const Folder folder;
  process(state, {GTPLAN_BINARY, "check", "--no-project", "--format", format, folder.path()});
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()) * Folder::kFiles);
}

void cat_folder(benchmark::State& state) {
  const Folder folder;
  std::vector<std::string> words = folder.files();
  words.insert(words.begin(), "/bin/cat");
  process(state, std::move(words));
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()) * Folder::kFiles);
}

}  // namespace

BENCHMARK(load)->Unit(benchmark::kMicrosecond);
BENCHMARK(engine_check)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(process, bin_true, {"/bin/true"})->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(process, cat_the_file, {"/bin/cat", kExample})->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(process, gtplan_check, {GTPLAN_BINARY, "check", kExample})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(whole_folder, text, "text")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(whole_folder, concise, "concise")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(whole_folder, json, "json")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(cat_folder)->Unit(benchmark::kMillisecond)->UseRealTime();

BENCHMARK_MAIN();
