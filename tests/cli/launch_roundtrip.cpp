// What is launched is what was validated: the arguments that a launch writes, read back, are the same configuration.
#include <doctest/doctest.h>

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "tests/cli/launch_configurations.hpp"
#include "tests/support/data.hpp"
#include "validators/yaml_events.hpp"

namespace {

using namespace gtp;
using namespace gtp::literals;
using namespace gtp::test;
using cli::Checked;
using cli::Launch;
using cli::Launcher;

std::unique_ptr<Checked> checked_of(Config config) {
  auto checked = std::make_unique<Checked>(config.target());
  checked->loaded.config = std::move(config);
  checked->report.emplace(check(checked->loaded.config));
  checked->verdict = cli::Verdict::Valid;
  return checked;
}

/// As a person reads the file back: with the sizes and the hardware, which no flag of Megatron gives.
LoadRequest with_surroundings(const Config& config) {
  LoadRequest request;
  request.target = config.target();
  const auto text = [&](OptionId option) -> std::optional<std::string> {
    const Setting* setting = config.given(option);
    return setting == nullptr ? std::nullopt : std::optional(to_text(setting->value));
  };
  request.world_size = text("world_size"_opt);
  request.gpus_per_node = text("gpus_per_node"_opt);
  for (const OptionId option : sorted_options())
    if (kOptions[option.index].section == Section::Surroundings && option != "world_size"_opt &&
        option != "gpus_per_node"_opt)
      if (const auto value = text(option)) request.set.push_back(fmt::format("{}={}", name_of(option), *value));
  return request;
}

std::unique_ptr<Checked> read_back(const Launch& launch, const Config& config) {
  LoadRequest request = with_surroundings(config);
  request.config = Text{"train.args", file_of(launch, "train.args")};
  return test::checked_of(request);
}

std::unique_ptr<Checked> read_back(std::vector<std::string> argv, const Config& config) {
  LoadRequest request = with_surroundings(config);
  request.argv = std::move(argv);
  return test::checked_of(request);
}

/// The value that every option of the job has, given or not; `?` where it is not known.
std::map<std::string_view, std::string> in_effect(const Checked& checked) {
  std::map<std::string_view, std::string> values;
  for (const OptionId option : sorted_options()) {
    if (name_of(option) == "env") continue;
    const Value* value = checked.report->derivation.facts.find(option);
    values[name_of(option)] = value == nullptr ? "?" : to_text(*value);
  }
  return values;
}

/// The first option whose value differs.
std::string difference(const Checked& before, const Checked& after) {
  const auto was = in_effect(before), is = in_effect(after);
  for (const auto& [name, value] : was)
    if (is.at(name) != value) return fmt::format("{}: {} became {}", name, value, is.at(name));
  return {};
}

/// The `arguments=( ... )` of a script, as the words that Bash makes of it; without the line of the communicators.
std::vector<std::string> words_of_script(const std::string& script) {
  constexpr std::string_view kBegin = "\narguments=(\n", kEnd = "\n)\n\n", kFolder = "\"$folder/";
  const std::size_t begin = script.find(kBegin) + kBegin.size(), end = script.find(kEnd, begin);
  REQUIRE(end != std::string::npos);
  std::string text = script.substr(begin, end - begin);
  if (const std::size_t line = text.rfind('\n');
      text.find(kFolder, line == std::string::npos ? 0 : line) != std::string::npos)
    text.resize(line == std::string::npos ? 0 : line);
  return zero_terminated(
      run({.words = {"/bin/bash", "-c", "arguments=(" + text + ")\nprintf '%s\\0' \"${arguments[@]}\""}}).output);
}

/// The arguments of a TrainJob after the script; `$$` is `$` again. Without the groups of high priority at the end.
std::vector<std::string> words_of_manifest(const Launch& launch) {
  Diagnostics out;
  const auto root = readers::read_yaml({"trainjob.yaml", file_of(launch, "trainjob.yaml")}, 0, out);
  REQUIRE(root.has_value());
  const readers::Node* args = readers::find(*readers::find(*readers::find(*root, "spec"), "trainer"), "args");
  REQUIRE(args != nullptr);
  std::vector<std::string> words;
  for (const readers::Node& item : args->items) {
    std::string& word = words.emplace_back();
    for (std::size_t at = 0; at < item.text.size(); ++at) {
      word.push_back(item.text[at]);
      if (item.text.compare(at, 2, "$$") == 0) ++at;
    }
  }
  const bool groups = std::ranges::any_of(launch.files, [](const auto& file) { return file.path == "nccl_comm.yaml"; });
  if (groups) {
    const auto flag = std::find(words.rbegin(), words.rend(), "--high-priority-stream-groups");
    REQUIRE(flag != words.rend());
    words.erase(std::prev(flag.base()), words.end());
  }
  words.erase(words.begin());
  return words;
}

}  // namespace

