#include "gtp/batch.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "../support/data.hpp"

namespace {

using gtp::BatchProblemKind;
using gtp::EvalBatchRule;
using nlohmann::json;

using Ids = std::vector<std::string>;
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

gtp::BatchSchedule schedule_of(const std::string& text) {
  gtp::ScheduleProblems problems;
  std::optional<gtp::BatchSchedule> schedule = gtp::parse_batch_schedule(text, std::nullopt, problems);
  REQUIRE(schedule);
  return *schedule;
}

std::string_view rule_id(BatchProblemKind kind) {
  switch (kind) {
    case BatchProblemKind::kMissing:
      return "missing";
    case BatchProblemKind::kNotPositive:
      return "not-positive";
    case BatchProblemKind::kNegative:
      return "negative";
    case BatchProblemKind::kOverflow:
      return "overflow";
    case BatchProblemKind::kScheduleWithGlobalBatch:
      return "step-schedule-vs-gbs";
    case BatchProblemKind::kScheduleWithDecrease:
      return "step-schedule-vs-decrease";
    case BatchProblemKind::kBatchNotDivisible:
      return "gbs-divisible";
    case BatchProblemKind::kNoMicrobatch:
      return "num-microbatches-min-one";
    case BatchProblemKind::kEvalBatchNotDivisible:
      return "eval-gbs-divisible";
    case BatchProblemKind::kScheduleEntryNotDivisible:
      return "step-schedule-late-divisibility";
    case BatchProblemKind::kMicrobatchesDrop:
      return "num-microbatches-monotonic";
  }
  return "?";
}

/// The rules that refuse `options`, each once, in alphabetical order.
std::vector<std::string> refusals(const gtp::BatchOptions& options,
                                  EvalBatchRule rule = EvalBatchRule::kDataDistribution) {
  gtp::BatchProblems problems;
  const bool resolved = gtp::resolve_batch(options, rule, problems).has_value();
  CHECK(resolved == problems.empty());
  std::vector<std::string> ids;
  for (const gtp::BatchProblem& problem : problems) ids.emplace_back(rule_id(problem.kind));
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

gtp::BatchPlan plan_of(const gtp::BatchOptions& options, EvalBatchRule rule = EvalBatchRule::kDataDistribution) {
  gtp::BatchProblems problems;
  std::optional<gtp::BatchPlan> plan = gtp::resolve_batch(options, rule, problems);
  REQUIRE(plan);
  return *plan;
}

std::optional<std::int64_t> optional_number(const json& config, const char* name) {
  return config.contains(name) ? std::optional(config[name].get<std::int64_t>()) : std::nullopt;
}

/// Options of one recorded configuration, without its schedule.
gtp::BatchOptions recorded_options(const json& config) {
  const auto tensor_parallel = config["tensor_model_parallel_size"].get<std::int64_t>();
  const auto weight_shards = config["tensor_parallel_num_weight_shards"].get<std::int64_t>();
  gtp::BatchOptions options;
  options.gtp_weight_remat_size = weight_shards / tensor_parallel;
  options.data_parallel_size = config["world_size"].get<std::int64_t>() / weight_shards;
  options.micro_batch_size = optional_number(config, "micro_batch_size");
  options.global_batch_size = optional_number(config, "global_batch_size");
  options.decrease_batch_size_if_needed = config.value("decrease_batch_size_if_needed", false);
  options.eval_micro_batch_size = optional_number(config, "eval_micro_batch_size");
  options.eval_global_batch_size = optional_number(config, "eval_global_batch_size");
  options.eval_iters = config["eval_iters"].get<std::int64_t>();
  options.consumed_train_samples = optional_number(config, "consumed_train_samples").value_or(0);
  return options;
}

json as_json(const gtp::BatchRow& row) {
  return {{"iteration", row.iteration},
          {"num_microbatches", row.num_microbatches},
          {"global_batch_size", row.global_batch_size},
          {"running_global_batch_size", row.running_global_batch_size},
          {"lr_increment_samples", row.lr_increment_samples},
          {"consumed_train_samples", row.consumed_train_samples}};
}

/// What we make of a recorded configuration, in the form of what upstream made of it.
json answer(const json& config, std::size_t row_count) {
  gtp::BatchOptions options = recorded_options(config);
  if (config.contains("step_batch_size_schedule")) {
    gtp::ScheduleProblems problems;
    options.step_batch_size_schedule = gtp::parse_batch_schedule(config["step_batch_size_schedule"].get<std::string>(),
                                                                 optional_number(config, "seq_length"), problems);
    if (!problems.empty()) {
      CHECK(problems.size() == 1);
      CHECK(problems[0].kind == gtp::ScheduleProblemKind::kFirstNotZero);
      return {{"errors", {"step-schedule-first-zero"}}};
    }
  }
  if (const std::vector<std::string> ids = refusals(options); !ids.empty()) return {{"errors", ids}};
  const gtp::BatchPlan plan = plan_of(options);
  json result;
  result["derived"] = {{"data_parallel_size", options.data_parallel_size},
                       {"gtp_weight_remat_size", options.gtp_weight_remat_size},
                       {"data_distribution_size", plan.lanes}};
  result["eval"] = {{"eval_num_microbatches", plan.eval_num_microbatches}, {"eval_samples", plan.eval_samples}};
  gtp::BatchRows rows(plan, options);
  for (std::size_t i = 0; i < row_count; ++i) result["rows"].push_back(as_json(rows.next().value()));
  return result;
}

gtp::BatchOptions constant_batch(std::int64_t micro_batch_size, std::int64_t data_parallel_size,
                                 std::int64_t gtp_weight_remat_size, std::optional<std::int64_t> global_batch_size) {
  gtp::BatchOptions options;
  options.micro_batch_size = micro_batch_size;
  options.data_parallel_size = data_parallel_size;
  options.gtp_weight_remat_size = gtp_weight_remat_size;
  options.global_batch_size = global_batch_size;
  return options;
}

}  // namespace

TEST_CASE("every recorded configuration is accounted or refused as upstream does") {
  std::ifstream file(gtp::test::project_data("batch_accounting.json"));
  const json recorded = json::parse(file);
  REQUIRE(recorded.size() == 160);
  int accounted = 0;
  for (const json& row : recorded) {
    CAPTURE(row["config"].dump());
    const json& expected = row["expect"];
    const std::size_t row_count = expected.contains("rows") ? expected["rows"].size() : 0;
    accounted += row_count > 0 ? 1 : 0;
    CHECK(answer(row["config"], row_count) == expected);
  }
  CHECK(accounted == 122);
}

TEST_CASE("the default global batch leaves out GTP_remat and fails with it") {
  CHECK(plan_of(constant_batch(2, 4, 1, std::nullopt)).global_batch_size == 8);
  CHECK(refusals(constant_batch(2, 4, 2, std::nullopt)) == Ids{"gbs-divisible"});
  gtp::BatchOptions options = constant_batch(2, 4, 2, std::nullopt);
  options.step_batch_size_schedule = schedule_of("0:16");
  CHECK(refusals(options) == Ids{"eval-gbs-divisible"});
  options.eval_global_batch_size = 32;
  CHECK(plan_of(options).eval_num_microbatches == 2);
  CHECK(plan_of(options).global_batch_size == 8);
}

TEST_CASE("an inherited evaluation batch is blamed only when the training batch is not") {
  CHECK(refusals(constant_batch(2, 4, 1, 12)) == Ids{"gbs-divisible"});
  gtp::BatchOptions options = constant_batch(2, 4, 1, 12);
  options.decrease_batch_size_if_needed = true;
  CHECK(refusals(options) == Ids{"eval-gbs-divisible"});
  options.eval_global_batch_size = 8;
  CHECK(refusals(options).empty());
  options.global_batch_size = 7;
  CHECK(refusals(options) == Ids{"num-microbatches-min-one"});
}

TEST_CASE("the older target floors the microbatches of an evaluation") {
  gtp::BatchOptions options = constant_batch(2, 4, 4, 32);
  options.eval_global_batch_size = 24;
  CHECK(refusals(options) == Ids{"eval-gbs-divisible"});
  CHECK(plan_of(options, EvalBatchRule::kReplicateOnly).eval_num_microbatches == 0);
  options.eval_global_batch_size = 20;
  CHECK(refusals(options, EvalBatchRule::kReplicateOnly) == Ids{"eval-gbs-divisible"});
}

TEST_CASE("a schedule excludes an explicit batch and rounding down") {
  gtp::BatchOptions options = constant_batch(1, 2, 1, 8);
  options.step_batch_size_schedule = schedule_of("0:8");
  options.decrease_batch_size_if_needed = true;
  CHECK(refusals(options) == Ids{"step-schedule-vs-decrease", "step-schedule-vs-gbs"});
}

TEST_CASE("every scheduled batch is checked up front and passed ones are not") {
  gtp::BatchOptions options = constant_batch(2, 4, 1, std::nullopt);
  options.step_batch_size_schedule = schedule_of("0:4 100:16 200:20 300:32 400:44");
  gtp::BatchProblems problems;
  CHECK_FALSE(gtp::resolve_batch(options, EvalBatchRule::kDataDistribution, problems));
  REQUIRE(problems.size() == 3);
  CHECK(problems[0].entry_index == 0);
  CHECK(problems[1].entry_index == 2);
  CHECK(problems[2].entry_index == 4);
  CHECK(problems[2].value == 44);
  CHECK(problems[2].option == "step_batch_size_schedule");
  options.consumed_train_samples = 300;
  problems.clear();
  CHECK_FALSE(gtp::resolve_batch(options, EvalBatchRule::kDataDistribution, problems));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].entry_index == 4);
}

