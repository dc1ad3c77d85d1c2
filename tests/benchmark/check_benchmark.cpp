// Engine check of one configuration, and the whole `gtplan check` process beside /bin/true and reading the same file.
#include <benchmark/benchmark.h>
#include <spawn.h>
#include <sys/wait.h>

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtp/check.hpp>

#include "validators/load.hpp"

extern char** environ;

namespace {

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

void spawn(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", 1 /* O_WRONLY */, 0);
  pid_t child = 0;
  const int failed = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (failed != 0 || waitpid(child, &status, 0) != child || status != 0) throw std::runtime_error(words[0]);
}

void process(benchmark::State& state, std::vector<std::string> words) {
  for (auto _ : state) spawn(words);
}

}  // namespace

BENCHMARK(load)->Unit(benchmark::kMicrosecond);
BENCHMARK(engine_check)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(process, bin_true, {"/bin/true"})->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(process, cat_the_file, {"/bin/cat", kExample})->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(process, gtplan_check, {GTPLAN_BINARY, "check", kExample})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

BENCHMARK_MAIN();
