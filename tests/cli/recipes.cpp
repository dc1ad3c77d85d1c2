// The recipes are valid down to the last warning, and the launch files beside them are what the program writes today.
// GTP_UPDATE_GOLDEN=1 rewrites those files.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/cli/gtplan.hpp"

namespace {

namespace fs = std::filesystem;
using gtp::test::gtplan;
using gtp::test::Outcome;
using gtp::test::read_file;
using nlohmann::json;

const fs::path kRecipes = fs::path(GTP_SOURCE_ROOT) / "examples" / "recipes";

struct LaunchFolder {
  std::string recipe, folder;
  std::vector<std::string> words;
};

const std::vector<LaunchFolder> kLaunches{
    {"dense_8b", "torchrun", {"--launcher", "torchrun"}},
    {"dense_8b", "slurm", {"--launcher", "slurm"}},
    {"dense_8b",
     "bridge-torchrun",
     {"--launcher", "torchrun", "--framework", "megatron-bridge", "--target", "megatron-bridge@2026-09", "--recipe",
      "llama3_8b_pretrain_8gpu_b200_fp8mx_config"}},
    {"moe_30b_a3b", "torchrun", {"--launcher", "torchrun"}},
    {"moe_30b_a3b", "slurm", {"--launcher", "slurm"}},
    {"moe_30b_a3b",
     "bridge-pinned-slurm",
     {"--launcher", "slurm", "--framework", "megatron-bridge", "--recipe",
      "qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config"}},
    {"hybrid_gtp64", "slurm", {"--launcher", "slurm"}},
    {"hybrid_gtp64", "kubernetes", {"--launcher", "kubernetes"}},
    {"hybrid_gtp64",
     "bridge-slurm",
     {"--launcher", "slurm", "--framework", "megatron-bridge", "--target", "megatron-bridge@2026-09", "--recipe",
      "nemotron_3_super_pretrain_64gpu_gb200_bf16_config"}},
};

std::vector<std::string> recipes() {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(kRecipes))
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::set<std::string> files_of(const fs::path& folder) {
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

json check_json(const std::string& recipe, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"check", "--strict", "--format", "json", recipe + ".yaml"});
  return json::parse(gtplan(more, kRecipes).output).at("configs").at(0);
}

}  // namespace

TEST_CASE("every recipe is valid without a warning, every rule of its own target checked") {
  CHECK(recipes() == std::vector<std::string>{"dense_8b", "hybrid_gtp64", "moe_30b_a3b"});
  for (const std::string& recipe : recipes()) {
    CAPTURE(recipe);
    const json config = check_json(recipe);
    CHECK(config.at("verdict") == "valid");
    CHECK(config.at("not_checked").empty());
    for (const char* target : {"megatron-core@2026-09", "megatron-bridge@2026-09"})
      CHECK(check_json(recipe, {"--target", target}).at("verdict") == "valid");
  }
}

TEST_CASE("every recipe uses GTP as its name says") {
  CHECK(check_json("dense_8b").at("derived").at("gtp_weight_remat_size") == 8);
  const json moe = check_json("moe_30b_a3b").at("derived"), hybrid = check_json("hybrid_gtp64").at("derived");
  CHECK(moe.at("gtp_weight_remat_size") == 4);
  CHECK(moe.at("expert_gtp_weight_remat_size") == 2);
  CHECK(moe.at("world_size") == 32);
  CHECK(hybrid.at("gtp_weight_remat_size") == 64);
  CHECK(hybrid.at("expert_gtp_weight_remat_size") == 2);
}

TEST_CASE("the hybrid recipe fits every published size of the run that it follows") {
  for (const int world : {128, 256, 512, 1024, 2048, 3072}) {
    const json config = check_json("hybrid_gtp64", {"--world-size", std::to_string(world)});
    CHECK(config.at("verdict") == "valid");
    CHECK(config.at("derived").at("data_parallel_size") == world / 64);
  }
}

TEST_CASE("the launch files beside a recipe are what the program writes today") {
  for (const LaunchFolder& launch : kLaunches) {
    CAPTURE(launch.recipe);
    CAPTURE(launch.folder);
    const gtp::test::Folder temporary;
    const fs::path committed = kRecipes / launch.recipe / launch.folder;
    const bool update = std::getenv("GTP_UPDATE_GOLDEN") != nullptr;
    if (update) fs::remove_all(committed);
    const fs::path written = update ? committed : temporary.path() / "job";
    std::vector<std::string> words{"launch", launch.recipe + ".yaml", "-o", written.string()};
    words.insert(words.end(), launch.words.begin(), launch.words.end());
    REQUIRE(gtplan(words, kRecipes).exit == 0);
    REQUIRE(files_of(committed) == files_of(written));
    for (const std::string& name : files_of(written)) {
      CAPTURE(name);
      CHECK(read_file(committed / name) == read_file(written / name));
    }
  }
}

TEST_CASE("there are no launch files that no test looks at") {
  std::set<std::string> tested;
  for (const LaunchFolder& launch : kLaunches) tested.insert(launch.recipe + "/" + launch.folder);
  std::set<std::string> committed;
  for (const std::string& recipe : recipes())
    for (const std::string& folder : files_of(kRecipes / recipe)) committed.insert(recipe + "/" + folder);
  CHECK(committed == tested);
}

TEST_CASE("files for the pinned Megatron-Bridge warn that it does not wire GTP, and files for the newer one do not") {
  constexpr std::string_view kWarning = "WARNING: megatron-bridge@067f987d does not wire GTP";
  const auto warns = [&](const char* file) { return read_file(kRecipes / file).find(kWarning) != std::string::npos; };
  CHECK(warns("moe_30b_a3b/bridge-pinned-slurm/launch.sbatch"));
  CHECK(warns("moe_30b_a3b/bridge-pinned-slurm/train.overrides"));
  CHECK(!warns("hybrid_gtp64/bridge-slurm/launch.sbatch"));
  CHECK(!warns("dense_8b/bridge-torchrun/launch.sh"));
}