TEST_CASE("a falling microbatch count is refused if the run gets there") {
  gtp::BatchOptions options = constant_batch(1, 4, 1, std::nullopt);
  options.step_batch_size_schedule = schedule_of("0:8 80:4");
  CHECK(refusals(options) == Ids{"num-microbatches-monotonic"});
  options.train_iters = 10;
  CHECK(refusals(options).empty());
  options.train_iters = 11;
  CHECK(refusals(options) == Ids{"num-microbatches-monotonic"});
  options.train_iters.reset();
  options.train_samples = 80;
  CHECK(refusals(options).empty());
  options.train_samples = 81;
  CHECK(refusals(options) == Ids{"num-microbatches-monotonic"});
  options.consumed_train_samples = 80;
  CHECK(refusals(options).empty());
  options.consumed_train_samples = 40;
  options.iteration = 5;
  options.train_iters = 10;
  CHECK(refusals(options).empty());
  options.train_iters = 11;
  CHECK(refusals(options) == Ids{"num-microbatches-monotonic"});
  options.train_iters = std::numeric_limits<std::int64_t>::min();
  CHECK(refusals(options).empty());
}

TEST_CASE("values that are missing, not positive or negative are all named at once") {
  gtp::BatchOptions options;
  options.data_parallel_size = 0;
  options.eval_iters = -1;
  options.consumed_train_samples = std::numeric_limits<std::int64_t>::min();
  gtp::BatchProblems problems;
  CHECK_FALSE(gtp::resolve_batch(options, EvalBatchRule::kDataDistribution, problems));
  REQUIRE(problems.size() == 4);
  CHECK(problems[0].option == "micro_batch_size");
  CHECK(problems[0].kind == BatchProblemKind::kMissing);
  CHECK(problems[1].option == "data_parallel_size");
  CHECK(problems[2].option == "eval_iters");
  CHECK(problems[3].option == "consumed_train_samples");
}

