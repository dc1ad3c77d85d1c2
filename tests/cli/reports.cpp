// The reports for continuous integration are well-formed whatever an input holds, and say where and what.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/cli/gtplan.hpp"

namespace {

using gtp::test::Folder;
using gtp::test::gtplan;
using nlohmann::json;

constexpr const char* kTwoErrors =
    "world_size: 48\ntensor_model_parallel_size: 4\ntensor_parallel_num_weight_shards: 6\nnum_layers: 3\n"
    "pipeline_model_parallel_size: 2\n";
/// In a place where it is reported: an option that does not exist.
constexpr const char* kHostile = "\"a%b::c,d=\\u0001<&\\\"'\\u202e]]>\\nx\": \"\xF0\x9F\x98\x80\"\n";

std::string report(const std::string& format, const std::string& path, int exit) {
  const auto outcome = gtplan({"check", "--format", format, path});
  CAPTURE(outcome.error);
  CHECK(outcome.exit == exit);
  return outcome.output;
}

/// The members that the SARIF 2.1.0 schema asks of what we write, and their types.
void require_sarif(const json& sarif) {
  REQUIRE(sarif.at("version") == "2.1.0");
  REQUIRE(sarif.at("runs").size() == 1);
  const json& run = sarif.at("runs").at(0);
  CHECK(run.at("tool").at("driver").at("name") == "gtplan");
  CHECK(std::set<std::string>{"utf16CodeUnits", "unicodeCodePoints"}.contains(run.at("columnKind")));
  const json& rules = run.at("tool").at("driver").at("rules");
  for (const json& rule : rules) {
    for (const char* text : {"shortDescription", "fullDescription", "help"})
      CHECK(rule.at(text).at("text").is_string());
    CHECK(rule.at("defaultConfiguration").at("level").is_string());
  }
  for (const json& result : run.at("results")) {
    CHECK(std::set<std::string>{"none", "note", "warning", "error"}.contains(result.at("level")));
    CHECK_FALSE(result.at("message").at("text").get<std::string>().empty());
    CHECK(rules.at(result.at("ruleIndex").get<std::size_t>()).at("id") == result.at("ruleId"));
    CHECK(result.at("partialFingerprints").at("gtplanDiagnostic/v1").get<std::string>().size() == 16);
    for (const json& location : result.at("locations")) {
      const json& place = location.at("physicalLocation");
      const std::string uri = place.at("artifactLocation").at("uri");
      CHECK(uri.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/:%") ==
            std::string::npos);
      if (!place.contains("region")) continue;
      const json& region = place.at("region");
      CHECK(region.at("startLine") >= 1);
      CHECK(region.at("startColumn") >= 1);
      CHECK(region.at("endLine") >= region.at("startLine"));
    }
  }
}

/// Tags nest, attributes are quoted, and nothing stands where XML forbids it. Returns the names of the elements.
std::multiset<std::string> require_xml(std::string text) {
  std::multiset<std::string> names;
  std::vector<std::string> open;
  REQUIRE(text.starts_with("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"));
  text = text.substr(text.find("?>") + 2);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = text.find('<', at);
    const std::string between = text.substr(at, begin == std::string::npos ? begin : begin - at);
    CHECK(between.find("]]>") == std::string::npos);
    for (const char letter : between) CHECK((static_cast<unsigned char>(letter) >= 0x20 || letter == '\n'));
    if (begin == std::string::npos) break;
    const std::size_t end = text.find('>', begin);
    REQUIRE(end != std::string::npos);
    const std::string tag = text.substr(begin + 1, end - begin - 1);
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    CHECK(std::count(tag.begin(), tag.end(), '"') % 2 == 0);
    if (tag.starts_with('/')) {
      REQUIRE(!open.empty());
      CHECK("/" + open.back() == name);
      open.pop_back();
    } else {
      names.insert(name);
      if (!tag.ends_with('/')) open.push_back(name);
    }
    at = end + 1;
  }
  CHECK(open.empty());
  return names;
}

std::size_t lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

