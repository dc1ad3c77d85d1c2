// One rank's collectives as copies between buffers of one device. Private to loopback_*.cpp.
//
// A collective is two meetings. At the first, members show addresses and an event after which their buffers may be
// touched; then each reads what it needs from its peers, and records an event; after the second each waits for its
// peers' events, because they have read from its buffers. Events are recorded again only at the next collective of the
// communicator, when everybody has already enqueued its waits for the previous record.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "kernels/cuda/loopback_hub.hpp"
#include "kernels/cuda/transport.hpp"

namespace gtp::cuda {

class LoopbackTransport final : public Transport {
 public:
  LoopbackTransport(std::shared_ptr<LoopbackHub> hub, std::int64_t rank);

  Communicator create(const CommunicatorSpec& spec) override;
  void destroy(Communicator communicator) noexcept override;
  std::string_view group_of(Communicator communicator) const noexcept override;
  void* allocate_window(std::size_t bytes) override;
  void free_window(void* data) noexcept override;
  void* register_window(Communicator, void*, std::size_t) override { return nullptr; }
  void deregister_window(Communicator, void*) noexcept override {}
  void run(const CollectiveCall& call) override;
  void launched(std::string_view, cudaStream_t) override {}
  void give_up() noexcept override;

 private:
  struct Member {
    std::shared_ptr<LoopbackGroup> group;
    std::size_t position = 0;
    UniqueEvent ready;
    UniqueEvent done;
  };

  void post(const CollectiveCall& call, Member& member);
  void require_agreement(const Member& member) const;
  void read_peers(const CollectiveCall& call, const Member& member, char* scratch);
  void add_up(const CollectiveCall& call, const Member& member, const char* scratch);
  std::size_t scratch_bytes(const CollectiveCall& call, const Member& member) const noexcept;

  std::shared_ptr<LoopbackHub> hub_;
  std::int64_t rank_;
  std::map<std::string, std::uint64_t> instances_;
};

}  // namespace gtp::cuda
