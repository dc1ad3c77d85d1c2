// Short ways to make a plan, run it on threads and compare what came out.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "examples/train/train.hpp"
#include "kernels/host_backend.hpp"
#include "reference.hpp"

namespace gtp::test {

/// A plan with these options over small ones that every test shares; each is written `"name": value`.
inline std::string plan_text(const std::string& options) {
  return fmt::format(R"({{"format": "gtplan-plan", "format_version": "1.0", "options": {{
      "micro_batch_size": 1, "train_iters": 4, "lr": 0.01, "min_lr": 0.001, "lr_warmup_iters": 1,
      "lr_decay_style": "cosine", "eval_iters": 0, "clip_grad": 0.5, {}}}}})",
                     options);
}

inline train::PlanValues plan_of(const std::string& options) {
  train::PlanValues plan;
  const train::PlanProblem problem = train::read_plan("test", plan_text(options), plan);
  INFO(problem.text);
  REQUIRE(problem.text.empty());
  return plan;
}

/// Tensor parallelism, weight shards and world, with a batch of `microbatches` per lane.
inline train::PlanValues dense_plan(std::int64_t world, std::int64_t tp, std::int64_t shards, std::int64_t batch,
                                    const std::string& more = "\"adam_beta2\": 0.95") {
  return plan_of(fmt::format(R"("world_size": {}, "tensor_model_parallel_size": {},
      "tensor_parallel_num_weight_shards": {}, "expert_tensor_parallel_size": 1,
      "global_batch_size": {}, {})",
                             world, tp, shards, batch, more));
}

struct WorldRun {
  std::vector<train::TrainLog> ranks;
  Tensors weights;
};

inline WorldRun run_on_threads(const train::PlanValues& plan, const train::ModelShape& shape,
                               const train::TrainOptions& options = {}, std::uint64_t world_seed = 1) {
  HostWorld world({.ranks = plan.topology.world_size, .seed = world_seed});
  WorldRun run;
  run.ranks.resize(static_cast<std::size_t>(plan.topology.world_size));
  const auto ends = world.run([&](std::int64_t rank, HostBackend& backend) {
    train::HostLauncher launcher(backend);
    run.ranks[static_cast<std::size_t>(rank)] = train::train(plan, shape, options, {backend, launcher, rank});
  });
  for (const RankOutcome& end : ends) {
    INFO(end.text);
    REQUIRE(end.ok());
  }
  CHECK(world.live_bytes() == 0);
  const auto whole = train::assemble(run.ranks);
  REQUIRE(whole);
  run.weights = *whole;
  return run;
}

inline std::vector<double> losses_of(const train::TrainLog& log) {
  std::vector<double> out;
  for (const train::StepLog& step : log.steps) out.push_back(step.loss);
  return out;
}

/// Elements whose bits differ; all of a tensor that one of them lacks.
inline std::size_t differing(const Tensors& a, const Tensors& b) {
  std::size_t count = a.size() == b.size() ? 0 : 1;
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.size() != values.size()) {
      count += values.size();
      continue;
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::memcmp(&values[i], &other->second[i], sizeof(float)) != 0) ++count;
    }
  }
  return count;
}

/// The largest difference of two elements; infinite if tensors do not match.
inline double distance(const Tensors& a, const Tensors& b) {
  double largest = 0.0;
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.size() != values.size()) return INFINITY;
    for (std::size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::fabs(static_cast<double>(values[i]) - static_cast<double>(other->second[i])));
    }
  }
  return largest;
}

/// Losses and final weights of every rank are those of the unsharded run, bit for bit.
inline WorldRun require_equal_to_reference(const train::PlanValues& plan, const train::ModelShape& shape,
                                           const train::TrainOptions& options = {}) {
  WorldRun run = run_on_threads(plan, shape, options);
  const ReferenceLog reference = run_reference(plan, shape, options.seed, options.steps.value_or(plan.train_iters));
  for (const train::TrainLog& log : run.ranks) {
    CHECK(losses_of(log) == reference.losses);
    for (std::size_t i = 0; i < log.steps.size(); ++i) {
      CHECK(log.steps[i].grad_norm == doctest::Approx(reference.grad_norms[i]).epsilon(1e-9));
    }
  }
  CHECK(differing(run.weights, reference.weights) == 0);
  return run;
}

}  // namespace gtp::test
