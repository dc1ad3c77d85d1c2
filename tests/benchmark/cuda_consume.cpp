// Host time of a consume with NCCL, against the bare sequence it consists of: an all-gather and two pairs of event
// record and wait. Both in one run, in turns, with the device drained between passes so that no full queue is measured,
// on the same streams and communicator, each rank's thread on a processor of its own.
//   launch.sh 2 cuda_consume [--rounds N] [--rows N] [--cols N] [--weights N] [--untracked] [--calls] [--unpinned]
// --calls times each call of both in a run of its own.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "../kernels/cuda/nccl_job.hpp"
#include "cuda_timed_backend.hpp"
#include "kernels/cuda/nccl_api.hpp"
#include "kernels/cuda/nccl_state.hpp"
#include "kernels/cuda/nccl_world.hpp"
#include "kernels/cuda/owners.hpp"
#include "kernels/runtime.hpp"

using namespace gtp;

namespace {

using cuda_bench::CallTimes;
using cuda_bench::GatherCalls;
using cuda_bench::HostClock;
using cuda_bench::TimedBackend;

struct Flags {
  std::int64_t rounds = 1500;
  std::int64_t rows = 256;
  std::int64_t cols = 1024;
  std::int64_t weights = 16;
  bool untracked = false;
  bool calls = false;
  bool unpinned = false;
};

Flags parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    bool* choice = name == "--untracked"  ? &flags.untracked
                   : name == "--calls"    ? &flags.calls
                   : name == "--unpinned" ? &flags.unpinned
                                          : nullptr;
    if (choice != nullptr) {
      *choice = true;
      continue;
    }
    std::int64_t* target = name == "--rounds"    ? &flags.rounds
                           : name == "--rows"    ? &flags.rows
                           : name == "--cols"    ? &flags.cols
                           : name == "--weights" ? &flags.weights
                                                 : nullptr;
    if (target == nullptr || i + 1 == argc) throw std::runtime_error("unknown flag " + name);
    const char* text = argv[++i];
    std::from_chars(text, text + std::strlen(text), *target);
  }
  return flags;
}

/// The calling thread only: threads of NCCL and of the watchdog run elsewhere.
void pin(std::int64_t local_rank) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  std::vector<int> processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &allowed)) processors.push_back(i);
  }
  cpu_set_t chosen;
  CPU_ZERO(&chosen);
  CPU_SET(processors[static_cast<std::size_t>(2 + 4 * local_rank) % processors.size()], &chosen);
  pthread_setaffinity_np(pthread_self(), sizeof chosen, &chosen);
}

double percentile(CallTimes& times, double share) {
  std::vector<double>& all = times.microseconds;
  if (all.empty()) return 0;
  std::sort(all.begin(), all.end());
  return all[static_cast<std::size_t>(share * static_cast<double>(all.size() - 1))];
}

void print(const char* what, CallTimes& times, CallTimes* bare = nullptr) {
  const double p50 = percentile(times, 0.5), p90 = percentile(times, 0.9), p99 = percentile(times, 0.99);
  std::printf("%-44s p50 %7.2f us   p90 %7.2f us   p99 %7.2f us", what, p50, p90, p99);
  if (bare != nullptr) {
    std::printf("   %.3f %.3f %.3f of bare", p50 / percentile(*bare, 0.5), p90 / percentile(*bare, 0.9),
                p99 / percentile(*bare, 0.99));
  }
  std::printf("   (%zu samples)\n", times.microseconds.size());
}

