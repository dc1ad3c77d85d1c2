#include "validators/cluster.hpp"

#include <doctest/doctest.h>

#include <array>
#include <random>

#include "loading.hpp"
#include "validators/hostlist.hpp"

using namespace gtp;
using namespace gtp::test;

namespace {

LoadRequest with_cluster(std::string text, std::string config = "tensor_model_parallel_size: 1\n") {
  LoadRequest request = request_for(std::move(config));
  request.clusters.push_back({nullptr, Text{"cluster", std::move(text)}});
  return request;
}

Loaded load_cluster(std::string text) { return load(with_cluster(std::move(text))); }

/// Of a text that is understood.
Cluster cluster_of(std::string text) {
  const Loaded loaded = load_cluster(std::move(text));
  CAPTURE(loaded.diagnostics.empty() ? "" : loaded.diagnostics[0].primary.text);
  REQUIRE(codes(loaded) == "");
  REQUIRE(loaded.cluster);
  return *loaded.cluster;
}

/// `line:column label` of why a text cannot be read.
std::string refusal(std::string text) {
  const Loaded loaded = load_cluster(std::move(text));
  if (loaded.readable) return "(readable)";
  REQUIRE(codes(loaded) == "GTP901");
  return start_of(loaded, loaded.diagnostics[0].primary.place) + " " + loaded.diagnostics[0].primary.text;
}

std::string names_of(const Cluster& cluster) {
  std::string text;
  for (const ClusterHost& host : cluster.hosts) text += (text.empty() ? "" : " ") + host.name;
  return text;
}

std::vector<std::string> expanded(std::string_view list) {
  std::size_t budget = 1000;
  std::vector<std::string> names;
  REQUIRE_FALSE(readers::expand_hostlist(list, budget, names));
  CHECK(budget == 1000 - names.size());
  return names;
}

std::string expansion_problem(std::string_view list) {
  std::size_t budget = 1000;
  std::vector<std::string> names;
  const auto problem = readers::expand_hostlist(list, budget, names);
  return problem ? std::to_string(problem->offset) + " " + problem->what : "";
}

constexpr const char* kTopo =
    "\t\x1B[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1B[0m\n"
    "GPU0\t X \tNV18\tPIX\tSYS\t0-47,96-143\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tSYS\tPXB\t48-95\t1\t\tN/A\n"
    "NIC0\tPIX\tSYS\t X \tSYS\n"
    "NIC1\tSYS\tPXB\tSYS\t X \n"
    "\n"
    "Legend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n\n"
    "NIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n";
constexpr const char* kTree =
    "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[00-01]\n"
    "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[02-03]\n"
    "SwitchName=top Level=1 LinkSpeed=1 Nodes=n[00-03] Switches=s[0-1]\n";
constexpr const char* kBlocks =
    "BlockName=b1 BlockIndex=0 Nodes=n[01-02] BlockSize=2\n"
    "BlockName=b2 BlockIndex=1 Nodes=n[03-04] BlockSize=2\n"
    "AggregatedBlock=a1 BlockIndex=2 Nodes=n[01-04] BlockSize=4\n";
constexpr const char* kVariables =
    "HOME=/root\nnot a variable\nSLURM_JOB_NODELIST=node[01-02,20],x3\nSLURM_NNODES=4\nSLURM_GPUS_ON_NODE=h100:8\n"
    "SLURM_TASKS_PER_NODE=1(x4)\n";
constexpr const char* kXml =
    "<system version=\"1\">\n"
    "  <cpu numaid=\"0\" affinity=\"ffff\" arch=\"x86_64\">\n"
    "    <pci busid=\"0000:18:00.0\" link_speed=\"32.0 GT/s PCIe\">\n"
    "      <pci busid=\"0000:1a:00.0\"><gpu dev=\"0\" sm=\"90\" rank=\"0\"><nvlink target=\"x\" "
    "count=\"18\"/></gpu></pci>\n"
    "      <pci busid=\"0000:1b:00.0\"><nic><net name=\"mlx5_0\" dev=\"0\" speed=\"400000\"/></nic></pci>\n"
    "    </pci>\n"
    "    <nic><net name=\"eth0\" dev=\"1\"/></nic>\n"
    "  </cpu>\n"
    "  <!-- another --><cpu numaid=\"1\"><pci><gpu dev=\"1\" sm=\"90\"/></pci></cpu>\n"
    "</system>\n";
constexpr const char* kJson =
    R"({"preset":"gb200-nvl72","nodes":[{"name":"n[01-02]","gpus":4,"domain":"b1","switch":["s4","s0"]},)"
    R"({"name":"m1","gpus":2}],"nics":[{"name":"mlx5_0","numa":1,"gpus":[0,1]}],"gpu_numa":[0,0,1,1]})";

}  // namespace

