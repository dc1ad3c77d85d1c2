// cuda_kernels_benchmark [--tune] [--mib N]... [--only TEXT] [--below RATIO]: one line per kernel and size.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "cuda_bench.hpp"

namespace cuda_bench {

namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr int kReplays = 15;

void must(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(status));
  std::exit(1);
}

/// Random BF16 values of both signs within twelve binades, whatever else the bytes are read as.
__global__ void fill_random(std::uint32_t* words, std::int64_t count, std::uint32_t seed) {
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += threads) {
    std::uint32_t bits = (static_cast<std::uint32_t>(i) ^ seed) * 0x9E3779B9U;
    bits = (bits ^ bits >> 16U) * 0x85EBCA6BU;
    bits = (bits ^ bits >> 13U) * 0xC2B2AE35U;
    bits ^= bits >> 16U;
    const std::uint32_t exponents = (120U + (bits >> 7U) % 12U) << 7U | (120U + (bits >> 23U) % 12U) << 23U;
    words[i] = (bits & 0x807F807FU) | exponents;
  }
}

/// A copy as plain as can be, for sizes at which cudaMemcpyAsync is slower than a kernel.
__global__ void __launch_bounds__(256) copy_packets(uint4* target, const uint4* source, std::int64_t count) {
  constexpr int kUnroll = 4;
  const std::int64_t first = std::int64_t{blockIdx.x} * (256 * kUnroll) + threadIdx.x;
  uint4 packets[kUnroll];
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    if (first + i * 256 < count) packets[i] = source[first + i * 256];
  }
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    if (first + i * 256 < count) target[first + i * 256] = packets[i];
  }
}

__global__ void do_nothing() {}

class Timer {
 public:
  Timer() {
    must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (cudaEvent_t& event : events_) must(cudaEventCreate(&event));
  }

  cudaStream_t stream() const { return stream_; }

  /// Median microseconds of one call of `enqueue(i)`, called for i < launches in one graph.
  template <class Enqueue>
  double microseconds(std::int64_t launches, const Enqueue& enqueue) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    must(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
    for (std::int64_t i = 0; i < launches; ++i) enqueue(i);
    must(cudaStreamEndCapture(stream_, &graph));
    must(cudaGraphInstantiate(&executable, graph, 0));
    std::vector<float> times;
    for (int replay = -2; replay < kReplays; ++replay) {
      must(cudaEventRecord(events_[0], stream_));
      must(cudaGraphLaunch(executable, stream_));
      must(cudaEventRecord(events_[1], stream_));
      must(cudaStreamSynchronize(stream_));
      float milliseconds = 0;
      must(cudaEventElapsedTime(&milliseconds, events_[0], events_[1]));
      if (replay >= 0) times.push_back(milliseconds);
    }
    must(cudaGraphExecDestroy(executable));
    must(cudaGraphDestroy(graph));
    std::nth_element(times.begin(), times.begin() + kReplays / 2, times.end());
    return 1000.0 * times[kReplays / 2] / static_cast<double>(launches);
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t events_[2] = {};
};

/// One region that holds the buffer sets of a case.
class Arena {
 public:
  explicit Arena(std::int64_t bytes) : bytes_(bytes) { must(cudaMalloc(&memory_, static_cast<std::size_t>(bytes))); }
  std::int64_t bytes() const { return bytes_; }
  std::uint8_t* set(const Case& c, std::int64_t index) const {
    return memory_ + index * ((c.set_bytes + 4095) / 4096 * 4096);
  }
  void randomize(std::int64_t bytes, cudaStream_t stream) const {
    fill_random<<<2048, 256, 0, stream>>>(reinterpret_cast<std::uint32_t*>(memory_), std::min(bytes, bytes_) / 4, 7U);
    must(cudaGetLastError());
  }

