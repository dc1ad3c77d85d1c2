// The scripts are run: into stand-ins that record every byte they are given, and, for `local`, into real processes.
#include <doctest/doctest.h>

#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "tests/cli/launch.hpp"

namespace {

using namespace gtp;
using namespace gtp::test;
using cli::Launch;
using cli::Launcher;
using cli::LaunchFramework;

namespace fs = std::filesystem;

constexpr auto kReadAll = fs::perms::owner_all;

constexpr std::string_view kSixteen =
    "world_size: 16\ngpus_per_node: 8\ngpu_arch: blackwell\ntensor_model_parallel_size: 2\n"
    "tensor_parallel_num_weight_shards: 4\nadd_bias_linear: false\nuntie_embeddings_and_output_weights: true\n"
    "num_layers: 8\n";

/// One invocation of a stand-in: its arguments, and what it was exported.
struct Call {
  std::vector<std::string> words;
  std::map<std::string, std::string> environment;
};

/// Programs under the names that scripts call, and the files of a launch.
class Stage {
 public:
  Stage() {
    fs::create_directory(folder_.path() / "bin");
    fs::create_directory(folder_.path() / "calls");
    fs::create_directory(folder_.path() / "job");
    program(
        "recorder",
        "call=$(mktemp -d \"$CALLS/XXXXXX\")\nprintf '%s\\0' \"$@\" >\"$call/words\"\nenv -0 >\"$call/environment\"\n");
    for (const char* name : {"torchrun", "python3"}) fs::copy_file(bin("recorder"), bin(name));
    program("scontrol", "[ \"$1 $2 $3\" = 'show hostnames node[01-02]' ] || exit 9\nprintf 'node01\\nnode02\\n'\n");
    // Starts every task in turn, as Slurm numbers them.
    program(
        "srun",
        "printf '%s\\n' \"$@\" >\"$CALLS/srun\"\nwhile :; do\n  case $1 in --nodes=*) nodes=${1#*=} ;; "
        "--ntasks=*) tasks=${1#*=} ;; --*) ;; *) break ;; esac\n  shift\ndone\n"
        "for ((task = 0; task < tasks; task++)); do\n  SLURM_PROCID=$task SLURM_LOCALID=$((task % (tasks / nodes))) "
        "SLURM_NODEID=$((task / (tasks / nodes))) \"$@\" || exit\ndone\n");
  }

  void put(const Launch& launch) const {
    REQUIRE(!launch.files.empty());
    for (const cli::OutputFile& file : launch.files) {
      write_file(job() / file.path, file.text);
      if (file.executable) fs::permissions(job() / file.path, kReadAll);
    }
  }

  Outcome start(const std::string& script, std::vector<std::string> environment = {},
                std::vector<std::string> words = {}) const {
    words.insert(words.begin(), (job() / script).string());
    environment.insert(environment.end(), {"PATH=" + (folder_.path() / "bin").string() + ":/usr/bin:/bin",
                                           "CALLS=" + (folder_.path() / "calls").string(),
                                           "SLURM_JOB_NODELIST=node[01-02]", "SLURM_SUBMIT_DIR=" + job().string()});
    return run({.words = std::move(words), .folder = folder_.path().string(), .environment = std::move(environment)});
  }

  [[nodiscard]] std::vector<Call> calls() const {
    std::vector<Call> calls;
    for (const auto& entry : fs::directory_iterator(folder_.path() / "calls")) {
      if (!entry.is_directory()) continue;
      Call& call = calls.emplace_back();
      call.words = zero_terminated(read_file(entry.path() / "words"));
      for (const std::string& variable : zero_terminated(read_file(entry.path() / "environment")))
        call.environment[variable.substr(0, variable.find('='))] = variable.substr(variable.find('=') + 1);
    }
    return calls;
  }

  [[nodiscard]] fs::path job() const { return folder_.path() / "job"; }
  [[nodiscard]] fs::path path() const { return folder_.path(); }

 private:
  [[nodiscard]] fs::path bin(const std::string& name) const { return folder_.path() / "bin" / name; }
  void program(const std::string& name, const std::string& body) const {
    write_file(bin(name), "#!/bin/bash\n" + body);
    fs::permissions(bin(name), kReadAll);
  }

  Folder folder_;
};

std::vector<std::string> after(const std::vector<std::string>& words, const std::string& word) {
  const auto at = std::find(words.begin(), words.end(), word);
  REQUIRE(at != words.end());
  return {at + 1, words.end()};
}

/// A configuration full of hostile values, and the words that must arrive.
struct Hostile {
  std::string text;
  std::vector<std::string> words;
  std::string variable;
};

std::string json_text(std::string_view text) {
  std::string out("\"");
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20U)
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    else
      out.append(c == '"' || c == '\\' ? 1 : 0, '\\').push_back(c);
  }
  return out + '"';
}

