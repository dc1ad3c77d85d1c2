// How the collectives of a CudaBackend are carried out: between processes by NCCL, or between threads that share one
// device. Private to kernels/cuda.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kernels/backend.hpp"
#include "kernels/cuda/marker_events.hpp"

namespace gtp::cuda {

enum class CollectiveKind : std::uint8_t { kAllGather, kReduceScatter, kAllToAll, kAllReduce };

constexpr std::string_view collective_name(CollectiveKind kind) noexcept {
  switch (kind) {
    case CollectiveKind::kAllGather:
      return "all-gather";
    case CollectiveKind::kReduceScatter:
      return "reduce-scatter";
    case CollectiveKind::kAllToAll:
      return "all-to-all";
    case CollectiveKind::kAllReduce:
      return "all-reduce";
  }
  return "";
}

struct CollectiveCall {
  CollectiveKind kind{};
  std::span<const CollectivePart> parts;
  ElementType type{};
  Communicator communicator;
  cudaStream_t stream = nullptr;
  OpLabel label;
  bool capturing = false;
};

/// One rank's side. Calls come from one thread at a time, as those of the backend.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  virtual Communicator create(const CommunicatorSpec& spec) = 0;
  virtual void destroy(Communicator communicator) noexcept = 0;
  virtual std::string_view group_of(Communicator communicator) const noexcept = 0;

  /// nullptr if there is not enough.
  virtual void* allocate_window(std::size_t bytes) = 0;
  virtual void free_window(void* data) noexcept = 0;
  virtual void* register_window(Communicator communicator, void* data, std::size_t bytes) = 0;
  virtual void deregister_window(Communicator communicator, void* window) noexcept = 0;

  /// Enqueues. Throws kCaptureFailed if it is asked to during a capture and cannot.
  virtual void run(const CollectiveCall& call) = 0;
  /// A graph was launched that holds collectives; `summary` outlives its run.
  virtual void launched(std::string_view summary, cudaStream_t stream) = 0;

  /// The backend has just recorded `event` on `stream`, outside any capture: the transport may keep it as the sign that
  /// its latest operation there is complete, which saves a record of its own. What is kept may be recorded again.
  virtual void recorded(const MarkerEvent&, cudaStream_t) {}
  /// No record may follow soon: whoever waits for one makes its own.
  virtual void flush() noexcept {}

  /// The backend has failed, for the reason that its FailureCell holds: peers are told, pending collectives stop. Comes
  /// back within a few seconds whatever the device does.
  virtual void give_up() noexcept = 0;
};

}  // namespace gtp::cuda
