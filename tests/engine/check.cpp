#include <gtp/check.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "../support/config.hpp"
#include "../support/data.hpp"
#include "../support/json_config.hpp"

using namespace gtp;
using namespace gtp::literals;
using Json = nlohmann::json;
using Ids = std::vector<std::string>;

namespace {

Json read_rows(const char* name) {
  std::ifstream file(test::project_data(name));
  return Json::parse(file);
}

Ids error_ids(const Report& report) {
  Ids ids;
  for (const Diagnostic& d : report.diagnostics)
    if (d.severity == Severity::Error && (ids.empty() || ids.back() != d.rule)) ids.emplace_back(d.rule);
  return ids;
}

void check_derived(const Facts& facts, const Json& expected) {
  for (const auto& item : expected.items())
    CHECK_MESSAGE(test::derived_json(facts, item.key()) == item.value(), item.key());
}

}  // namespace

TEST_CASE("every recorded topology is judged and derived as upstream does") {
  const Json rows = read_rows("rank_groups.json");
  CHECK(rows.size() == 300);
  for (const Json& row : rows) {
    CAPTURE(row.at("topology").dump());
    const Config config = test::config_of(row.at("topology"));
    const Report report = check(config);
    if (row.contains("error")) {
      // Upstream stops at the first; another that does not follow from it is reported as well.
      const Ids ids = error_ids(report);
      const auto expected = row.at("error").get<std::string>();
      CHECK_MESSAGE(std::count(ids.begin(), ids.end(), expected) == 1, fmt::format("{}", fmt::join(ids, " ")));
      CHECK(!report.derivation.topology.has_value());
    } else {
      CHECK(error_ids(report).empty());
      REQUIRE(report.derivation.topology.has_value());
      check_derived(report.derivation.facts, row.at("derived"));
    }
  }
}

TEST_CASE("every recorded batch configuration is judged and derived as upstream does") {
  const Json rows = read_rows("batch_accounting.json");
  CHECK(rows.size() == 160);
  for (const Json& row : rows) {
    CAPTURE(row.at("config").dump());
    const Config config = test::config_of(row.at("config"));
    const Report report = check(config);
    const Json& expect = row.at("expect");
    if (expect.contains("errors")) {
      Ids ids = error_ids(report);
      std::sort(ids.begin(), ids.end());
      CHECK(ids == expect.at("errors").get<Ids>());
    } else {
      CHECK(error_ids(report).empty());
      check_derived(report.derivation.facts, expect.at("derived"));
      check_derived(report.derivation.facts,
                    {{"eval_num_microbatches", expect.at("eval").at("eval_num_microbatches")}});
    }
  }
}

TEST_CASE("one wrong shard count is reported once, not again as a world size") {
  CHECK(test::violated(
            {{"world_size", "12"}, {"tensor_model_parallel_size", "4"}, {"tensor_parallel_num_weight_shards", "6"}}) ==
        Ids{"dense-shards-multiple-of-tp"});
}

TEST_CASE("independent mistakes are all reported in one run") {
  CHECK(
      test::violated({{"world_size", "16"},
                      {"tensor_model_parallel_size", "4"},
                      {"tensor_parallel_num_weight_shards", "6"},
                      {"expert_tensor_parallel_num_weight_shards", "2"},
                      {"micro_batch_size", "0"},
                      {"num_layers", "3"},
                      {"pipeline_model_parallel_size", "2"}}) ==
      Ids{"dense-shards-multiple-of-tp", "expert-shards-below-etp", "default-layers-divisible-by-pp", "mbs-required"});
}

TEST_CASE("a bare topology is checked without inventing a model or a batch") {
  Diagnostics none;
  const Config config = test::make_config(
      {{"world_size", "16"}, {"tensor_model_parallel_size", "2"}, {"expert_model_parallel_size", "4"}}, none);
  const Report report = check(config);
  CHECK(report.diagnostics.empty());
  std::set<std::string_view> needs;
  for (const NotChecked& rule : report.not_checked)
    for (const Needs missing = rule.needs(); const OptionId need : missing.span()) needs.insert(name_of(need));
  CHECK(needs.contains("num_experts"));
  CHECK(needs.contains("micro_batch_size"));
  CHECK(!needs.contains("tensor_model_parallel_size"));
}