TEST_CASE("a preset gives the hardware that the input does not") {
  LoadRequest request = request_for("tensor_model_parallel_size: 1\ngpu_memory_gib: 100\n");
  request.clusters.push_back({find_cluster_preset("gb200-nvl72"), std::nullopt});
  request.nodes = "18";
  const Loaded loaded = load(request);
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "gpus_per_node") == "4");
  CHECK(value(loaded, "gpu_arch") == "blackwell");
  CHECK(value(loaded, "gpu_memory_gib") == "100");
  CHECK(value(loaded, "world_size") == "72");
  REQUIRE(loaded.cluster);
  CHECK(loaded.cluster->hosts_per_domain == 18);
}

TEST_CASE("presets have the hosts and domains of the machines that they are named after") {
  std::string text;
  for (const ClusterPreset& preset : kClusterPresets) {
    text += std::string(preset.name) + ' ' + std::to_string(preset.gpus_per_host) + ' ' +
            std::to_string(preset.gpus_per_host * preset.hosts_per_domain) + ' ' + std::string(preset.gpu_arch) + '\n';
    CHECK(find_gpu(preset.gpu) == &preset);
  }
  CHECK(text ==
        "h100-8 8 8 hopper\nh200-8 8 8 hopper\nb200-8 8 8 blackwell\ngb200-nvl72 4 72 blackwell\n"
        "gb300-nvl72 4 72 blackwell\n");
  CHECK(find_cluster_preset("h100") == nullptr);
}

TEST_CASE("listed hosts give the world size unless the input has one") {
  CHECK(value(load_cluster("a slots=8\nb slots=8\n"), "world_size") == "16");
  CHECK(value(load(with_cluster("a slots=8\nb slots=8\n", "world_size: 4\n")), "world_size") == "4");
  LoadRequest request = with_cluster("a slots=8\nb slots=8\n");
  request.gpus_per_node = "4";
  CHECK(value(load(request), "world_size") == "8");
  CHECK(value(load_cluster("a\nb\n"), "world_size") == "-");
  CHECK(value(load_cluster("a slots=8\nb slots=4\n"), "world_size") == "12");
  CHECK(value(load_cluster("a slots=8\nb slots=4\n"), "gpus_per_node") == "-");
}

TEST_CASE("lists of hosts are expanded as Slurm does") {
  CHECK(expanded("node[01-03,20],x3") == std::vector<std::string>{"node01", "node02", "node03", "node20", "x3"});
  CHECK(expanded("a[8-10]") == std::vector<std::string>{"a8", "a9", "a10"});
  CHECK(expanded("a[1-2]b[0-1]c") == std::vector<std::string>{"a1b0c", "a1b1c", "a2b0c", "a2b1c"});
  CHECK(expanded("[001-002]") == std::vector<std::string>{"001", "002"});
}

TEST_CASE("lists of hosts that are wrong or too long are refused before they are made") {
  CHECK(expansion_problem("") == "0 expected a name");
  CHECK(expansion_problem("a,") == "2 expected a name after the comma");
  CHECK(expansion_problem(",a") == "0 expected a name");
  CHECK(expansion_problem("a[3-1]") == "5 the range ends before it begins");
  CHECK(expansion_problem("a[1-") == "4 expected a number");
  CHECK(expansion_problem("a[1") == "3 expected `]`");
  CHECK(expansion_problem("a b") == "1 expected a letter, a digit or a bracket");
  CHECK(expansion_problem("a[0-999]") == "");
  CHECK(expansion_problem("a[0-1000]") == "8 these are too many names");
  CHECK(expansion_problem("a[0-999999999999999999]") == "22 these are too many names");
  CHECK(expansion_problem("a[0-9999999999999999999]") == "23 the number is too long");
  CHECK(expansion_problem("a[0-99]b[0-99]") == "13 these are too many names");
  CHECK(expansion_problem("a[0-599],a[0-599]") == "16 these are too many names");
  CHECK(expansion_problem(std::string(300, 'a')) == "300 the name is too long");
}

TEST_CASE("the JSON form gives hosts with domains and switches") {
  const Cluster cluster = cluster_of(kJson);
  CHECK(names_of(cluster) == "n01 n02 m1");
  CHECK(cluster.name == "gb200-nvl72");
  CHECK(cluster.gpu_arch == "blackwell");
  CHECK(cluster.hosts[1].gpus == 4);
  CHECK(cluster.hosts[1].domain == "b1");
  CHECK(cluster.hosts[1].switches == std::vector<std::string>{"s4", "s0"});
  CHECK(cluster.hosts[2].domain.empty());
  CHECK(total_gpus(cluster) == 10);
  CHECK_FALSE(common_gpus_per_host(cluster));
  CHECK(cluster.gpu_numa == std::vector<std::int64_t>{0, 0, 1, 1});
  CHECK(cluster.nics.at(0).numa == 1);
  const Cluster named = cluster_of(R"({"gpu":"h200","gpus_per_node":8})");
  CHECK(named.gpu_memory_gib == 139);
  CHECK_FALSE(named.hosts_per_domain);
}

