#include "gtp/batch_math.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

gtp::BatchSchedule schedule_of(const std::string& text) {
  gtp::ScheduleProblems problems;
  std::optional<gtp::BatchSchedule> schedule = gtp::parse_batch_schedule(text, std::nullopt, problems);
  REQUIRE(schedule);
  return *schedule;
}

std::string random_schedule_text(std::mt19937_64& random, std::int64_t batch_unit) {
  std::string text;
  std::int64_t threshold = 0;
  const std::size_t entries = 1 + random() % 6;
  for (std::size_t i = 0; i < entries; ++i) {
    text += fmt::format("{}:{} ", threshold, batch_unit * static_cast<std::int64_t>(1 + random() % 9));
    threshold += 1 + static_cast<std::int64_t>(random() % 90);
  }
  return text;
}

struct Simulation {
  std::int64_t iterations = 0;
  std::vector<std::size_t> drops;
};

/// One iteration at a time, as the training loop goes.
Simulation simulate(const gtp::BatchSchedule& schedule, std::int64_t consumed, std::int64_t until,
                    std::int64_t max_iterations) {
  Simulation result;
  std::int64_t previous = 0;
  while (consumed < until && result.iterations < max_iterations) {
    std::size_t index = 0;
    for (std::size_t i = 0; i < schedule.entries().size(); ++i) {
      if (consumed >= schedule.entries()[i].threshold_samples) index = i;
    }
    const std::int64_t batch = schedule.entries()[index].global_batch_size;
    if (batch < previous) result.drops.push_back(index);
    previous = batch;
    consumed += batch;
    ++result.iterations;
  }
  return result;
}

}  // namespace

static_assert(gtp::num_microbatches(1536, 4, 128) == 3);
static_assert(gtp::running_global_batch_size(67, 4, 3, true) == 60);
static_assert(gtp::running_global_batch_size(67, 4, 3, false) == 67);
static_assert(gtp::default_global_batch_size(4, 16) == 64);
static_assert(!gtp::default_global_batch_size(kMax, 2));

TEST_CASE("microbatches are whole batches over micro batch times lanes") {
  CHECK(gtp::num_microbatches(7, 2, 4) == 0);
  CHECK(gtp::num_microbatches(8, 2, 4) == 1);
  CHECK(gtp::num_microbatches(15, 2, 4) == 1);
  CHECK(gtp::num_microbatches(kMax, 1, 1) == kMax);
  CHECK(gtp::num_microbatches(kMax, kMax, kMax) == 0);
  CHECK(gtp::num_microbatches(8, 0, 4) == 0);
  CHECK(gtp::num_microbatches(-8, 2, 4) == 0);
  CHECK(gtp::samples_per_microbatch(4, 128) == 512);
  CHECK_FALSE(gtp::samples_per_microbatch(kMax, 2));
}

TEST_CASE("a batch that is not a multiple of micro batch times lanes is refused, whatever the size") {
  CHECK_FALSE(gtp::batch_not_divisible(1536, 4, 128));
  CHECK(gtp::batch_not_divisible(1537, 4, 128));
  CHECK(gtp::batch_not_divisible(256, 4, 128));
  CHECK(gtp::batch_not_divisible(kMax, kMax, 2));
  CHECK_FALSE(gtp::batch_not_divisible(kMax, kMax, 1));
  CHECK_FALSE(gtp::batch_not_divisible(0, 4, 128));
  CHECK_FALSE(gtp::batch_not_divisible(10, -4, 128));
}

TEST_CASE("rounding down must leave a microbatch") {
  CHECK(gtp::no_microbatch_left(7, 2, 4, true));
  CHECK_FALSE(gtp::no_microbatch_left(9, 2, 4, true));
  CHECK_FALSE(gtp::no_microbatch_left(7, 2, 4, false));
}

TEST_CASE("the newer target counts GTP_remat lanes in an evaluation batch and the older does not") {
  using enum gtp::EvalBatchRule;
  CHECK_FALSE(gtp::eval_batch_not_divisible(32, 2, 4, 4, kDataDistribution));
  CHECK(gtp::eval_batch_not_divisible(24, 2, 4, 4, kDataDistribution));
  CHECK_FALSE(gtp::eval_batch_not_divisible(24, 2, 4, 4, kReplicateOnly));
  CHECK(gtp::eval_batch_not_divisible(20, 2, 4, 4, kReplicateOnly));
  CHECK(gtp::eval_batch_not_divisible(kMax - 1, 2, kMax, kMax, kDataDistribution));
  CHECK_FALSE(gtp::eval_batch_not_divisible(24, 2, 0, 4, kDataDistribution));
  CHECK_FALSE(gtp::eval_batch_not_divisible(24, 2, 4, 0, kDataDistribution));
}

TEST_CASE("an inherited evaluation batch blocks rounding down") {
  CHECK(gtp::eval_default_blocks_decrease(true, false, 67, 4, 3));
  CHECK_FALSE(gtp::eval_default_blocks_decrease(true, true, 67, 4, 3));
  CHECK_FALSE(gtp::eval_default_blocks_decrease(false, false, 67, 4, 3));
  CHECK_FALSE(gtp::eval_default_blocks_decrease(true, false, 60, 4, 3));
}

