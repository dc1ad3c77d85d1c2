// How well the runtime hides communication behind GEMMs: with ranks as threads on one GPU (copies instead of links),
// or, started by launch.sh with --nccl, as processes with a GPU each. Three numbers, so that none can flatter, for the
// gathers alone (gradients dropped) and for gathers and reductions:
//   hidden fraction      h = 1 - (T_on - T_null) / T_comm     T_null: the same GEMMs, weights whole, gradients dropped
//   compute dilation     s = GEMM time while communicating / GEMM time alone
//   schedule efficiency  max(T_null, T_comm) / T_on
//     cuda_overlap [--nccl] [--windows] [--depth N] [--ranks N] [--tokens N] [--layers N] [--hidden N]
//                  [--microbatches N] [--repeats N]
// --windows registers buffers with NCCL, whose copy engines then do gathers if NCCL_CTA_POLICY=ZERO; --depth: of
// prefetch.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "../kernels/cuda/nccl_job.hpp"
#include "bf16_gemm.hpp"
#include "kernels/cuda/loopback_world.hpp"
#include "kernels/runtime.hpp"

using namespace gtp;

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLimit{60000};

struct Flags {
  std::int64_t ranks = 2;
  std::int64_t tokens = 8192;
  std::int64_t layers = 8;
  std::int64_t hidden = 4096;
  std::int64_t microbatches = 4;
  std::int64_t repeats = 15;
  std::int64_t depth = 1;
  bool nccl = false;
  bool windows = false;
};

Flags parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--nccl" || name == "--windows") {
      (name == "--nccl" ? flags.nccl : flags.windows) = true;
      --i;
      continue;
    }
    std::int64_t* target = name == "--ranks"          ? &flags.ranks
                           : name == "--tokens"       ? &flags.tokens
                           : name == "--layers"       ? &flags.layers
                           : name == "--hidden"       ? &flags.hidden
                           : name == "--repeats"      ? &flags.repeats
                           : name == "--depth"        ? &flags.depth
                           : name == "--microbatches" ? &flags.microbatches
                                                      : nullptr;
    if (target == nullptr || i + 1 == argc) throw std::runtime_error("unknown flag " + name);
    std::from_chars(argv[i + 1], argv[i + 1] + std::strlen(argv[i + 1]), *target);
  }
  return flags;
}

/// What a step consists of.
struct Mode {
  bool gemms = true;
  bool gathers = true;
  bool reductions = true;
};
constexpr std::array kModes{Mode{true, true, true}, Mode{true, false, false}, Mode{false, true, true},
                            Mode{true, true, false}, Mode{false, true, false}};
enum Which : std::size_t { kAllOn, kNull, kAllAlone, kGathersOn, kGathersAlone };

struct Timed {
  cuda::UniqueEvent begin;
  cuda::UniqueEvent end;
};

/// One rank: `layers` square weights, forward, dgrad and wgrad of each.
class Rank {
 public:
  Rank(CudaBackend& backend, const Topology& topology, const Flags& flags)
      : flags_(flags), backend_(backend), runtime_(backend, topology, backend.rank(), options(flags)) {
    compute_ = backend.create_stream("compute", StreamPriority::kNormal);
    const auto square = static_cast<std::size_t>(flags.hidden * flags.hidden);
    const auto activation = static_cast<std::size_t>(flags.tokens * flags.hidden) * 2;
    for (cuda::DeviceMemory* each : {&input_, &output_, &d_input_}) *each = memory(activation);
    whole_ = memory(square * 2);
    wgrad_ = memory(square * 2);
    const std::int64_t size = runtime_.group(WeightDomain::kDense).size();
    const auto layout = make_shard_layout({flags.hidden, flags.hidden, WeightFormat::kBf16, 16, size});
    if (!layout) throw std::runtime_error("no such weight");
    const auto shard = static_cast<std::size_t>(layout->shard_elements());
    for (std::int64_t i = 0; i < flags.layers; ++i) {
      shards_.push_back(memory(shard * 2));
      grads_.push_back(memory(shard * 4, true));
      WeightSpec spec{.name = "w" + std::to_string(i), .layout = *layout, .shards = {}};
      spec.shards.push_back({{shards_.back().get()}, grads_.back().get()});
      spec.wire_type = ElementType::kBFloat16;
      weights_.push_back(&runtime_.add_weight(std::move(spec)));
    }
    for (std::int64_t i = 0; i < 3 * flags.layers * flags.microbatches; ++i)
      timed_.push_back({timed_event(), timed_event()});
  }
  ~Rank() { backend_.synchronize_all(kLimit); }