TEST_CASE("sizes near the end of 64 bits are a problem and do not wrap") {
  CHECK(refusals(constant_batch(1, kMax, 2, 8)) == Ids{"overflow"});
  CHECK(refusals(constant_batch(kMax, 2, 1, std::nullopt)) == Ids{"overflow"});
  CHECK(refusals(constant_batch(1, 1, 1, kMax)) == Ids{"overflow"});
  gtp::BatchOptions options = constant_batch(1, 1, 1, kMax);
  options.eval_iters = 1;
  options.consumed_train_samples = 1;
  gtp::BatchRows rows(plan_of(options), options);
  CHECK_FALSE(rows.next());
  CHECK(rows.problem().value().option == "consumed_train_samples");
  options.consumed_train_samples = 0;
  gtp::BatchRows twice(plan_of(options), options);
  CHECK(twice.next().value().consumed_train_samples == kMax);
  CHECK_FALSE(twice.next());
}

TEST_CASE("a skipped iteration is consumed and skipped and does not step the learning rate") {
  gtp::BatchOptions options = constant_batch(2, 3, 1, 13);
  options.decrease_batch_size_if_needed = true;
  options.eval_global_batch_size = 6;
  options.iteration = 10;
  options.consumed_train_samples = 120;
  options.skipped_train_samples = 7;
  options.iterations_to_skip = {12, 3, 12, -1, 13};
  gtp::BatchRows rows(plan_of(options), options);
  const gtp::BatchRow first = rows.next().value();
  CHECK(first.iteration == 11);
  CHECK(first.running_global_batch_size == 12);
  CHECK(first.lr_increment_samples == 12);
  CHECK(first.consumed_train_samples == 132);
  CHECK(first.skipped_train_samples == 8);
  CHECK_FALSE(first.skipped);
  rows.next();
  const gtp::BatchRow third = rows.next().value();
  CHECK(third.skipped);
  CHECK(third.num_microbatches == 2);
  CHECK(third.lr_increment_samples == 0);
  CHECK(third.consumed_train_samples == 156);
  CHECK(third.skipped_train_samples == 32);
  CHECK(rows.next().value().skipped_train_samples == 33);
}