TEST_CASE("the first entry that does not divide is found from any entry on") {
  const gtp::BatchSchedule schedule = schedule_of("0:24 96:49 120:96 200:50");
  CHECK(gtp::first_indivisible_entry(schedule.entries(), 2, 4) == 1);
  CHECK(gtp::first_indivisible_entry(schedule.entries(), 2, 4, 2) == 3);
  CHECK_FALSE(gtp::first_indivisible_entry(schedule.entries(), 1, 1));
  CHECK_FALSE(gtp::first_indivisible_entry(schedule.entries(), 2, 4, 9));
}

TEST_CASE("evaluation iterations of a run count one evaluation more than intervals") {
  CHECK(gtp::eval_iters_of_run(100, 10, std::nullopt, 5) == 55);
  CHECK(gtp::eval_iters_of_run(99, 10, std::nullopt, 5) == 50);
  CHECK(gtp::eval_iters_of_run(100, 10, 35, 5) == 40);
  CHECK(gtp::eval_iters_of_run(100, 10, 500, 5) == 0);
  CHECK(gtp::eval_iters_of_run(100, 10, -1, 5) == 60);
  CHECK_FALSE(gtp::eval_iters_of_run(100, 0, std::nullopt, 5));
  CHECK_FALSE(gtp::eval_iters_of_run(kMax, 1, std::nullopt, 1));
  CHECK_FALSE(gtp::eval_iters_of_run(kMax / 2, 1, std::nullopt, 4));
}

TEST_CASE("iterations from samples drop the rest of a constant batch and keep the overshoot of a schedule") {
  CHECK(gtp::train_iters_from_samples(1000, 64) == 15);
  CHECK(gtp::train_iters_from_samples(63, 64) == 0);
  CHECK(gtp::train_iters_from_samples(-1, 64) == 0);
  const gtp::BatchSchedule schedule = schedule_of("0:8 20:16 40:64");
  CHECK(gtp::train_iters_from_samples(0, schedule) == 0);
  CHECK(gtp::train_iters_from_samples(24, schedule) == 3);
  CHECK(gtp::train_iters_from_samples(25, schedule) == 4);
  CHECK(gtp::train_iters_from_samples(1000, schedule) == 19);
}

TEST_CASE("horizons near the end of 64 bits take a division per entry and do not wrap") {
  CHECK(gtp::train_iters_from_samples(kMax, schedule_of("0:1")) == kMax);
  CHECK(gtp::train_iters_from_samples(kMax, schedule_of("0:1 1e18:9e18")) == 1000000000000000001);
  CHECK(gtp::train_iters_from_samples(kMax, schedule_of("0:5e18 5:9e18")) == 2);
  CHECK(gtp::train_iters_from_samples(kMax, schedule_of("0:9e18 9.1e18:1")) == 2);
}

TEST_CASE("a drop is judged only where an iteration falls") {
  const gtp::BatchSchedule schedule = schedule_of("0:8 16:4 20:2 40:16");
  using Drops = std::vector<std::size_t>;
  CHECK(gtp::microbatch_drops(schedule, 2, 1, 0, kMax, kMax) == Drops{1, 2});
  CHECK(gtp::microbatch_drops(schedule, 2, 1, 16, kMax, kMax) == Drops{2});
  CHECK(gtp::microbatch_drops(schedule, 2, 1, 0, kMax, 2).empty());
  CHECK(gtp::microbatch_drops(schedule, 2, 1, 0, 20, kMax) == Drops{1});
  CHECK(gtp::microbatch_drops(schedule, 4, 1, 0, kMax, kMax) == Drops{1});
  CHECK(gtp::microbatch_drops(schedule, 2, 1, std::numeric_limits<std::int64_t>::min(), kMax, kMax) == Drops{1, 2});
  CHECK(gtp::microbatch_drops(schedule_of("0:64 16:4 32:64"), 2, 1, 0, kMax, kMax).empty());
}

TEST_CASE("closed forms agree with a step by step simulation") {
  std::mt19937_64 random(7);
  for (int round = 0; round < 5000; ++round) {
    const std::int64_t unit = 1 + static_cast<std::int64_t>(random() % 4);
    const std::string text = random_schedule_text(random, unit);
    const auto consumed = static_cast<std::int64_t>(random() % 400);
    const auto until = static_cast<std::int64_t>(random() % 900);
    const auto max_iterations = static_cast<std::int64_t>(random() % 200);
    CAPTURE(text);
    CAPTURE(consumed);
    CAPTURE(until);
    const gtp::BatchSchedule schedule = schedule_of(text);
    CHECK(gtp::train_iters_from_samples(until, schedule) == simulate(schedule, 0, until, kMax).iterations);
    CHECK(gtp::microbatch_drops(schedule, unit, 1, consumed, until, max_iterations) ==
          simulate(schedule, consumed, until, max_iterations).drops);
  }
}
