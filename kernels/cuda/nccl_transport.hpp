// One rank's collectives over NCCL. Private to nccl_*.cpp; callers use nccl_world.hpp.
//
// Communicators block: an enqueue costs no thread, and the first one connects before it is handed out. What may hang
// (creating, destroying) runs on a thread of its own with a limit; a call that hangs elsewhere is ended by the
// watchdog.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/id_exchange.hpp"
#include "kernels/cuda/nccl_state.hpp"
#include "kernels/cuda/nccl_watchdog.hpp"
#include "kernels/cuda/nccl_world.hpp"
#include "kernels/cuda/transport.hpp"

namespace gtp::cuda {

class NcclTransport final : public Transport {
 public:
  /// Without an `exchange` only supplied communicators can be had.
  NcclTransport(std::shared_ptr<NcclState> state, std::shared_ptr<IdExchange> exchange,
                std::vector<SuppliedCommunicator> supplied, std::chrono::milliseconds start_limit);

  Communicator create(const CommunicatorSpec& spec) override;
  void destroy(Communicator communicator) noexcept override;
  std::string_view group_of(Communicator communicator) const noexcept override;
  void* allocate_window(std::size_t bytes) override;
  void free_window(void* data) noexcept override;
  void* register_window(Communicator communicator, void* data, std::size_t bytes) override;
  void deregister_window(Communicator communicator, void* window) noexcept override;
  void run(const CollectiveCall& call) override;
  void launched(std::string_view summary, cudaStream_t stream) override;
  void recorded(const MarkerEvent& event, cudaStream_t stream) override;
  void flush() noexcept override;
  void give_up() noexcept override;

 private:
  /// The latest operation, while nothing shows that it is complete.
  struct Unmarked {
    OperationTracker* tracker = nullptr;
    std::string_view operation;
    std::string_view weight;
    cudaStream_t stream = nullptr;
  };

  void note(OperationTracker& tracker, std::string_view operation, std::string_view weight, cudaStream_t stream);
  std::shared_ptr<NcclCommunicator> adopt(const SuppliedCommunicator& given, const CommunicatorSpec& spec);
  std::shared_ptr<NcclCommunicator> make(const CommunicatorSpec& spec);
  std::shared_ptr<NcclCommunicator> parent_over(const std::vector<std::int64_t>& ranks);
  void enqueue(const CollectiveCall& call, const NcclCommunicator& communicator);
  void settle(ncclResult_t result, const NcclCommunicator& communicator);

  std::shared_ptr<NcclState> state_;
  std::shared_ptr<IdExchange> exchange_;
  std::vector<SuppliedCommunicator> supplied_;
  std::chrono::milliseconds start_limit_;
  std::map<std::string, std::uint64_t> instances_;
  Unmarked unmarked_;
  MarkerRing markers_;  ///< For operations behind which the backend records nothing.
  NcclWatchdog watchdog_;
};

}  // namespace gtp::cuda
