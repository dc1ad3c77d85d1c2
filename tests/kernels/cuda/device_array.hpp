// Device memory that tests fill from the host and compare on the host. Uploads and downloads wait: not for use while
// work on the array is under way.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/owners.hpp"
#include "kernels/format/bf16.hpp"

namespace gtp::test {

inline void upload(void* to, const void* from, std::size_t bytes) {
  cuda::cuda_check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "uploading");
  // cudaMemcpy returns when pageable memory has been staged, which other streams would overtake.
  cuda::cuda_check(cudaStreamSynchronize(nullptr), "waiting for an upload");
}
inline void download(void* to, const void* from, std::size_t bytes) {
  cuda::cuda_check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "downloading");
}

template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(std::size_t count) : count_(count), memory_(count * sizeof(T)) {}
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) { set(values); }

  T* data() const noexcept { return memory_.template as<T>(); }
  std::size_t size() const noexcept { return count_; }
  std::size_t bytes() const noexcept { return count_ * sizeof(T); }
  void set(const std::vector<T>& values) { upload(data(), values.data(), bytes()); }
  std::vector<T> get() const {
    std::vector<T> values(count_);
    download(values.data(), data(), bytes());
    return values;
  }

 private:
  std::size_t count_ = 0;
  cuda::DeviceMemory memory_;
};

inline std::uint16_t bf16(float value) { return bits_of(to_bf16(value)); }
inline float from_bf16(std::uint16_t bits) { return to_float(Bf16{bits}); }

inline std::vector<std::uint16_t> bf16_of(const std::vector<float>& values) {
  std::vector<std::uint16_t> result;
  for (const float value : values) result.push_back(bf16(value));
  return result;
}

}  // namespace gtp::test