  void step(const Mode& mode) {
    next_ = 0;
    for (std::int64_t m = 0; m < flags_.microbatches; ++m) microbatch(mode);
    if (mode.gathers) runtime_.fence_grads(compute_);
    backend_.synchronize(compute_, kLimit);
  }
  /// Of the GEMMs of the latest step, in milliseconds.
  double gemm_time() const {
    double sum = 0;
    for (std::size_t i = 0; i < next_; ++i) {
      float each = 0;
      cuda::cuda_check(cudaEventElapsedTime(&each, timed_[i].begin.get(), timed_[i].end.get()), "timing");
      sum += static_cast<double>(each);
    }
    return sum;
  }

 private:
  static RuntimeOptions options(const Flags& flags) {
    RuntimeOptions options;
    options.prefetch_depth = static_cast<std::uint32_t>(flags.depth);
    options.gtp_remat_nccl_ub = options.register_gather_outputs = flags.windows;
    return options;
  }
  void microbatch(const Mode& mode) {
    for (ShardedWeight* weight : weights_) {
      const void* view = materialize(*weight, Use::kForward, mode);
      multiply(mode, view, true, input_.get(), false, output_.get(), flags_.hidden, flags_.tokens, flags_.hidden);
    }
    for (std::size_t i = weights_.size(); i-- > 0;) {
      const void* view = materialize(*weights_[i], Use::kDgrad, mode);
      multiply(mode, view, false, output_.get(), false, d_input_.get(), flags_.hidden, flags_.tokens, flags_.hidden);
      void* target = mode.reductions ? runtime_.grad_buffer(*weights_[i], compute_)[0].data : wgrad_.get();
      multiply(mode, input_.get(), false, output_.get(), true, target, flags_.hidden, flags_.hidden, flags_.tokens);
      if (mode.reductions) runtime_.reduce_grad(*weights_[i], compute_);
    }
  }
  static cuda::UniqueEvent timed_event() {
    cudaEvent_t event = nullptr;
    cuda::cuda_check(cudaEventCreate(&event), "creating an event");
    return cuda::UniqueEvent(event);
  }
  /// bf16 numbers of about one half, or zeros for gradients: GEMMs on zeros would be faster.
  static cuda::DeviceMemory memory(std::size_t bytes, bool zeros = false) {
    cuda::DeviceMemory made(bytes);
    std::vector<std::uint16_t> values(bytes / 2);
    std::uint32_t state = 1;
    for (std::uint16_t& value : values) {
      state = state * 1664525U + 1013904223U;
      if (!zeros) value = static_cast<std::uint16_t>(0x3F00U | (state >> 24U & 0x7FU) | (state >> 16U & 0x8000U));
    }
    cuda::cuda_check(cudaMemcpy(made.get(), values.data(), values.size() * 2, cudaMemcpyHostToDevice), "cudaMemcpy");
    cuda::cuda_check(cudaDeviceSynchronize(), "cudaMemcpy");
    return made;
  }
  const void* materialize(ShardedWeight& weight, Use use, const Mode& mode) {
    return mode.gathers ? runtime_.materialize(weight, use, compute_)[0].row_data() : whole_.get();
  }
  void multiply(const Mode& mode, const void* a, bool ta, const void* b, bool tb, void* c, std::int64_t m,
                std::int64_t n, std::int64_t k) {
    if (!mode.gemms) return;
    const cudaStream_t stream = CudaBackend::native(compute_);
    const Timed& timed = timed_[next_++];
    cuda::cuda_check(cudaEventRecord(timed.begin.get(), stream), "timing");
    gemm_.run(a, ta, b, tb, c, m, n, k, stream);
    cuda::cuda_check(cudaEventRecord(timed.end.get(), stream), "timing");
  }

