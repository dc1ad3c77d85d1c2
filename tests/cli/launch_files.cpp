// Where the files of a launch go: all or none, into the folder that is named, and never over anything unasked.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <set>

#include "tests/cli/launch.hpp"

namespace {

using namespace gtp::test;
namespace fs = std::filesystem;

const std::set<std::string> kNames{"launch.sh", "train.args", "env.sh", "nccl_comm.yaml", "ranks.tsv", "plan.json"};

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

struct Job {
  Folder folder;
  std::string config = folder.file("a.yaml", kValid);
  std::string job = (folder.path() / "job").string();

  Outcome launch(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"launch", config, "-o", job});
    return gtplan(std::move(more));
  }
};

}  // namespace

TEST_CASE("a launch writes its files into a new folder and lists them") {
  const Job place;
  const Outcome outcome = place.launch();
  CHECK(outcome.exit == 0);
  CHECK(names_in(place.job) == kNames);
  CHECK(outcome.output.find(place.job + "/launch.sh\n") == 0);
  CHECK(read_file(place.job + "/plan.json") == gtplan({"plan", place.config}).output);
  CHECK(read_file(place.job + "/ranks.tsv") == gtplan({"ranks", place.config, "--format", "tsv"}).output);
  struct stat status {};
  REQUIRE(::stat((place.job + "/launch.sh").c_str(), &status) == 0);
  CHECK((status.st_mode & S_IXUSR) != 0);
  REQUIRE(::stat((place.job + "/env.sh").c_str(), &status) == 0);
  CHECK((status.st_mode & S_IXUSR) == 0);
}

TEST_CASE("`check` reads back what a launch wrote") {
  const Job place;
  REQUIRE(place.launch().exit == 0);
  CHECK(gtplan({"plan", place.job + "/train.args", "--world-size", "64", "--gpus-per-node", "8"}).output ==
        read_file(place.job + "/plan.json"));
  CHECK(gtplan({"check", place.job + "/train.args", "--world-size", "64"}).exit == 0);
  CHECK(gtplan({"check", place.job + "/plan.json"}).exit == 0);
}

TEST_CASE("files that are there stay as they are, and nothing else is written, without --force") {
  for (const std::string& name : kNames) {
    CAPTURE(name);
    const Job place;
    fs::create_directory(place.job);
    write_file(fs::path(place.job) / name, "mine");
    const Outcome refused = place.launch();
    CHECK(refused.exit == 2);
    CHECK(refused.error.find("--force") != std::string::npos);
    CHECK(names_in(place.job) == std::set<std::string>{name});
    CHECK(read_file(fs::path(place.job) / name) == "mine");
    CHECK(place.launch({"--force"}).exit == 0);
    CHECK(names_in(place.job) == kNames);
    CHECK(read_file(fs::path(place.job) / name) != "mine");
  }
}

TEST_CASE("a symbolic link or a folder under the name of a file is never touched") {
  for (const bool force : {false, true}) {
    const Job place;
    fs::create_directory(place.job);
    const fs::path outside = place.folder.path() / "outside";
    write_file(outside, "mine");
    fs::create_symlink(outside, fs::path(place.job) / "env.sh");
    fs::create_symlink("nowhere", fs::path(place.job) / "plan.json");
    CHECK(place.launch(force ? std::vector<std::string>{"--force"} : std::vector<std::string>{}).exit == 2);
    CHECK(read_file(outside) == "mine");
    CHECK(names_in(place.job) == std::set<std::string>{"env.sh", "plan.json"});
    CHECK(names_in(place.folder.path()) == std::set<std::string>{"a.yaml", "job", "outside"});
  }
}

TEST_CASE("no name in the options leads out of the folder") {
  const Job place;
  for (const char* name : {"../x", "a/b", "a b", "a\n#SBATCH --wrap=x", "$(x)", "-x", "", "."}) {
    const Outcome outcome = place.launch({"--job-name=" + std::string(name)});
    if (std::string(name).empty()) continue;  // as if it were not given
    CHECK(outcome.exit == 2);
    CHECK(outcome.error.find("--job-name") != std::string::npos);
  }
  fs::remove_all(place.job);
  CHECK(place.launch({"--script", "../../evil/../x.py", "--recipe", "/etc/passwd", "--image", "../x"}).exit == 0);
  CHECK(names_in(place.job) == kNames);
  CHECK(names_in(place.folder.path()) == std::set<std::string>{"a.yaml", "job"});
}

