// Rank maps and process groups as the command prints them, against upstream's own.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/gtplan.hpp"
#include "tests/support/data.hpp"
#include "tests/support/sha256.hpp"

namespace {

using gtp::test::Folder;
using gtp::test::gtplan;
using gtp::test::kValid;
using gtp::test::Outcome;
using nlohmann::json;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

json groups_of(std::vector<std::string> words) {
  words.insert(words.begin(), {"ranks", "--format", "json"});
  const Outcome outcome = gtplan(std::move(words));
  CAPTURE(outcome.error);
  REQUIRE(outcome.exit == 0);
  return json::parse(outcome.output);
}

}  // namespace

TEST_CASE("digests and derived values are those of upstream") {
  const json rows = json::parse(gtp::test::read_file(gtp::test::project_data("rank_groups.json")));
  const Folder folder;
  int compared = 0, valid = 0;
  for (const json& row : rows) {
    if (!row.contains("sha256") || ++valid % 10 != 0) continue;  // a process each: a tenth is enough here
    CAPTURE(row.at("topology").dump());
    const json ranks = groups_of({folder.file("t.json", row.at("topology").dump()), "--digest"});
    CHECK(ranks.at("groups") == row.at("sha256"));
    for (const auto& [name, value] : row.at("derived").items()) CHECK(ranks.at("derived").at(name) == value);
    ++compared;
  }
  CHECK(compared >= 10);
}

TEST_CASE("the lists are what their digests cover") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", kValid);
  const json lists = groups_of({file}), digests = groups_of({file, "--digest"});
  CHECK(lists.at("world_size") == 64);
  CHECK(lists.at("groups").size() == 22);
  CHECK(lists.at("groups").at("gtp_remat").at(3) == json::parse("[9,11,13,15]"));
  for (const auto& [name, groups] : lists.at("groups").items()) {
    gtp::test::Sha256 sha256;
    sha256(groups.dump());
    CHECK(digests.at("groups").at(name) == sha256.hex());
  }
}

TEST_CASE("only the families that are asked for are listed") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", kValid);
  CHECK(groups_of({file, "--group", "ep,gtp_remat"}).at("groups").size() == 2);
  CHECK(groups_of({file, "--group", "ep", "--group", "tp"}).at("groups").size() == 2);
  const Outcome table = gtplan({"ranks", file, "--format", "csv", "--group", "gtp_remat"});
  const std::vector<std::string> lines = lines_of(table.output);
  REQUIRE(lines.size() == 65);
  CHECK(lines[0] == "family,group,position,rank");
  CHECK(lines[2] == "gtp_remat,0,1,2");
}

TEST_CASE("the table has a row for each rank with its host and coordinates") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", kValid);
  const std::vector<std::string> csv = lines_of(gtplan({"ranks", file, "--format", "csv"}).output);
  REQUIRE(csv.size() == 65);
  CHECK(csv[0] == "rank,host,local_rank,tp,gtp,cp,dp,pp,etp,ep,egtp,edp");
  CHECK(csv[14] == "13,1,5,1,2,0,1,0,1,0,0,6");
  const std::vector<std::string> tsv = lines_of(gtplan({"ranks", file, "--format", "tsv"}).output);
  CHECK(tsv[14] == "13\t1\t5\t1\t2\t0\t1\t0\t1\t0\t0\t6");
  const std::vector<std::string> text = lines_of(gtplan({"ranks", file}).output);
  CHECK(text[0] == "rank  host  local_rank  tp  gtp  cp  dp  pp  etp  ep  egtp  edp");
  CHECK(text[14] == "  13     1           5   1    2   0   1   0    1   0     0    6");
  CHECK(gtplan({"ranks", file, "--format", "table"}).output == gtplan({"ranks", file}).output);
}

TEST_CASE("without a known host size the table has no hosts") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", "tensor_model_parallel_size: 2\n");
  const std::vector<std::string> csv = lines_of(gtplan({"ranks", file, "--world-size", "4", "--format", "csv"}).output);
  CHECK(csv.at(0) == "rank,tp,gtp,cp,dp,pp,etp,ep,egtp,edp");
  CHECK(csv.at(4) == "3,1,0,0,1,0,1,0,0,1");
}

TEST_CASE("one rank is told its host, its coordinates and its groups") {
  const Folder folder;
  const json rank = groups_of({folder.file("a.yaml", kValid), "--rank", "13"});
  CHECK(rank.at("rank") == 13);
  CHECK(rank.at("host") == 1);
  CHECK(rank.at("local_rank") == 5);
  CHECK(rank.at("dense") == json::parse(R"({"tp":1,"gtp_remat":2,"cp":0,"dp":1,"pp":0})"));
  CHECK(rank.at("expert") == json::parse(R"({"tp":1,"ep":0,"gtp_remat":0,"dp":6,"pp":0})"));
  CHECK(rank.at("groups").size() == 22);
  CHECK(rank.at("groups").at("gtp_remat") ==
        json::parse(R"({"index":3,"position":2,"size":4,"members":[9,11,13,15]})"));
}

TEST_CASE("a rank that is in no group of a family is told so") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", "pipeline_model_parallel_size: 4\n");
  const json rank = groups_of({file, "--world-size", "4", "--rank", "1"});
  CHECK(rank.at("groups").at("embd").is_null());
  CHECK(rank.at("groups").at("pp").at("members") == json::parse("[0,1,2,3]"));
  CHECK(gtplan({"ranks", file, "--world-size", "4", "--rank", "1"}).output.find("embd") != std::string::npos);
}

TEST_CASE("a world that is too large to list still answers for one rank") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", "tensor_model_parallel_size: 8\n");
  const std::string huge = "9223372036854775800";
  CHECK(gtplan({"ranks", file, "--world-size", huge}).exit == 2);
  CHECK(gtplan({"ranks", file, "--world-size", huge, "--digest"}).exit == 2);
  const json rank = groups_of({file, "--world-size", huge, "--rank", "9223372036854775799"});
  CHECK(rank.at("dense").at("tp") == 7);
  CHECK(rank.at("groups").at("dp").at("members").is_null());
  CHECK(gtplan({"ranks", file, "--world-size", huge, "--rank", "5"}).exit == 0);
}

TEST_CASE("host files name a host for each rank") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", kValid);
  const std::vector<std::string> slurm = lines_of(gtplan({"ranks", file, "--format", "slurm-hostfile"}).output);
  REQUIRE(slurm.size() == 64);
  CHECK(slurm[0] == "node00");
  CHECK(slurm[63] == "node07");
  const std::vector<std::string> mpi = lines_of(gtplan({"ranks", file, "--format", "mpi-rankfile"}).output);
  REQUIRE(mpi.size() == 64);
  CHECK(mpi[0] == "rank 0=node00 slot=0");
  CHECK(mpi[13] == "rank 13=node01 slot=5");
}