  Flags flags_;
  CudaBackend& backend_;
  bench::Bf16Gemm gemm_;
  cuda::DeviceMemory input_, output_, d_input_, whole_, wgrad_;
  std::vector<cuda::DeviceMemory> shards_, grads_;
  std::vector<Timed> timed_;
  std::size_t next_ = 0;
  Runtime runtime_;
  Stream compute_{};
  std::vector<ShardedWeight*> weights_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Result {
  std::array<double, kModes.size()> step{};  ///< Milliseconds.
  std::array<double, kModes.size()> gemm{};
};

/// All ranks begin together; a step lasts until the last has ended. Modes take turns. `meet` waits for all ranks.
template <class Meet>
Result measure(Rank& rank, const Flags& flags, const Meet& meet) {
  std::array<std::vector<double>, kModes.size()> steps;
  std::array<std::vector<double>, kModes.size()> gemms;
  for (std::int64_t repeat = -3; repeat < flags.repeats; ++repeat) {
    for (std::size_t which = 0; which < kModes.size(); ++which) {
      meet();
      const auto from = Clock::now();
      rank.step(kModes[which]);
      meet();
      if (repeat < 0) continue;
      steps[which].push_back(std::chrono::duration<double, std::milli>(Clock::now() - from).count());
      gemms[which].push_back(rank.gemm_time());
    }
  }
  Result result;
  for (std::size_t which = 0; which < kModes.size(); ++which) {
    result.step[which] = median(steps[which]);
    result.gemm[which] = median(gemms[which]);
  }
  return result;
}

void print(const char* what, const Result& result, std::size_t with, std::size_t alone) {
  const double on = result.step[with];
  const double null = result.step[kNull];
  const double communication = result.step[alone];
  std::printf("%-24s T_on %8.3f ms  T_null %8.3f ms  T_comm %7.3f ms  h %6.3f  s %6.3f  efficiency %6.3f\n", what, on,
              null, communication, 1 - (on - null) / communication, result.gemm[with] / result.gemm[kNull],
              std::max(null, communication) / on);
}

void print(const Flags& flags, const Result& result) {
  const auto number = [](std::int64_t value) { return static_cast<long long>(value); };
  std::printf(
      "%lld ranks %s%s, depth %lld, %lld microbatches of %lld tokens a rank, %lld layers of [%lld, %lld] bf16\n",
      number(flags.ranks), flags.nccl ? "over NCCL" : "on one GPU", flags.windows ? " (windows)" : "",
      number(flags.depth), number(flags.microbatches), number(flags.tokens), number(flags.layers), number(flags.hidden),
      number(flags.hidden));
  print("gathers", result, kGathersOn, kGathersAlone);
  print("gathers and reductions", result, kAllOn, kAllAlone);
}

Topology topology_of(std::int64_t ranks) {
  TopologyOptions options;
  options.world_size = ranks;
  options.tensor_parallel_num_weight_shards = ranks;
  return require_topology(options);
}

int run_threads(const Flags& flags) {
  LoopbackWorld world({.ranks = flags.ranks});
  const Topology topology = topology_of(flags.ranks);
  int failed = 0;
  for (const RankOutcome& end : world.run([&](std::int64_t self, CudaBackend&backend) {
         Rank rank(backend, topology, flags);
         const Result result = measure(rank, flags, [&] { world.barrier(self); });
         if (self == 0) print(flags, result);
       })) {
    if (end.ok()) continue;
    std::fprintf(stderr, "%s\n", end.text.c_str());
    failed = 1;
  }
  return failed;
}

/// A gather of a few bytes: its end is seen by all ranks within microseconds, that of a barrier over TCP is not.
class Meeting {
 public:
  explicit Meeting(const JobEnvironment& job)
      : over_(test::raw_communicator(job, "meeting")),
        stream_(cuda::make_stream()),
        own_(kBytes),
        all_(kBytes * static_cast<std::size_t>(job.world_size)) {}
  ~Meeting() { ncclCommDestroy(over_); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  void operator()() const {
    cuda::nccl_check(ncclAllGather(own_.get(), all_.get(), kBytes, ncclUint8, over_, stream_.get()), "meeting");
    cuda::cuda_check(cudaStreamSynchronize(stream_.get()), "meeting");
  }

 private:
  static constexpr std::size_t kBytes = 256;
  ncclComm_t over_;
  cuda::UniqueStream stream_;
  cuda::DeviceMemory own_, all_;
};

int run_process(Flags flags) {
  const JobEnvironment job = job_environment();
  NcclWorld world = NcclWorld::from_job(job, test::job_options(job));
  flags.ranks = world.size();
  const Meeting meeting(job);
  Rank rank(world.backend(), topology_of(flags.ranks), flags);
  const Result result = measure(rank, flags, meeting);
  if (world.rank() == 0) print(flags, result);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Flags flags = parse(argc, argv);
    return flags.nccl ? run_process(flags) : run_threads(flags);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
