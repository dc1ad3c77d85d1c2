// What `gtplan diff` says, and its exit status.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "tests/cli/gtplan.hpp"

namespace {

using gtp::test::Folder;
using gtp::test::gtplan;
using gtp::test::kInvalid;
using gtp::test::kValid;
using gtp::test::Outcome;
using nlohmann::json;

/// The object of the list whose `key` is `name`; null when there is none.
json find(const json& list, const char* key, const std::string& name) {
  for (const json& item : list)
    if (item.at(key) == name) return item;
  return nullptr;
}

json diff_json(std::vector<std::string> words, int exit) {
  words.insert(words.begin(), {"diff", "--format", "json"});
  const Outcome outcome = gtplan(words);
  CAPTURE(outcome.error);
  CHECK(outcome.exit == exit);
  return json::parse(outcome.output);
}

}  // namespace

TEST_CASE("a configuration does not differ from itself, nor from its plan") {
  const Folder folder;
  const std::string yaml = folder.file("a.yaml", kValid);
  const Outcome same = gtplan({"diff", yaml, yaml});
  CHECK(same.exit == 0);
  CHECK(same.output.find("no difference") != std::string::npos);
  const std::string plan = folder.file("plan.json", gtplan({"plan", yaml}).output);
  const json report = diff_json({yaml, plan}, 0);
  CHECK(report.at("different") == false);
  for (const char* list : {"options", "checkpoint", "derived", "groups"}) CHECK(report.at(list).empty());
  CHECK(report.at("env").at("variables").empty());
}

TEST_CASE("a default that is written out is no difference") {
  const Folder folder;
  const std::string a = folder.file("a.yaml", kValid);
  CHECK(gtplan({"diff", a, a, "--set-b", "context_parallel_size=1"}).exit == 0);
}

TEST_CASE("options are compared by section, given values beside defaults") {
  const Folder folder;
  const std::string a = folder.file("a.yaml", kValid);
  const json report = diff_json({a, a, "--set-b", "context_parallel_size=2", "--set-b", "lr=0.1"}, 1);
  CHECK(report.at("different") == true);
  const json cp = find(report.at("options"), "option", "context_parallel_size");
  CHECK(cp.at("section") == "topology");
  CHECK(cp.at("a") == json{{"how", "default"}, {"value", 1}});
  CHECK(cp.at("b") == json{{"how", "given"}, {"value", 2}});
  CHECK(find(report.at("options"), "option", "lr").at("a") == json{{"how", "unknown"}});
  CHECK(report.at("options").size() == 2);
  const Outcome text = gtplan({"diff", a, a, "--set-b", "context_parallel_size=2"});
  CHECK(text.exit == 1);
  CHECK(text.output.find("\noptions\n  topology\n") != std::string::npos);
  CHECK(text.output.find("1 (default)") != std::string::npos);
}

TEST_CASE("derived values, and families of groups with the first rank that differs, are compared") {
  const Folder folder;
  const std::string a = folder.file("a.yaml", kValid);
  const json report = diff_json({a, a, "--set-b", "tensor_parallel_num_weight_shards=4"}, 1);
  const json remat = find(report.at("derived"), "name", "gtp_weight_remat_size");
  CHECK(remat.at("a") == 4);
  CHECK(remat.at("b") == 2);
  const json group = find(report.at("groups"), "family", "gtp_remat");
  CHECK(group.at("a") == json{{"count", 16}, {"size", 4}});
  CHECK(group.at("b") == json{{"count", 32}, {"size", 2}});
  CHECK(group.at("first_rank") == 0);
  // TP 2 stays as it is on both grids.
  CHECK(find(report.at("groups"), "family", "tp").is_null());
  CHECK(find(report.at("groups"), "family", "ep_dp").is_null());
}

TEST_CASE("the first rank that differs is found behind those that agree") {
  const Folder folder;
  const std::string a = folder.file("a.yaml", kValid);
  // Twice the world: TP pairs are the same up to rank 63, and rank 64 is in a group of B alone.
  const json report = diff_json({a, a, "--set-b", "world_size=128"}, 1);
  CHECK(find(report.at("groups"), "family", "tp").at("first_rank") == 64);
  CHECK(find(report.at("groups"), "family", "pp").at("first_rank") == 0);
  // First and last stage: the pipeline of rank 0 is [0, 32] and then [0, 48].
  const json deeper = diff_json({a, a, "--set-b", "pipeline_model_parallel_size=4"}, 1);
  const json embd = find(deeper.at("groups"), "family", "embd");
  CHECK(embd.at("a") == json{{"count", 32}, {"size", 2}});
  CHECK(embd.at("b") == json{{"count", 16}, {"size", 2}});
  CHECK(embd.at("first_rank") == 0);
}