class Consumes {
 public:
  Consumes(NcclWorld& world, const Topology& topology, const Flags& flags)
      : backend_(world.backend()), runtime_(backend_, topology, world.rank()) {
    compute_ = backend_.create_stream("compute", StreamPriority::kNormal);
    const std::int64_t size = runtime_.group(WeightDomain::kDense).size();
    const auto layout = make_shard_layout({flags.rows, flags.cols, WeightFormat::kBf16, 16, size});
    if (!layout) throw std::runtime_error("no such weight");
    for (std::int64_t i = 0; i < flags.weights; ++i) {
      shards_.emplace_back(static_cast<std::size_t>(layout->shard_elements()) * 2);
      WeightSpec spec{.name = "w" + std::to_string(i), .layout = *layout, .shards = {}};
      spec.shards.push_back({{shards_.back().get()}, nullptr});
      weights_.push_back(&runtime_.add_weight(std::move(spec)));
    }
    runtime_.declare_chain(weights_);
  }

  cudaStream_t compute() const { return CudaBackend::native(compute_); }
  cudaStream_t gather() const { return CudaBackend::native(backend_.gather_stream()); }
  ncclComm_t communicator() const {
    return (*static_cast<std::shared_ptr<cuda::NcclCommunicator>*>(backend_.gather_communicator().handle))->handle;
  }

  /// A pass over the chain. The first consume gathers twice and the last not at all: neither is counted.
  void pass(CallTimes* times, GatherCalls* calls = nullptr) {
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      const bool counted = i > 0 && i + 1 < weights_.size();
      backend_.time_into(counted ? calls : nullptr);
      const auto from = HostClock::now();
      runtime_.materialize(*weights_[i], Use::kForward, compute_);
      if (times != nullptr && counted) times->add(from);
    }
    // As after the bare sequence: a wait that sleeps would leave the next pass a cold processor.
    cuda::cuda_check(cudaStreamSynchronize(compute()), "a pass of consumes");
  }

 private:
  TimedBackend backend_;
  std::vector<cuda::DeviceMemory> shards_;
  Runtime runtime_;
  Stream compute_{};
  std::vector<ShardedWeight*> weights_;
};

/// The calls a gather cannot do without, on the streams and the communicator given. Each weight has a shard and two
/// events of its own, and two buffers serve all.
class Bare {
 public:
  Bare(ncclComm_t over, cudaStream_t compute, cudaStream_t gather, std::size_t shard_bytes, std::size_t ranks,
       std::int64_t weights)
      : over_(over), compute_(compute), gather_(gather), bytes_(shard_bytes) {
    for (int i = 0; i < 2; ++i) whole_.emplace_back(shard_bytes * ranks);
    for (std::int64_t i = 0; i < weights; ++i) {
      shards_.emplace_back(shard_bytes);
      ready_.push_back(cuda::make_event());
      reader_.push_back(cuda::make_event());
    }
  }

  void pass(CallTimes* times) {
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      void* whole = whole_[i % 2].get();
      const auto from = HostClock::now();
      cudaEventRecord(reader_[i].get(), compute_);
      cudaStreamWaitEvent(gather_, reader_[i].get(), 0);
      cuda::nccl_check(ncclAllGather(shards_[i].get(), whole, bytes_, ncclUint8, over_, gather_), "gather");
      cudaEventRecord(ready_[i].get(), gather_);
      cudaStreamWaitEvent(compute_, ready_[i].get(), 0);
      if (times != nullptr && i > 0 && i + 1 < shards_.size()) times->add(from);
    }
    cuda::cuda_check(cudaStreamSynchronize(compute_), "the bare sequence");
  }

  void pass(GatherCalls& calls) {
    const auto timed = [](CallTimes& times, const auto& call) {
      const auto from = HostClock::now();
      call();
      times.add(from);
    };
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      void* whole = whole_[i % 2].get();
      timed(calls.record_reader, [&] { cudaEventRecord(reader_[i].get(), compute_); });
      timed(calls.wait_reader, [&] { cudaStreamWaitEvent(gather_, reader_[i].get(), 0); });
      timed(calls.gather, [&] { ncclAllGather(shards_[i].get(), whole, bytes_, ncclUint8, over_, gather_); });
      timed(calls.record_ready, [&] { cudaEventRecord(ready_[i].get(), gather_); });
      timed(calls.wait_ready, [&] { cudaStreamWaitEvent(compute_, ready_[i].get(), 0); });
    }
    cuda::cuda_check(cudaStreamSynchronize(compute_), "the bare sequence");
  }

 private:
  ncclComm_t over_;
  cudaStream_t compute_;
  cudaStream_t gather_;
  std::size_t bytes_;
  std::vector<cuda::DeviceMemory> shards_;
  std::vector<cuda::DeviceMemory> whole_;
  std::vector<cuda::UniqueEvent> ready_;
  std::vector<cuda::UniqueEvent> reader_;
};

