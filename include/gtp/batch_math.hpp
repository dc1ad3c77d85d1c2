// Batch arithmetic and the predicates of the batch rules, on plain numbers. Gathering options, defaults and problems is
// left to batch.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "gtp/batch_schedule.hpp"
#include "gtp/checked.hpp"

namespace gtp {

/// What the target requires an evaluation batch to be a multiple of.
enum class EvalBatchRule : std::uint8_t {
  kDataDistribution,  ///< eval_micro_batch_size x replicate DP x GTP_remat: d98e8a64, arguments.py:715.
  kReplicateOnly,     ///< Without GTP_remat, so that the microbatch count is floored: 6513e3e2, arguments.py:694.
};

/// Lanes are the ranks of the data distribution: replicate DP x GTP_remat. In all predicates below a size that is not
/// positive violates nothing (other rules refuse it), and a product too large for 64 bits is an exact, huge number.

/// The samples that one microbatch takes on all lanes; nullopt if that does not fit.
constexpr std::optional<std::int64_t> samples_per_microbatch(std::int64_t micro_batch_size,
                                                             std::int64_t lanes) noexcept {
  return checked_multiply(micro_batch_size, lanes);
}

/// Whole microbatches of a global batch, 0 if there is none.
/// num_microbatches_calculator.py:379
constexpr std::int64_t num_microbatches(std::int64_t global_batch_size, std::int64_t micro_batch_size,
                                        std::int64_t lanes) noexcept {
  if (global_batch_size <= 0 || micro_batch_size <= 0 || lanes <= 0) return 0;
  return global_batch_size / micro_batch_size / lanes;
}

/// The samples that whole microbatches really take; what a batch is rounded down to.
/// num_microbatches_calculator.py:369
constexpr std::int64_t rounded_global_batch_size(std::int64_t global_batch_size, std::int64_t micro_batch_size,
                                                 std::int64_t lanes) noexcept {
  return num_microbatches(global_batch_size, micro_batch_size, lanes) * micro_batch_size * lanes;
}

/// The batch that a step really runs: rounded down under `decrease_batch_size_if_needed`, else as configured.
constexpr std::int64_t running_global_batch_size(std::int64_t global_batch_size, std::int64_t micro_batch_size,
                                                 std::int64_t lanes, bool decrease_batch_size_if_needed) noexcept {
  if (!decrease_batch_size_if_needed) return global_batch_size;
  return rounded_global_batch_size(global_batch_size, micro_batch_size, lanes);
}

/// Upstream's default, which leaves GTP_remat out; nullopt if it does not fit.
/// arguments.py:703
constexpr std::optional<std::int64_t> default_global_batch_size(std::int64_t micro_batch_size,
                                                                std::int64_t data_parallel_size) noexcept {
  return checked_multiply(micro_batch_size, data_parallel_size);
}

/// The batch is not a multiple of micro_batch_size x lanes.
/// num_microbatches_calculator.py:381
constexpr bool batch_not_divisible(std::int64_t global_batch_size, std::int64_t micro_batch_size,
                                   std::int64_t lanes) noexcept {
  if (global_batch_size <= 0 || micro_batch_size <= 0 || lanes <= 0) return false;
  return rounded_global_batch_size(global_batch_size, micro_batch_size, lanes) != global_batch_size;
}

/// Rounding down leaves no microbatch. Without rounding, batch_not_divisible() covers the case.
/// num_microbatches_calculator.py:389
constexpr bool no_microbatch_left(std::int64_t global_batch_size, std::int64_t micro_batch_size, std::int64_t lanes,
                                  bool decrease_batch_size_if_needed) noexcept {
  return decrease_batch_size_if_needed && batch_not_divisible(global_batch_size, micro_batch_size, lanes) &&
         num_microbatches(global_batch_size, micro_batch_size, lanes) == 0;
}

/// The evaluation batch is not a multiple of what the target wants.
constexpr bool eval_batch_not_divisible(std::int64_t eval_global_batch_size, std::int64_t eval_micro_batch_size,
                                        std::int64_t data_parallel_size, std::int64_t gtp_weight_remat_size,
                                        EvalBatchRule rule) noexcept {
  if (gtp_weight_remat_size <= 0) return false;
  if (!batch_not_divisible(eval_global_batch_size, eval_micro_batch_size, data_parallel_size)) {
    if (rule == EvalBatchRule::kReplicateOnly || eval_micro_batch_size <= 0 || data_parallel_size <= 0) return false;
    const std::int64_t per_replica = eval_global_batch_size / eval_micro_batch_size / data_parallel_size;
    return per_replica % gtp_weight_remat_size != 0;
  }
  return true;
}

/// The evaluation batch, inherited from a training batch that is to be rounded down, is what stops the run.
/// arguments.py:709
constexpr bool eval_default_blocks_decrease(bool decrease_batch_size_if_needed, bool has_eval_global_batch_size,
                                            std::int64_t global_batch_size, std::int64_t micro_batch_size,
                                            std::int64_t lanes) noexcept {
  return decrease_batch_size_if_needed && !has_eval_global_batch_size &&
         batch_not_divisible(global_batch_size, micro_batch_size, lanes);
}

/// The first entry from index `from` on whose batch is not a multiple of micro_batch_size x lanes. Upstream notices
/// when training gets there, and never looks at entries a resumed run has passed.
/// num_microbatches_calculator.py:580
constexpr std::optional<std::size_t> first_indivisible_entry(std::span<const ScheduleEntry> entries,
                                                             std::int64_t micro_batch_size, std::int64_t lanes,
                                                             std::size_t from = 0) noexcept {
  for (std::size_t i = from; i < entries.size(); ++i) {
    if (batch_not_divisible(entries[i].global_batch_size, micro_batch_size, lanes)) return i;
  }
  return std::nullopt;
}

/// Iterations that start under one entry of a schedule.
struct ScheduleSegment {
  std::size_t entry_index = 0;
  std::int64_t iterations = 0;
};

/// Walks a schedule entry by entry, a division each, never iteration by iteration. Entries that a large batch steps
/// over are left out. Ends once `until_samples` are consumed; the last iteration may overshoot.
class ScheduleWalk {
 public:
  /// Keeps a view of `schedule`.
  ScheduleWalk(const BatchSchedule& schedule, std::int64_t consumed_samples, std::int64_t until_samples) noexcept
      : entries_(schedule.entries()),
        consumed_samples_(std::max<std::int64_t>(consumed_samples, 0)),
        until_samples_(until_samples) {}

