// train PLAN.json [options]: trains a small model on the grid and the batches of a plan. Under torchrun, or whatever
// else sets RANK and WORLD_SIZE, it is one rank of the job, over Gloo; otherwise every rank is a thread of this
// process. Prints a line a step. Exit codes: 0 trained, 1 the plan is refused, 2 a usage or file error, 3 a rank
// failed.
#include <fmt/core.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/host_backend.hpp"
#include "train.hpp"
#ifdef GTP_WITH_GLOO
#include "train_over_gloo.hpp"
#endif

namespace {

using namespace gtp;
using namespace gtp::train;

constexpr std::string_view kUsage =
    "usage: train PLAN.json [--steps N] [--seed N] [--layers N] [--hidden N] [--heads N] [--ffn N] [--vocab N]\n"
    "             [--seq N] [--experts N] [--topk N] [--bf16-wire]\n"
    "Trains a small model on the grid and the batches of a plan. Every rank is a thread of this process or, where "
    "RANK\n"
    "and WORLD_SIZE are set, a process.\n";

struct Arguments {
  std::string plan;
  ModelShape shape;
  TrainOptions options;
};

template <class T>
bool parse(std::string_view text, T& out) {
  const auto end = std::from_chars(text.data(), text.data() + text.size(), out);
  return end.ec == std::errc{} && end.ptr == text.data() + text.size();
}

bool parse_size(std::string_view name, std::string_view text, ModelShape& shape) {
  constexpr std::size_t kLargest = 4096;
  struct Flag {
    std::string_view name;
    std::size_t* value;
  };
  const std::array flags{Flag{"--layers", &shape.layers},   Flag{"--hidden", &shape.hidden},
                         Flag{"--heads", &shape.heads},     Flag{"--ffn", &shape.ffn},
                         Flag{"--vocab", &shape.vocab},     Flag{"--seq", &shape.seq},
                         Flag{"--experts", &shape.experts}, Flag{"--topk", &shape.topk}};
  for (const Flag& flag : flags) {
    if (flag.name == name) return parse(text, *flag.value) && *flag.value <= kLargest;
  }
  return false;
}

std::optional<Arguments> parse_arguments(std::span<char*> words) {
  Arguments out;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "--bf16-wire") {
      out.options.wire = ElementType::kBFloat16;
      continue;
    }
    if (!word.starts_with("--") && out.plan.empty()) {
      out.plan = word;
      continue;
    }
    if (++i == words.size()) return std::nullopt;
    const std::string_view value = words[i];
    std::int64_t steps = 0;
    if (word == "--steps") {
      if (!parse(value, steps) || steps < 0) return std::nullopt;
      out.options.steps = steps;
    } else if (word == "--seed") {
      if (!parse(value, out.options.seed)) return std::nullopt;
    } else if (!parse_size(word, value, out.shape)) {
      return std::nullopt;
    }
  }
  return out.plan.empty() ? std::nullopt : std::optional(std::move(out));
}

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

/// Trains all ranks; the text of the first failure, or nothing.
std::string train_on_threads(const PlanValues& plan, const Arguments& arguments) {
  HostWorld world({.ranks = plan.topology.world_size, .seed = arguments.options.seed});
  const auto ends = world.run([&](std::int64_t rank, HostBackend& backend) {
    TrainOptions options = arguments.options;
    if (rank == 0) {
      options.on_step = print_step;
      options.on_evaluation = print_evaluation;
    }
    HostLauncher launcher(backend);
    train::train(plan, arguments.shape, options, {backend, launcher, rank});
  });
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    if (!ends[rank].ok()) return fmt::format("rank {}: {}", rank, ends[rank].text);
  }
  return {};
}

/// Trains the rank that the environment names; the text of its failure, or nothing.
std::string train_as_process([[maybe_unused]] const PlanValues& plan, [[maybe_unused]] const Arguments& arguments,
                             std::string_view rank) {
#ifdef GTP_WITH_GLOO
  TrainOptions options = arguments.options;
  if (rank == "0") {
    options.on_step = print_step;
    options.on_evaluation = print_evaluation;
  }
  try {
    train_over_gloo(plan, arguments.shape, options);
  } catch (const RuntimeError& error) {
    return fmt::format("rank {}: {}", rank, error.text());
  }
  return {};
#else
  return fmt::format("rank {}: this program was built without Gloo, so a rank cannot be a process", rank);
#endif
}

int run(std::span<char*> words) {
  const auto arguments = parse_arguments(words);
  if (!arguments) {
    fmt::print(stderr, "{}", kUsage);
    return 2;
  }
  std::ifstream file(arguments->plan, std::ios::binary);
  if (!file) {
    fmt::print(stderr, "cannot read {}\n", arguments->plan);
    return 2;
  }
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  PlanValues plan;
  if (const PlanProblem problem = read_plan(arguments->plan, text, plan); !problem.text.empty()) {
    fmt::print(stderr, "{} is refused\n{}\n", arguments->plan, problem.text);
    return 1;
  }
  const char* rank = std::getenv("RANK");
  const bool is_process = rank != nullptr && std::getenv("WORLD_SIZE") != nullptr;
  constexpr std::int64_t kMostThreads = 256;
  std::string why = refusal(plan, arguments->shape);
  if (why.empty() && !is_process && plan.topology.world_size > kMostThreads) why = "the world has more than 256 ranks";
  if (!why.empty()) {
    fmt::print(stderr, "{} cannot be run here: {}\n", arguments->plan, why);
    return 1;
  }
  const std::string failure =
      is_process ? train_as_process(plan, *arguments, rank) : train_on_threads(plan, *arguments);
  if (failure.empty()) return 0;
  fmt::print(stderr, "{}\n", failure);
  return 3;
}

}  // namespace

int main(int argc, char** argv) { return run({argv, static_cast<std::size_t>(argc)}); }
