#include <doctest/doctest.h>
#include <gtp/hybrid_pattern.hpp>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "support/data.hpp"

using namespace gtp;
using Json = nlohmann::json;
using Names = std::vector<std::string>;

namespace {

/// "rule@offset" of every finding.
Names names_of(const std::vector<HybridFinding>& findings) {
  Names names;
  for (const HybridFinding& finding : findings)
    names.push_back(std::string(rule_id(finding.problem)) +
                    (finding.offset ? '@' + std::to_string(*finding.offset) : std::string()));
  return names;
}

HybridPattern pattern_of(std::string_view text) {
  const HybridParse parse = parse_hybrid_pattern(text);
  REQUIRE(parse.pattern);
  return *parse.pattern;
}

Names findings_of(std::string_view text) { return names_of(parse_hybrid_pattern(text).findings); }

}  // namespace

TEST_CASE("every pattern row of the data is read as upstream reads it") {
  std::ifstream file(test::project_data("mini_languages.json"));
  int valid = 0;
  int refused = 0;
  for (const Json& row : Json::parse(file)) {
    if (!row.contains("hybrid_layer_pattern")) continue;
    const auto text = row["hybrid_layer_pattern"].get<std::string>();
    CAPTURE(text);
    const HybridParse parse = parse_hybrid_pattern(text);
    const Json& expect = row["expect"];
    CHECK(parse.pattern.has_value() != expect.contains("error"));
    CHECK(parse.pattern.has_value() == parse.findings.empty());
    (parse.pattern ? valid : refused) += 1;
    if (!parse.pattern || expect.contains("error")) continue;
    const Json mtp = parse.pattern->mtp_pattern.empty() ? Json() : Json(parse.pattern->mtp_pattern);
    CHECK(Json(parse.pattern->main_pattern) == expect["main_pattern"]);
    CHECK(mtp == expect["mtp_pattern"]);
    CHECK(parse.pattern->mtp_num_depths == expect["mtp_num_depths"]);
    CHECK(parse.pattern->num_layers() == expect["num_layers"]);
  }
  CHECK(valid == 82);
  CHECK(refused == 38);
}

TEST_CASE("a pattern knows its segments and its layers of each kind") {
  const HybridPattern pattern = pattern_of("M-M-|M-M*-/MM/MM");
  CHECK(pattern.segment_layers == std::vector<std::int64_t>{4, 5});
  CHECK(pattern.num_layers() == 9);
  CHECK(pattern.mtp_num_depths == 2);
  CHECK(pattern.count(HybridLayer::Mamba) == 8);
  CHECK(pattern.count(HybridLayer::Attention) == 1);
  CHECK(pattern.count(HybridLayer::Mlp) == 4);
  CHECK(pattern.count(HybridLayer::Moe) == 0);
  CHECK(pattern.main_counts[static_cast<std::size_t>(HybridLayer::Mamba)] == 4);
  CHECK(pattern.mtp_counts[static_cast<std::size_t>(HybridLayer::Mamba)] == 2);
}

TEST_CASE("segments may be empty and so may the pattern") {
  CHECK(pattern_of("|M||").segment_layers == std::vector<std::int64_t>{0, 1, 0, 0});
  CHECK(pattern_of("").segment_layers == std::vector<std::int64_t>{0});
  CHECK(pattern_of("/M").num_layers() == 0);
  CHECK(pattern_of("/M").mtp_num_depths == 1);
  CHECK(pattern_of("M//").mtp_num_depths == 0);
}

TEST_CASE("a bad pattern says which byte is wrong") {
  CHECK(findings_of("MQ|x") == Names{"hybrid-pattern-symbols@1", "hybrid-pattern-symbols@3"});
  CHECK(findings_of("M\xC3\xA9M") == Names{"hybrid-pattern-symbols@1"});
  CHECK(findings_of("M/M|M") == Names{"hybrid-pattern-symbols@3"});
  CHECK(findings_of("M*|E+") == Names{"hybrid-pattern-symbols@4"});
  CHECK(findings_of("M/*D") == Names{"hybrid-pattern-symbols@3"});
  CHECK(findings_of("M/MM/MM/M") == Names{"hybrid-pattern-symbols@8"});
  CHECK(findings_of("M//M") == Names{"hybrid-pattern-symbols@3"});
  CHECK(findings_of("M/M/") == Names{"hybrid-pattern-symbols@4"});
  CHECK(findings_of(std::string(100, 'q')).size() == kMaxSymbolFindings);
  CHECK(findings_of(std::string(kMaxHybridPatternLength + 1, 'M')) == Names{"hybrid-length-limit"});
}

TEST_CASE("plain and latent attention may meet across the MTP separator") {
  CHECK(pattern_of("M+/M*").implies_multi_latent_attention());
  CHECK(pattern_of("M/D").implies_multi_latent_attention());
  CHECK_FALSE(pattern_of("M*").implies_multi_latent_attention());
}

TEST_CASE("VPP is segments over the pipeline size and absent for one chunk") {
  CHECK(hybrid_virtual_pipeline_size(8, 4) == 2);
  CHECK(hybrid_virtual_pipeline_size(4, 4) == std::nullopt);
  CHECK(hybrid_virtual_pipeline_size(1, 4) == std::nullopt);
  CHECK(hybrid_virtual_pipeline_size(3, 1) == 3);
  CHECK(hybrid_virtual_pipeline_size(3, 0) == std::nullopt);
}

TEST_CASE("segments or layers must divide by the pipeline size") {
  const auto three = check_hybrid_segments(pattern_of("M|M|M"), 2, false);
  REQUIRE(names_of(three) == Names{"hybrid-segments-divisible-by-pp"});
  CHECK(three[0].found == 3);
  CHECK(three[0].wanted == 2);
  CHECK(names_of(check_hybrid_segments(pattern_of("MM"), 4, false)) == Names{"hybrid-no-pipe-even-split"});
  CHECK(check_hybrid_segments(pattern_of("MM"), 4, true).empty());
  CHECK(check_hybrid_segments(pattern_of("MM"), 2, false).empty());
  CHECK(check_hybrid_segments(pattern_of("M|M|M"), 1, false).empty());
  CHECK(names_of(check_hybrid_segments(pattern_of("MM"), 0, false)) == Names{"hybrid-pipeline-size-positive"});
}
