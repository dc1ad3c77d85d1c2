// How the members of a new communicator agree on its ncclUniqueId. Private to nccl_*.cpp.
#pragma once

#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/backend.hpp"
#include "kernels/cuda/failure_cell.hpp"
#include "kernels/cuda/owners.hpp"
#include "kernels/tcp_store.hpp"

namespace gtp::cuda {

class IdExchange {
 public:
  IdExchange() = default;
  IdExchange(const IdExchange&) = delete;
  IdExchange& operator=(const IdExchange&) = delete;
  virtual ~IdExchange() = default;
  /// Collective over spec.ranks; member 0 makes the id. `key` names this communicator, the same on all members and
  /// never used twice. Throws kTimeout, or what failed.
  virtual ncclUniqueId share(const CommunicatorSpec& spec, const std::string& key) = 0;
};

class StoreIdExchange final : public IdExchange {
 public:
  StoreIdExchange(std::shared_ptr<TcpStore> store, std::shared_ptr<FailureCell> failure,
                  std::chrono::milliseconds limit);
  ncclUniqueId share(const CommunicatorSpec& spec, const std::string& key) override;

 private:
  std::shared_ptr<TcpStore> store_;
  std::shared_ptr<FailureCell> failure_;
  std::chrono::milliseconds limit_;
};

/// Over a communicator of the whole world, point to point, so that only members take part. Not owned; of the current
/// device.
class CommunicatorIdExchange final : public IdExchange {
 public:
  CommunicatorIdExchange(ncclComm_t world, std::shared_ptr<FailureCell> failure, std::chrono::milliseconds limit);
  ncclUniqueId share(const CommunicatorSpec& spec, const std::string& key) override;

 private:
  ncclComm_t world_;
  std::shared_ptr<FailureCell> failure_;
  std::chrono::milliseconds limit_;
  UniqueStream stream_;
  DeviceMemory memory_;
};

}  // namespace gtp::cuda
