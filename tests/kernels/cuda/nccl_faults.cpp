// What the other ranks see when one goes wrong: launch.sh N nccl_faults MODE. Exits with 0 if it is what was promised.
//   kill     the last but one rank is killed in a step (GTP_EXPECT_KILLED)
//   hang     the last rank stops making calls
//   abort    the last rank gives up with a reason
//   missing  the last rank never makes the communicators
//   one-gpu  all ranks are on one GPU, and NCCL does not allow it
#define DOCTEST_CONFIG_IMPLEMENT
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "device_rig.hpp"
#include "nccl_job.hpp"

using namespace gtp;
using namespace gtp::test;

namespace {

using Clock = std::chrono::steady_clock;

/// Runs until the backend fails; the failure and when it was seen.
struct End {
  Refusal refusal;
  std::chrono::milliseconds after{0};
};

/// Steps until something throws, with `mishap` in step 3.
End step_until_failure(NcclWorld& world, const std::function<void()>& mishap) {
  DeviceRig rig(world.backend(), plan(world.size()), {.teardown_limit = std::chrono::milliseconds(5000)});
  for (int i = 0; i < 3; ++i) rig.add("w" + std::to_string(i));
  End end;
  Clock::time_point begin;
  end.refusal = refusal([&] {
    for (std::uint64_t step = 0; step < 1000; ++step) {
      rig.forget();
      for (Held& held : rig.weights) rig.read(held);
      if (step == 3) {
        begin = Clock::now();
        mishap();
      }
      for (std::size_t i = 3; i-- > 0;) {
        rig.read(rig.weights[i], Use::kDgrad);
        rig.reduce(rig.weights[i], 0);
      }
      rig.gtp->fence_grads(rig.compute);
      rig.backend.synchronize(rig.compute, kLimit);
    }
  });
  end.after = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
  return end;
}

bool check(const NcclWorld& world, const End& end, RuntimeStatus status, const std::vector<std::string>& words,
           std::chrono::milliseconds limit) {
  bool good = end.refusal.thrown && end.refusal.status == status && end.after <= limit;
  for (const std::string& word : words) good = good && end.refusal.text.find(word) != std::string::npos;
  std::printf("rank %d: %s after %d ms: status %d: %s\n", static_cast<int>(world.rank()),
              good ? "as promised" : "WRONG", static_cast<int>(end.after.count()), static_cast<int>(end.refusal.status),
              end.refusal.text.c_str());
  std::fflush(stdout);
  return good;
}

bool kill(NcclWorld& world) {
  const std::int64_t victim = world.size() - 2;
  const End end = step_until_failure(world, [&] {
    if (world.rank() == victim) std::raise(SIGKILL);
  });
  return check(world, end, RuntimeStatus::kAborted,
               {"rank " + std::to_string(world.rank()), "of `w", "group gtp_remat",
                "rank " + std::to_string(victim) + " is gone"},
               std::chrono::seconds(20));
}

bool hang(NcclWorld& world) {
  const bool culprit = world.rank() == world.size() - 1;
  const End end = step_until_failure(world, [&] {
    if (culprit) std::this_thread::sleep_for(std::chrono::seconds(8));
  });
  if (culprit)
    return check(world, end, RuntimeStatus::kAborted, {"no progress within 3000 ms"}, std::chrono::seconds(30));
  const bool first = end.refusal.status == RuntimeStatus::kTimeout;
  return check(world, end, first ? RuntimeStatus::kTimeout : RuntimeStatus::kAborted,
               {"no progress within 3000 ms", "group gtp_remat"}, std::chrono::seconds(20));
}

bool abort(NcclWorld& world) {
  const bool culprit = world.rank() == world.size() - 1;
  const End end = step_until_failure(world, [&] {
    if (culprit) world.backend().abort("the loss is no number");
  });
  return check(world, end, RuntimeStatus::kAborted, {"gave up: the loss is no number"}, std::chrono::seconds(20));
}

bool missing(NcclWorld& world) {
  End end;
  const auto begin = Clock::now();
  if (world.rank() == world.size() - 1) {
    std::this_thread::sleep_for(std::chrono::seconds(9));
    return true;
  }
  end.refusal = refusal([&] { Runtime runtime(world.backend(), plan(world.size()), world.rank()); });
  end.after = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
  const bool first = end.refusal.status == RuntimeStatus::kTimeout;
  return check(world, end, first ? RuntimeStatus::kTimeout : RuntimeStatus::kAborted, {"group gtp_remat"},
               std::chrono::seconds(20));
}

int run(const std::string& mode) {
  const JobEnvironment job = job_environment();
  NcclOptions options = job_options(job);
  options.start_limit = std::chrono::milliseconds(mode == "missing" ? 5000 : 60000);
  options.operation_limit = std::chrono::milliseconds(mode == "hang" ? 3000 : 60000);
  if (mode == "one-gpu") {
    options.device = 0;
    const Refusal refused = refusal([&] { NcclWorld::from_job(job, options); });
    std::printf("rank %d: %s\n", static_cast<int>(job.rank), refused.text.c_str());
    return refused.status == RuntimeStatus::kInvalidPlan &&
                   refused.text.find("NCCL_MULTI_RANK_GPU_ENABLE=1") != std::string::npos
               ? 0
               : 1;
  }
  NcclWorld world = NcclWorld::from_job(job, options);
  bool good = false;
  if (mode == "kill") good = kill(world);
  if (mode == "hang") good = hang(world);
  if (mode == "abort") good = abort(world);
  if (mode == "missing") good = missing(world);
  return good ? 0 : 1;
}

}  // namespace

/// Without destructors of statics: threads may have been left behind inside NCCL.
int main(int argc, char** argv) {
  doctest::Context asserts;  // the rig's, outside any test case
  asserts.setAsDefaultForAssertsOutOfTestCases();
  asserts.setAssertHandler([](const doctest::AssertData& data) {
    if (data.m_failed) throw std::runtime_error(std::string("the rig is broken: ") + data.m_expr);
  });
  int status = 1;
  try {
    status = run(argc > 1 ? argv[1] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::fflush(nullptr);
  std::_Exit(status);
}
