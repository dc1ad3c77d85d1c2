#include <doctest/doctest.h>
#include <gtp/pipeline_layout.hpp>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/data.hpp"

using namespace gtp;
using Json = nlohmann::json;

namespace {

std::vector<std::string> stages_of(const LayoutParse& parse) {
  std::vector<std::string> stages;
  for (std::size_t i = 0; parse.layout && i < parse.layout->num_stages(); ++i)
    stages.push_back(stage_text(parse.layout->stage(i)));
  return stages;
}

std::vector<std::string> stages_of(std::string_view text) { return stages_of(parse_pipeline_layout(text)); }

/// Reads and checks, as the engine does: nothing but the reader's findings if there is no layout.
std::vector<LayoutFinding> findings_of(std::string_view text, std::int64_t pp, std::optional<std::int64_t> num_layers,
                                       std::optional<std::int64_t> mtp = {}) {
  const LayoutParse parse = parse_pipeline_layout(text);
  return parse.layout ? check_pipeline_layout(*parse.layout, pp, num_layers, mtp) : parse.findings;
}

/// "rule@offset" of every finding.
std::vector<std::string> names_of(const std::vector<LayoutFinding>& findings) {
  std::vector<std::string> names;
  for (const LayoutFinding& finding : findings)
    names.push_back(std::string(rule_id(finding.problem)) +
                    (finding.offset ? '@' + std::to_string(*finding.offset) : std::string()));
  return names;
}

using Names = std::vector<std::string>;

std::optional<std::int64_t> optional_int(const Json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<std::int64_t>());
}

/// [pp_rank][vpp_stage], as the rows of the data have it.
Json dealt(const PipelineLayout& layout, std::size_t pp) {
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < pp; ++rank) {
    Json chunks = Json::array();
    for (std::size_t i = rank; i < layout.num_stages(); i += pp) chunks.push_back(stage_text(layout.stage(i)));
    ranks.push_back(chunks);
  }
  return ranks;
}

}  // namespace

TEST_CASE("every layout row of the data gets upstream's stages or refusal") {
  std::ifstream file(test::project_data("mini_languages.json"));
  int valid = 0;
  int refused = 0;
  for (const Json& row : Json::parse(file)) {
    if (!row.contains("layout")) continue;
    const auto text = row["layout"].get<std::string>();
    CAPTURE(text);
    const auto pp = row["pipeline_model_parallel_size"].get<std::int64_t>();
    const auto findings = findings_of(text, pp, optional_int(row["num_layers"]), optional_int(row["mtp_num_layers"]));
    const Json& expect = row["expect"];
    CHECK(findings.empty() != expect.contains("error"));
    (findings.empty() ? valid : refused) += 1;
    if (!findings.empty() || expect.contains("error")) continue;
    const PipelineLayout layout = *parse_pipeline_layout(text).layout;
    CHECK(static_cast<std::int64_t>(layout.num_stages()) / pp == expect["virtual_pipeline_model_parallel_size"]);
    CHECK(dealt(layout, static_cast<std::size_t>(pp)) == expect["stages"]);
  }
  CHECK(valid == 91);
  CHECK(refused == 59);
}

TEST_CASE("groups expand before single layers and commas mean nothing") {
  CHECK(stages_of("Et*3|(tt|)*2mL") == Names{"Ettt", "tt", "tt", "mL"});
  CHECK(stages_of("E,t,*2|,t*1,0,L") == Names{"Ett", "ttttttttttL"});
  CHECK(stages_of("(t*2|)*2L") == Names{"tt", "tt", "L"});
  CHECK(stages_of("(|t)*2") == Names{"", "t", "t"});
  CHECK(stages_of("Et*0L") == Names{"EL"});
  CHECK(stages_of("") == Names{""});
  CHECK(stages_of("E||L") == Names{"E", "", "L"});
}

TEST_CASE("oddities of upstream's two passes are kept") {
  CHECK(stages_of("t**0") == Names{"t"});                // the star itself is repeated, no times
  CHECK(stages_of("E(x)*0L\xC3\xA9*0") == Names{"EL"});  // what is repeated no times may be anything
  CHECK(names_of(findings_of("(t(t)*2)*2", 1, 6)) ==
        Names{"layout-valid-characters@2", "layout-valid-characters@7"});  // groups do not nest
  CHECK(findings_of("E\n*0L", 1, 0).size() == 3);                          // but not a line feed
  CHECK(names_of(findings_of("t*2*3", 1, 6)) == Names{"layout-valid-characters@3", "layout-valid-characters@4"});
}

TEST_CASE("every bad character is reported once at its place in the text") {
  CHECK(names_of(findings_of("Ext|(yt|)*3L", 1, 4)) == Names{"layout-valid-characters@1", "layout-valid-characters@5"});
  CHECK(names_of(findings_of("(tt|", 1, 2)) == Names{"layout-valid-characters@0"});
  CHECK(names_of(findings_of("E()*3L", 1, 0)) == Names{"layout-valid-characters@1", "layout-valid-characters@2"});
  CHECK(names_of(findings_of("E\xC3\xA9L", 1, 0)) == Names{"layout-valid-characters@1"});
  CHECK(findings_of(std::string(100, 'x'), 1, 0).size() == kMaxCharacterFindings);
}

