// What a process learns when a peer dies, stays silent, does something else, or was started wrongly.
#include <doctest/doctest.h>

#include <numeric>
#include <thread>

#include "job.hpp"
#include "kernels/gloo_backend.hpp"

namespace gtp::test {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLong{30000};
constexpr std::chrono::milliseconds kShort{1500};

bool holds(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

Communicator everyone(GlooWorld& world) {
  CommunicatorSpec spec{"gtp_remat", std::vector<std::int64_t>(static_cast<std::size_t>(world.size())), world.rank(),
                        CommunicatorPurpose::kGather};
  std::iota(spec.ranks.begin(), spec.ranks.end(), 0);
  return world.backend().create_communicator(spec);
}

/// Gathers `count` floats a rank until it fails; the error, or "none".
RuntimeError gather_until_error(GlooWorld& world, Communicator all, std::size_t count, int turns) {
  std::vector<float> mine(count, 1.0F);
  std::vector<float> gathered(count * static_cast<std::size_t>(world.size()));
  const CollectivePart parts[] = {{mine.data(), gathered.data(), count}};
  const Stream stream = world.backend().create_stream("gather", StreamPriority::kNormal);
  try {
    for (int turn = 0; turn < turns; ++turn) {
      world.backend().all_gather(parts, ElementType::kFloat32, all, stream, {"qkv", ""});
      world.backend().synchronize(stream, kLong);
    }
  } catch (const RuntimeError& error) {
    world.backend().destroy_stream(stream);  // the memory above goes away
    return error;
  }
  return {RuntimeStatus::kInvalidUse, "none"};
}

std::optional<std::string> error_of_start(std::chrono::milliseconds limit) {
  try {
    GlooWorld world = GlooWorld::from_environment(limit);
    return std::nullopt;
  } catch (const RuntimeError& error) {
    return error.text();
  }
}

std::string config_error(std::vector<std::pair<std::string, std::string>> changes) {
  std::vector<std::pair<std::string, std::string>> variables{
      {"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29500"}};
  const auto lookup = [&](const char* name) -> std::optional<std::string> {
    for (const auto* list : {&changes, &variables}) {
      for (const auto& [known, value] : *list) {
        if (known == name) return value == "absent" ? std::nullopt : std::optional(value);
      }
    }
    return std::nullopt;
  };
  try {
    job_environment_from(lookup);
    return "";
  } catch (const RuntimeError& error) {
    CHECK(error.status() == RuntimeStatus::kInvalidPlan);
    return error.text();
  }
}

}  // namespace

TEST_CASE("child killed peer" * doctest::skip()) {
  GlooWorld world = GlooWorld::from_environment(kLong);
  const Communicator all = everyone(world);
  if (world.rank() == 1) {
    gather_until_error(world, all, 4, 1);
    ::raise(SIGKILL);
  }
  const auto start = Clock::now();
  const RuntimeError error = gather_until_error(world, all, 4, 1000000);
  INFO(error.text());
  CHECK(Clock::now() - start < std::chrono::seconds(15));
  CHECK(error.status() == RuntimeStatus::kAborted);
  CHECK(holds(error.text(), "rank " + std::to_string(world.rank()) + ": all-gather of `qkv` over group gtp_remat"));
  CHECK(holds(error.text(), "rank 1 is gone"));
  CHECK(world.backend().failure() != nullptr);
  CHECK_THROWS_AS(world.backend().create_stream("late", StreamPriority::kNormal), RuntimeError);
  world.backend().destroy_communicator(all);
}

TEST_CASE("child silent peer" * doctest::skip()) {
  GlooWorld world = GlooWorld::from_environment(kShort);
  const Communicator all = everyone(world);
  if (world.rank() == 1) {
    std::this_thread::sleep_for(kShort * 3);
  } else {
    const RuntimeError error = gather_until_error(world, all, 4, 1);
    INFO(error.text());
    CHECK(error.status() == RuntimeStatus::kTimeout);
    CHECK(holds(error.text(), "all-gather of `qkv` over group gtp_remat (ranks 0,1)"));
    CHECK(holds(error.text(), "did not answer within 1500 ms"));
  }
  world.backend().destroy_communicator(all);
}

TEST_CASE("child other sizes" * doctest::skip()) {
  GlooWorld world = GlooWorld::from_environment(kLong);
  const Communicator all = everyone(world);
  const RuntimeError error = gather_until_error(world, all, world.rank() == 0 ? 4 : 8, 1);
  INFO(error.text());
  CHECK(error.status() != RuntimeStatus::kInvalidUse);
  CHECK(holds(error.text(), "has issued another operation here, or other sizes"));
  world.backend().destroy_communicator(all);
}

TEST_CASE("child abort" * doctest::skip()) {
  GlooWorld world = GlooWorld::from_environment(kLong);
  const Communicator all = everyone(world);
  if (world.rank() == 1) {
    gather_until_error(world, all, 4, 1);
    world.backend().abort("loss is NaN");
  } else {
    const RuntimeError error = gather_until_error(world, all, 4, 1000000);
    INFO(error.text());
    CHECK(error.status() == RuntimeStatus::kAborted);
    CHECK(holds(error.text(), "rank 1 gave up: loss is NaN"));
  }
  world.backend().destroy_communicator(all);
}

TEST_CASE("child wrong world size" * doctest::skip()) {
  const std::string error = error_of_start(kShort).value_or("");
  INFO(error);
  const bool refused = holds(error, "rank 1: its WORLD_SIZE is 3, but that of rank 0 is 2");
  const bool missed = holds(error, "rank 0: 1 of 2 ranks have arrived; missing: 1");
  CHECK((refused || missed));
}

TEST_CASE("child no store" * doctest::skip()) {
  const std::string error = error_of_start(kShort).value_or("");
  INFO(error);
  CHECK(holds(error, "rank 1: nobody listens at 127.0.0.1:"));
  CHECK(holds(error, "is rank 0 running?"));
}

TEST_CASE("a killed process ends its peers with an error that names rank, operation, group and who is gone") {
  CHECK(run_job("child killed peer", 2) == "0 -9");
  CHECK(run_job("child killed peer", 4) == "0 -9 0 0");
}

TEST_CASE("a process that stays silent is reported at the time limit") {
  CHECK(run_job("child silent peer", 2) == "0 0");
}

TEST_CASE("processes that issue different collectives are told so instead of hanging") {
  CHECK(run_job("child other sizes", 2) == "0 0");
}

TEST_CASE("a process that gives up tells its peers why") { CHECK(run_job("child abort", 2) == "0 0"); }

TEST_CASE("a process with another WORLD_SIZE is refused, and rank 0 names who is missing") {
  Job job("child wrong world size");
  job.start(0, 2);
  job.start(1, 3);
  CHECK(job.wait() == "0 0");
}

TEST_CASE("a process without a rank 0 says where nobody listens") {
  Job job("child no store");
  job.start(1, 2);
  CHECK(job.wait() == "0");
}

TEST_CASE("a variable that is missing or makes no sense is named") {
  CHECK(config_error({}) == "");
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    CHECK(holds(config_error({{name, "absent"}}), std::string(name) + " is not in the environment"));
    CHECK(holds(config_error({{name, ""}}), std::string(name) + " is not in the environment"));
  }
  CHECK(config_error({{"RANK", "4"}}) == "RANK is `4`, not a number from 0 to 3");
  CHECK(config_error({{"RANK", "-1"}}) == "RANK is `-1`, not a number from 0 to 3");
  CHECK(config_error({{"WORLD_SIZE", "2x"}}) == "WORLD_SIZE is `2x`, not a number from 1 to 1048576");
  CHECK(holds(config_error({{"WORLD_SIZE", "99999999999999999999"}}), "WORLD_SIZE is"));
  CHECK(config_error({{"MASTER_PORT", "70000"}}) == "MASTER_PORT is `70000`, not a number from 1 to 65535");
  CHECK(config_error({{"GTP_STORE_PORT", "0"}}) == "GTP_STORE_PORT is `0`, not a number from 1 to 65535");
}

}  // namespace gtp::test
