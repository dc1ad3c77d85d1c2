// A plan says all that a configuration said, so that planning it again gives the same bytes.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>

#include "tests/cli/gtplan.hpp"

namespace {

using gtp::test::Folder;
using gtp::test::gtplan;
using gtp::test::kValid;
using gtp::test::Outcome;
using nlohmann::json;

std::string plan_of(std::vector<std::string> words) {
  words.insert(words.begin(), "plan");
  const Outcome outcome = gtplan(std::move(words));
  CAPTURE(outcome.error);
  REQUIRE(outcome.exit == 0);
  return outcome.output;
}

/// The plan of a plan.
std::string again(const Folder& folder, const std::string& plan) { return plan_of({folder.file("plan.json", plan)}); }

}  // namespace

TEST_CASE("planning a plan gives the same bytes") {
  const Folder folder;
  const std::string yaml = folder.file("a.yaml", kValid);
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{yaml},
                                             {yaml, "--set", "use_tp_pp_dp_mapping=false", "--set", "lr=1e-05"},
                                             {yaml, "--set", "iterations_to_skip=[3,5]", "--set", "cp_comm_type=p2p"},
                                             {yaml, "--set", "data_path=a \"quoted\" \\ path"},
                                             {"--world-size", "8", "--", "--tensor-parallel-num-weight-shards", "8",
                                              "--disable-bias-linear", "--untie-embeddings-and-output-weights"}}) {
    const std::string plan = plan_of(words);
    CHECK(again(folder, plan) == plan);
  }
}

TEST_CASE("an unknown value stays unknown in the plan") {
  const Folder folder;
  const std::string text = std::string(kValid) + "eval_global_batch_size: ${EVAL}\n";
  const Outcome outcome = gtplan({"plan", folder.file("a.yaml", text)});
  REQUIRE(outcome.exit == 0);
  CHECK(json::parse(outcome.output).at("options").at("eval_global_batch_size") == "${eval_global_batch_size}");
  CHECK(!json::parse(outcome.output).at("derived").contains("eval_global_batch_size"));
  CHECK(again(folder, outcome.output) == outcome.output);
}

TEST_CASE("the same configuration gives the same plan whatever its form and order") {
  const Folder folder;
  std::string lines(kValid), reversed;
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = lines.find('\n', at) + 1;
    reversed.insert(0, lines.substr(at, end - at));
    at = end;
  }
  const std::string plan = plan_of({folder.file("a.yaml", kValid)});
  CHECK(plan_of({folder.file("b.yaml", reversed)}) == plan);
  CHECK(plan_of({folder.file("c.json", json::parse(plan).at("options").dump())}) == plan);
}

TEST_CASE("a plan has typed options, derived values, both grids and every family") {
  const Folder folder;
  const json plan = json::parse(plan_of({folder.file("a.yaml", kValid)}));
  CHECK(plan.at("format") == "gtplan-plan");
  CHECK(plan.at("format_version") == "1.0");
  CHECK(plan.at("target") == "megatron-core@d98e8a64");
  CHECK(plan.at("options").at("tensor_parallel_num_weight_shards") == 8);
  CHECK(plan.at("options").at("add_bias_linear") == false);
  CHECK(!plan.at("options").contains("context_parallel_size"));
  CHECK(plan.at("derived").at("gtp_weight_remat_size") == 4);
  CHECK(plan.at("derived").at("layers_per_stage") == json::parse("[[8],[8]]"));
  CHECK(plan.at("grids").at("dense").at("order") == "tp-gtp_remat-cp-ep-dp-pp");
  CHECK(plan.at("grids").at("dense").at("sizes").at("gtp_remat") == 4);
  CHECK(plan.at("groups").size() == 22);
  CHECK(plan.at("groups").at("gtp_remat") == json::parse(R"({"count":16,"size":4})"));
}

TEST_CASE("other commands read a plan like any configuration") {
  const Folder folder;
  const std::string yaml = folder.file("a.yaml", kValid), plan = folder.file("plan.json", plan_of({yaml}));
  for (const char* command : {"ranks", "batch"})
    CHECK(gtplan({command, plan}).output == gtplan({command, yaml}).output);
  CHECK(gtplan({"check", "--format", "json", plan}).output.find("\"input_format\": \"plan\"") != std::string::npos);
}
