// Device buffers between guard bands, running a call eagerly or from a captured graph, and comparing bytes so that a
// failure names the kernel, the shape and the place.
#pragma once

#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/format/bf16.hpp"

namespace device_data {

using ByteVector = std::vector<std::uint8_t>;

inline void must(cudaError_t status) {
  REQUIRE_MESSAGE(status == cudaSuccess, std::string(cudaGetErrorString(status)));
}

/// The stream of all tests; not the default stream, which cannot be captured.
inline cudaStream_t stream() {
  static const cudaStream_t made = [] {
    cudaStream_t handle = nullptr;
    must(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking));
    return handle;
  }();
  return made;
}

/// Runs what `enqueue` puts on the stream, and waits.
template <class Enqueue>
void run(const Enqueue& enqueue) {
  enqueue();
  must(cudaStreamSynchronize(stream()));
}

/// Captures it, and runs the graph twice.
template <class Enqueue>
void run_captured(const Enqueue& enqueue) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  must(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeGlobal));
  enqueue();
  must(cudaStreamEndCapture(stream(), &graph));
  must(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 2; ++i) must(cudaGraphLaunch(executable, stream()));
  must(cudaStreamSynchronize(stream()));
  must(cudaGraphExecDestroy(executable));
  must(cudaGraphDestroy(graph));
}

/// `size` bytes at `misalignment` past a 256-byte boundary, poisoned, with a band on each side that must stay as it is.
class Buffer {
 public:
  static constexpr std::size_t kBand = 1024;

  explicit Buffer(std::size_t size, std::size_t misalignment = 0, std::uint8_t poison = 0xA5)
      : size_(size), begin_(kBand + misalignment), poison_(poison) {
    must(cudaMalloc(&memory_, begin_ + size + kBand));
    must(cudaMemset(memory_, poison, begin_ + size + kBand));
    must(cudaDeviceSynchronize());
  }
  template <class T>
  Buffer(const std::vector<T>& values, std::size_t misalignment) : Buffer(values.size() * sizeof(T), misalignment) {
    must(cudaMemcpy(data(), values.data(), size_, cudaMemcpyHostToDevice));
    must(cudaDeviceSynchronize());  // pageable memory has only been staged when cudaMemcpy returns
  }
  Buffer(Buffer&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)),
        size_(other.size_),
        begin_(other.begin_),
        poison_(other.poison_) {}
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() { cudaFree(memory_); }

  std::uint8_t* data() const { return static_cast<std::uint8_t*>(memory_) + begin_; }

  /// What lies there now. The bands are checked.
  ByteVector fetch(const std::string& what) const {
    ByteVector all(begin_ + size_ + kBand);
    must(cudaMemcpy(all.data(), memory_, all.size(), cudaMemcpyDeviceToHost));
    std::size_t touched = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool in_band = i < begin_ || i >= begin_ + size_;
      if (in_band && all[i] != poison_ && touched++ == 0) {
        FAIL_CHECK(what << ": wrote outside its buffer, at byte " << static_cast<std::int64_t>(i - begin_) << " of "
                        << size_);
      }
    }
    return {all.begin() + static_cast<std::ptrdiff_t>(begin_),
            all.begin() + static_cast<std::ptrdiff_t>(begin_ + size_)};
  }

 private:
  void* memory_ = nullptr;
  std::size_t size_, begin_;
  std::uint8_t poison_;
};

inline std::string name_of(const char* kernel, std::int64_t rows, std::int64_t cols, const std::string& detail = "") {
  return std::string(kernel) + " [" + std::to_string(rows) + ", " + std::to_string(cols) + "] " + detail;
}

inline void check_same(const std::string& what, const ByteVector& actual, const ByteVector& expected) {
  REQUIRE_MESSAGE(actual.size() == expected.size(), what);
  if (actual.empty()) return;
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] != expected[i] && wrong++ == 0) first = i;
  }
  CHECK_MESSAGE(wrong == 0, what << ": " << wrong << " of " << actual.size() << " bytes differ, the first at " << first
                                 << ": " << int{actual[first]} << " instead of " << int{expected[first]});
}

/// Floats: bits must agree, except that any NaN equals any NaN.
inline void check_same_fp32(const std::string& what, const ByteVector& actual, const std::vector<float>& expected) {
  REQUIRE_MESSAGE(actual.size() == expected.size() * sizeof(float), what);
  if (actual.empty()) return;
  const auto* values = reinterpret_cast<const float*>(actual.data());
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const bool same =
        gtp::bits_of(values[i]) == gtp::bits_of(expected[i]) || (values[i] != values[i] && expected[i] != expected[i]);
    if (!same && wrong++ == 0) first = i;
  }
  CHECK_MESSAGE(wrong == 0, what << ": " << wrong << " of " << expected.size() << " values differ, the first at "
                                 << first << ": " << values[first] << " instead of " << expected[first]);
}

inline ByteVector bytes_of(const std::vector<gtp::Bf16>& values) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(values.data());
  return {begin, begin + 2 * values.size()};
}

/// Against expected floats, in the type the kernel wrote.
inline void check_values(const std::string& what, bool is_bf16, const ByteVector& actual,
                         const std::vector<float>& expected) {
  if (!is_bf16) return check_same_fp32(what, actual, expected);
  std::vector<gtp::Bf16> rounded(expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) rounded[i] = gtp::to_bf16(expected[i]);
  check_same(what, actual, bytes_of(rounded));
}

/// Any bit pattern: NaNs, infinities and subnormals included.
template <class T>
std::vector<T> random_bits(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(random());
  return values;
}

inline std::vector<float> random_floats(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

inline std::vector<float> wild_floats(std::size_t count, std::uint64_t seed) {
  const auto bits = random_bits<std::uint32_t>(count, seed);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = gtp::float_of(bits[i]);
  return values;
}

inline std::vector<gtp::Bf16> as_bf16(const std::vector<float>& values) {
  std::vector<gtp::Bf16> result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) result[i] = gtp::to_bf16(values[i]);
  return result;
}

inline std::vector<gtp::Bf16> wild_bf16(std::size_t count, std::uint64_t seed) {
  const auto bits = random_bits<std::uint16_t>(count, seed);
  std::vector<gtp::Bf16> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = gtp::Bf16{bits[i]};
  return values;
}

}  // namespace device_data