TEST_CASE("the environment is compared by its last values") {
  const Folder folder;
  const std::string text(kValid);
  const std::string a = folder.file("a.yaml", text + "env:\n  NCCL_DEBUG: INFO\n  SAME: x\n"),
                    b = folder.file("b.yaml", text + "env:\n  SAME: x\n  OTHER: \"1\"\n");
  const json env = diff_json({a, b}, 1).at("env");
  CHECK(env.at("variables").size() == 2);
  CHECK(find(env.at("variables"), "name", "NCCL_DEBUG") == json{{"name", "NCCL_DEBUG"}, {"a", "INFO"}, {"b", nullptr}});
  CHECK(find(env.at("variables"), "name", "OTHER").at("a").is_null());
  const json none = diff_json({a, folder.file("c.yaml", text)}, 1).at("env");
  CHECK(none.at("a_known") == true);
  CHECK(none.at("b_known") == false);
}

TEST_CASE("an invalid configuration is compared too, with its diagnostics and without groups") {
  const Folder folder;
  const std::string a = folder.file("a.yaml", kValid), bad = folder.file("bad.yaml", kInvalid);
  const json report = diff_json({a, bad}, 1);
  CHECK(report.at("a").at("verdict") == "valid");
  CHECK(report.at("b").at("verdict") == "invalid");
  CHECK(report.at("groups").is_null());
  CHECK(!find(report.at("diagnostics").at("only_b"), "code", "GTP003").is_null());
  CHECK(find(report.at("options"), "option", "tensor_model_parallel_size").at("b").at("value") == 4);
  const Outcome text = gtplan({"diff", a, bad});
  CHECK(text.exit == 1);
  CHECK(text.output.find("+ error[GTP003]") != std::string::npos);
  CHECK(text.output.find("not compared") != std::string::npos);
}

TEST_CASE("what is wrong with both is no difference but is said") {
  const Folder folder;
  const std::string bad = folder.file("bad.yaml", kInvalid);
  const Outcome text = gtplan({"diff", bad, bad});
  CHECK(text.exit == 0);
  CHECK(text.output.find("error[GTP003]") != std::string::npos);
  CHECK(text.output.find("no difference") != std::string::npos);
}

TEST_CASE("a Megatron command line can stand in for the second file") {
  const Folder folder;
  const std::string a = folder.file("a.yaml", kValid);
  const json report = diff_json({a, "--world-size", "64", "--", "--tensor-model-parallel-size", "4"}, 1);
  CHECK(report.at("b").at("input_format") == "megatron-args");
  CHECK(find(report.at("options"), "option", "tensor_model_parallel_size").at("b").at("value") == 4);
}

TEST_CASE("a variable that is left open is no difference to itself, and one to a value") {
  const Folder folder;
  const std::string a = folder.file("a.yaml", std::string(kValid) + "eval_global_batch_size: ${EVAL}\n");
  CHECK(gtplan({"diff", a, a}).exit == 0);
  const json report = diff_json({a, a, "--set-b", "eval_global_batch_size=64"}, 1);
  CHECK(find(report.at("options"), "option", "eval_global_batch_size").at("a").at("how") == "variable");
}

TEST_CASE("diff ends with 2 when it cannot run, and JSON stays JSON") {
  const Folder folder;
  const std::string a = folder.file("a.yaml", kValid), broken = folder.file("broken.yaml", "a: [1\n");
  CHECK(gtplan({"diff", a}).exit == 2);
  CHECK(gtplan({"diff", a, a, a}).exit == 2);
  CHECK(gtplan({"diff", "-", "-"}).exit == 2);
  CHECK(gtplan({"diff", a, broken}).exit == 2);
  CHECK(gtplan({"diff", a, (folder.path() / "none.yaml").string()}).exit == 2);
  CHECK(diff_json({broken, broken}, 2).at("configs").at(0).at("verdict") == "unreadable");
}

TEST_CASE("worlds too large to be listed are compared at once") {
  const Folder folder;
  const std::string a = folder.file("a.yaml", "tensor_model_parallel_size: 8\n");
  const json report =
      diff_json({a, a, "--set-a", "world_size=1099511627776", "--set-b", "world_size=2199023255552"}, 1);
  CHECK(find(report.at("groups"), "family", "tp").at("first_rank").is_null());
  CHECK(find(report.at("groups"), "family", "dp").at("first_rank") == 0);
}