TEST_CASE("the arguments of two thousand random configurations give the identical plan") {
  Random random(4);
  std::set<std::string_view> options;
  int with_gtp = 0, with_experts = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto before = checked_of(random_configuration(random, 24));
    const Launch launch = cli::make_launch(*before, {});
    if (!launch.problems.empty() && has_errors(launch.problems)) {
      // Only a list whose words look like flags cannot be told.
      for (const Diagnostic& d : launch.problems)
        if (d.severity == Severity::Error) CHECK(d.message == "no command line can carry the value");
      continue;
    }
    const auto after = read_back(launch, before->loaded.config);
    CAPTURE(file_of(launch, "train.args"));
    for (const Diagnostic& d : after->diagnostics)
      REQUIRE_MESSAGE(d.severity != Severity::Error, d.message, ": ", d.primary.option, ": ", d.primary.text);
    REQUIRE(cli::write_plan(*after) == cli::write_plan(*before));
    for (const Setting& setting : before->loaded.config.settings()) options.insert(name_of(setting.option));
    const Topology& topology = *before->report->derivation.topology;
    with_gtp += topology.gtp_remat > 1 || topology.egtp_remat > 1;
    with_experts += topology.ep > 1;
  }
  CHECK(options.size() > 500);
  CHECK(with_gtp > 800);
  CHECK(with_experts > 500);
}

TEST_CASE("every launcher hands over the same words") {
  Random random(5);
  for (int i = 0; i < 100; ++i) {
    const auto before = checked_of(random_configuration(random, 24));
    const Launch launch = cli::make_launch(*before, {});
    if (launch.files.empty()) continue;
    const std::string plan = cli::write_plan(*before);
    const auto words = words_of_script(file_of(launch, "launch.sh"));
    REQUIRE(cli::write_plan(*read_back(words, before->loaded.config)) == plan);
    for (const Launcher launcher : {Launcher::Slurm, Launcher::SlurmNative, Launcher::Local}) {
      const Launch other = cli::make_launch(*before, {.launcher = launcher});
      CHECK(words_of_script(other.files.front().text) == words);
      CHECK(file_of(other, "train.args") == file_of(launch, "train.args"));
    }
    CHECK(words_of_manifest(cli::make_launch(*before, {.launcher = Launcher::Kubernetes})) == words);
  }
}

TEST_CASE("defaults are not written, and mean the same when they are left out") {
  Random random(6);
  for (int i = 0; i < 100; ++i) {
    Config config = random_configuration(random, 4);
    for (int defaults = 0; defaults < 20; ++defaults) {
      const OptionId option = sorted_options()[static_cast<std::size_t>(random.below(sorted_options().size()))];
      const Option& row = row_of(option, config.version());
      if (test::detail::is_extra(option, config) && config.described(row.section) && !row.required)
        config.set(option, gtp::detail::to_value(row));
    }
    const auto before = checked_of(std::move(config));
    const Launch launch = cli::make_launch(*before, {});
    if (launch.files.empty()) continue;
    const auto after = read_back(launch, before->loaded.config);
    CAPTURE(file_of(launch, "train.args"));
    REQUIRE(difference(*before, *after) == "");
    for (const Setting& setting : after->loaded.config.settings()) {
      const std::string_view name = name_of(setting.option);
      const bool beside = name == "tensor_model_parallel_size" || name == "expert_tensor_parallel_size";
      CAPTURE(name);
      if (!beside)
        CHECK(setting.value != gtp::detail::to_value(row_of(setting.option, before->loaded.config.version())));
    }
  }
}

