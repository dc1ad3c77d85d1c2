// What --cluster, --placement and --place do on the command line.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "tests/cli/gtplan.hpp"

namespace {

using gtp::test::Folder;
using gtp::test::gtplan;
using gtp::test::kValid;
using gtp::test::Outcome;
using nlohmann::json;

json placement_of(std::vector<std::string> words) {
  words.insert(words.begin(), {"ranks", "--format", "json"});
  const Outcome outcome = gtplan(std::move(words));
  CAPTURE(outcome.error);
  REQUIRE(outcome.exit == 0);
  return json::parse(outcome.output);
}

/// Eight hosts of two domains that take turns.
constexpr const char* kInterleaved =
    R"({"nodes":[{"name":"n0","gpus":4,"domain":"a"},{"name":"n1","gpus":4,"domain":"b"},
{"name":"n2","gpus":4,"domain":"a"},{"name":"n3","gpus":4,"domain":"b"},{"name":"n4","gpus":4,"domain":"a"},
{"name":"n5","gpus":4,"domain":"b"},{"name":"n6","gpus":4,"domain":"a"},{"name":"n7","gpus":4,"domain":"b"}]})";
constexpr const char* kSixteenShards = "tensor_parallel_num_weight_shards: 16\n";

}  // namespace

TEST_CASE("a cluster by name gives the hardware to every command") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", "tensor_model_parallel_size: 2\n");
  const Outcome plan = gtplan({"plan", file, "--cluster", "gb200-nvl72", "--nodes", "2"});
  CHECK(plan.exit == 0);
  CHECK(plan.output.find("\"blackwell\"") != std::string::npos);
  const json check =
      json::parse(gtplan({"check", file, "--cluster", "h100-8", "--nodes", "2", "--format", "json"}).output);
  CHECK(check.at("configs").at(0).at("derived").at("world_size") == 16);
}

TEST_CASE("groups of each family are counted by how far apart they are") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", kValid);
  const json placement = placement_of({file, "--cluster", "h100-8", "--placement"});
  CHECK(placement.at("placement").size() == 22);
  CHECK(placement.at("placement").at("gtp_remat") ==
        json::parse(R"({"groups":16,"size":4,"in_node":16,"in_domain":0,"cross":0,"one_rail":false})"));
  CHECK(placement.at("placement").at("pp").at("cross") == 32);
  CHECK(placement.at("placement").at("pp").at("one_rail") == true);
  CHECK(placement.at("cluster") == json::parse(R"({"name":"h100-8","hosts":8,"domains":8})"));
  CHECK(placement.at("warnings").empty());
  const Outcome table = gtplan({"ranks", file, "--placement", "--group", "gtp_remat", "--format", "csv"});
  CHECK(table.output == "family,groups,size,in_node,in_domain,cross,one_rail\ngtp_remat,16,4,16,0,0,no\n");
}

TEST_CASE("a dense group that leaves its domain is told with what would fit") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", kSixteenShards);
  const Outcome table = gtplan({"ranks", file, "--cluster", "h100-8", "--nodes", "4", "--placement"});
  CHECK(table.exit == 0);
  CHECK(table.error.find("2 of 2 gtp_remat groups leave their NVLink domain; with tensor_parallel_num_weight_shards 8 "
                         "none would") != std::string::npos);
  CHECK(table.output.find("32 ranks on 4 hosts in 4 NVLink domains\n") == 0);
}

TEST_CASE("hosts are reordered so that groups fit, with counts before and after") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", kSixteenShards), cluster = folder.file("c.json", kInterleaved);
  const json warned = placement_of({file, "--cluster", cluster, "--placement"});
  CHECK(warned.at("warnings").at(0).at("cross_reordered") == 0);
  const json placed = placement_of({file, "--cluster", cluster, "--place"});
  CHECK(placed.at("before").at("gtp_remat").at("cross") == 2);
  CHECK(placed.at("placement").at("gtp_remat").at("cross") == 0);
  CHECK(placed.at("hosts") == json::parse(R"(["n0","n2","n4","n6","n1","n3","n5","n7"])"));
  CHECK(placed.at("warnings").empty());
  const Outcome file_of_hosts = gtplan({"ranks", file, "--cluster", cluster, "--place", "--format", "slurm-hostfile"});
  CHECK(file_of_hosts.output.find("n0\nn0\nn0\nn0\nn2\n") == 0);
  CHECK(file_of_hosts.error.find("gtp_remat: 0 -> 0 of 2 groups stay on a host, 2 -> 0 leave") != std::string::npos);
  const Outcome rankfile = gtplan({"ranks", file, "--cluster", cluster, "--place", "--format", "mpi-rankfile"});
  CHECK(rankfile.output.find("rank 4=n2 slot=0\n") != std::string::npos);
  const Outcome as_listed = gtplan({"ranks", file, "--cluster", cluster, "--format", "mpi-rankfile"});
  CHECK(as_listed.output.find("rank 4=n1 slot=0\n") != std::string::npos);
}

TEST_CASE("what cannot be placed is refused") {
  const Folder folder;
  const std::string file = folder.file("a.yaml", kValid), hosts = folder.file("hosts", "a slots=8\n");
  CHECK(gtplan({"ranks", file, "--place"}).error.find("--place needs the hosts") != std::string::npos);
  const Outcome small = gtplan({"ranks", file, "--placement", "--cluster", hosts});
  CHECK(small.exit == 2);
  CHECK(small.error.find("the cluster has room for 8 ranks on 1 hosts, and the world has 64") != std::string::npos);
  CHECK(gtplan({"ranks", file, "--placement", "--rank", "1"}).exit == 2);
  const Outcome unknown = gtplan({"check", file, "--cluster", "h100-9"});
  CHECK(unknown.exit == 2);
  CHECK(unknown.output.find("did you mean `h100-8`?") != std::string::npos);
  CHECK(gtplan({"check", file, "--cluster", folder.file("bad.json", "{\"nodes\":1}")}).exit == 2);
}
