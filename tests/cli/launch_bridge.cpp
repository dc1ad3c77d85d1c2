// The overrides of Megatron-Bridge, read back, are the same configuration: every option that Bridge has a place for.
#include <doctest/doctest.h>

#include <fmt/format.h>

#include <string>

#include "tests/cli/launch_configurations.hpp"

namespace {

using namespace gtp;
using namespace gtp::test;
using cli::Checked;
using cli::LaunchFramework;

std::unique_ptr<Checked> checked_of(Config config) {
  auto checked = std::make_unique<Checked>(config.target());
  checked->loaded.config = std::move(config);
  checked->report.emplace(check(checked->loaded.config));
  checked->verdict = cli::Verdict::Valid;
  return checked;
}

/// Under the target of the input: whether Bridge itself has a remat axis is another question.
Loaded read_back(const std::string& overrides, const Config& config) {
  LoadRequest request;
  request.target = config.target();
  request.format = InputFormat::BridgeOverrides;
  request.config = Text{"train.overrides", overrides};
  request.world_size = to_text(config.given(*find_option("world_size"))->value);
  return load(request);
}

bool is_left_out(const cli::TrainerArguments& told, OptionId option) {
  return std::find(told.left_out.begin(), told.left_out.end(), name_of(option)) != told.left_out.end();
}

}  // namespace

TEST_CASE("a thousand random configurations come back from their overrides as they were") {
  Random random(7);
  int compared = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto before = checked_of(random_configuration(random, 24));
    const Config& config = before->loaded.config;
    const Facts& facts = before->report->derivation.facts;
    const cli::Launch launch = cli::make_launch(*before, {.framework = LaunchFramework::MegatronBridge});
    REQUIRE(!has_errors(launch.problems));
    const std::string overrides = file_of(launch, "train.overrides");
    const Loaded after = read_back(overrides, config);
    for (const Diagnostic& d : after.diagnostics)
      CHECK_MESSAGE(d.severity != Severity::Error, d.message, ": ", d.primary.option, ": ", d.primary.text, overrides);
    const Derivation derivation = derive(after.config);
    REQUIRE(derivation.topology == before->report->derivation.topology);
    for (const char* name : {"num_microbatches", "data_distribution_size", "global_batch_size", "micro_batch_size"})
      CHECK(*derivation.facts.find(*find_option(name)) == *facts.find(*find_option(name)));
    const cli::TrainerArguments told = cli::make_arguments(config, facts, LaunchFramework::MegatronBridge);
    for (const Setting& setting : cli::settings_to_tell(config, facts, LaunchFramework::MegatronBridge)) {
      if (is_left_out(told, setting.option)) continue;
      const Value* value = derivation.facts.original(setting.option);
      CHECK_MESSAGE((value == nullptr ? "unknown" : to_text(*value)) == to_text(setting.value),
                    name_of(setting.option));
      ++compared;
    }
  }
  CHECK(compared > 10'000);
}