TEST_CASE("SARIF names rule, place and text of every problem") {
  const Folder folder;
  const std::string path = folder.file("job.yaml", kTwoErrors);
  const json sarif = json::parse(report("sarif", path, 1));
  require_sarif(sarif);
  const json& results = sarif.at("runs").at(0).at("results");
  REQUIRE(results.size() == 2);
  CHECK(results.at(0).at("ruleId") == "GTP003");
  const json region = {{"startLine", 3}, {"startColumn", 36}, {"endLine", 3}, {"endColumn", 37}};
  CHECK(results.at(0).at("locations").at(0).at("physicalLocation").at("region") == region);
  CHECK(results.at(0).at("relatedLocations").size() == 1);
  CHECK(results.at(1).at("ruleId") == "GTP201");
}

TEST_CASE("a SARIF fingerprint stays when lines move and changes with the value") {
  const Folder folder;
  const std::string path = folder.file("job.yaml", kTwoErrors);
  const auto fingerprint = [&] {
    return json::parse(report("sarif", path, 1)).at("runs").at(0).at("results").at(0).at("partialFingerprints");
  };
  const json before = fingerprint();
  folder.file("job.yaml", "# a comment\n" + std::string(kTwoErrors));
  CHECK(fingerprint() == before);
  std::string other = kTwoErrors;
  other.replace(other.find("shards: 6"), 9, "shards: 7");
  folder.file("job.yaml", other);
  CHECK(fingerprint() != before);
}

TEST_CASE("SARIF has the edit of an offered fix, and none where the file has no place for it") {
  const Folder folder;
  const std::string path = folder.file(
      "job.yaml", "num_layers: 4\ntensor_parallel_num_weight_shards: 2\nadd_bias_linear: true\nhidden_size: 64\n");
  const auto fix_of = [](const json& sarif, const char* code) {
    for (const json& result : sarif.at("runs").at(0).at("results"))
      if (result.at("ruleId") == code) return result.value("fixes", json::array());
    return json();
  };
  const json fixes = fix_of(json::parse(report("sarif", path, 1)), "GTP011");
  REQUIRE(fixes.size() == 1);
  const json& replacement = fixes.at(0).at("artifactChanges").at(0).at("replacements").at(0);
  const json region = {{"startLine", 3}, {"startColumn", 18}, {"endLine", 3}, {"endColumn", 22}};
  CHECK(replacement.at("deletedRegion") == region);
  CHECK(replacement.at("insertedContent").at("text") == "false");
  const auto given = gtplan({"check", "--format", "sarif", "--set", "add_qkv_bias=true", "--", "--num-layers", "4",
                             "--tensor-parallel-num-weight-shards", "2"});
  CHECK(fix_of(json::parse(given.output), "GTP011").empty());
}

TEST_CASE("JUnit has a suite a file, a failure an error, and a passed case for a valid file") {
  const Folder folder;
  const std::string bad = folder.file("bad.yaml", kTwoErrors);
  const std::string good = folder.file("good.yaml", "world_size: 4\ntensor_model_parallel_size: 2\n");
  const auto outcome = gtplan({"check", "--format", "junit", bad, good});
  CHECK(outcome.exit == 1);
  const auto names = require_xml(outcome.output);
  CHECK(names.count("testsuite") == 2);
  CHECK(names.count("failure") == 2);
  CHECK(names.count("testcase") == 3);
  CHECK(outcome.output.find("tests=\"3\" failures=\"2\"") != std::string::npos);
}

TEST_CASE("GitHub annotations are one line a problem, with its place") {
  const Folder folder;
  const std::string path = folder.file("job.yaml", kTwoErrors);
  const std::string text = report("github", path, 1);
  CHECK(lines(text) == 2);
  CHECK(text.find(",line=3,endLine=3,col=36,endColumn=37,title=GTP003 dense-shards-multiple-of-tp::") !=
        std::string::npos);
  CHECK(text.starts_with("::error file="));
}