TEST_CASE("absurd sizes are diagnosed and never overflow") {
  const std::string huge = std::to_string(std::numeric_limits<std::int64_t>::max());
  CHECK(test::violated({{"world_size", "1000000000000000000"},
                        {"tensor_model_parallel_size", huge},
                        {"context_parallel_size", huge},
                        {"pipeline_model_parallel_size", "2"}}) ==
        Ids{"world-divisible-by-dense-grid", "world-divisible-by-expert-grid"});
  CHECK(test::violated({{"world_size", "-8"}, {"tensor_model_parallel_size", "0"}}) ==
        Ids{"sizes-must-be-positive", "sizes-must-be-positive"});
  CHECK(test::violated({{"world_size", huge}, {"tensor_parallel_num_weight_shards", huge}}).empty());
  const Ids ids =
      test::violated({{"world_size", huge}, {"tensor_model_parallel_size", "1"}, {"micro_batch_size", huge}});
  CHECK(ids == Ids{"batch-overflow"});
}

TEST_CASE("the older target does not check the evaluation batch against GTP but says what is lost") {
  const auto ids = [](Target target) {
    return test::violated({{"world_size", "8"},
                           {"tensor_parallel_num_weight_shards", "4"},
                           {"micro_batch_size", "1"},
                           {"global_batch_size", "8"},
                           {"eval_global_batch_size", "2"}},
                          target);
  };
  CHECK(ids(kTargets[1]) == Ids{"eval-gbs-divisible"});
  CHECK(ids(kTargets[0]) == Ids{"eval-without-microbatches"});
}

TEST_CASE("a batch wrong for training and inherited by evaluation is one report") {
  CHECK(test::violated({{"world_size", "8"},
                        {"tensor_model_parallel_size", "1"},
                        {"micro_batch_size", "1"},
                        {"global_batch_size", "12"}}) == Ids{"eval-gbs-divisible"});
  CHECK(test::violated({{"world_size", "8"},
                        {"tensor_model_parallel_size", "1"},
                        {"micro_batch_size", "1"},
                        {"global_batch_size", "12"},
                        {"eval_global_batch_size", "8"}}) == Ids{"gbs-divisible"});
}

TEST_CASE("an unset global batch size is wrong under GTP") {
  CHECK(test::violated({{"world_size", "8"}, {"tensor_parallel_num_weight_shards", "4"}, {"micro_batch_size", "1"}}) ==
        Ids{"eval-gbs-divisible"});
  CHECK(test::violated({{"world_size", "8"}, {"tensor_model_parallel_size", "4"}, {"micro_batch_size", "1"}}).empty());
}

TEST_CASE("sequence parallelism without tensor parallelism is turned off as upstream does") {
  Diagnostics none;
  const Config config = test::make_config({{"sequence_parallel", "true"}}, none);
  CHECK(!derive(config).facts.on("sequence_parallel"_opt));
}

TEST_CASE("the published four-rank command is refused, and the offered fix mends it") {
  Diagnostics none;
  Config config = test::make_config({{"world_size", "4"},
                                     {"tensor_model_parallel_size", "2"},
                                     {"tensor_parallel_num_weight_shards", "4"},
                                     {"expert_tensor_parallel_num_weight_shards", "1"}},
                                    none);
  const Report report = check(config);
  REQUIRE(error_ids(report) == Ids{"expert-shards-below-etp"});
  const Diagnostic* d = &report.diagnostics.front();
  REQUIRE(d->fix.size() == 1);
  CHECK(d->fix[0].option == "expert_tensor_parallel_size");
  Config mended = config;
  mended.set(find_option(d->fix[0].option).value(), d->fix[0].value);
  CHECK(error_ids(check(mended)).empty());
}

TEST_CASE("codes and ids are unique, and every row is documented") {
  std::set<std::string_view> codes, ids;
  for (const Rule* rule : all_rules()) {
    CAPTURE(rule->code);
    CHECK(rule->code.size() == 6);
    CHECK(rule->code.starts_with("GTP"));
    CHECK(codes.insert(rule->code).second);
    CHECK(ids.insert(rule->id).second);
    CHECK(!rule->message.empty());
    CHECK(!rule->message.ends_with('.'));
    CHECK(rule->why.size() > 20);
    CHECK(!rule->help.empty());
  }
  CHECK(find_rule("GTP003") == find_rule("dense-shards-multiple-of-tp"));
  CHECK(find_rule("GTP000") == nullptr);
}

TEST_CASE("an option that is required and unknown is an error") {
  Diagnostics out;
  const Config config = test::make_config({{"tensor_model_parallel_size", "2"}}, out);
  const Facts facts = derive(config).facts;
  require(facts, std::array{"tensor_model_parallel_size"_opt, "num_layers"_opt}, out);
  REQUIRE(out.size() == 1);
  CHECK(out[0].code == "GTP910");
  CHECK(out[0].primary.option == "num_layers");
}
