// Trains a model on one rank of a plan. Every rank of the world calls train() with the same values, on whatever
// transport; it opens no file and prints nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model_shape.hpp"
#include "optimizer.hpp"
#include "plan_values.hpp"
#include "rank.hpp"

namespace gtp::train {

struct StepLog {
  std::int64_t iteration = 0;  ///< Counted from 1.
  std::int64_t num_microbatches = 0;
  std::int64_t global_batch_size = 0;
  bool skipped = false;
  double loss = 0;       ///< Mean over all tokens of all ranks.
  double grad_norm = 0;  ///< Before clipping, of all parameters.
  double learning_rate = 0;
  std::int64_t lr_increment_samples = 0;
  std::int64_t consumed_train_samples = 0;  ///< After the iteration.
};

struct EvalLog {
  std::int64_t iteration = 0;  ///< That it follows; the last evaluation follows the whole run.
  double loss = 0;
  std::int64_t eval_iters = 0;
  std::int64_t samples = 0;
};

/// What a rank has seen. Losses, norms and counts are the same on all ranks.
struct TrainLog {
  std::vector<StepLog> steps;
  std::vector<EvalLog> evaluations;
  std::int64_t consumed_valid_samples = 0;
  std::vector<WeightPiece> pieces;
  Counters counters;  ///< Of the runtime.
  CollectiveCalls calls;
  std::string chains;  ///< The table of the chains as linked.
};

struct TrainOptions {
  std::uint64_t seed = 1234;
  /// Iterations to run; absent: to the end of the plan.
  std::optional<std::int64_t> steps = std::nullopt;
  /// Of weight gradients in flight; accumulation is always in fp32.
  ElementType wire = ElementType::kFloat32;
  /// Of the weights of attention, MLP and experts, as shards and in flight; GEMMs read them decoded to bf16. The rows
  /// of their shards and their columns must be multiples of 32 (MXFP8) or 16 (NVFP4).
  WeightFormat weight_format = WeightFormat::kBf16;
  /// Forward and backward of all microbatches of a step become one graph, captured at the first step with that many
  /// and replayed from then on. Calls of collectives in graphs are counted once, when they are captured.
  bool graph = false;
  RuntimeOptions runtime{};
  bool collect_weights = true;  ///< Into TrainLog::pieces.
  /// The host waits for the device after so many iterations, at evaluations and at the end; then steps are reported.
  std::int64_t log_interval = 1;
  /// The longest that the iterations between two waits may take.
  std::chrono::milliseconds limit{60000};
  std::function<void(const StepLog&)> on_step = nullptr;
  std::function<void(const EvalLog&)> on_evaluation = nullptr;
};

/// Throws kInvalidPlan if `refusal` has something to say, and whatever the transport throws; kAborted if a gradient
/// is not finite.
TrainLog train(const PlanValues& plan, const ModelShape& shape, const TrainOptions& options,
               const RankBackend& transport);

/// Whole tensors, by name, from what all ranks hold; nullopt if an element is missing or copies differ.
std::optional<std::map<std::string, std::vector<float>>> assemble(std::span<const TrainLog> ranks);

}  // namespace gtp::train