  std::optional<ScheduleSegment> next() noexcept {
    if (consumed_samples_ >= until_samples_) return std::nullopt;
    while (!is_last() && entries_[index_ + 1].threshold_samples <= consumed_samples_) ++index_;
    const std::int64_t end =
        is_last() ? until_samples_ : std::min(entries_[index_ + 1].threshold_samples, until_samples_);
    const std::int64_t batch = entries_[index_].global_batch_size;
    const std::int64_t iterations = *ceil_quotient(end - consumed_samples_, batch);
    const std::optional<std::int64_t> samples = checked_multiply(iterations, batch);
    const std::optional<std::int64_t> consumed = samples ? checked_add(consumed_samples_, *samples) : std::nullopt;
    // A sum beyond 64 bits is beyond every limit.
    consumed_samples_ = consumed.value_or(std::numeric_limits<std::int64_t>::max());
    return ScheduleSegment{index_, iterations};
  }

 private:
  [[nodiscard]] bool is_last() const noexcept { return index_ + 1 == entries_.size(); }

  std::span<const ScheduleEntry> entries_;
  std::size_t index_ = 0;
  std::int64_t consumed_samples_;
  std::int64_t until_samples_;
};

/// The entries at which the microbatch count falls below that of the iteration before, which the training loop
/// refuses. The run starts at `consumed_samples`, and ends at `until_samples` or after `max_iterations`. Entries that
/// are not divisible are not judged.
/// training.py:4612
inline std::vector<std::size_t> microbatch_drops(const BatchSchedule& schedule, std::int64_t micro_batch_size,
                                                 std::int64_t lanes, std::int64_t consumed_samples,
                                                 std::int64_t until_samples, std::int64_t max_iterations) {
  std::vector<std::size_t> drops;
  std::int64_t previous = 0;
  ScheduleWalk walk(schedule, consumed_samples, until_samples);
  while (const std::optional<ScheduleSegment> segment = max_iterations > 0 ? walk.next() : std::nullopt) {
    const std::int64_t batch = schedule.entries()[segment->entry_index].global_batch_size;
    if (!batch_not_divisible(batch, micro_batch_size, lanes)) {
      if (batch < previous) drops.push_back(segment->entry_index);
      previous = batch;
    }
    max_iterations -= segment->iterations;
  }
  return drops;
}

/// Whole batches only: the rest of the samples is not trained on. 0 unless both are positive.
/// training.py:2174
constexpr std::int64_t train_iters_from_samples(std::int64_t train_samples, std::int64_t global_batch_size) noexcept {
  return train_samples > 0 && global_batch_size > 0 ? train_samples / global_batch_size : 0;
}

/// Under a schedule the last batch may overshoot. Upstream counts from sample 0 also when it resumes.
/// training.py:2161
inline std::int64_t train_iters_from_samples(std::int64_t train_samples, const BatchSchedule& schedule) noexcept {
  std::int64_t iterations = 0;
  ScheduleWalk walk(schedule, 0, train_samples);
  while (const std::optional<ScheduleSegment> segment = walk.next()) iterations += segment->iterations;
  return iterations;
}

/// The evaluation iterations that the validation data of a whole run must serve: one evaluation more than the
/// intervals of the run, less the intervals before `start_eval_at_iter`. nullopt if the result does not fit, or if
/// `eval_interval` is not positive.
/// training.py:5436
constexpr std::optional<std::int64_t> eval_iters_of_run(std::int64_t train_iters, std::int64_t eval_interval,
                                                        std::optional<std::int64_t> start_eval_at_iter,
                                                        std::int64_t eval_iters) noexcept {
  if (eval_interval <= 0) return std::nullopt;
  std::optional<std::int64_t> evaluations = checked_add(detail::floor_quotient(train_iters, eval_interval), 1);
  if (evaluations && start_eval_at_iter) {
    evaluations = checked_subtract(*evaluations, detail::floor_quotient(*start_eval_at_iter, eval_interval));
    if (evaluations) evaluations = std::max<std::int64_t>(*evaluations, 0);
  }
  return evaluations ? checked_multiply(*evaluations, eval_iters) : std::nullopt;
}

}  // namespace gtp
