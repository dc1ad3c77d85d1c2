// The command line of the training example.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "train.hpp"

namespace gtp::train {

inline constexpr std::string_view kUsage =
    " PLAN.json [--steps N] [--seed N] [--layers N] [--hidden N] [--heads N] [--ffn N] [--vocab N] [--seq N]\n"
    "             [--experts N] [--topk N] [--bf16-wire] [--weight-format bf16|mxfp8|nvfp4] [--graph] [--chains]\n"
    "             [--trace FILE] [--weights FILE] [--log-interval N]\n"
    "Trains a small model on the grid and the batches of a plan. --weight-format is that of the shards and gathers of\n"
    "the weights of layers. --graph replays forward and backward of a step as one graph. --chains prints the prefetch\n"
    "chains as linked, --trace writes what ran on the streams of rank 0 as a Chrome trace (chrome://tracing, "
    "Perfetto),\n"
    "--weights writes the final weights (see weights_file.hpp) for compare_runs; the host waits for the device every\n"
    "--log-interval steps.\n";

struct Arguments {
  std::string plan;
  ModelShape shape;
  std::optional<std::size_t> experts, topk;  ///< Absent: the plan's.
  TrainOptions options;
  bool chains = false;
  bool loopback = false;  ///< --loopback, for programs that have it.
  std::string trace;      ///< Empty: none.
  std::string weights;    ///< Empty: none.
};

/// nullopt for anything that kUsage does not allow, or a size above 2^20. `has_loopback`: --loopback is allowed.
std::optional<Arguments> parse_arguments(std::span<char*> words, bool has_loopback = false);
/// The model that the arguments and the plan describe together.
ModelShape shape_of(const Arguments& arguments, const PlanValues& plan);

}  // namespace gtp::train
