// The command line of the training programs, and the files that they leave.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "examples/train/arguments.hpp"
#include "examples/train/weights_file.hpp"
#include "runs.hpp"

using namespace gtp;
using namespace gtp::test;
using namespace gtp::train;

namespace {

std::optional<Arguments> parse(std::vector<std::string> words, bool has_loopback = false) {
  words.insert(words.begin(), "train");
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  return parse_arguments(pointers, has_loopback);
}

class TemporaryFolder {
 public:
  TemporaryFolder() { std::filesystem::create_directory(path_); }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_ = std::filesystem::temp_directory_path() / fmt::format("gtp-{}", ::getpid());
};

std::vector<TrainLog> two_ranks() {
  std::vector<TrainLog> ranks(2);
  ranks[0].pieces = {{"head", 2, 3, {0, 1, 2}, {1.5F, -2.0F, 1e-9F}}};
  ranks[1].pieces = {{"head", 2, 3, {3, 4, 5}, {4.0F, 5.0F, 6.0F}}, {"final_norm.gain", 1, 1, {0}, {1.0F}}};
  return ranks;
}

}  // namespace

TEST_CASE("the command line sets formats, graphs and files, and nothing else passes") {
  const auto arguments =
      parse({"plan.json", "--weight-format", "nvfp4", "--graph", "--weights", "w", "--hidden", "8192"});
  REQUIRE(arguments);
  CHECK(arguments->options.weight_format == WeightFormat::kNvfp4);
  CHECK(arguments->options.graph);
  CHECK(arguments->options.collect_weights);
  CHECK(arguments->weights == "w");
  CHECK(arguments->shape.hidden == 8192);
  CHECK_FALSE(parse({"plan.json"})->options.collect_weights);
  CHECK_FALSE(parse({"plan.json", "--weight-format", "fp8"}));
  CHECK_FALSE(parse({"plan.json", "--loopback"}));
  CHECK(parse({"plan.json", "--loopback"}, true)->loopback);
  CHECK_FALSE(parse({"--graph"}));
  CHECK_FALSE(parse({"plan.json", "--log-interval", "0"}));
}

TEST_CASE("weights of threads and of processes are read back as they were written") {
  const TemporaryFolder folder;
  const std::vector<TrainLog> ranks = two_ranks();
  REQUIRE(write_weights(folder / "threads", ranks));
  REQUIRE(write_weights(folder / "processes.0", std::span(ranks).first(1)));
  REQUIRE(write_weights(folder / "processes.1", std::span(ranks).last(1)));
  const Tensors written = *assemble(ranks);
  for (const std::string name : {"threads", "processes"}) {
    const auto pieces = read_weights(folder / name);
    REQUIRE(pieces);
    std::vector<TrainLog> log(1);
    log[0].pieces = *pieces;
    CHECK(*assemble(log) == written);
  }
  CHECK_FALSE(read_weights(folder / "nothing"));
}

TEST_CASE("a damaged file of weights is refused") {
  const TemporaryFolder folder;
  const std::string path = folder / "weights";
  REQUIRE(write_weights(path, two_ranks()));
  const auto size = std::filesystem::file_size(path);
  for (const std::uintmax_t kept : {size - 1, size / 2, std::uintmax_t{9}}) {
    std::filesystem::resize_file(path, kept);
    CHECK_FALSE(read_weights(path));
  }
  std::ofstream(path, std::ios::binary) << std::string(64, '\xFF');
  CHECK_FALSE(read_weights(path));
}