Hostile hostile() {
  Hostile made;
  std::string paths;
  made.words = {"--context-parallel-size", "2", "--load=-x y", "--data-path"};
  for (const std::string& text : hostile_texts()) {
    paths += (paths.empty() ? "" : ", ") + json_text(text);
    made.variable += text;
    made.words.push_back(text);
  }
  made.text = fmt::format(
      R"({{"world_size": 4, "gpus_per_node": 2, "gpu_arch": "blackwell", "context_parallel_size": 2, "load": "-x y",
      "data_path": [{}], "env": {{"HOSTILE": {}, "CUDA_DEVICE_MAX_CONNECTIONS": "32"}}}})",
      paths, json_text(made.variable));
  return made;
}

void check_hostile(const Hostile& made, const std::vector<Call>& calls, std::size_t count, const std::string& script) {
  REQUIRE(calls.size() == count);
  for (const Call& call : calls) {
    CHECK(after(call.words, script) == made.words);
    CHECK(call.environment.at("HOSTILE") == made.variable);
  }
}

std::string value_of(const std::vector<std::string>& words, std::string_view flag) {
  for (const std::string& word : words)
    if (word.starts_with(flag)) return word.substr(flag.size());
  return "absent";
}

bool exists(const char* program) { return fs::exists(fs::path("/usr/bin") / program); }

}  // namespace

TEST_CASE("torchrun on each host gets its place, the script and every argument") {
  Stage stage;
  stage.put(launch_of(kSixteen));
  const Outcome outcome = stage.start("launch.sh", {"NODE_RANK=1", "MASTER_ADDR=first"});
  CAPTURE(outcome.error);
  REQUIRE(outcome.exit == 0);
  REQUIRE(stage.calls().size() == 1);
  const Call call = stage.calls().front();
  const std::vector<std::string> words{"--nnodes=2",
                                       "--nproc-per-node=8",
                                       "--node-rank=1",
                                       "--master-addr=first",
                                       "--master-port=29500",
                                       "pretrain_gpt.py",
                                       "--tensor-model-parallel-size",
                                       "2",
                                       "--tensor-parallel-num-weight-shards",
                                       "4",
                                       "--disable-bias-linear",
                                       "--num-layers",
                                       "8",
                                       "--untie-embeddings-and-output-weights",
                                       "--nccl-communicator-config-path",
                                       (stage.job() / "nccl_comm.yaml").string()};
  CHECK(call.words == words);
  CHECK(call.environment.at("CUDA_DEVICE_MAX_CONNECTIONS") == "32");
  CHECK(call.environment.at("TORCH_NCCL_HIGH_PRIORITY") == "1");
}

TEST_CASE("a script of several hosts does not start without knowing which host it is") {
  Stage stage;
  stage.put(launch_of(kSixteen));
  CHECK(stage.start("launch.sh").exit != 0);
  CHECK(stage.calls().empty());
}

TEST_CASE("a Slurm job starts one torchrun on each node") {
  Stage stage;
  stage.put(launch_of(kSixteen, {.launcher = Launcher::Slurm, .master_port = 1234}));
  const Outcome outcome = stage.start("launch.sbatch");
  CAPTURE(outcome.error);
  REQUIRE(outcome.exit == 0);
  const std::vector<Call> calls = stage.calls();
  REQUIRE(calls.size() == 2);
  std::set<std::string> nodes;
  for (const Call& call : calls) {
    nodes.insert(value_of(call.words, "--node-rank="));
    CHECK(value_of(call.words, "--nnodes=") == "2");
    CHECK(value_of(call.words, "--nproc-per-node=") == "8");
    CHECK(value_of(call.words, "--master-addr=") == "node01");
    CHECK(value_of(call.words, "--master-port=") == "1234");
    CHECK(after(call.words, "pretrain_gpt.py").size() == 10);
  }
  CHECK(nodes == std::set<std::string>{"0", "1"});
  const std::string script = read_file(stage.job() / "launch.sbatch");
  for (const char* line : {"#SBATCH --nodes=2\n", "#SBATCH --ntasks-per-node=1\n", "#SBATCH --gpus-per-node=8\n"})
    CHECK(script.find(line) != std::string::npos);
}