TEST_CASE("horizons of an iteration run count configured batches") {
  gtp::BatchOptions options = constant_batch(2, 4, 1, 64);
  const gtp::BatchPlan plan = plan_of(options);
  gtp::BatchProblems problems;
  options.train_iters = 1000;
  options.lr_warmup_iters = 10;
  options.lr_wsd_decay_iters = 50;
  options.train_samples = 5;
  const gtp::LrHorizons all = gtp::lr_horizons(options, plan, problems).value();
  CHECK(all.lr_decay_samples == 64000);
  CHECK(all.wd_incr_samples == 64000);
  CHECK(all.lr_warmup_samples == 640);
  CHECK(all.lr_wsd_decay_samples == 3200);
  CHECK(gtp::resolve_train_iters(options, plan, problems) == 1000);
  options.lr_decay_iters = 333;
  options.lr_warmup_fraction = 0.01;
  const gtp::LrHorizons fraction = gtp::lr_horizons(options, plan, problems).value();
  CHECK(fraction.lr_decay_samples == 21312);
  CHECK(fraction.lr_warmup_samples == 213);
  CHECK(problems.empty());
}

TEST_CASE("horizons of a sample run are the samples") {
  gtp::BatchOptions options = constant_batch(2, 4, 1, 64);
  const gtp::BatchPlan plan = plan_of(options);
  gtp::BatchProblems problems;
  options.train_iters = 0;
  options.train_samples = 6401;
  options.lr_decay_samples = 6000;
  options.lr_warmup_samples = 77;
  const gtp::LrHorizons horizons = gtp::lr_horizons(options, plan, problems).value();
  CHECK(horizons.lr_decay_samples == 6000);
  CHECK(horizons.wd_incr_samples == 6401);
  CHECK(horizons.lr_warmup_samples == 77);
  CHECK_FALSE(horizons.lr_wsd_decay_samples);
  CHECK(gtp::resolve_train_iters(options, plan, problems) == 100);
  CHECK(problems.empty());
}

