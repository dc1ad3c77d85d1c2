// Owners of driver objects. Destroying one never waits for the device, except for memory: see DeviceMemory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

#include "kernels/cuda/check.hpp"

namespace gtp::cuda {

/// Owns a handle that `Destroy` gives back; null when empty or moved from.
template <class Handle, auto Destroy>
class Owner {
 public:
  Owner() = default;
  explicit Owner(Handle handle) noexcept : handle_(handle) {}
  Owner(Owner&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owner& operator=(Owner&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~Owner() { reset(); }

  Handle get() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_ != nullptr; }
  /// Gives up ownership: for objects that a hung device still uses.
  Handle release() noexcept { return std::exchange(handle_, nullptr); }
  void reset() noexcept {
    if (handle_ != nullptr) Destroy(std::exchange(handle_, nullptr));
  }

 private:
  Handle handle_ = nullptr;
};

using UniqueStream = Owner<cudaStream_t, cudaStreamDestroy>;
using UniqueEvent = Owner<cudaEvent_t, cudaEventDestroy>;
using UniqueGraph = Owner<cudaGraph_t, cudaGraphDestroy>;
using UniqueGraphExec = Owner<cudaGraphExec_t, cudaGraphExecDestroy>;
using UniqueMemPool = Owner<cudaMemPool_t, cudaMemPoolDestroy>;

/// Without timing, which would make records slower.
inline UniqueEvent make_event() {
  cudaEvent_t event = nullptr;
  cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
  return UniqueEvent(event);
}

/// Does not synchronize with the null stream.
inline UniqueStream make_stream(int priority = 0) {
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority), "creating a stream");
  return UniqueStream(stream);
}

/// Of the current device. The destructor waits for the device as cudaFree does: only for memory that is idle.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(std::size_t bytes) {
    void* data = nullptr;
    cuda_check(cudaMalloc(&data, bytes), "allocating device memory");
    data_ = Data(data);
  }

  void* get() const noexcept { return data_.get(); }
  template <class T>
  T* as() const noexcept {
    return static_cast<T*>(data_.get());
  }
  void* release() noexcept { return data_.release(); }

 private:
  using Data = Owner<void*, cudaFree>;
  Data data_;
};

/// Makes a device the calling thread's current one, for the scope's life.
class DeviceScope {
 public:
  explicit DeviceScope(int device) {
    cuda_check(cudaGetDevice(&before_), "asking for the current device");
    if (device != before_) cuda_check(cudaSetDevice(device), "selecting the device");
    changed_ = device != before_;
  }
  ~DeviceScope() {
    if (changed_) cudaSetDevice(before_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace gtp::cuda