TEST_CASE("a section of which only defaults are given stays known") {
  const auto before = test::checked_of("world_size: 8\ngpus_per_node: 8\ncontext_parallel_size: 1\nbf16: false\n");
  const Launch launch = cli::make_launch(*before, {});
  CHECK(file_of(launch, "train.args").find("\n--context-parallel-size 1\n") != std::string::npos);
  const auto after = read_back(launch, before->loaded.config);
  CHECK(difference(*before, *after) == "");
}

TEST_CASE("experts come with ETP, and weight shards with the size they are a multiple of") {
  const auto lines = [](std::string_view text) { return file_of(launch_of(text), "train.args"); };
  const std::string moe = lines(
      "world_size: 16\ngpus_per_node: 8\ntensor_model_parallel_size: 2\nexpert_model_parallel_size: 4\n"
      "num_experts: 8\nsequence_parallel: true\n");
  CHECK(moe.find("\n--expert-tensor-parallel-size 2\n") != std::string::npos);
  const std::string shards = lines(
      "world_size: 16\ngpus_per_node: 8\ntensor_parallel_num_weight_shards: 4\nadd_bias_linear: false\n"
      "expert_tensor_parallel_num_weight_shards: 2\n");
  CHECK(shards.find("\n--tensor-model-parallel-size 1\n") != std::string::npos);
  CHECK(shards.find("\n--expert-tensor-parallel-size 1\n") != std::string::npos);
  CHECK(lines("world_size: 16\ngpus_per_node: 8\npipeline_model_parallel_size: 2\n").find("tensor") ==
        std::string::npos);
}

TEST_CASE("the shipped examples give the identical plan, their environment aside") {
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(GTP_SOURCE_ROOT) + "/examples")) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".yaml" && extension != ".json") continue;
    const auto before = test::checked_of(read_file(entry.path()), entry.path().string());
    if (before->verdict != cli::Verdict::Valid) continue;
    CAPTURE(entry.path().string());
    CHECK(difference(*before, *read_back(cli::make_launch(*before, {}), before->loaded.config)) == "");
    ++compared;
  }
  CHECK(compared >= 2);
}

TEST_CASE("configurations that Megatron-LM runs in its own tests give the identical plan") {
  const auto corpus = shared_or_message("corpus/INDEX.tsv");
  if (!corpus) return;
  std::istringstream lines(read_file(*corpus));
  int compared = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream cells(line);
    std::string file, cell, world;
    for (int column = 0; std::getline(cells, cell, '\t') && column < 5; ++column) {
      if (column == 0) file = cell;
      if (column == 4) world = cell;
    }
    if (!file.starts_with("megatron-lm/") || line.find("\tactive\t") == std::string::npos) continue;
    LoadRequest request;
    request.config = Text{file, read_file(corpus->parent_path() / file)};
    request.world_size = world;
    request.gpus_per_node = world;
    const auto before = test::checked_of(request);
    if (before->verdict != cli::Verdict::Valid || !before->report->derivation.topology) continue;
    const Launch launch = cli::make_launch(*before, {});
    if (launch.files.empty()) continue;
    CAPTURE(file);
    CHECK(difference(*before, *read_back(launch, before->loaded.config)) == "");
    ++compared;
  }
  CHECK(compared > 120);
}

TEST_CASE("a value that no command line can carry is refused, with its place") {
  const auto problems = [](std::string_view text) {
    const auto checked = test::checked_of(text, "a.json");
    REQUIRE(checked->verdict == cli::Verdict::Valid);
    const Launch launch = cli::make_launch(*checked, {});
    CHECK(launch.files.empty());
    return launch.problems;
  };
  const Diagnostics flags = problems(R"({"world_size": 8, "gpus_per_node": 8, "context_parallel_size": 1,
                                        "data_path": ["a", "--load"]})");
  REQUIRE(flags.size() == 1);
  CHECK(flags[0].primary.option == "data_path");
  CHECK(flags[0].primary.place.known());
  CHECK(problems(R"({"world_size": 8, "gpus_per_node": 8, "context_parallel_size": 1, "load": "a\u0001b"})").size() ==
        1);
  CHECK(problems(R"({"world_size": 8, "gpus_per_node": 8, "context_parallel_size": 1, "eval_iters": "${X}"})")
            .front()
            .primary.option == "eval_iters");
}