 private:
  std::uint8_t* memory_ = nullptr;
  std::int64_t bytes_;
};

struct Result {
  double microseconds, gigabytes, ratio, copy_gigabytes;
};

Result measure(const Case& c, const Arena& arena, Timer& timer) {
  const std::int64_t half = c.moved_bytes / 2;
  Case both = c;  // a set that has room for the copy too
  both.set_bytes = std::max(c.set_bytes, 2 * (half + 4096));
  const std::int64_t fitting = arena.bytes() / (both.set_bytes + 4096);
  const std::int64_t sets = std::min(fitting, std::max<std::int64_t>(2, 512 * kMiB / both.set_bytes));
  const std::int64_t launches = sets * std::max<std::int64_t>(1, 8192 * kMiB / (sets * c.moved_bytes));
  const cudaStream_t stream = timer.stream();
  const auto set = [&](std::int64_t i) { return arena.set(both, i % sets); };
  arena.randomize(sets * (both.set_bytes + 4096), stream);
  const std::int64_t target = (half + 511) / 256 * 256, packets = (half + 15) / 16;
  const double copied = timer.microseconds(launches, [&](std::int64_t i) {
    must(cudaMemcpyAsync(set(i) + target, set(i), static_cast<std::size_t>(half), cudaMemcpyDeviceToDevice, stream));
  });
  const double by_kernel = timer.microseconds(launches, [&](std::int64_t i) {
    copy_packets<<<static_cast<unsigned>((packets + 1023) / 1024), 256, 0, stream>>>(
        reinterpret_cast<uint4*>(set(i) + target), reinterpret_cast<const uint4*>(set(i)), packets);
  });
  const double copy = std::min(copied, by_kernel);
  arena.randomize(sets * (both.set_bytes + 4096), stream);
  for (std::int64_t i = 0; c.prepare && i < sets; ++i) c.prepare(set(i), stream);
  const double kernel = timer.microseconds(launches, [&](std::int64_t i) { c.enqueue(set(i), stream); });
  const auto bytes = static_cast<double>(c.moved_bytes);
  return {kernel, bytes / kernel / 1000.0, copy / kernel, 2.0 * static_cast<double>(half) / copy / 1000.0};
}

int run(const std::vector<std::int64_t>& sizes, bool tune, std::string_view only, double below) {
  const Arena arena(14336 * kMiB);
  Timer timer;
  const double empty = timer.microseconds(4096, [&](std::int64_t) { do_nothing<<<132, 256, 0, timer.stream()>>>(); });
  std::printf("an empty kernel: %.2f us\n", empty);
  std::printf("%-44s %6s %16s %10s %8s %8s %6s\n", "kernel", "MiB", "shape", "us", "GB/s", "copy", "ratio");
  std::int64_t slow = 0, all = 0;
  for (const std::int64_t size : sizes) {
    for (const Case& c : tune ? tuning_cases(size * kMiB) : product_cases(size * kMiB)) {
      if (c.name.find(only) == std::string::npos) continue;
      const Result r = measure(c, arena, timer);
      ++all;
      if (r.ratio < 0.85) ++slow;
      if (below > 0 && r.ratio >= below) continue;
      const std::string shape = std::to_string(c.rows) + "x" + std::to_string(c.cols);
      std::printf("%-44s %6lld %16s %10.2f %8.0f %8.0f %6.3f%s\n", c.name.c_str(), static_cast<long long>(size),
                  shape.c_str(), r.microseconds, r.gigabytes, r.copy_gigabytes, r.ratio, r.ratio < 0.85 ? " <" : "");
      std::fflush(stdout);
    }
  }
  std::printf("%lld of %lld below 0.85 of the copy\n", static_cast<long long>(slow), static_cast<long long>(all));
  return 0;
}

}  // namespace

}  // namespace cuda_bench

int main(int count, char** arguments) {
  std::vector<std::int64_t> sizes;
  bool tune = false;
  std::string_view only;
  double below = 0;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    const char* value = i + 1 < count ? arguments[i + 1] : "";
    if (argument == "--tune") tune = true;
    if (argument == "--mib") sizes.push_back(std::strtoll(value, nullptr, 10));
    if (argument == "--only") only = value;
    if (argument == "--below") below = std::strtod(value, nullptr);
  }
  if (sizes.empty())
    sizes = tune ? std::vector<std::int64_t>{16, 128} : std::vector<std::int64_t>{16, 64, 128, 512, 1024};
  try {
    return cuda_bench::run(sizes, tune, only, below);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
