// gtplan batch: what each iteration consumes, what evaluation reads, and how far the LR scheduler counts.
#include <fmt/format.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtp/assign.hpp>
#include <gtp/batch.hpp>

#include "tools/commands.hpp"
#include "tools/file.hpp"
#include "tools/json_writer.hpp"
#include "tools/render.hpp"

namespace gtp::cli {

namespace {

using Layout = JsonWriter::Layout;

constexpr std::array<std::string_view, 2> kFormats{"text", "json"};
constexpr std::int64_t kMostIterations = 10'000'000;

constexpr const char* kDescription =
    "Accounts for batches: microbatches, batch sizes, samples and scheduler steps of each iteration, starting at\n"
    "`consumed_train_samples`; what one evaluation reads; and the horizons of the LR scheduler, in samples.";
constexpr const char* kExamples =
    "Examples:\n"
    "  gtplan batch --world-size 64 config.yaml\n"
    "  gtplan batch plan.json --iterations 100 --format json\n"
    "  gtplan batch plan.json --set consumed_train_samples=4096     a resumed run\n"
    "\n"
    "Thresholds of a step schedule are tokens when `seq_length` is given and samples otherwise.";

struct Options {
  InputOptions input;
  std::string iterations = "10";
};

struct Column {
  std::string_view name;
  std::int64_t BatchRow::*value;
};

constexpr std::array<Column, 6> kColumns{{{"iteration", &BatchRow::iteration},
                                          {"num_microbatches", &BatchRow::num_microbatches},
                                          {"global_batch_size", &BatchRow::global_batch_size},
                                          {"running_global_batch_size", &BatchRow::running_global_batch_size},
                                          {"lr_increment_samples", &BatchRow::lr_increment_samples},
                                          {"consumed_train_samples", &BatchRow::consumed_train_samples}}};
constexpr Column kSkipped{"skipped_train_samples", &BatchRow::skipped_train_samples};

/// A name and a number, or nothing where the configuration does not say enough.
using Figure = std::pair<std::string_view, std::int64_t>;

std::vector<Figure> eval_figures(const BatchOptions& options, const BatchPlan& plan) {
  std::vector<Figure> figures{{"eval_num_microbatches", plan.eval_num_microbatches},
                              {"eval_samples", plan.eval_samples}};
  BatchProblems ignored;  // a run without a length simply has no total
  if (const auto target = eval_target(options, plan, ignored)) {
    figures.emplace_back("run_eval_iters", target->eval_iters);
    figures.emplace_back("run_eval_samples", target->eval_samples);
  }
  return figures;
}

std::vector<Figure> horizon_figures(const BatchOptions& options, const BatchPlan& plan) {
  std::vector<Figure> figures;
  BatchProblems ignored;  // as above
  if (const auto iterations = resolve_train_iters(options, plan, ignored))
    figures.emplace_back("train_iters", *iterations);
  const auto horizons = lr_horizons(options, plan, ignored);
  if (!horizons) return figures;
  figures.emplace_back("lr_warmup_samples", horizons->lr_warmup_samples);
  figures.emplace_back("lr_decay_samples", horizons->lr_decay_samples);
  if (horizons->lr_wsd_decay_samples) figures.emplace_back("lr_wsd_decay_samples", *horizons->lr_wsd_decay_samples);
  figures.emplace_back("wd_incr_samples", horizons->wd_incr_samples);
  return figures;
}

void write_figures(JsonWriter& json, std::string_view key, const std::vector<Figure>& figures) {
  json.key(key);
  json.begin_object();
  for (const auto& [name, number] : figures) json.field(name, number);
  json.end();
}

void write_json(const Report& report, std::int64_t iterations, Output& output) {
  const BatchOptions& options = *report.derivation.batch_options;
  const BatchPlan& plan = *report.derivation.batch;
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.key("derived");
  write_derived(json, report);
  json.key("rows");
  json.begin_array();
  BatchRows rows(plan, options);
  for (std::int64_t i = 0; i < iterations; ++i) {
    const std::optional<BatchRow> row = rows.next();
    if (!row) break;
    json.begin_object(Layout::Inline);
    for (const Column& column : kColumns) json.field(column.name, (*row).*column.value);
    if (row->skipped_train_samples != 0) json.field(kSkipped.name, row->skipped_train_samples);
    json.end();
    output.write(text);
    text.clear();
  }
  json.end();
  write_figures(json, "eval", eval_figures(options, plan));
  write_figures(json, "horizons", horizon_figures(options, plan));
  json.end();
  output.write(text);
}

void write_figures(const std::vector<Figure>& figures, Output& output) {
  if (figures.empty()) return;
  output.write("\n");
  for (const auto& [name, number] : figures) output.write(fmt::format("{:24} {}\n", name, number));
}

void write_text(const Report& report, std::int64_t iterations, Output& output) {
  const BatchOptions& options = *report.derivation.batch_options;
  const BatchPlan& plan = *report.derivation.batch;
  std::vector<Column> columns(kColumns.begin(), kColumns.end());
  if (plan.decrease_batch_size_if_needed || !options.iterations_to_skip.empty() || options.skipped_train_samples != 0)
    columns.push_back(kSkipped);
  std::string line;
  for (const Column& column : columns) line += fmt::format("{}{}", line.empty() ? "" : "  ", column.name);
  output.write(line + '\n');
  BatchRows rows(plan, options);
  for (std::int64_t i = 0; i < iterations; ++i) {
    const std::optional<BatchRow> row = rows.next();
    if (!row) break;
    line.clear();
    for (const Column& column : columns)
      line += fmt::format("{}{:>{}}", line.empty() ? "" : "  ", (*row).*column.value, column.name.size());
    output.write(line + '\n');
  }
  write_figures(eval_figures(options, plan), output);
  write_figures(horizon_figures(options, plan), output);
}

/// Appends errors for what the accounting needs and does not have.
void need_batch(CheckedList& list) {
  using namespace literals;
  for (Checked& checked : list.configs)
    if (!checked.report || !checked.report->derivation.batch)
      need(checked, "batch", std::array{"eval_num_microbatches"_opt});
}

Exit run(const Options& options) {
  const std::string_view format = format_of(options.input, kFormats);
  if (list_targets(options.input)) return Exit::Valid;
  const std::optional<std::int64_t> iterations = parse_int(options.iterations).value;
  if (!iterations || *iterations < 0 || *iterations > kMostIterations)
    throw CouldNotRun{
        fmt::format("--iterations `{}` is not a number from 0 to {}", options.iterations, kMostIterations)};
  CheckedList list = load_and_check(options.input);
  need_batch(list);
  if (!report_unless_valid(list, options.input)) return list.exit();
  const Report& report = *list.configs.front().report;
  Output output(options.input.output);
  if (format == "json")
    write_json(report, *iterations, output);
  else
    write_text(report, *iterations, output);
  output.finish();
  return Exit::Valid;
}

}  // namespace

Action setup_batch(Arguments& arguments) {
  const auto options = std::make_shared<Options>();
  arguments.describe(kDescription, kExamples);
  add_input_options(arguments, HowMany::One, kFormats, options->input);
  arguments.word("--iterations", options->iterations, "N", "Iterations to account for (default 10)");
  return [options] { return run(*options); };
}

}  // namespace gtp::cli