TEST_CASE("a JSON file that is wrong is refused at the place") {
  CHECK(refusal("{\"nodes\":[{\"gpus\":4}]}") == "1:11 this host has no `name`");
  CHECK(refusal("{\"nodes\":[{\"name\":\"a\",\"gpus\":0}]}") == "1:30 expected a number from 1 to 1024");
  CHECK(refusal("{\"nodes\":[{\"name\":\"a\"},\n{\"name\":\"a\"}]}") == "2:9 the host `a` is listed twice");
  CHECK(refusal("{\"nodes\":[{\"name\":\"a[1-999999999]\"}]}").ends_with("these are too many names"));
  CHECK(refusal("{\"gpu\":\"h1000\"}") == "1:8 this GPU is not known: give gpu_arch and gpu_memory_gib instead");
  CHECK(refusal("{\"gpu_arch\":\"x\"}") == "1:13 expected ampere, hopper or blackwell");
  CHECK(refusal("{\"gpu_memory_gib\":-1}") == "1:19 expected a number of GiB");
  CHECK(refusal("{\"gpus_per_node\":\"4\"}") == "1:18 expected a number from 1 to 1024");
  CHECK_FALSE(load_cluster("{").readable);
  CHECK(codes(load_cluster("{\"speed\":1}")) == "GTP909");
}

TEST_CASE("nvidia-smi gives GPUs, NUMA nodes and the NICs nearby") {
  const Cluster cluster = cluster_of(kTopo);
  CHECK(cluster.gpus_per_host == 2);
  CHECK(cluster.gpu_numa == std::vector<std::int64_t>{0, 1});
  REQUIRE(cluster.nics.size() == 2);
  CHECK(cluster.nics[0].name == "mlx5_0");
  CHECK(cluster.nics[0].gpus == std::vector<std::int64_t>{0});
  CHECK(cluster.nics[1].numa == 1);
  CHECK(cluster.hosts.empty());
  CHECK(cluster_of("        GPU0    GPU1    mlx5_0  CPU Affinity\nGPU0     X      NV6     PIX     0-23\n"
                   "GPU1    NV6      X      SYS     0-23\n")
            .nics.at(0)
            .name == "mlx5_0");
  CHECK(refusal("\tGPU0\tGPU1\nGPU0\tX\tNV1\n") == "1:1 the header has 2 GPUs, and 1 have a row");
  CHECK(refusal("\tGPU0\tGPU1\nGPU0\tX\n") == "2:6 this row has 1 cells, and the header has 2");
}

TEST_CASE("Slurm's tree gives the switches above each host") {
  const Cluster cluster = cluster_of(kTree);
  CHECK(names_of(cluster) == "n00 n01 n02 n03");
  CHECK(cluster.hosts[2].switches == std::vector<std::string>{"s1", "top"});
  CHECK(cluster.hosts[2].domain.empty());
  CHECK_FALSE(cluster.hosts[2].gpus);
  const Cluster circle = cluster_of(
      "SwitchName=a Nodes=n1\nSwitchName=b Switches=a\nSwitchName=c Switches=b\n"
      "SwitchName=d Switches=c\nSwitchName=c2 Switches=d,b\n");
  CHECK(circle.hosts[0].switches.size() == 5);
  CHECK(refusal("SwitchName=a Nodes=n[1\n") == "1:23 expected `]`");
  CHECK(refusal("SwitchName=a Nodes=n[0-200000]\n").ends_with("these are too many hosts"));
}

TEST_CASE("switches that are above each other end") {
  const Cluster cluster = cluster_of("SwitchName=a Nodes=n1\nSwitchName=b Switches=a\nSwitchName=a Switches=b\n");
  CHECK(cluster.hosts[0].switches.size() == 8);
}

TEST_CASE("Slurm's blocks are NVLink domains") {
  const Cluster cluster = cluster_of(kBlocks);
  CHECK(names_of(cluster) == "n01 n02 n03 n04");
  CHECK(cluster.hosts[1].domain == "b1");
  CHECK(cluster.hosts[2].domain == "b2");
  CHECK(cluster.hosts[2].switches == std::vector<std::string>{"a1"});
}

