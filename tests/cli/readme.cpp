// What the documentation shows is what the program prints.
#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/gtplan.hpp"

namespace {

constexpr std::string_view kMark = "<!-- output: gtplan ", kMarkEnd = " -->\n```text\n", kBlockEnd = "```\n";

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

/// Compares every marked block of a document with what the program prints; GTP_UPDATE_GOLDEN=1 rewrites the blocks.
int check_document(const std::string& name) {
  const std::string root = GTP_SOURCE_ROOT;
  std::string text = gtp::test::read_file(root + "/" + name);
  int blocks = 0;
  for (std::size_t at = text.find(kMark); at != std::string::npos; at = text.find(kMark, at + 1), ++blocks) {
    const std::size_t command = at + kMark.size(), command_end = text.find(kMarkEnd, command);
    REQUIRE(command_end != std::string::npos);
    const std::size_t begin = command_end + kMarkEnd.size(), end = text.find(kBlockEnd, begin);
    REQUIRE(end != std::string::npos);
    const auto outcome = gtp::test::gtplan(words_of(text.substr(command, command_end - command)), root);
    if (std::getenv("GTP_UPDATE_GOLDEN") != nullptr) {
      text.replace(begin, end - begin, outcome.output);
      gtp::test::write_file(root + "/" + name, text);
    } else {
      CHECK(text.substr(begin, end - begin) == outcome.output);
    }
  }
  return blocks;
}

}  // namespace

TEST_CASE("the README shows what the program prints") { CHECK(check_document("README.md") == 2); }

TEST_CASE("the guide shows what the program prints") { CHECK(check_document("docs/guide.md") == 2); }

TEST_CASE("the catalogue in docs/rules.md is the table of rules") {
  constexpr std::string_view kGenerated = "<!-- from here: gtplan explain --list --format markdown -->\n\n";
  const std::string name = std::string(GTP_SOURCE_ROOT) + "/docs/rules.md";
  std::string text = gtp::test::read_file(name);
  const std::size_t at = text.find(kGenerated);
  REQUIRE(at != std::string::npos);
  const std::string catalogue = gtp::test::gtplan({"explain", "--list", "--format", "markdown"}).output;
  if (std::getenv("GTP_UPDATE_GOLDEN") != nullptr) {
    text.replace(at + kGenerated.size(), std::string::npos, catalogue);
    gtp::test::write_file(name, text);
  }
  CHECK(text.substr(at + kGenerated.size()) == catalogue);
}