TEST_CASE("no text of an input breaks a report") {
  const Folder folder;
  for (const std::string name : {"plain.yaml", "we%ird: na,me<&\".yaml"}) {
    const std::string path = folder.file(name, kHostile);
    require_sarif(json::parse(report("sarif", path, 1)));
    require_xml(report("junit", path, 1));
    const std::string github = report("github", path, 1);
    CHECK(lines(github) == 1);
    CHECK(github.find("we%25ird%3A na%2Cme") == (name == "plain.yaml" ? std::string::npos : github.find("we%25")));
  }
}

TEST_CASE("a file that cannot be read is a result of its own in every report") {
  const Folder folder;
  const std::string path = folder.file("broken.json", "{\"world_size\": ");
  const json sarif = json::parse(report("sarif", path, 2));
  require_sarif(sarif);
  CHECK(sarif.at("runs").at(0).at("results").size() == 1);
  CHECK(require_xml(report("junit", path, 2)).count("failure") == 1);
  CHECK(lines(report("github", path, 2)) == 1);
}

TEST_CASE("a folder or a pattern stands for the configurations in it") {
  const Folder folder;
  std::filesystem::create_directories(folder.path() / "jobs" / "deep");
  std::filesystem::create_directories(folder.path() / "jobs" / ".hidden");
  folder.file("jobs/b.yaml", gtp::test::kValid);
  folder.file("jobs/a.json", R"({"tensor_model_parallel_size": 2})");
  folder.file("jobs/deep/c.yml", gtp::test::kInvalid);
  folder.file("jobs/.hidden/d.yaml", gtp::test::kInvalid);
  folder.file("jobs/notes.txt", "not a configuration");
  const auto files = [&](const std::string& word, int exit) {
    const auto outcome = gtplan({"check", "--format", "json", word}, folder.path().string());
    CHECK(outcome.exit == exit);
    std::vector<std::string> names;
    const json report = json::parse(outcome.output);
    for (const json& config : report.at("configs")) names.push_back(config.at("file"));
    return names;
  };
  using Names = std::vector<std::string>;
  CHECK(files("jobs", 1) == Names{"jobs/a.json", "jobs/b.yaml", "jobs/deep/c.yml"});
  CHECK(files("jobs/*.yaml", 0) == Names{"jobs/b.yaml"});
  CHECK(files("**/*.y*ml", 1) == Names{"jobs/b.yaml", "jobs/deep/c.yml"});
  CHECK(files("jobs/[ab].*", 0) == Names{"jobs/a.json", "jobs/b.yaml"});
  CHECK(files("jobs/x*", 2).empty());
  CHECK(files("jobs/.hidden/*.txt", 2).empty());
}

TEST_CASE("many files come out in the order of their names whatever thread checked them") {
  const Folder folder;
  for (int i = 100; i < 300; ++i)
    folder.file(std::to_string(i) + ".yaml", i % 3 == 0 ? gtp::test::kInvalid : gtp::test::kValid);
  const auto outcome = gtplan({"check", "--format", "json", folder.path().string()});
  CHECK(outcome.exit == 1);
  const json configs = json::parse(outcome.output).at("configs");
  REQUIRE(configs.size() == 200);
  for (int i = 100; i < 300; ++i) {
    const json& config = configs.at(static_cast<std::size_t>(i - 100));
    CHECK(config.at("file").get<std::string>().ends_with("/" + std::to_string(i) + ".yaml"));
    CHECK(config.at("verdict") == (i % 3 == 0 ? "invalid" : "valid"));
  }
}

TEST_CASE("an ignored rule is neither reported nor counted, and an unknown one is refused") {
  const Folder folder;
  const std::string path = folder.file("job.yaml", gtp::test::kInvalid);
  CHECK(gtplan({"check", path}).exit == 1);
  for (const char* name : {"GTP003", "dense-shards-multiple-of-tp"}) {
    const auto outcome = gtplan({"check", "--ignore", name, path});
    CHECK(outcome.exit == 0);
    CHECK(outcome.output.find("GTP003") == std::string::npos);
  }
  const auto outcome = gtplan({"check", "--ignore", "GTP03", path});
  CHECK(outcome.exit == 2);
  CHECK(outcome.error.find("GTP003") != std::string::npos);
}
