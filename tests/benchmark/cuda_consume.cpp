// Host time of a consume with NCCL, against the bare sequence it consists of: an all-gather and two pairs of event
// record and wait. Both in one run, in turns, with the device drained between passes so that no full queue is measured.
//   launch.sh 2 cuda_consume [--rounds N] [--rows N] [--cols N] [--weights N] [--untracked]
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "../kernels/cuda/nccl_job.hpp"
#include "kernels/cuda/nccl_api.hpp"
#include "kernels/cuda/nccl_world.hpp"
#include "kernels/cuda/owners.hpp"
#include "kernels/runtime.hpp"

using namespace gtp;

namespace {

using Clock = std::chrono::steady_clock;

struct Flags {
  std::int64_t rounds = 300;
  std::int64_t rows = 256;
  std::int64_t cols = 1024;
  std::int64_t weights = 16;
  bool untracked = false;
};

Flags parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--untracked") {
      flags.untracked = true;
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

struct Times {
  std::vector<double> microseconds;
  void print(const char* what) {
    std::sort(microseconds.begin(), microseconds.end());
    const auto at = [&](double share) {
      return microseconds[static_cast<std::size_t>(share * static_cast<double>(microseconds.size() - 1))];
    };
    std::printf("%-42s p50 %7.2f us   p90 %7.2f us   p99 %7.2f us   (%zu samples)\n", what, at(0.5), at(0.9), at(0.99),
                microseconds.size());
  }
  void add(Clock::time_point from) {
    microseconds.push_back(std::chrono::duration<double, std::micro>(Clock::now() - from).count());
  }
};

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
  /// A pass over the chain. The first consume gathers twice and the last not at all: neither is counted.
  void pass(Times* times) {
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      const auto from = Clock::now();
      runtime_.materialize(*weights_[i], Use::kForward, compute_);
      if (times != nullptr && i > 0 && i + 1 < weights_.size()) times->add(from);
    }
    // As after the bare sequence: a wait that sleeps would leave the next pass a cold processor.
    cuda::cuda_check(cudaStreamSynchronize(CudaBackend::native(compute_)), "a pass of consumes");
  }

 private:
  CudaBackend& backend_;
  std::vector<cuda::DeviceMemory> shards_;
  Runtime runtime_;
  Stream compute_{};
  std::vector<ShardedWeight*> weights_;
};

/// The calls a gather cannot do without. `pairs` weights: each has a shard and two events of its own.
class Bare {
 public:
  Bare(ncclComm_t over, std::size_t shard_bytes, std::size_t ranks, std::int64_t pairs)
      : over_(over), bytes_(shard_bytes) {
    int lowest = 0;
    int highest = 0;
    cuda::cuda_check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "priorities");
    comm_ = cuda::make_stream(highest);
    compute_ = cuda::make_stream();
    for (int i = 0; i < 2; ++i) whole_.emplace_back(shard_bytes * ranks);
    for (std::int64_t i = 0; i < pairs; ++i) {
      shards_.emplace_back(shard_bytes);
      ready_.push_back(cuda::make_event());
      read_.push_back(cuda::make_event());
    }
  }
  void pass(std::int64_t count, Times* times) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto weight = static_cast<std::size_t>(i) % shards_.size();
      void* whole = whole_[static_cast<std::size_t>(i % 2)].get();
      const auto from = Clock::now();
      cudaEventRecord(read_[weight].get(), compute_.get());
      cudaStreamWaitEvent(comm_.get(), read_[weight].get(), 0);
      cuda::nccl_check(ncclAllGather(shards_[weight].get(), whole, bytes_, ncclUint8, over_, comm_.get()), "gather");
      cudaEventRecord(ready_[weight].get(), comm_.get());
      cudaStreamWaitEvent(compute_.get(), ready_[weight].get(), 0);
      if (times != nullptr && i > 0 && i + 1 < count) times->add(from);
    }
    cuda::cuda_check(cudaStreamSynchronize(compute_.get()), "the bare sequence");
  }

 private:
  ncclComm_t over_;
  std::size_t bytes_;
  std::vector<cuda::DeviceMemory> shards_;
  std::vector<cuda::DeviceMemory> whole_;
  cuda::UniqueStream comm_;
  cuda::UniqueStream compute_;
  std::vector<cuda::UniqueEvent> ready_;
  std::vector<cuda::UniqueEvent> read_;
};

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
    const auto shard = static_cast<std::size_t>(flags.rows * flags.cols * 2 / world.size());
    const auto ranks = static_cast<std::size_t>(world.size());
    Bare bare(over, shard, ranks, flags.weights);
    Bare hot(over, shard, ranks, 1);
    for (int warm = 0; warm < 10; ++warm) {
      consumes.pass(nullptr);
      bare.pass(flags.weights, nullptr);
      hot.pass(flags.weights, nullptr);
    }
    Times consume;
    Times sequence;
    Times again;
    for (std::int64_t round = 0; round < flags.rounds; ++round) {
      consumes.pass(&consume);
      bare.pass(flags.weights, &sequence);
      hot.pass(flags.weights, &again);
    }
    if (world.rank() == 0) {
      std::printf("%lld ranks, %lld weights of [%lld, %lld] bf16, NCCL %s, operations %s\n",
                  static_cast<long long>(world.size()), static_cast<long long>(flags.weights),
                  static_cast<long long>(flags.rows), static_cast<long long>(flags.cols),
                  cuda::nccl_version_text(cuda::nccl_version()).c_str(), flags.untracked ? "untracked" : "tracked");
      consume.print("materialize");
      sequence.print("all-gather and 2 event pairs");
      again.print("the same for one weight again and again");
    }
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
