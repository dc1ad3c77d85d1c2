// Every code and every option can be explained.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>

#include <gtp/rules.hpp>

#include "tests/cli/gtplan.hpp"

namespace {

using gtp::test::gtplan;
using gtp::test::Outcome;
using nlohmann::json;

std::string page(std::vector<std::string> words) {
  words.insert(words.begin(), "explain");
  const Outcome outcome = gtplan(std::move(words));
  CHECK(outcome.exit == 0);
  return outcome.output;
}

bool says(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a code is explained with its reason, its mend and its source") {
  const std::string text = page({"GTP003"});
  for (const char* part : {"GTP003  dense-shards-multiple-of-tp", "Why\n", "How to mend it\n", "phase     startup",
                           "tensor_model_parallel_size", "megatron-core@6513e3e2 to megatron-core@2026-09",
                           "megatron/core/model_parallel_config.py"}) {
    CAPTURE(part);
    CHECK(says(text, part));
  }
  CHECK(page({"gtp003"}) == text);
  CHECK(page({"dense-shards-multiple-of-tp"}) == text);
}

TEST_CASE("the list has a line for every code") {
  const std::string text = page({"--list"});
  CHECK(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) == gtp::all_rules().size());
  for (const gtp::Rule* rule : gtp::all_rules()) CHECK(says(text, rule->code));
}

TEST_CASE("the list as JSON holds what every page says") {
  const json rules = json::parse(page({"--list", "--format", "json"})).at("rules");
  REQUIRE(rules.size() == gtp::all_rules().size());
  for (const json& rule : rules)
    for (const char* key : {"code", "rule", "severity", "phase", "message", "why", "help", "needs", "source"}) {
      CAPTURE(rule.dump());
      CHECK(rule.contains(key));
    }
  CHECK(json::parse(page({"GTP003", "--format", "json"})).at("code") == "GTP003");
}

TEST_CASE("an option is explained with its type, default, flags and rules") {
  const std::string text = page({"tensor_parallel_num_weight_shards"});
  for (const char* part : {"type      an integer", "default   None", "--tensor-parallel-num-weight-shards",
                           "section   topology", "GTP003"}) {
    CAPTURE(part);
    CHECK(says(text, part));
  }
  CHECK(page({"--", "--tensor-parallel-num-weight-shards"}) == text);
  CHECK(says(page({"world_size"}), "unknown when absent"));
  CHECK(says(page({"gtp_weight_remat_size"}), "derived by upstream"));
  const json option = json::parse(page({"add_bias_linear", "--format", "json"}));
  CHECK(option.at("defaults").at("megatron-core@d98e8a64") == true);
  CHECK(option.at("flags").at(0) == "--disable-bias-linear (false)");
}

TEST_CASE("an unknown topic is answered with the nearest one") {
  const Outcome code = gtplan({"explain", "GTP00"});
  CHECK(code.exit == 2);
  CHECK(says(code.error, "did you mean `GTP0"));
  CHECK(says(gtplan({"explain", "tensor_model_paralel_size"}).error, "did you mean `tensor_model_parallel_size`?"));
  CHECK(says(gtplan({"explain", "nothing-like-it"}).error, "--list"));
}