TEST_CASE("a native Slurm job starts a process a rank with torchrun's variables") {
  Stage stage;
  stage.put(launch_of(kSixteen, {.launcher = Launcher::SlurmNative}));
  const Outcome outcome = stage.start("launch.sbatch");
  CAPTURE(outcome.error);
  REQUIRE(outcome.exit == 0);
  const std::vector<Call> calls = stage.calls();
  REQUIRE(calls.size() == 16);
  std::set<int> ranks;
  for (const Call& call : calls) {
    const int rank = std::stoi(call.environment.at("RANK"));
    ranks.insert(rank);
    CHECK(call.environment.at("WORLD_SIZE") == "16");
    CHECK(call.environment.at("LOCAL_RANK") == std::to_string(rank % 8));
    CHECK(call.environment.at("LOCAL_WORLD_SIZE") == "8");
    CHECK(call.environment.at("GROUP_RANK") == std::to_string(rank / 8));
    CHECK(call.environment.at("MASTER_ADDR") == "node01");
    CHECK(call.environment.at("MASTER_PORT") == "29500");
    CHECK(call.words.front() == "pretrain_gpt.py");
  }
  CHECK(ranks.size() == 16);
  CHECK(read_file(stage.path() / "calls" / "srun").find("--distribution=block\n") != std::string::npos);
  CHECK(read_file(stage.job() / "launch.sbatch").find("#SBATCH --ntasks-per-node=8\n") != std::string::npos);
}

TEST_CASE("a Slurm script that cannot find its folder says so and starts nothing") {
  Stage stage;
  stage.put(launch_of(kSixteen, {.launcher = Launcher::Slurm}));
  const Outcome outcome = stage.start("launch.sbatch", {"LAUNCH_FOLDER=/nowhere"});
  CHECK(outcome.exit == 2);
  CHECK(outcome.error.find("LAUNCH_FOLDER") != std::string::npos);
  CHECK(stage.calls().empty());
}

TEST_CASE("hostile values arrive byte for byte through every script, and nothing of them is run") {
  const Hostile made = hostile();
  const std::string script = "train $(touch PWNED) 'it'.py";
  struct Row {
    Launcher launcher;
    const char* file;
    std::size_t count;
  };
  for (const Row& row : {Row{Launcher::Torchrun, "launch.sh", 1}, Row{Launcher::Slurm, "launch.sbatch", 2},
                         Row{Launcher::SlurmNative, "launch.sbatch", 4}, Row{Launcher::Local, "local.sh", 4}}) {
    CAPTURE(row.file);
    Stage stage;
    const Launch launch = launch_of(made.text, {.launcher = row.launcher, .script = script});
    stage.put(launch);
    const Outcome outcome = stage.start(row.file, {"NODE_RANK=0", "MASTER_ADDR=a"});
    CAPTURE(outcome.error);
    REQUIRE(outcome.exit == 0);
    check_hostile(made, stage.calls(), row.count, script);
    for (const auto& entry : fs::recursive_directory_iterator(stage.path())) CHECK(entry.path().filename() != "PWNED");
    CHECK(launch.files.front().text.find("\r\n") == std::string::npos);
  }
}

TEST_CASE("the overrides of Megatron-Bridge arrive as written, with a warning that it does not wire GTP") {
  Stage stage;
  const Launch launch = launch_of(kSixteen, {.framework = LaunchFramework::MegatronBridge, .recipe = "my recipe"});
  stage.put(launch);
  const Outcome outcome = stage.start("launch.sh", {"NODE_RANK=0", "MASTER_ADDR=a"});
  CAPTURE(outcome.error);
  REQUIRE(outcome.exit == 0);
  const std::vector<std::string> words = after(stage.calls().at(0).words, "scripts/training/run_recipe.py");
  REQUIRE(words.size() > 8);
  CHECK(words[0] == "--recipe");
  CHECK(words[1] == "my recipe");
  for (const char* word : {"model.tensor_model_parallel_size=2", "model.pipeline_model_parallel_size=1",
                           "model.share_embeddings_and_output_weights=false", "model.num_layers=8"})
    CHECK_MESSAGE(std::find(words.begin(), words.end(), word) != words.end(), word);
  CHECK(words.back() == "dist.nccl_communicator_config_path='" + (stage.job() / "nccl_comm.yaml").string() + "'");
  REQUIRE(!launch.remarks.empty());
  CHECK(launch.remarks[0].find("does not wire GTP") != std::string::npos);
  for (const char* name : {"launch.sh", "train.overrides", "env.sh"})
    CHECK(file_of(launch, name).find("# WARNING: megatron-bridge@067f987d does not wire GTP") != std::string::npos);
}

TEST_CASE("without a recipe a script of Megatron-Bridge asks for one") {
  Stage stage;
  stage.put(launch_of(kSixteen, {.framework = LaunchFramework::MegatronBridge}));
  CHECK(stage.start("launch.sh", {"NODE_RANK=0", "MASTER_ADDR=a"}).error.find("RECIPE") != std::string::npos);
  REQUIRE(stage.start("launch.sh", {"NODE_RANK=0", "MASTER_ADDR=a", "RECIPE=r"}).exit == 0);
  CHECK(after(stage.calls().at(0).words, "--recipe").front() == "r");
}

