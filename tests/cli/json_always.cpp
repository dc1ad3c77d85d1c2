// Under `--format json` standard output is one JSON document, whatever went wrong.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <random>
#include <string>
#include <vector>

#include "tests/cli/gtplan.hpp"

namespace {

using gtp::test::Folder;
using gtp::test::gtplan;
using gtp::test::kValid;
using gtp::test::Outcome;
using nlohmann::json;

/// The document; and the exit status, which must be one of three and fit it.
json document(const std::vector<std::string>& words, int exit) {
  const Outcome outcome = gtplan(words);
  CAPTURE(outcome.output);
  CAPTURE(outcome.error);
  CHECK(outcome.exit == exit);
  const json parsed = json::parse(outcome.output, nullptr, false);
  REQUIRE(!parsed.is_discarded());
  return parsed;
}

std::string verdict(const json& report) { return report.at("configs").at(0).at("verdict"); }

std::string random_bytes(unsigned seed, std::size_t size) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random() & 0xFFU);
  return bytes;
}

}  // namespace

TEST_CASE("a file that does not parse has a document with the verdict unreadable") {
  const Folder folder;
  const std::vector<std::string> garbage{random_bytes(1, 10000),
                                         random_bytes(2, 1),
                                         "{",
                                         "[1, 2",
                                         "\xFF\xFE",
                                         "a: b: c",
                                         std::string("tensor\0model", 12),
                                         std::string(100000, '['),
                                         "{\"a\": \"\xC0\x80\"}"};
  for (std::size_t i = 0; i < garbage.size(); ++i) {
    CAPTURE(i);
    const json report = document({"check", "--format", "json", folder.file("g.json", garbage[i])}, 2);
    CHECK(verdict(report) == "unreadable");
    CHECK(report.at("error_count").get<int>() >= 1);
    CHECK(report.at("configs").at(0).at("derived").empty());
    CHECK(report.at("configs").at(0).at("diagnostics").at(0).at("code") == "GTP901");
  }
}

TEST_CASE("random bytes of any kind never crash the program") {
  const Folder folder;
  for (unsigned seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const char* name = seed % 3 == 0 ? "r.json" : seed % 3 == 1 ? "r.yaml" : "r.args";
    const Outcome outcome = gtplan({"check", "--format", "json", folder.file(name, random_bytes(seed, 200 * seed))});
    CHECK(outcome.exit <= 2);
    CHECK(!json::parse(outcome.output, nullptr, false).is_discarded());
  }
}

TEST_CASE("missing files and folders have a document") {
  const Folder folder;
  CHECK(verdict(document({"check", "--format", "json", folder.path() / "missing"}, 2)) == "unreadable");
  CHECK(document({"check", "--format", "json", folder.path()}, 2).at("diagnostics").size() == 1);
  const std::string file = folder.file("a.yaml", kValid);
  CHECK(verdict(document({"check", "--format", "json", "--model", folder.path() / "no", file}, 2)) == "unreadable");
  for (const char* command : {"plan", "ranks", "batch"})
    CHECK(verdict(document({command, "--format", "json", folder.path() / "missing"}, 2)) == "unreadable");
}

TEST_CASE("wrong usage has a document with one error") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", kValid);
  const std::vector<std::vector<std::string>> wrong{{"chek", "--format", "json", file},
                                                    {"--format", "json"},
                                                    {"check", "--format=json"},
                                                    {"check", "--format", "json", "--bogus", file},
                                                    {"check", "--format", "json", "--target", "x", file},
                                                    {"check", "--format", "json", "--input-format", "x", file},
                                                    {"check", "--format", "json", file, "--set"},
                                                    {"ranks", "--format", "json", "--rank", "x", file},
                                                    {"ranks", "--format", "json", "--rank", "64", file},
                                                    {"plan", "--format", "json", file, file},
                                                    {"explain", "--format", "json"},
                                                    {"explain", "--format", "json", "GTP000000"}};
  for (const auto& words : wrong) {
    CAPTURE(words.size());
    const json report = document(words, 2);
    CHECK(report.at("error_count") == 1);
    CHECK(report.at("configs").empty());
    CHECK(report.at("diagnostics").at(0).at("severity") == "error");
    CHECK(!report.at("diagnostics").at(0).at("message").get<std::string>().empty());
  }
}

TEST_CASE("invalid configurations have the document of check in every command") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", gtp::test::kInvalid);
  const json expected = document({"check", "--format", "json", file}, 1);
  CHECK(verdict(expected) == "invalid");
  for (const char* command : {"plan", "ranks", "batch"})
    CHECK(document({command, "--format", "json", file}, 1) == expected);
}

TEST_CASE("names and values of any bytes come out as valid UTF-8") {
  const Folder folder;
  const auto set = [](const std::string& word, int exit) {
    return document({"check", "--format", "json", "--set", word + "=1", "--", "--seed", "1"}, exit);
  };
  const json broken = set("bad\x01\x1b[31m\xFF", 2);
  CHECK(broken.at("configs").at(0).at("diagnostics").at(0).at("code") == "GTP901");
  const json unknown = set("right-to-left\xE2\x80\xAE\"\\", 1);
  CHECK(unknown.at("configs").at(0).at("diagnostics").at(0).at("code") == "GTP902");
  const json named = document({"check", "--format", "json", "no\xFFsuch\nfile"}, 2);
  CHECK(named.at("configs").at(0).at("file") == "no\xEF\xBF\xBDsuch\nfile");
}

TEST_CASE("numbers that no type holds are reported") {
  const Folder folder;
  const std::string text = "{\"world_size\": 99999999999999999999999, \"tensor_model_parallel_size\": 1e400}";
  const json report = document({"check", "--format", "json", folder.file("a.json", text)}, 1);
  CHECK(report.at("error_count").get<int>() >= 2);
  for (const char* number : {"-9223372036854775808", "9223372036854775807", "0", "-1"}) {
    CAPTURE(number);
    const std::string set = std::string("tensor_model_parallel_size=") + number;
    (void)document({"check", "--format", "json", "--world-size", "64", "--set", set, "--", "--seed", "1"}, 1);
  }
}

TEST_CASE("the document has the keys that other programs rely on") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", gtp::test::kInvalid);
  const json report = document({"check", "--format", "json", file}, 1);
  CHECK(report.at("format_version") == "1.0");
  CHECK(report.at("target") == "megatron-core@d98e8a64");
  const json& d = report.at("configs").at(0).at("diagnostics").at(0);
  CHECK(d.at("severity") == "error");
  CHECK(d.at("phase") == "startup");
  CHECK(d.at("code") == "GTP003");
  CHECK(d.at("rule") == "dense-shards-multiple-of-tp");
  CHECK(d.at("option") == "tensor_parallel_num_weight_shards");
  CHECK(d.at("label") == "6 is not a multiple of 4");
  CHECK(d.at("file") == file);
  CHECK(d.at("range") == json::parse(R"({"start":{"line":2,"column":36},"end":{"line":2,"column":37}})"));
  CHECK(d.at("related").at(0).at("option") == "tensor_model_parallel_size");
  for (const char* key : {"notes", "help", "fix", "message"}) CHECK(d.contains(key));
  const json& config = report.at("configs").at(0);
  CHECK(config.at("input_format") == "yaml");
  CHECK(config.at("file") == file);
  CHECK(!config.at("not_checked").empty());
}
