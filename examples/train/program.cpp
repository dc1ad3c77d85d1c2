#include "program.hpp"

#include <fmt/core.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "weights_file.hpp"

namespace gtp::train {

namespace {

void print_step(const StepLog& step) {
  fmt::print(
      "iteration {:4} | consumed samples {:8} | lr {:.4e} | global batch {:5} | loss {:.6f} | grad norm {:.4f}{}\n",
      step.iteration, step.consumed_train_samples, step.learning_rate, step.global_batch_size, step.loss,
      step.grad_norm, step.skipped ? " | skipped" : "");
}

void print_evaluation(const EvalLog& evaluation) {
  fmt::print("evaluation after {:4} | samples {:8} | loss {:.6f}\n", evaluation.iteration, evaluation.samples,
             evaluation.loss);
}

bool write_trace(const ChromeTrace& trace, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  trace.write([&](std::string_view part) { file << part; });
  return static_cast<bool>(file.flush());
}

/// The name of the first file that could not be written, or nothing.
std::string write_files(const Job& job, std::optional<std::int64_t> process) {
  const std::string& trace = job.arguments.trace;
  if (job.traced() && process.value_or(0) == 0 && !write_trace(job.trace, trace)) return trace;
  if (job.arguments.weights.empty()) return {};
  const std::string weights = process ? fmt::format("{}.{}", job.arguments.weights, *process) : job.arguments.weights;
  return write_weights(weights, job.logs) ? std::string{} : weights;
}

int run_job(Job& job, const Program& program) {
  if (const std::string why = refusal(job.plan, job.shape); !why.empty()) {
    fmt::print(stderr, "{} cannot be run here: {}\n", job.arguments.plan, why);
    return 1;
  }
  const std::string failure = program.train(job);
  if (!failure.empty()) fmt::print(stderr, "{}\n", failure);
  const auto process = job.arguments.loopback ? std::nullopt : rank_of_process();
  if (job.arguments.chains && process.value_or(0) == 0 && !job.logs.empty()) fmt::print("{}", job.logs[0].chains);
  if (!failure.empty()) return 3;
  if (const std::string file = write_files(job, process); !file.empty()) {
    fmt::print(stderr, "cannot write {}\n", file);
    return 2;
  }
  return 0;
}

}  // namespace

TrainOptions Job::options(std::int64_t rank) const {
  TrainOptions out = arguments.options;
  if (rank == 0) out.on_step = print_step;
  if (rank == 0) out.on_evaluation = print_evaluation;
  return out;
}

bool Job::prepare_threads(std::string& why) {
  constexpr std::int64_t kMostThreads = 256;
  if (plan.topology.world_size > kMostThreads) {
    why = "the world has more than 256 ranks";
    return false;
  }
  logs.resize(static_cast<std::size_t>(plan.topology.world_size));
  return true;
}

std::optional<std::int64_t> rank_of_process() {
  const char* text = std::getenv("RANK");
  if (text == nullptr || std::getenv("WORLD_SIZE") == nullptr) return std::nullopt;
  std::int64_t rank = 0;
  std::from_chars(text, text + std::strlen(text), rank);  // whoever joins the job says what is wrong with it
  return rank;
}

std::string first_failure(std::span<const RankOutcome> ends) {
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    if (!ends[rank].ok()) return fmt::format("rank {}: {}", rank, ends[rank].text);
  }
  return {};
}

int run_program(std::span<char*> words, const Program& program) {
  auto arguments = parse_arguments(words, program.has_loopback);
  if (!arguments) {
    fmt::print(stderr, "usage: {}{}{}", program.name, program.has_loopback ? " [--loopback]" : "", kUsage);
    return 2;
  }
  std::ifstream file(arguments->plan, std::ios::binary);
  if (!file) {
    fmt::print(stderr, "cannot read {}\n", arguments->plan);
    return 2;
  }
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Job job;
  if (const PlanProblem problem = read_plan(arguments->plan, text, job.plan); !problem.text.empty()) {
    fmt::print(stderr, "{} is refused\n{}\n", arguments->plan, problem.text);
    return 1;
  }
  job.shape = shape_of(*arguments, job.plan);
  job.arguments = std::move(*arguments);
  return run_job(job, program);
}

}  // namespace gtp::train
