#include "validators/command_line.hpp"

#include <doctest/doctest.h>

#include "loading.hpp"

using namespace gtp;
using namespace gtp::test;

namespace {

Loaded load_with(std::string text, std::vector<std::string> set) {
  LoadRequest request = request_for(std::move(text));
  request.set = std::move(set);
  return load(request);
}

Loaded load_sizes(std::string text, std::optional<std::string> world, std::optional<std::string> nodes,
                  std::optional<std::string> gpus, std::vector<std::string> set = {}) {
  LoadRequest request = request_for(std::move(text));
  request.world_size = std::move(world);
  request.nodes = std::move(nodes);
  request.gpus_per_node = std::move(gpus);
  request.set = std::move(set);
  return load(request);
}

}  // namespace

TEST_CASE("--set wins over the file and the last --set over earlier ones") {
  const Loaded loaded = load_with("micro_batch_size: 1\n", {"micro_batch_size=2", "micro_batch_size=4"});
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "micro_batch_size") == "4");
  const Place place = setting(loaded, "micro_batch_size")->place;
  CHECK(loaded.sources[place.source].name == "<command line>");
  CHECK(loaded.sources[place.source].text == "--set micro_batch_size=2 --set micro_batch_size=4");
  CHECK(text_at(loaded, place) == "4");
  CHECK(start_of(loaded, place) == "1:49");
}

TEST_CASE("--set takes lists, expressions and words with any characters") {
  const Loaded loaded =
      load_with("", {"high_priority_stream_groups=[ep, 'tp' ]", "hierarchical_context_parallel_sizes=2",
                     "pipeline_model_parallel_layout=Et*3|(tt|)*6mL", "hybrid_layer_pattern=*E*E",
                     "moe_layer_freq=[0,1]", "load=a=b c", "profile_ranks=[]", "lr=1e-4"});
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "high_priority_stream_groups") == "[ep, tp]");
  CHECK(value(loaded, "hierarchical_context_parallel_sizes") == "[2]");
  CHECK(value(loaded, "pipeline_model_parallel_layout") == "Et*3|(tt|)*6mL");
  CHECK(value(loaded, "hybrid_layer_pattern") == "*E*E");
  CHECK(value(loaded, "moe_layer_freq") == "[0, 1]");
  CHECK(value(loaded, "load") == "a=b c");
  CHECK(text_at(loaded, setting(loaded, "load")->place) == "a=b c");
  CHECK(value(loaded, "profile_ranks") == "[]");
}

TEST_CASE("--set to none or null means the target's default") {
  for (const char* none : {"none", "null", "None", "~"}) {
    const Loaded loaded =
        load_with("micro_batch_size: x\nglobal_batch_size: 8\n", {std::string("global_batch_size=") + none});
    CHECK(value(loaded, "global_batch_size") == "-");
    CHECK(value(loaded, "micro_batch_size") == "?");
    CHECK(loaded.config.described(Section::Batch));
  }
  const Loaded fresh = load_with("", {"global_batch_size=none"});
  CHECK(fresh.config.described(Section::Batch));
}

TEST_CASE("none is a word where the option has it as a choice") {
  CHECK(value(load_with("", {"position_embedding_type=none"}), "position_embedding_type") == "none");
  CHECK(value(load_with("position_embedding_type: rope\n", {"position_embedding_type=null"}),
              "position_embedding_type") == "-");
}

TEST_CASE("slips in --set are reported at their words") {
  const Loaded wrong = load_with("", {"micro_batch_size=x"});
  REQUIRE(codes(wrong) == "GTP903");
  CHECK(text_at(wrong, wrong.diagnostics[0].primary.place) == "x");
  const Loaded item = load_with("", {"hierarchical_context_parallel_sizes=[2, y]"});
  REQUIRE(codes(item) == "GTP903");
  CHECK(text_at(item, item.diagnostics[0].primary.place) == "y");
  const Loaded unknown = load_with("", {"micro_batch=1"});
  REQUIRE(codes(unknown) == "GTP902");
  CHECK(text_at(unknown, unknown.diagnostics[0].primary.place) == "micro_batch");
  CHECK(codes(load_with("", {"micro_batch_size"})) == "GTP908");
  CHECK(codes(load_with("", {"=1"})) == "GTP902");
  CHECK(codes(load_with("", {""})) == "GTP902");
  CHECK(codes(load_with("", {"data_parallel_size=2"})) == "GTP913");
}

TEST_CASE("the world size comes from --set, --world-size, --nodes and the file, in this order") {
  const std::string file = "world_size: 2\n";
  CHECK(value(load_sizes(file, {}, {}, {}), "world_size") == "2");
  CHECK(value(load_sizes(file, {}, "3", "4"), "world_size") == "12");
  CHECK(value(load_sizes(file, "8", "3", "4"), "world_size") == "8");
  CHECK(value(load_sizes(file, "8", "3", "4", {"world_size=16"}), "world_size") == "16");
}

TEST_CASE("--gpus-per-node is an option and --nodes takes it from wherever it is given") {
  CHECK(value(load_sizes("", {}, {}, "4"), "gpus_per_node") == "4");
  CHECK(value(load_sizes("gpus_per_node: 8\n", {}, "2", {}), "world_size") == "16");
  CHECK(value(load_sizes("gpus_per_node: 8\n", {}, "2", {}, {"gpus_per_node=4"}), "world_size") == "8");
}

TEST_CASE("--nodes without GPUs of a node is reported") {
  const Loaded loaded = load_sizes("", {}, "2", {});
  REQUIRE(codes(loaded) == "GTP908");
  CHECK(loaded.diagnostics[0].primary.text == "needs --gpus-per-node beside it");
  CHECK(text_at(loaded, loaded.diagnostics[0].primary.place) == "2");
  CHECK(value(loaded, "world_size") == "?");
}

TEST_CASE("sizes that are no numbers or do not fit are reported") {
  CHECK(codes(load_sizes("", "x", {}, {})) == "GTP903");
  CHECK(codes(load_sizes("", {}, "x", "4")) == "GTP903");
  CHECK(codes(load_sizes("", {}, "0", "4")) == "GTP903");
  CHECK(codes(load_sizes("", {}, "-2", "4")) == "GTP903");
  CHECK(codes(load_sizes("", {}, "2", "y")) == "GTP903");
  CHECK(codes(load_sizes("", {}, "99999999999999999999", "4")) == "GTP907");
  const Loaded product = load_sizes("", {}, "9000000000000000000", "8");
  REQUIRE(codes(product) == "GTP907");
  CHECK(product.diagnostics[0].related.size() == 1);
  CHECK(value(product, "world_size") == "?");
}
