// Every command explains itself.
#include <doctest/doctest.h>

#include <sstream>
#include <string>

#include "tests/cli/gtplan.hpp"

namespace {

using gtp::test::gtplan;
using gtp::test::Outcome;

constexpr const char* kCommands[] = {"check", "plan", "ranks", "batch", "launch", "diff", "explain"};

}  // namespace

TEST_CASE("the main page lists the commands and calls GTP experimental") {
  const Outcome help = gtplan({"--help"});
  CHECK(help.exit == 0);
  CHECK(help.error.empty());
  for (const char* command : kCommands) CHECK(help.output.find(std::string("\n  ") + command) != std::string::npos);
  CHECK(help.output.find("experimental") != std::string::npos);
  CHECK(gtplan({"-h"}).output == help.output);
  CHECK(gtplan({"help"}).output == help.output);
}

TEST_CASE("commands that do not exist yet are not offered") {
  const std::string help = gtplan({"--help"}).output;
  for (const char* later : {"memory", "reshard", "search", "cost", "report"})
    CHECK(help.find(std::string("\n  ") + later) == std::string::npos);
}

TEST_CASE("every command has a page with options and examples that fits a terminal") {
  for (const char* command : kCommands) {
    CAPTURE(command);
    const Outcome help = gtplan({command, "--help"});
    CHECK(help.exit == 0);
    CHECK(help.output.find(std::string("Usage: gtplan ") + command) != std::string::npos);
    CHECK(help.output.find(std::string("Examples:\n  gtplan ") + command) != std::string::npos);
    CHECK(help.output.find("--format") != std::string::npos);
    CHECK(gtplan({"help", command}).output == help.output);
    std::istringstream lines(help.output);
    for (std::string line; std::getline(lines, line);) {
      CAPTURE(line);
      CHECK(line.size() <= 120);
    }
  }
}

TEST_CASE("the version names the default target") {
  const Outcome version = gtplan({"--version"});
  CHECK(version.exit == 0);
  CHECK(version.output.find("gtplan ") == 0);
  CHECK(version.output.find("megatron-core@d98e8a64") != std::string::npos);
}

TEST_CASE("the targets can be listed without a configuration") {
  const Outcome targets = gtplan({"check", "--target", "list"});
  CHECK(targets.exit == 0);
  CHECK(targets.output ==
        "megatron-core@6513e3e2  2026-07-31\n"
        "megatron-core@d98e8a64  2026-08-22  (default)\n"
        "megatron-bridge@067f987d  2026-08-22\n"
        "megatron-core@2026-09  2026-09\n"
        "megatron-bridge@2026-09  2026-09\n");
}
