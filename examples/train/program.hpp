// What the training programs share: from the command line to a job, and from the job to what is printed and written.
// Exit codes: 0 trained, 1 the plan is refused, 2 a usage or file error, 3 a rank failed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arguments.hpp"
#include "kernels/trace.hpp"

namespace gtp::train {

/// What a run is made of, and what it leaves.
struct Job {
  Arguments arguments;
  PlanValues plan;
  ModelShape shape;
  ChromeTrace trace;           ///< Of rank 0, if the arguments ask for it.
  std::vector<TrainLog> logs;  ///< Of the ranks of this process.

  bool traced() const noexcept { return !arguments.trace.empty(); }
  /// Only rank 0 prints.
  TrainOptions options(std::int64_t rank) const;
  /// Room for the logs of ranks that are threads. False, with `why` set, if they are too many.
  bool prepare_threads(std::string& why);
};

struct Program {
  std::string_view name;
  bool has_loopback = false;
  /// Trains all ranks of this process; the text of the first failure, or nothing.
  std::function<std::string(Job&)> train;
};

/// RANK, where it and WORLD_SIZE are set: this process is one rank of a job.
std::optional<std::int64_t> rank_of_process();
/// The first that did not end well.
std::string first_failure(std::span<const RankOutcome> ends);

int run_program(std::span<char*> words, const Program& program);

}  // namespace gtp::train
