// Batch accounting: microbatches, samples, evaluation and LR-scheduler horizons of a run, from options to numbers.
// It decides nothing about text, places or diagnostics, and takes no account of RL sequence packing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "gtp/batch_math.hpp"
#include "gtp/batch_schedule.hpp"
#include "gtp/checked.hpp"

namespace gtp {

/// Batch options of a run. Names and defaults are Megatron's; an absent value is upstream's `None`.
struct BatchOptions {
  std::int64_t data_parallel_size = 1;  ///< Replicate DP.
  std::int64_t gtp_weight_remat_size = 1;
  std::optional<std::int64_t> micro_batch_size;
  std::optional<std::int64_t> global_batch_size;
  bool decrease_batch_size_if_needed = false;
  std::optional<BatchSchedule> step_batch_size_schedule;
  std::optional<std::int64_t> eval_micro_batch_size;
  std::optional<std::int64_t> eval_global_batch_size;
  std::int64_t eval_iters = 100;
  std::optional<std::int64_t> eval_interval;
  std::optional<std::int64_t> start_eval_at_iter;
  std::optional<std::int64_t> train_iters;
  std::optional<std::int64_t> train_samples;
  std::optional<std::int64_t> lr_decay_iters;
  std::optional<std::int64_t> lr_decay_samples;
  std::optional<std::int64_t> lr_wsd_decay_iters;
  std::optional<std::int64_t> lr_wsd_decay_samples;
  std::optional<double> lr_warmup_fraction;
  std::int64_t lr_warmup_iters = 0;
  std::int64_t lr_warmup_samples = 0;
  std::int64_t iteration = 0;  ///< Finished iterations of a resumed run.
  std::int64_t consumed_train_samples = 0;
  std::int64_t skipped_train_samples = 0;
  std::vector<std::int64_t> iterations_to_skip;  ///< Counted from 1, in any order.
};

enum class BatchProblemKind : std::uint8_t {
  kMissing,  ///< The option is required.
  kNotPositive,
  kNegative,
  kOverflow,                   ///< A product or sum with the option does not fit 64 bits, or is not finite.
  kScheduleWithGlobalBatch,    ///< A schedule and an explicit global_batch_size.
  kScheduleWithDecrease,       ///< A schedule and decrease_batch_size_if_needed.
  kBatchNotDivisible,          ///< See batch_not_divisible().
  kNoMicrobatch,               ///< See no_microbatch_left().
  kEvalBatchNotDivisible,      ///< See eval_batch_not_divisible().
  kScheduleEntryNotDivisible,  ///< See first_indivisible_entry(); one problem for each such entry.
  kMicrobatchesDrop,           ///< See microbatch_drops(); one problem for each such entry.
};

struct BatchProblem {
  BatchProblemKind kind{};
  std::string_view option;                 ///< The option to blame; a literal.
  std::optional<std::int64_t> value;       ///< What it is, defaults applied.
  std::optional<std::size_t> entry_index;  ///< Index into BatchSchedule::entries().
};

using BatchProblems = std::vector<BatchProblem>;

/// Batch options with every default applied and every rule met. `global_batch_size` is the one of the options even
/// under a schedule (upstream's default then): the LR horizons are made of it.
struct BatchPlan {
  std::int64_t micro_batch_size = 1;
  std::int64_t lanes = 1;
  std::int64_t global_batch_size = 1;
  bool decrease_batch_size_if_needed = false;
  std::optional<BatchSchedule> step_batch_size_schedule;
  std::int64_t eval_micro_batch_size = 1;
  std::int64_t eval_global_batch_size = 1;
  std::int64_t eval_num_microbatches = 1;  ///< 0 is possible under EvalBatchRule::kReplicateOnly.
  std::int64_t eval_samples = 0;           ///< Of one evaluation.
};

namespace detail {

/// Appends the problems of single values. Returns whether there was none.
inline bool check_values(const BatchOptions& options, BatchProblems& problems) {
  const std::size_t known_problems = problems.size();
  const auto positive = [&](std::string_view name, std::optional<std::int64_t> value) {
    if (value && *value <= 0) problems.push_back({BatchProblemKind::kNotPositive, name, value, {}});
  };
  const auto not_negative = [&](std::string_view name, std::int64_t value) {
    if (value < 0) problems.push_back({BatchProblemKind::kNegative, name, value, {}});
  };
  if (!options.micro_batch_size) problems.push_back({BatchProblemKind::kMissing, "micro_batch_size", {}, {}});
  positive("data_parallel_size", options.data_parallel_size);
  positive("gtp_weight_remat_size", options.gtp_weight_remat_size);
  positive("micro_batch_size", options.micro_batch_size);
  positive("global_batch_size", options.global_batch_size);
  positive("eval_micro_batch_size", options.eval_micro_batch_size);
  positive("eval_global_batch_size", options.eval_global_batch_size);
  not_negative("eval_iters", options.eval_iters);
  not_negative("iteration", options.iteration);
  not_negative("consumed_train_samples", options.consumed_train_samples);
  not_negative("skipped_train_samples", options.skipped_train_samples);
  return problems.size() == known_problems;
}

inline void check_constant_batch(const BatchPlan& plan, BatchProblems& problems) {
  const std::int64_t batch = plan.global_batch_size;
  if (no_microbatch_left(batch, plan.micro_batch_size, plan.lanes, plan.decrease_batch_size_if_needed)) {
    problems.push_back({BatchProblemKind::kNoMicrobatch, "global_batch_size", batch, {}});
  } else if (!plan.decrease_batch_size_if_needed && batch_not_divisible(batch, plan.micro_batch_size, plan.lanes)) {
    problems.push_back({BatchProblemKind::kBatchNotDivisible, "global_batch_size", batch, {}});
  }
}

inline void check_schedule(const BatchOptions& options, const BatchPlan& plan, BatchProblems& problems) {
  const BatchSchedule& schedule = *plan.step_batch_size_schedule;
  const auto report = [&](BatchProblemKind kind, std::size_t index) {
    problems.push_back({kind, "step_batch_size_schedule", schedule.entries()[index].global_batch_size, index});
  };
  const auto after = [&](std::size_t from) {
    return first_indivisible_entry(schedule.entries(), plan.micro_batch_size, plan.lanes, from);
  };
  for (auto index = after(schedule.index_at(options.consumed_train_samples)); index; index = after(*index + 1)) {
    report(BatchProblemKind::kScheduleEntryNotDivisible, *index);
  }
  constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
  const std::int64_t train_samples = options.train_samples.value_or(0);
  std::int64_t iterations = options.train_iters.value_or(0);
  if (iterations == 0) iterations = train_samples > 0 ? train_iters_from_samples(train_samples, schedule) : kNoLimit;
  for (const std::size_t index :
       microbatch_drops(schedule, plan.micro_batch_size, plan.lanes, options.consumed_train_samples, kNoLimit,
                        iterations > options.iteration ? iterations - options.iteration : 0)) {
    report(BatchProblemKind::kMicrobatchesDrop, index);
  }
}

inline void check_training_batch(const BatchOptions& options, const BatchPlan& plan, BatchProblems& problems) {
  if (!plan.step_batch_size_schedule) return check_constant_batch(plan, problems);
  if (options.global_batch_size) {
    problems.push_back({BatchProblemKind::kScheduleWithGlobalBatch, "global_batch_size", plan.global_batch_size, {}});
  }
  if (options.decrease_batch_size_if_needed) {
    problems.push_back({BatchProblemKind::kScheduleWithDecrease, "decrease_batch_size_if_needed", {}, {}});
  }
  check_schedule(options, plan, problems);
}

/// Defaults applied, microbatches of an evaluation not yet counted; nullopt, with a problem, if a size does not fit.
inline std::optional<BatchPlan> apply_defaults(const BatchOptions& options, BatchProblems& problems) {
  const auto overflow = [&](std::string_view name, std::int64_t value) {
    problems.push_back({BatchProblemKind::kOverflow, name, value, {}});
    return std::nullopt;
  };
  const std::int64_t micro_batch_size = *options.micro_batch_size;
  const auto lanes = checked_multiply(options.data_parallel_size, options.gtp_weight_remat_size);
  if (!lanes) return overflow("gtp_weight_remat_size", options.gtp_weight_remat_size);
  const auto batch = options.global_batch_size
                         ? options.global_batch_size
                         : default_global_batch_size(micro_batch_size, options.data_parallel_size);
  if (!batch) return overflow("micro_batch_size", micro_batch_size);
  const std::int64_t eval_batch = options.eval_global_batch_size.value_or(*batch);
  const auto eval_samples = checked_multiply(options.eval_iters, eval_batch);
  if (!eval_samples) return overflow("eval_iters", options.eval_iters);
  return BatchPlan{micro_batch_size,
                   *lanes,
                   *batch,
                   options.decrease_batch_size_if_needed,
                   options.step_batch_size_schedule,
                   options.eval_micro_batch_size.value_or(micro_batch_size),
                   eval_batch,
                   0,
                   *eval_samples};
}

/// Whether the run goes by iterations, which win over samples as upstream's truth test has it. nullopt, with a
/// problem, if it has no length.
inline std::optional<bool> counts_iterations(const BatchOptions& options, BatchProblems& problems) {
  const bool by_iterations = options.train_iters.value_or(0) != 0;
  const std::string_view name = by_iterations ? "train_iters" : "train_samples";
  const std::int64_t length = by_iterations ? *options.train_iters : options.train_samples.value_or(0);
  if (length > 0) return by_iterations;
  if (length < 0) {
    problems.push_back({BatchProblemKind::kNotPositive, name, length, {}});
  } else {
    problems.push_back({BatchProblemKind::kMissing, "train_iters", {}, {}});
  }
  return std::nullopt;
}

}  // namespace detail

/// Applies upstream's defaults and checks the batch rules. Appends every problem; nullopt if there is one. An
/// inherited evaluation batch is not blamed for what the training batch is blamed for already.
/// arguments.py:692, num_microbatches_calculator.py:340
inline std::optional<BatchPlan> resolve_batch(const BatchOptions& options, EvalBatchRule rule,
                                              BatchProblems& problems) {
  if (!detail::check_values(options, problems)) return std::nullopt;
  const std::size_t known_problems = problems.size();
  std::optional<BatchPlan> plan = detail::apply_defaults(options, problems);
  if (!plan) return std::nullopt;
  detail::check_training_batch(options, *plan, problems);
  const bool blamed = !options.step_batch_size_schedule && problems.size() != known_problems;
  const bool inherited = !options.eval_global_batch_size;
  if (!(blamed && inherited) &&
      eval_batch_not_divisible(plan->eval_global_batch_size, plan->eval_micro_batch_size, options.data_parallel_size,
                               options.gtp_weight_remat_size, rule)) {
    problems.push_back(
        {BatchProblemKind::kEvalBatchNotDivisible, "eval_global_batch_size", plan->eval_global_batch_size, {}});
  }
  if (problems.size() != known_problems) return std::nullopt;
  plan->eval_num_microbatches =
      num_microbatches(plan->eval_global_batch_size, plan->eval_micro_batch_size, plan->lanes);
  return plan;
}

/// The iterations of the whole run, resumed or not. 0 if the samples are less than one constant batch.
/// training.py:2155
inline std::optional<std::int64_t> resolve_train_iters(const BatchOptions& options, const BatchPlan& plan,
                                                       BatchProblems& problems) {
  const std::optional<bool> by_iterations = detail::counts_iterations(options, problems);
  if (!by_iterations) return std::nullopt;
  if (*by_iterations) return options.train_iters;
  if (plan.step_batch_size_schedule) {
    return train_iters_from_samples(*options.train_samples, *plan.step_batch_size_schedule);
  }
  return train_iters_from_samples(*options.train_samples, plan.global_batch_size);
}

/// Horizons of the LR scheduler, all in samples (upstream's names end in `_steps`).
struct LrHorizons {
  std::int64_t lr_decay_samples = 0;
  /// Whole samples: under lr_warmup_fraction upstream keeps the fraction of a sample, which no comparison with whole
  /// samples can tell.
  std::int64_t lr_warmup_samples = 0;
  std::int64_t wd_incr_samples = 0;
  std::optional<std::int64_t> lr_wsd_decay_samples;
};

namespace detail {

/// nullopt if the product is not finite or does not fit.
inline std::optional<std::int64_t> fraction_of_samples(double fraction, std::int64_t samples) noexcept {
  constexpr double kTwoTo63 = 9223372036854775808.0;
  const double product = std::floor(fraction * static_cast<double>(samples));
  if (!(std::fabs(product) < kTwoTo63)) return std::nullopt;
  return static_cast<std::int64_t>(product);
}

}  // namespace detail

/// Iterations count as configured (or default) global batches, whatever the steps really take. nullopt, with a
/// problem, if the run has no length or a horizon does not fit. Whether the horizons make sense together is not judged.
/// training.py:2553
inline std::optional<LrHorizons> lr_horizons(const BatchOptions& options, const BatchPlan& plan,
                                             BatchProblems& problems) {
  const std::optional<bool> by_iterations = detail::counts_iterations(options, problems);
  if (!by_iterations) return std::nullopt;
  const std::size_t known_problems = problems.size();
  const std::int64_t unit = *by_iterations ? plan.global_batch_size : 1;
  const auto in_samples = [&](std::string_view name, std::int64_t count) {
    const std::optional<std::int64_t> samples = checked_multiply(count, unit);
    if (!samples) problems.push_back({BatchProblemKind::kOverflow, name, count, {}});
    return samples.value_or(0);
  };
  const bool iters = *by_iterations;
  const std::int64_t length = iters ? *options.train_iters : *options.train_samples;
  const auto& decay = iters ? options.lr_decay_iters : options.lr_decay_samples;
  const auto& wsd = iters ? options.lr_wsd_decay_iters : options.lr_wsd_decay_samples;
  LrHorizons horizons;
  horizons.wd_incr_samples = in_samples(iters ? "train_iters" : "train_samples", length);
  horizons.lr_decay_samples = decay ? in_samples("lr_decay_iters", *decay) : horizons.wd_incr_samples;
  if (wsd) horizons.lr_wsd_decay_samples = in_samples("lr_wsd_decay_iters", *wsd);
  if (options.lr_warmup_fraction) {
    const auto warmup = detail::fraction_of_samples(*options.lr_warmup_fraction, horizons.lr_decay_samples);
    if (!warmup) problems.push_back({BatchProblemKind::kOverflow, "lr_warmup_fraction", {}, {}});
    horizons.lr_warmup_samples = warmup.value_or(0);
  } else {
    horizons.lr_warmup_samples =
        in_samples("lr_warmup_iters", iters ? options.lr_warmup_iters : options.lr_warmup_samples);
  }
  if (problems.size() != known_problems) return std::nullopt;
  return horizons;
}

/// What the validation data must hold for a whole run.
struct EvalTarget {
  std::int64_t eval_iters = 0;
  std::int64_t eval_samples = 0;
};

/// nullopt, with a problem, if the run has no length, `eval_interval` is absent or not positive, or a size does not
/// fit. Not for skip_train (one evaluation) nor for full_validation (the data decides).
/// training.py:5436
inline std::optional<EvalTarget> eval_target(const BatchOptions& options, const BatchPlan& plan,
                                             BatchProblems& problems) {
  const std::optional<std::int64_t> train_iters = resolve_train_iters(options, plan, problems);
  if (!options.eval_interval) {
    problems.push_back({BatchProblemKind::kMissing, "eval_interval", {}, {}});
  } else if (*options.eval_interval <= 0) {
    problems.push_back({BatchProblemKind::kNotPositive, "eval_interval", options.eval_interval, {}});
  } else if (train_iters) {
    const auto iterations =
        eval_iters_of_run(*train_iters, *options.eval_interval, options.start_eval_at_iter, options.eval_iters);
    const auto samples = iterations ? checked_multiply(*iterations, plan.eval_global_batch_size) : std::nullopt;
    if (samples) return EvalTarget{*iterations, *samples};
    problems.push_back({BatchProblemKind::kOverflow, "eval_iters", options.eval_iters, {}});
  }
  return std::nullopt;
}

/// One iteration of a run.
struct BatchRow {
  std::int64_t iteration = 0;  ///< Counted from 1.
  std::int64_t num_microbatches = 0;
  std::int64_t global_batch_size = 0;
  std::int64_t running_global_batch_size = 0;
  std::int64_t lr_increment_samples = 0;    ///< Of a successful optimizer step; 0 if the iteration is skipped.
  std::int64_t consumed_train_samples = 0;  ///< After the iteration.
  std::int64_t skipped_train_samples = 0;   ///< After the iteration.
  bool skipped = false;                     ///< Listed in iterations_to_skip.
};

/// Generates the rows of a run, one after the other, without an end of its own: the caller stops at the iterations of
/// the run. next() allocates nothing.
class BatchRows {
 public:
  /// `options` are those that `plan` was resolved from.
  BatchRows(BatchPlan plan, const BatchOptions& options)
      : plan_(std::move(plan)),
        to_skip_(options.iterations_to_skip),
        iteration_(options.iteration),
        consumed_(options.consumed_train_samples),
        skipped_(options.skipped_train_samples) {
    std::sort(to_skip_.begin(), to_skip_.end());
  }

