// What a trainer has to be told so that it runs with a configuration: flags of Megatron-LM, or overrides of
// Megatron-Bridge. Defaults are not told, except where leaving them out would leave room for doubt.
#pragma once

#include <gtp/config.hpp>
#include <gtp/diagnostic.hpp>
#include <gtp/facts.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace gtp::cli {

enum class LaunchFramework : std::uint8_t { MegatronLm, MegatronBridge };

/// One option as words of a command line, on one line of a file.
using TrainerArgument = std::vector<std::string>;

struct TrainerArguments {
  std::vector<TrainerArgument> list;
  /// Errors: values that no command line can carry.
  Diagnostics problems;
  /// Options that Megatron-Bridge has no place for.
  std::vector<std::string_view> left_out;
};

/// The options to be told, in the order of the table. A section that the input describes stays described: one of its
/// defaults is told when nothing else is. Weight shards come with the size they are a multiple of, experts with ETP;
/// for Bridge, whose recipes set every size, all sizes are told.
[[nodiscard]] std::vector<Setting> settings_to_tell(const Config& config, const Facts& facts,
                                                    LaunchFramework framework);

[[nodiscard]] TrainerArguments make_arguments(const Config& config, const Facts& facts, LaunchFramework framework);

}  // namespace gtp::cli