TEST_CASE("a local launch starts as many processes as there are ranks, placed as `gtplan ranks` says") {
  Stage stage;
  const std::string config = (stage.path() / "a.yaml").string();
  write_file(config, kSixteen);
  stage.put(launch_of(kSixteen, {.launcher = Launcher::Local}));
  const Outcome outcome = stage.start("local.sh");
  CAPTURE(outcome.error);
  REQUIRE(outcome.exit == 0);
  const std::string ranks = gtplan({"ranks", config, "--format", "tsv"}).output;
  CHECK(read_file(stage.job() / "ranks.tsv") == ranks);
  std::map<std::string, std::pair<std::string, std::string>> places;  // rank -> host, local rank
  std::istringstream lines(ranks);
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    std::istringstream cells(line);
    std::string rank, host, local;
    cells >> rank >> host >> local;
    places[rank] = {host, local};
  }
  const std::vector<Call> calls = stage.calls();
  REQUIRE(calls.size() == 16);
  REQUIRE(places.size() == 16);
  for (const Call& call : calls) {
    const auto place = places.at(call.environment.at("RANK"));
    places.erase(call.environment.at("RANK"));
    CHECK(call.environment.at("GROUP_RANK") == place.first);
    CHECK(call.environment.at("LOCAL_RANK") == place.second);
    CHECK(call.environment.at("WORLD_SIZE") == "16");
    CHECK(call.environment.at("LOCAL_WORLD_SIZE") == "8");
    CHECK(call.environment.at("MASTER_ADDR") == "127.0.0.1");
    CHECK(call.environment.at("MASTER_PORT") == "29500");
    CHECK(call.words.front() == "pretrain_gpt.py");
  }
  CHECK(places.empty());
}

TEST_CASE("without a number of GPUs all ranks are on one host") {
  Stage stage;
  stage.put(launch_of("world_size: 4\ntensor_parallel_num_weight_shards: 4\nadd_bias_linear: false\n",
                      {.launcher = Launcher::Local}));
  REQUIRE(stage.start("local.sh", {}, {"recorder"}).exit == 0);
  const std::vector<Call> calls = stage.calls();
  REQUIRE(calls.size() == 4);
  for (const Call& call : calls) {
    CHECK(call.environment.at("LOCAL_RANK") == call.environment.at("RANK"));
    CHECK(call.environment.at("GROUP_RANK") == "0");
    CHECK(call.words.front() == "--tensor-model-parallel-size");
  }
}

TEST_CASE("when a rank fails, a local launch stops the others and ends with its status") {
  struct Row {
    const char* end;
    int status;
  };
  for (const Row& row : {Row{"exit 7", 7}, Row{"kill -KILL $$", 137}}) {
    CAPTURE(row.end);
    Stage stage;
    stage.put(launch_of(kSixteen, {.launcher = Launcher::Local}));
    const auto begin = std::chrono::steady_clock::now();
    const Outcome outcome = stage.start(
        "local.sh", {},
        {"bash", "-c",
         fmt::format("if [ \"$RANK\" = 5 ]; then sleep 1; {}; fi; echo $$ >\"$CALLS/$RANK\"; exec sleep 60", row.end)});
    CHECK(outcome.exit == row.status);
    CHECK(!outcome.timed_out);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(40));
    int stopped = 0;
    for (const auto& entry : fs::directory_iterator(stage.path() / "calls"))
      stopped += ::kill(std::stoi(read_file(entry.path())), 0) != 0;
    CHECK(stopped == 15);
  }
}

TEST_CASE("every script passes `bash -n` and shellcheck") {
  const bool shellcheck = exists("shellcheck");
  if (!shellcheck) MESSAGE("skipped: shellcheck is not installed");
  const std::string hostile_text = hostile().text;
  for (const LaunchFramework framework : {LaunchFramework::MegatronLm, LaunchFramework::MegatronBridge})
    for (const Launcher launcher : {Launcher::Torchrun, Launcher::Slurm, Launcher::SlurmNative, Launcher::Local})
      for (const std::string& text : {std::string(kSixteen), hostile_text}) {
        Stage stage;
        const Launch launch = launch_of(text, {.framework = framework, .launcher = launcher});
        stage.put(launch);
        for (const std::string& name : {launch.files.front().path, std::string("env.sh")}) {
          CAPTURE(name);
          const std::string file = (stage.job() / name).string();
          CHECK(run({.words = {"/bin/bash", "-n", file}}).exit == 0);
          if (!shellcheck) continue;
          const Outcome outcome =
              run({.words = {"/usr/bin/shellcheck", "--norc", file}, .environment = {"LC_ALL=C.UTF-8"}});
          CHECK_MESSAGE(outcome.exit == 0, outcome.output);
        }
      }
}