  /// nullopt once a counter no longer fits 64 bits; problem() says which.
  /// training.py:4602
  std::optional<BatchRow> next() {
    BatchRow row;
    row.global_batch_size = global_batch_size();
    row.num_microbatches = gtp::num_microbatches(row.global_batch_size, plan_.micro_batch_size, plan_.lanes);
    const std::int64_t trained = row.num_microbatches * plan_.micro_batch_size * plan_.lanes;
    row.running_global_batch_size = plan_.decrease_batch_size_if_needed ? trained : row.global_batch_size;
    const auto iteration = count("iteration", iteration_, 1);
    row.skipped = iteration && is_skipped(*iteration);
    const auto consumed = count("consumed_train_samples", consumed_, trained);
    const auto skipped = count("skipped_train_samples", skipped_,
                               row.skipped ? trained : row.global_batch_size - row.running_global_batch_size);
    if (!iteration || !consumed || !skipped) return std::nullopt;
    row.lr_increment_samples = row.skipped ? 0 : trained;
    row.iteration = iteration_ = *iteration;
    row.consumed_train_samples = consumed_ = *consumed;
    row.skipped_train_samples = skipped_ = *skipped;
    return row;
  }

  [[nodiscard]] const std::optional<BatchProblem>& problem() const noexcept { return problem_; }

