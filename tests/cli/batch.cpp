// Batch accounting as the command prints it, against upstream's own.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <string>

#include "tests/cli/gtplan.hpp"
#include "tests/support/data.hpp"

namespace {

using gtp::test::Folder;
using gtp::test::gtplan;
using gtp::test::kValid;
using gtp::test::Outcome;
using nlohmann::json;

json batch_of(std::vector<std::string> words) {
  words.insert(words.begin(), {"batch", "--format", "json"});
  const Outcome outcome = gtplan(std::move(words));
  CAPTURE(outcome.error);
  CAPTURE(outcome.output);
  REQUIRE(outcome.exit == 0);
  return json::parse(outcome.output);
}

}  // namespace

TEST_CASE("rows and evaluation are those of upstream") {
  const json cases = json::parse(gtp::test::read_file(gtp::test::project_data("batch_accounting.json")));
  const Folder folder;
  int accepted = 0, refused = 0;
  for (std::size_t i = 0; i < cases.size(); i += 5) {  // a process each: a fifth is enough here
    const json& expect = cases[i].at("expect");
    const std::string file = folder.file("b.json", cases[i].at("config").dump());
    CAPTURE(cases[i].dump());
    if (expect.contains("errors")) {
      CHECK(gtplan({"batch", file}).exit == 1);
      ++refused;
      continue;
    }
    json batch = batch_of({file, "--iterations", std::to_string(expect.at("rows").size())});
    for (json& row : batch.at("rows")) row.erase("skipped_train_samples");
    CHECK(batch.at("rows") == expect.at("rows"));
    for (const auto& [name, value] : expect.at("eval").items()) CHECK(batch.at("eval").at(name) == value);
    for (const auto& [name, value] : expect.at("derived").items()) CHECK(batch.at("derived").at(name) == value);
    ++accepted;
  }
  CHECK(accepted >= 15);
  CHECK(refused >= 3);
}

TEST_CASE("as many iterations as asked for are listed, ten otherwise") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", kValid);
  CHECK(batch_of({file}).at("rows").size() == 10);
  CHECK(batch_of({file, "--iterations", "3"}).at("rows").size() == 3);
  CHECK(batch_of({file, "--iterations", "0"}).at("rows").empty());
}

TEST_CASE("a resumed run goes on from the samples it has consumed") {
  const Folder folder;
  const json batch = batch_of({folder.file("a.yaml", kValid), "--set", "consumed_train_samples=640"});
  CHECK(batch.at("rows").at(0).at("consumed_train_samples") == 704);
}

TEST_CASE("rounded-down batches count the samples they skip") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", kValid);
  const std::vector<std::string> words{file,
                                       "--set",
                                       "global_batch_size=70",
                                       "--set",
                                       "decrease_batch_size_if_needed=true",
                                       "--set",
                                       "eval_global_batch_size=64",
                                       "--iterations",
                                       "2"};
  const json batch = batch_of(words);
  CHECK(batch.at("rows").at(1).at("running_global_batch_size") == 64);
  CHECK(batch.at("rows").at(1).at("skipped_train_samples") == 12);
}

TEST_CASE("horizons of the scheduler are in samples and need a length of the run") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", kValid);
  CHECK(!batch_of({file}).at("horizons").contains("lr_decay_samples"));
  const json horizons = batch_of({file, "--set", "train_iters=100", "--set", "lr_warmup_iters=10"}).at("horizons");
  CHECK(horizons.at("train_iters") == 100);
  CHECK(horizons.at("lr_decay_samples") == 6400);
  CHECK(horizons.at("lr_warmup_samples") == 640);
  CHECK(horizons.at("wd_incr_samples") == 6400);
}

TEST_CASE("the table has a row for each iteration and the figures below") {
  const Folder folder;
  const Outcome outcome = gtplan({"batch", folder.file("a.yaml", kValid), "--iterations", "2"});
  CHECK(outcome.output.find("iteration  num_microbatches  global_batch_size") == 0);
  CHECK(outcome.output.find("\n        2                 4                 64") != std::string::npos);
  CHECK(outcome.output.find("\neval_num_microbatches    4\n") != std::string::npos);
}
