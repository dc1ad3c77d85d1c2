// The exit status is a contract: 0 valid, 1 errors in the input, 2 could not run.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <string>

#include "tests/cli/gtplan.hpp"

namespace {

using gtp::test::Folder;
using gtp::test::gtplan;
using gtp::test::kInvalid;
using gtp::test::kValid;
using gtp::test::Outcome;

/// Valid, with a warning: a key that occurs twice.
const std::string kWarning = std::string(kValid) + "micro_batch_size: 1\n";

}  // namespace

TEST_CASE("a valid configuration exits 0 in every command") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", kValid);
  for (const char* command : {"check", "plan", "ranks", "batch"}) {
    CAPTURE(command);
    const Outcome outcome = gtplan({command, file});
    CHECK(outcome.exit == 0);
    CHECK(!outcome.output.empty());
    CHECK(outcome.error.empty());
  }
}

TEST_CASE("an invalid configuration exits 1 in every command and is given no product") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", kInvalid);
  for (const char* command : {"plan", "ranks", "batch"}) {
    CAPTURE(command);
    const Outcome outcome = gtplan({command, file, "--world-size", "64"});
    CHECK(outcome.exit == 1);
    CHECK(outcome.output.empty());
    CHECK(outcome.error.find("error[GTP003]") != std::string::npos);
  }
  CHECK(gtplan({"check", file}).exit == 1);
}

TEST_CASE("an invalid configuration leaves the output file alone") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", kInvalid), plan = folder.file("plan.json", "as it was");
  CHECK(gtplan({"plan", file, "--world-size", "64", "-o", plan}).exit == 1);
  CHECK(gtp::test::read_file(plan) == "as it was");
}

TEST_CASE("warnings are allowed unless they are counted as errors") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", kWarning);
  CHECK(gtplan({"check", file}).exit == 0);
  CHECK(gtplan({"check", "--strict", file}).exit == 1);
  CHECK(gtplan({"ranks", file}).exit == 0);
  CHECK(gtplan({"ranks", "--strict", file}).exit == 1);
}

TEST_CASE("of several configurations the worst decides") {
  const Folder folder;
  const std::string valid = folder.file("a.yaml", kValid), invalid = folder.file("b.yaml", kInvalid);
  CHECK(gtplan({"check", valid, valid}).exit == 0);
  CHECK(gtplan({"check", invalid, valid}).exit == 1);
  CHECK(gtplan({"check", invalid, valid, folder.path() / "missing.yaml"}).exit == 2);
}

TEST_CASE("what cannot be read exits 2") {
  const Folder folder;
  const std::string fifo = folder.path() / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(gtplan({"check", folder.path() / "missing.yaml"}).exit == 2);
  CHECK(gtplan({"check", folder.path()}).exit == 2);
  CHECK(gtplan({"check", fifo}).exit == 2);
  CHECK(gtplan({"check", "/dev/zero"}).exit == 2);
  CHECK(gtplan({"check", folder.file("a.json", "{\"world_size\": ")}).exit == 2);
  CHECK(gtplan({"check", folder.file("b.json", std::string(17 << 20, ' '))}).exit == 2);
}