 private:
  std::int64_t global_batch_size() noexcept {
    if (!plan_.step_batch_size_schedule) return plan_.global_batch_size;
    const std::span<const ScheduleEntry> entries = plan_.step_batch_size_schedule->entries();
    while (entry_ + 1 < entries.size() && entries[entry_ + 1].threshold_samples <= consumed_) ++entry_;
    return entries[entry_].global_batch_size;
  }

  bool is_skipped(std::int64_t iteration) noexcept {
    while (next_skip_ < to_skip_.size() && to_skip_[next_skip_] < iteration) ++next_skip_;
    return next_skip_ < to_skip_.size() && to_skip_[next_skip_] == iteration;
  }

  std::optional<std::int64_t> count(std::string_view name, std::int64_t counter, std::int64_t increment) {
    const std::optional<std::int64_t> sum = checked_add(counter, increment);
    if (!sum && !problem_) problem_ = BatchProblem{BatchProblemKind::kOverflow, name, counter, {}};
    return sum;
  }

  BatchPlan plan_;
  std::vector<std::int64_t> to_skip_;
  std::size_t entry_ = 0;
  std::size_t next_skip_ = 0;
  std::int64_t iteration_;
  std::int64_t consumed_;
  std::int64_t skipped_;
  std::optional<BatchProblem> problem_;
};

}  // namespace gtp