TEST_CASE("a folder that cannot be made or written is exit status 2") {
  const Job place;
  const std::string file = place.folder.file("f", "");
  CHECK(gtplan({"launch", place.config, "-o", file}).exit == 2);
  CHECK(gtplan({"launch", place.config, "-o", file + "/x"}).exit == 2);
  CHECK(read_file(file).empty());
}

TEST_CASE("one file can be printed instead") {
  const Job place;
  REQUIRE(place.launch().exit == 0);
  CHECK(gtplan({"launch", place.config, "-o", "-"}).output == read_file(place.job + "/launch.sh"));
  CHECK(gtplan({"launch", place.config, "--file", "env.sh"}).output == read_file(place.job + "/env.sh"));
  CHECK(gtplan({"launch", place.config, "-o", "-", "--file", "train.args"}).output ==
        read_file(place.job + "/train.args"));
  const Outcome wrong = gtplan({"launch", place.config, "--file", "env"});
  CHECK(wrong.exit == 2);
  CHECK(wrong.error.find("env.sh") != std::string::npos);
}

TEST_CASE("an invalid configuration gets the diagnostics of `check` and no files") {
  const Job place;
  const std::string bad = place.folder.file("bad.yaml", std::string(kInvalid) + "world_size: 8\ngpus_per_node: 8\n");
  const Outcome outcome = gtplan({"launch", bad, "-o", place.job});
  CHECK(outcome.exit == 1);
  CHECK(outcome.error.find("error[GTP003]") != std::string::npos);
  CHECK(!fs::exists(place.job));
  const auto json = nlohmann::json::parse(gtplan({"launch", bad, "-o", place.job, "--format", "json"}).output);
  CHECK(json.at("configs").at(0).at("verdict") == "invalid");
}

TEST_CASE("what a launch needs beside a valid configuration is asked for") {
  const Job place;
  const std::string config = place.folder.file("b.yaml", "world_size: 6\ncontext_parallel_size: 2\n");
  const Outcome gpus = gtplan({"launch", config, "-o", place.job});
  CHECK(gpus.exit == 1);
  CHECK(gpus.error.find("gpus_per_node") != std::string::npos);
  CHECK(gtplan({"launch", config, "-o", place.job, "--launcher", "local"}).exit == 0);
  CHECK(gtplan({"launch", config, "-o", place.job + "2", "--gpus-per-node", "4"}).exit == 2);
  CHECK(gtplan({"launch", config, "-o", place.job + "3", "--gpus-per-node", "8"}).exit == 0);
  CHECK(gtplan({"launch", config}).exit == 2);
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{{"--launcher", "mpi"},
                                                                                     {"--framework", "nemo"},
                                                                                     {"--kubernetes-kind", "pod"},
                                                                                     {"--master-port", "0"},
                                                                                     {"--master-port", "x"},
                                                                                     {"--file", "env.sh"}}) {
    std::vector<std::string> words{"launch", place.config, "-o", place.job + "4"};
    words.insert(words.end(), wrong.begin(), wrong.end());
    CHECK(gtplan(words).exit == 2);
  }
  CHECK(!fs::exists(place.job + "4"));
}

TEST_CASE("a variable in a value is passed on as it is written, with a warning that --strict makes an error") {
  const Job place;
  const std::string config =
      place.folder.file("c.yaml", "world_size: 8\ngpus_per_node: 8\ncontext_parallel_size: 2\nload: ${ROOT}/x\n");
  const Outcome outcome = gtplan({"launch", config, "-o", place.job});
  CHECK(outcome.exit == 0);
  CHECK(outcome.error.find("warning[GTP906]") != std::string::npos);
  CHECK(read_file(place.job + "/train.args").find("--load '${ROOT}/x'\n") != std::string::npos);
  CHECK(gtplan({"launch", config, "-o", place.job + "2", "--strict"}).exit == 1);
  CHECK(!fs::exists(place.job + "2"));
}

TEST_CASE("files and warnings are listed as JSON when that is the format") {
  const Job place;
  const auto json = nlohmann::json::parse(place.launch({"--format", "json", "--framework", "megatron-bridge"}).output);
  CHECK(json.at("files").size() == 6);
  CHECK(json.at("files").at(1) == place.job + "/train.overrides");
  CHECK(json.at("warnings").at(0).get<std::string>().find("does not wire GTP") != std::string::npos);
}
