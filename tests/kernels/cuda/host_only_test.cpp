// The parts of the CUDA backend that need no GPU.
#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <thread>

#include "kernels/cuda/bounded.hpp"
#include "kernels/cuda/device_checks.hpp"
#include "kernels/cuda/failure_cell.hpp"
#include "kernels/cuda/nccl_api.hpp"
#include "kernels/cuda/nccl_world.hpp"
#include "kernels/cuda/store_wait.hpp"
#include "kernels/job_environment.hpp"
#include "kernels/tcp_store.hpp"

using namespace gtp;
using namespace gtp::cuda;
using std::chrono::milliseconds;

namespace {

std::string text_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const RuntimeError& error) {
    return error.text();
  }
  return "nothing was thrown";
}

std::function<std::optional<std::string>(const char*)> variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) {
    const auto found = values.find(name);
    return found != values.end() ? std::optional(found->second) : std::nullopt;
  };
}

const std::map<std::string, std::string> kJob{
    {"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}};

}  // namespace

TEST_CASE("a job is read from the environment, and GTP_STORE_PORT overrules the port") {
  std::map<std::string, std::string> values = kJob;
  JobEnvironment job = job_environment_from(variables(values));
  CHECK(job.rank == 3);
  CHECK(job.world_size == 8);
  CHECK(job.local_rank == 1);
  CHECK(job.master_addr == "node0");
  CHECK(job.master_port == 29500);
  values["GTP_STORE_PORT"] = "4000";
  CHECK(job_environment_from(variables(values)).master_port == 4000);
}

TEST_CASE("a variable that is missing or makes no sense is named") {
  for (const auto& [name, value] : kJob) {
    std::map<std::string, std::string> values = kJob;
    values.erase(name);
    CHECK(text_of([&] { job_environment_from(variables(values)); }).find(name + " is not in the environment") == 0);
  }
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{
           {"RANK", "8"}, {"RANK", "-1"}, {"WORLD_SIZE", "0"}, {"MASTER_PORT", "65536"}, {"LOCAL_RANK", "1x"}}) {
    std::map<std::string, std::string> values = kJob;
    values[name] = value;
    CHECK(text_of([&] { job_environment_from(variables(values)); }).find(name + " is `" + value + "`") == 0);
  }
}

TEST_CASE("ranks on one GPU are refused by name unless NCCL and the environment allow it") {
  const auto device = [](std::string uuid, int version, bool share) {
    return RankDevice{"node0", std::move(uuid), "0000:1b:00.0", version, share};
  };
  CHECK(problem_of({device("a", 22809, false), device("b", 22809, false)}).empty());
  CHECK(problem_of({device("a", 23007, true), device("a", 23007, true)}).empty());
  const std::string text = problem_of({device("a", 22809, true), device("b", 22809, true), device("a", 22809, true)});
  CHECK(text.find("ranks 0,2 are all on GPU 0000:1b:00.0 of host node0, which this NCCL (2.28.9) refuses") == 0);
  CHECK(text.find("NCCL_MULTI_RANK_GPU_ENABLE=1") != std::string::npos);
  CHECK_FALSE(problem_of({device("a", 23007, true), device("a", 23007, false)}).empty());
  RankDevice elsewhere = device("a", 22809, false);
  elsewhere.host = "node1";
  CHECK(problem_of({device("a", 22809, false), elsewhere}).empty());
  CHECK(problem_of({device("a", 22809, false), device("b", 23007, false)}) ==
        "rank 0 has NCCL 2.28.9 and rank 1 has NCCL 2.30.7: all ranks need the same");
}

TEST_CASE("what ranks show each other survives the store") {
  const RankDevice sent{"node0", "abc", "0000:1b:00.0", 22809, true};
  const RankDevice got = RankDevice::decode(sent.encode());
  CHECK(got.host == sent.host);
  CHECK(got.uuid == sent.uuid);
  CHECK(got.pci_bus_id == sent.pci_bus_id);
  CHECK(got.nccl_version == sent.nccl_version);
  CHECK(got.may_share == sent.may_share);
}

TEST_CASE("a bounded call returns, throws, is given up or times out") {
  bool ran = false;
  CHECK(run_bounded(milliseconds(5000), [&] { ran = true; }) == BoundedEnd::kDone);
  CHECK(ran);
  CHECK(text_of([] {
          run_bounded(milliseconds(5000), [] { throw RuntimeError(RuntimeStatus::kInvalidUse, "from inside"); });
        }) == "from inside");
  const auto release = std::make_shared<std::atomic<bool>>(false);
  const auto owned = std::make_shared<int>(0);
  const auto stuck = [release, owned] {
    while (!*release) std::this_thread::sleep_for(milliseconds(5));
  };
  const auto begin = Clock::now();
  CHECK(run_bounded(milliseconds(100), stuck) == BoundedEnd::kTimeout);
  CHECK(run_bounded(milliseconds(60000), stuck, [] { return true; }) == BoundedEnd::kGaveUp);
  CHECK(Clock::now() - begin < milliseconds(3000));
  CHECK(owned.use_count() == 4);  // here, in `stuck`, and with the two threads that were left behind
  *release = true;
  CHECK(poll_until(Clock::now() + milliseconds(5000), [&] { return owned.use_count() == 2; }));
}

TEST_CASE("the first failure stays") {
  FailureCell cell;
  CHECK(cell.get() == nullptr);
  cell.check();
  CHECK(cell.set(RuntimeStatus::kTimeout, "first"));
  CHECK_FALSE(cell.set(RuntimeStatus::kAborted, "second"));
  CHECK(cell.get()->status == RuntimeStatus::kTimeout);
  CHECK(text_of([&] { cell.check(); }) == "first");
}

TEST_CASE("waiting for a key ends with the reason when a peer fails meanwhile, and at its limit otherwise") {
  TcpStoreServer server(0, 2);
  const TcpStoreAddress address{"127.0.0.1", server.port(), 0, 2};
  TcpStore zero(address, milliseconds(5000));
  TcpStore one({"127.0.0.1", server.port(), 1, 2}, milliseconds(5000));
  const FailureCell none;
  one.set("there", "value");
  CHECK(get_unless_failed(zero, "there", milliseconds(1000), none) == "value");
  const auto begin = Clock::now();
  CHECK_THROWS_AS(get_unless_failed(zero, "missing", milliseconds(300), none), RuntimeError);
  CHECK(Clock::now() - begin >= milliseconds(300));
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(300));
    one.report_failure("rank 1 has had enough");
  });
  CHECK(text_of([&] { get_unless_failed(zero, "missing", milliseconds(60000), none); }) == "rank 1 has had enough");
  later.join();
}

TEST_CASE("versions read as NCCL writes them, and one that is loaded has what newer versions have") {
  CHECK(nccl_version_text(22809) == "2.28.9");
  CHECK(nccl_version() >= kLeastNcclVersion);
  if (nccl_version() >= 22800) CHECK((nccl_extras().all_to_all != nullptr));
  if (nccl_version() >= 22700) CHECK((nccl_extras().window_register != nullptr));
}

TEST_CASE("a world without a device says so") {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) return;
  CHECK(text_of([] { require_device(0); }).find("there is no CUDA device 0: this host shows 0") == 0);
  CHECK(text_of([] { NcclWorld::from_communicators(2, 2, {}, {.device = 0}); }) == "rank 2 in a world of 2 ranks");
}