TEST_CASE("a schedule in an iteration run leaves the horizons with the default batch") {
  gtp::BatchOptions options = constant_batch(2, 4, 1, std::nullopt);
  options.step_batch_size_schedule = schedule_of("0:64 640:128");
  options.train_iters = 100;
  gtp::BatchProblems problems;
  CHECK(gtp::lr_horizons(options, plan_of(options), problems).value().lr_decay_samples == 800);
  options.train_iters.reset();
  options.train_samples = 1000;
  CHECK(gtp::resolve_train_iters(options, plan_of(options), problems) == 13);
}

TEST_CASE("horizons that do not exist are problems") {
  gtp::BatchOptions options = constant_batch(1, 1, 1, 1024);
  const gtp::BatchPlan plan = plan_of(options);
  const auto kinds = [&] {
    gtp::BatchProblems problems;
    CHECK_FALSE(gtp::lr_horizons(options, plan, problems));
    std::string text;
    for (const gtp::BatchProblem& problem : problems)
      text += fmt::format("{} {};", rule_id(problem.kind), problem.option);
    return text;
  };
  CHECK(kinds() == "missing train_iters;");
  options.train_samples = -5;
  CHECK(kinds() == "not-positive train_samples;");
  options.train_iters = kMax;
  options.lr_warmup_iters = kMax;
  CHECK(kinds() == "overflow train_iters;overflow lr_warmup_iters;");
  options.train_iters = 10;
  for (const double fraction :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 1e300}) {
    options.lr_warmup_fraction = fraction;
    CHECK(kinds() == "overflow lr_warmup_fraction;");
  }
}

TEST_CASE("the evaluation target follows the length of the run") {
  gtp::BatchOptions options = constant_batch(2, 4, 1, 64);
  options.eval_global_batch_size = 32;
  options.eval_iters = 5;
  options.train_samples = 6400;
  options.eval_interval = 10;
  const gtp::BatchPlan plan = plan_of(options);
  gtp::BatchProblems problems;
  CHECK(gtp::eval_target(options, plan, problems).value().eval_samples == 11 * 5 * 32);
  options.start_eval_at_iter = 25;
  CHECK(gtp::eval_target(options, plan, problems).value().eval_iters == 9 * 5);
  CHECK(problems.empty());
  options.eval_interval.reset();
  CHECK_FALSE(gtp::eval_target(options, plan, problems));
  options.eval_interval = 0;
  CHECK_FALSE(gtp::eval_target(options, plan, problems));
  options.eval_interval = 1;
  options.train_samples = kMax;
  options.start_eval_at_iter.reset();
  CHECK_FALSE(gtp::eval_target(options, plan, problems));
  REQUIRE(problems.size() == 3);
  CHECK(problems[0].kind == BatchProblemKind::kMissing);
  CHECK(problems[1].kind == BatchProblemKind::kNotPositive);
  CHECK(problems[2].kind == BatchProblemKind::kOverflow);
}

