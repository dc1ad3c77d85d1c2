// train PLAN.json [options]: trains a small model on the grid and the batches of a plan. Under torchrun, or whatever
// else sets RANK and WORLD_SIZE, it is one rank of the job, over Gloo; otherwise every rank is a thread of this
// process. Prints a line a step. For exit codes see program.hpp.
#include <fmt/core.h>

#include "kernels/host_backend.hpp"
#include "program.hpp"
#ifdef GTP_WITH_GLOO
#include "train_over_gloo.hpp"
#endif

namespace {

using namespace gtp;
using namespace gtp::train;

std::string train_on_threads(Job& job) {
  std::string why;
  if (!job.prepare_threads(why)) return why;
  HostWorld world({.ranks = job.plan.topology.world_size, .seed = job.arguments.options.seed});
  if (job.traced()) world.backend(0).set_trace(&job.trace);
  return first_failure(world.run([&](std::int64_t rank, HostBackend& backend) {
    HostLauncher launcher(backend);
    job.logs[static_cast<std::size_t>(rank)] =
        train::train(job.plan, job.shape, job.options(rank), {backend, launcher, rank});
  }));
}

std::string train_as_process([[maybe_unused]] Job& job, std::int64_t rank) {
#ifdef GTP_WITH_GLOO
  try {
    TraceSink* trace = rank == 0 && job.traced() ? &job.trace : nullptr;
    job.logs.push_back(train_over_gloo(job.plan, job.shape, job.options(rank), trace));
  } catch (const RuntimeError& error) {
    return fmt::format("rank {}: {}", rank, error.text());
  }
  return {};
#else
  return fmt::format("rank {}: this program was built without Gloo, so a rank cannot be a process", rank);
#endif
}

std::string train_job(Job& job) {
  const auto rank = rank_of_process();
  return rank ? train_as_process(job, *rank) : train_on_threads(job);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program({argv, static_cast<std::size_t>(argc)}, {.name = "train", .train = train_job});
}