TEST_CASE("Slurm's variables give hosts and GPUs") {
  const Cluster cluster = cluster_of(kVariables);
  CHECK(names_of(cluster) == "node01 node02 node20 x3");
  CHECK(cluster.gpus_per_host == 8);
  const Cluster tasks =
      cluster_of("SLURM_JOB_NODELIST=a[1-3]\nSLURM_TASKS_PER_NODE='4(x2),2'\nSLURM_JOB_SEGMENT_SIZE=2\n");
  CHECK(tasks.hosts[1].gpus == 4);
  CHECK(tasks.hosts[2].gpus == 2);
  CHECK(tasks.hosts_per_domain == 2);
  CHECK_FALSE(common_gpus_per_host(cluster_of("SLURM_JOB_NODELIST=a[1-3]\nSLURM_TASKS_PER_NODE=1(x3)\n")));
  CHECK(refusal("SLURM_JOB_NODELIST=a[1-3]\nSLURM_NNODES=4\n") == "1:20 3 hosts are listed, and SLURM_NNODES says 4");
  CHECK(refusal("SLURM_JOB_NODELIST=a[1-3]\nSLURM_TASKS_PER_NODE=4(x900000000)\n") ==
        "2:22 expected a number from 1 to 3");
  CHECK(refusal("SLURM_JOB_ID=4\n") == "1:1 no SLURM_JOB_NODELIST is in it");
}

TEST_CASE("a host file counts slots or lines") {
  CHECK(names_of(cluster_of("# mine\nb slots=8 max_slots=8\na:4\n")) == "b a");
  CHECK(cluster_of("a:4\n").hosts[0].gpus == 4);
  CHECK(cluster_of("a\na\nb\nb\n").hosts[1].gpus == 2);
  CHECK_FALSE(cluster_of("a\nb\n").hosts[1].gpus);
  CHECK(refusal("a slots=0\n") == "1:9 expected a number of slots from 1 to 1024");
  CHECK(refusal("a b\n") == "1:3 expected `slots=` and a number");
  CHECK(refusal("a\n$(x)\n") == "2:1 expected a host's name");
  CHECK(refusal(" \n") == "1:1 nothing is in it");
}

TEST_CASE("NCCL's topology gives GPUs with their NUMA nodes and the NICs nearby") {
  const Cluster cluster = cluster_of(kXml);
  CHECK(cluster.gpus_per_host == 2);
  CHECK(cluster.gpu_arch == "hopper");
  CHECK(cluster.gpu_numa == std::vector<std::int64_t>{0, 1});
  REQUIRE(cluster.nics.size() == 2);
  CHECK(cluster.nics[0].gpus == std::vector<std::int64_t>{0});
  CHECK(cluster.nics[1].gpus.empty());
  CHECK(refusal("<system><cpu></system>") == "1:16 this element is not open");
  CHECK(refusal("<system><cpu>") == "1:10 this element has no end");
  CHECK(refusal("<system/>") == "1:1 no element `gpu` is in it");
  CHECK(refusal("<system a=1>") == "1:11 expected a value in quotes");
  CHECK(refusal("<a/>") == "1:2 expected the element `system`");
  std::string deep = "<system>";
  for (int i = 0; i < 100'000; ++i) deep += "<pci>";
  CHECK(refusal(deep).ends_with("this is too deep"));
}

TEST_CASE("several descriptions add up and the first one wins") {
  LoadRequest request = with_cluster("SLURM_JOB_NODELIST=n[03-04,01]\n");
  request.clusters.push_back({nullptr, Text{"topology", kBlocks}});
  request.clusters.push_back({find_cluster_preset("gb200-nvl72"), std::nullopt});
  const Loaded loaded = load(request);
  CHECK(codes(loaded) == "");
  REQUIRE(loaded.cluster);
  CHECK(names_of(*loaded.cluster) == "n03 n04 n01");
  CHECK(loaded.cluster->hosts[0].domain == "b2");
  CHECK(loaded.cluster->hosts[2].domain == "b1");
  CHECK(loaded.cluster->gpus_per_host == 4);
  CHECK(value(loaded, "world_size") == "12");
}

TEST_CASE("no bytes make a reader of clusters fail in another way than by saying so") {
  std::mt19937 random(7);
  const std::array kTexts{kTopo, kTree, kBlocks, kVariables, kXml, kJson, "a slots=8\nb:4\n"};
  int refused = 0;
  for (const std::string text : kTexts)
    for (int round = 0; round < 300; ++round) {
      std::string changed = text.substr(0, 1 + random() % text.size());
      for (auto i = random() % 4; i > 0; --i)
        changed[random() % changed.size()] = "\0[]<>{}\"'=,:-9aN\x1B\t\n /"[random() % 21];
      const Loaded loaded = load_cluster(changed);
      refused += loaded.readable ? 0 : 1;
      for (const Diagnostic& d : loaded.diagnostics) {
        if (!d.primary.place.known()) continue;
        REQUIRE(d.primary.place.begin <= d.primary.place.end);
        REQUIRE(d.primary.place.begin <= loaded.sources[d.primary.place.source].text.size());
      }
    }
  CHECK(refused > 100);
}