namespace {

struct RandomRun {
  gtp::BatchOptions options;
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;  ///< Threshold and batch; empty for a constant batch.
};

RandomRun random_run(std::mt19937_64& random) {
  const auto up_to = [&](std::uint64_t limit) { return static_cast<std::int64_t>(random() % (limit + 1)); };
  RandomRun run;
  run.options = constant_batch(1 + up_to(3), 1 + up_to(4), 1 + up_to(3), std::nullopt);
  const std::int64_t unit =
      *run.options.micro_batch_size * run.options.data_parallel_size * run.options.gtp_weight_remat_size;
  run.options.eval_global_batch_size = unit * (1 + up_to(3));
  if (up_to(1) == 0) {
    std::string text;
    std::int64_t threshold = 0;
    std::int64_t batch = 0;
    for (std::int64_t i = up_to(4); i >= 0; --i) {
      batch += unit * (up_to(3) + (batch == 0 ? 1 : 0));
      run.steps.emplace_back(threshold, batch);
      text += fmt::format("{}:{},", threshold, batch);
      threshold += 1 + up_to(40 * static_cast<std::uint64_t>(unit));
    }
    run.options.step_batch_size_schedule = schedule_of(text);
  } else {
    run.options.decrease_batch_size_if_needed = up_to(1) == 0;
    run.options.global_batch_size = unit * (1 + up_to(9)) + (run.options.decrease_batch_size_if_needed ? up_to(20) : 0);
  }
  run.options.iteration = up_to(20);
  run.options.consumed_train_samples = up_to(2000);
  run.options.skipped_train_samples = up_to(50);
  for (std::int64_t i = up_to(6); i > 0; --i) run.options.iterations_to_skip.push_back(up_to(60));
  return run;
}

/// The counters of the training loop, kept in the plainest way.
void check_rows(const RandomRun& run, int row_count) {
  const gtp::BatchOptions& options = run.options;
  gtp::BatchRows rows(plan_of(options), options);
  std::int64_t consumed = options.consumed_train_samples;
  std::int64_t skipped = options.skipped_train_samples;
  const std::int64_t unit = *options.micro_batch_size * options.data_parallel_size * options.gtp_weight_remat_size;
  for (std::int64_t iteration = options.iteration + 1; iteration <= options.iteration + row_count; ++iteration) {
    std::int64_t batch = options.global_batch_size.value_or(0);
    for (const auto& [threshold, size] : run.steps) batch = consumed >= threshold ? size : batch;
    const std::int64_t running = batch - batch % unit;
    const auto& to_skip = options.iterations_to_skip;
    const bool skip = std::find(to_skip.begin(), to_skip.end(), iteration) != to_skip.end();
    consumed += running;
    skipped += skip ? running : batch - running;
    const gtp::BatchRow row = rows.next().value();
    CHECK(row.iteration == iteration);
    CHECK(row.num_microbatches == running / unit);
    CHECK(row.global_batch_size == batch);
    CHECK(row.running_global_batch_size == running);
    CHECK(row.lr_increment_samples == (skip ? 0 : running));
    CHECK(row.consumed_train_samples == consumed);
    CHECK(row.skipped_train_samples == skipped);
    CHECK(row.skipped == skip);
  }
}

/// Horizons of a sample run against a count of its steps.
void check_train_iters(RandomRun run, std::int64_t train_samples) {
  run.options.train_samples = train_samples;
  run.options.eval_interval = 7;
  const gtp::BatchPlan plan = plan_of(run.options);
  std::int64_t iterations = 0;
  std::int64_t consumed = 0;
  while (true) {
    std::int64_t batch = plan.global_batch_size;
    for (const auto& [threshold, size] : run.steps) batch = consumed >= threshold ? size : batch;
    if (run.steps.empty() ? consumed + batch > train_samples : consumed >= train_samples) break;
    consumed += batch;
    ++iterations;
  }
  gtp::BatchProblems problems;
  CHECK(gtp::resolve_train_iters(run.options, plan, problems) == iterations);
  CHECK(gtp::eval_target(run.options, plan, problems).value().eval_iters == (iterations / 7 + 1) * 100);
  CHECK(gtp::lr_horizons(run.options, plan, problems).value().wd_incr_samples == train_samples);
  CHECK(problems.empty());
}

}  // namespace

TEST_CASE("thousands of random runs agree with the training loop step by step") {
  std::mt19937_64 random(20260822);
  for (int round = 0; round < 4000; ++round) {
    CAPTURE(round);
    const RandomRun run = random_run(random);
    check_rows(run, 40);
    check_train_iters(run, 1 + static_cast<std::int64_t>(random() % 5000));
  }
}