TEST_CASE("a repeat that would not fit is refused without being built") {
  CHECK(names_of(findings_of("Et*99999999999999999999999999L", 1, 1)) == Names{"layout-expansion-limit@1"});
  CHECK(names_of(findings_of("E(t*1000|)*900000L", 1, 1)) == Names{"layout-expansion-limit@1"});
  CHECK(names_of(findings_of("(t*1000)*1001", 1, 1)) == Names{"layout-expansion-limit@1"});
  CHECK(names_of(findings_of(std::string(kMaxLayoutLength + 1, 't'), 1, 1)) == Names{"layout-expansion-limit"});
  CHECK(parse_pipeline_layout("Et*999998L").layout->layers.size() == 1'000'000);
  CHECK_FALSE(parse_pipeline_layout(std::string(kMaxLayoutLength, '(')).layout);
}

TEST_CASE("stages that do not divide by the pipeline size carry both numbers") {
  const auto findings = findings_of("Et|t|tL", 2, 3);
  REQUIRE(names_of(findings) == Names{"layout-stages-divisible-by-pp"});
  CHECK(findings[0].found == 3);
  CHECK(findings[0].wanted == 2);
  CHECK(names_of(findings_of("EtL", 0, 1)) == Names{"layout-pipeline-size-positive"});
  CHECK(names_of(findings_of("EtL", -1, 1)) == Names{"layout-pipeline-size-positive"});
  CHECK(names_of(findings_of("EtL", INT64_MAX, 1)) == Names{"layout-stages-divisible-by-pp"});
}

TEST_CASE("embedding and loss must be the ends and occur once") {
  CHECK(names_of(findings_of("tEL", 1, 1)) == Names{"layout-embedding-first-loss-last@0"});
  CHECK(names_of(findings_of("EtLt", 1, 2)) == Names{"layout-embedding-first-loss-last@3"});
  CHECK(names_of(findings_of("EtEL", 1, 1)) == Names{"layout-embedding-first-loss-last@2"});
  CHECK(names_of(findings_of("t", 1, 1)) ==
        Names{"layout-embedding-first-loss-last@0", "layout-embedding-first-loss-last@0"});
  CHECK(findings_of("|", 2, 0).size() == 2);
}

TEST_CASE("layer counts are compared with the options that say them") {
  const auto findings = findings_of("Et*3mL", 1, 4, 2);
  REQUIRE(names_of(findings) == Names{"layout-decoder-count", "layout-mtp-count"});
  CHECK(findings[0].found == 3);
  CHECK(findings[0].wanted == 4);
  CHECK(findings[1].found == 1);
  CHECK(findings[1].wanted == 2);
  CHECK(names_of(findings_of("EtmL", 1, 1)) == Names{"layout-mtp-count"});
  CHECK(findings_of("Et*3L", 1, std::nullopt).empty());
}

TEST_CASE("MTP layers must follow the decoder and share one last chunk") {
  CHECK(names_of(findings_of("E|mtL", 2, 1, 1)) == Names{"layout-mtp-after-decoder@3"});
  CHECK(names_of(findings_of("Et|m||L", 2, 1, 1)) == Names{"layout-mtp-last-vpp-chunk@3"});
  CHECK(names_of(findings_of("Etm|||L", 2, 1, 1)) == Names{"layout-mtp-last-vpp-chunk@2"});
  const auto spread = findings_of("Et|m|mL", 3, 1, 2);
  REQUIRE(names_of(spread) == Names{"layout-mtp-single-stage@5"});
  CHECK(spread[0].found == 2);
  CHECK(findings_of("Et|t|mm|L", 2, 2, 2).empty());
  CHECK(findings_of("EtmL", 1, 1, 1).empty());
}

TEST_CASE("MTP away from the loss is standalone") {
  CHECK(has_standalone_mtp(*parse_pipeline_layout("Et|m|L").layout));
  CHECK_FALSE(has_standalone_mtp(*parse_pipeline_layout("Et|mL").layout));
}

TEST_CASE("the list form takes names in any case and knows the encoder") {
  using Stages = std::vector<std::vector<std::string>>;
  const LayoutParse parse = pipeline_layout_from_names(Stages{{" Embedding", "decoder\n"}, {}, {"MTP", "loss"}});
  CHECK(stages_of(parse) == Names{"Et", "", "mL"});
  CHECK(check_pipeline_layout(*parse.layout, 3, 1, 1).empty());
  const LayoutParse encoder = pipeline_layout_from_names(Stages{{"embedding", "encoder", "loss"}});
  CHECK(names_of(check_pipeline_layout(*encoder.layout, 1, 0, {})) == Names{"layout-encoder-unsupported"});
  CHECK(names_of(pipeline_layout_from_names(Stages{{"E"}, {""}, {" "}}).findings) ==
        Names{"layout-valid-characters", "layout-valid-characters", "layout-valid-characters"});
}

TEST_CASE("the text of a Python list is not a layout") {
  CHECK_FALSE(parse_pipeline_layout("[['embedding','decoder'],['loss']]").layout);
}