TEST_CASE("wrong usage exits 2 and says what was meant") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", kValid);
  const auto message = [](std::vector<std::string> words) {
    const Outcome outcome = gtplan(std::move(words));
    CHECK(outcome.exit == 2);
    CHECK(outcome.output.empty());
    return outcome.error;
  };
  CHECK(message({}).find("Usage: gtplan COMMAND") != std::string::npos);
  CHECK(message({"chek", file}).find("did you mean `check`?") != std::string::npos);
  CHECK(message({"check", "--formt", "json", file}).find("did you mean `--format`?") != std::string::npos);
  CHECK(message({"check", "--format", "jsno", file}).find("did you mean `json`?") != std::string::npos);
  CHECK(message({"check", "--target", "megatron-core@0", file}).find("megatron-core@d98e8a64") != std::string::npos);
  CHECK(message({"check", "--require", "world_sise", file}).find("did you mean `world_size`?") != std::string::npos);
  CHECK(message({"check"}).find("no CONFIG") != std::string::npos);
  CHECK(message({"check", file, "--", "--seed", "1"}).find("both files") != std::string::npos);
  CHECK(message({"check", "-", "-"}).find("standard input") != std::string::npos);
  CHECK(message({"ranks", file, file}).find("one CONFIG is taken") != std::string::npos);
  CHECK(message({"ranks", "--format", "svg", file}).find("slurm-hostfile") != std::string::npos);
  CHECK(message({"ranks", "--rank", "64", file}).find("no rank 64") != std::string::npos);
  CHECK(message({"ranks", "--group", "gtp_rema", file}).find("did you mean `gtp_remat`?") != std::string::npos);
  CHECK(message({"batch", "--iterations", "-1", file}).find("--iterations") != std::string::npos);
}

TEST_CASE("output that cannot be written exits 2") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", kValid);
  CHECK(gtplan({"check", file, "-o", folder.path() / "missing" / "report"}).exit == 2);
  CHECK(gtplan({"plan", file, "-o", folder.path()}).exit == 2);
  const Outcome full = gtp::test::run({.words = {GTPLAN_BINARY, "check", file}, .output_file = "/dev/full"});
  CHECK(full.exit == 2);
  CHECK(full.error.find("no space left") != std::string::npos);
  CHECK(gtplan({"ranks", file, "-o", "/dev/full"}).exit == 2);
}

TEST_CASE("everything after two dashes belongs to Megatron") {
  const Outcome outcome = gtplan({"check", "--format", "concise", "--", "--tensor-model-parallel-size", "4",
                                  "--tensor-parallel-num-weight-shards", "6"});
  CHECK(outcome.exit == 1);
  CHECK(outcome.output.find("error[GTP003]") != std::string::npos);
  CHECK(gtplan({"check", "--", "--tensor-model-parallel-size", "4"}).exit == 0);
  CHECK(gtplan({"check", "--"}).exit == 0);
  CHECK(gtplan({"check", "--", "--help"}).output.find("Usage") == std::string::npos);
}

TEST_CASE("standard input is a configuration like any other") {
  CHECK(gtplan({"check", "-"}, {}, std::string(kValid)).exit == 0);
  const Outcome outcome = gtplan({"check", "--format", "concise", "-"}, {}, std::string(kInvalid));
  CHECK(outcome.exit == 1);
  CHECK(outcome.output.find("<stdin>:2:36: error[GTP003]") == 0);
}

TEST_CASE("an unknown option is an error only when it is required") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", "tensor_model_parallel_size: 2\n");
  CHECK(gtplan({"check", file}).exit == 0);
  const Outcome required = gtplan({"check", "--format", "concise", "--require", "world_size,num_layers", file});
  CHECK(required.exit == 1);
  CHECK(required.output.find("GTP910") != std::string::npos);
  CHECK(required.output.find("num_layers") == std::string::npos);
  CHECK(gtplan({"check", "--require", "world_size", "--world-size", "2", file}).exit == 0);
  CHECK(gtplan({"check", "--complete", file}).exit == 1);
}

TEST_CASE("a command that lacks a value names the option to give") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", "tensor_model_parallel_size: 2\n");
  const Outcome ranks = gtplan({"ranks", file});
  CHECK(ranks.exit == 1);
  CHECK(ranks.error.find("--world-size N") != std::string::npos);
  const Outcome batch = gtplan({"batch", "--world-size", "4", file});
  CHECK(batch.exit == 1);
  CHECK(batch.error.find("micro_batch_size") != std::string::npos);
  const Outcome hosts = gtplan({"ranks", "--world-size", "4", "--format", "mpi-rankfile", file});
  CHECK(hosts.exit == 1);
  CHECK(hosts.error.find("gpus_per_node") != std::string::npos);
}