/// In turns, so that whatever disturbs the machine disturbs both.
void compare(Consumes& consumes, Bare& bare, const char* what, const Flags& flags, bool prints) {
  for (int warm = 0; warm < 20; ++warm) {
    consumes.pass(nullptr);
    bare.pass(nullptr);
  }
  CallTimes consume;
  CallTimes sequence;
  for (std::int64_t round = 0; round < flags.rounds; ++round) {
    consumes.pass(&consume);
    bare.pass(&sequence);
  }
  if (!prints) return;
  print(what, sequence);
  print("  materialize, in turns with that", consume, &sequence);
}

void compare_calls(Consumes& consumes, Bare& bare, const Flags& flags, bool prints) {
  CallTimes whole;
  GatherCalls of_consume;
  GatherCalls of_bare;
  for (std::int64_t round = 0; round < flags.rounds / 4; ++round) {
    consumes.pass(&whole, &of_consume);
    bare.pass(of_bare);
  }
  if (!prints) return;
  print("materialize, its calls timed", whole);
  print("  record reader", of_consume.record_reader, &of_bare.record_reader);
  print("  wait for reader", of_consume.wait_reader, &of_bare.wait_reader);
  print("  all-gather", of_consume.gather, &of_bare.gather);
  print("  record ready", of_consume.record_ready, &of_bare.record_ready);
  print("  wait until ready", of_consume.wait_ready, &of_bare.wait_ready);
}

int run(const Flags& flags) {
  const JobEnvironment job = job_environment();
  NcclOptions options = test::job_options(job);
  if (flags.untracked) options.operation_limit = std::chrono::milliseconds(0);
  NcclWorld world = NcclWorld::from_job(job, options);
  const ncclComm_t over = test::raw_communicator(job, "bare");
  TopologyOptions topology;
  topology.world_size = world.size();
  topology.tensor_parallel_num_weight_shards = world.size();
  {
    Consumes consumes(world, require_topology(topology), flags);
    int lowest = 0;
    int highest = 0;
    cuda::cuda_check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "priorities");
    const cuda::UniqueStream gather = cuda::make_stream(highest);
    const cuda::UniqueStream compute = cuda::make_stream();
    const auto shard = static_cast<std::size_t>(flags.rows * flags.cols * 2 / world.size());
    const auto ranks = static_cast<std::size_t>(world.size());
    Bare same(consumes.communicator(), consumes.compute(), consumes.gather(), shard, ranks, flags.weights);
    Bare own(over, compute.get(), gather.get(), shard, ranks, flags.weights);
    if (!flags.unpinned) pin(world.local_rank());
    const bool prints = world.rank() == 0;
    if (prints) {
      std::printf("%lld ranks, %lld weights of [%lld, %lld] bf16, NCCL %s, operations %s\n",
                  static_cast<long long>(world.size()), static_cast<long long>(flags.weights),
                  static_cast<long long>(flags.rows), static_cast<long long>(flags.cols),
                  cuda::nccl_version_text(cuda::nccl_version()).c_str(), flags.untracked ? "untracked" : "tracked");
    }
    compare(consumes, same, "all-gather and 2 event pairs", flags, prints);
    compare(consumes, own, "the same, streams and communicator its own", flags, prints);
    if (flags.calls) compare_calls(consumes, same, flags, prints);
  }
  ncclCommDestroy(over);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
