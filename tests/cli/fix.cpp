// `check --fix` mends a file in the bytes concerned and nowhere else, and `--dry-run` only shows it.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/cli/gtplan.hpp"

namespace {

using gtp::test::Folder;
using gtp::test::gtplan;
using gtp::test::read_file;

/// GTP with biases and with tied embeddings, which are on by default: GTP011 and GTP012 offer to turn them off.
struct Mended {
  const char* name;
  std::string_view before;
  std::string_view after;
};

constexpr Mended kMended[] = {
    {"flat.yaml",
     "# a comment stays\nnum_layers:   4   # so do spaces\ntensor_parallel_num_weight_shards: 2\nadd_bias_linear: true "
     "# why\nuntie_embeddings_and_output_weights: true\nhidden_size: 64\n",
     "# a comment stays\nnum_layers:   4   # so do spaces\ntensor_parallel_num_weight_shards: 2\nadd_bias_linear: "
     "false "
     "# why\nuntie_embeddings_and_output_weights: true\nhidden_size: 64\n"},
    {"absent.yaml",
     "num_layers: 4\ntensor_parallel_num_weight_shards: 2 # GTP\nadd_bias_linear: false\nhidden_size: 64",
     "num_layers: 4\ntensor_parallel_num_weight_shards: 2 # GTP\nuntie_embeddings_and_output_weights: "
     "true\nadd_bias_linear: false\nhidden_size: 64"},
    {"flat.json",
     "{\n  \"num_layers\": 4,\n  \"tensor_parallel_num_weight_shards\": 2,\n  \"add_bias_linear\": true\n}\n",
     "{\n  \"num_layers\": 4,\n  \"tensor_parallel_num_weight_shards\": 2,\n  "
     "\"untie_embeddings_and_output_weights\": true,\n  \"add_bias_linear\": false\n}\n"},
    {"line.json", "{\"num_layers\": 4, \"tensor_parallel_num_weight_shards\": 2, \"add_bias_linear\": false}",
     "{\"num_layers\": 4, \"tensor_parallel_num_weight_shards\": 2, \"untie_embeddings_and_output_weights\": true, "
     "\"add_bias_linear\": false}"},
    {"job.args",
     "# size\n--num-layers 4\n--tensor-parallel-num-weight-shards 2  # GTP\n--add-qkv-bias\n--disable-bias-linear\n",
     "# size\n--num-layers 4\n--tensor-parallel-num-weight-shards 2\n--untie-embeddings-and-output-weights  # "
     "GTP\n--disable-bias-linear\n"},
    {"test.yaml",
     "ENV_VARS:\n  A: 1\nMODEL_ARGS:\n  --num-layers: 4\n  --tensor-parallel-num-weight-shards: 2\n  --add-qkv-bias: "
     "true\n  --disable-bias-linear: true\n",
     "ENV_VARS:\n  A: 1\nMODEL_ARGS:\n  --num-layers: 4\n  --tensor-parallel-num-weight-shards: 2\n  "
     "--untie-embeddings-and-output-weights: true\n  --disable-bias-linear: true\n"},
};

}  // namespace

TEST_CASE("a fix touches only the bytes of the value, or adds a line, in every format") {
  for (const Mended& each : kMended) {
    CAPTURE(each.name);
    const Folder folder;
    const std::string path = folder.file(each.name, each.before);
    const auto outcome = gtplan({"check", "--fix", path});
    CHECK(read_file(path) == each.after);
    CHECK(outcome.error.find("mended ") == 0);
    CHECK(outcome.output.find("GTP011") == std::string::npos);
    CHECK(outcome.output.find("GTP012") == std::string::npos);
  }
}

TEST_CASE("a dry run shows the change as a diff and changes nothing") {
  const Folder folder;
  const std::string path = folder.file("flat.yaml", kMended[0].before);
  const auto outcome = gtplan({"check", "--fix", "--dry-run", path});
  CHECK(read_file(path) == kMended[0].before);
  CHECK(outcome.output == "--- " + path + "\n+++ " + path +
                              "\n@@ -1,6 +1,6 @@\n # a comment stays\n num_layers:   4   # so do spaces\n "
                              "tensor_parallel_num_weight_shards: 2\n-add_bias_linear: true # why\n+add_bias_linear: "
                              "false # why\n untie_embeddings_and_output_weights: true\n hidden_size: 64\n");
  CHECK(outcome.error == "would mend 1 problem in 1 file\n");
}

TEST_CASE("a mended file keeps its permissions, and a link stays a link") {
  const Folder folder;
  const std::string path = folder.file("flat.yaml", kMended[0].before);
  const std::string link = (folder.path() / "link.yaml").string();
  REQUIRE(::chmod(path.c_str(), 0640) == 0);
  std::filesystem::create_symlink("flat.yaml", link);
  gtplan({"check", "--fix", link});
  CHECK(std::filesystem::is_symlink(link));
  CHECK(read_file(path) == kMended[0].after);
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777U) == 0640U);
}

TEST_CASE("a fix that has no place in the file is named and the file left alone") {
  const Folder folder;
  const std::string text =
      "num_layers: 4\ntensor_parallel_num_weight_shards: 2\nuntie_embeddings_and_output_weights: true\n";
  const std::string path = folder.file("flat.yaml", text);
  const auto outcome = gtplan({"check", "--fix", "--set", "add_bias_linear=true", path});
  CHECK(read_file(path) == text);
  CHECK(outcome.error == path + ": the fix of GTP011 (`add_bias_linear`) cannot be written into this file\n");
}

TEST_CASE("only files can be mended") {
  CHECK(gtplan({"check", "--fix", "-"}, {}, "num_layers: 4\n").exit == 2);
  CHECK(gtplan({"check", "--fix", "--", "--num-layers", "4"}).exit == 2);
  CHECK(gtplan({"check", "--dry-run", "x.yaml"}).exit == 2);
}
