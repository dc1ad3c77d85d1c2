// One Gloo context of one group, and the collectives on it: they block the calling thread. Private to gloo_*.cpp.
#pragma once

#include <gloo/rendezvous/context.h>
#include <gloo/transport/device.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/host_stream.hpp"
#include "kernels/tcp_store.hpp"

namespace gtp::detail {

class GlooGroup {
 public:
  /// Connects to all members; collective. `instance` tells apart groups of the same name, purpose and ranks.
  GlooGroup(const CommunicatorSpec& spec, std::uint64_t instance, TcpStore& store,
            std::shared_ptr<::gloo::transport::Device> device, std::chrono::milliseconds limit);
  ~GlooGroup();
  GlooGroup(const GlooGroup&) = delete;
  GlooGroup& operator=(const GlooGroup&) = delete;

  /// Throws ::gloo::Exception, or RuntimeError if the members have issued different operations.
  void run(const host::CollectiveCall& call, std::string_view weight);
  /// Pending operations fail, here and at the peers. Any thread.
  void close() noexcept;

 private:
  void agree(const host::CollectiveCall& call, std::string_view weight);
  void gather(const void* send, void* receive, std::size_t bytes);
  void exchange(const void* send, void* receive, std::size_t bytes);
  void reduce_scatter(const CollectivePart& part, ElementType type);
  void all_reduce(const CollectivePart& part, ElementType type);
  /// The sum over members of element `i` of their chunks in the scratch memory, to receive[i].
  void sum(void* receive, ElementType type, std::size_t count);

  std::size_t size_;
  std::vector<std::int64_t> ranks_;
  std::chrono::milliseconds limit_;
  std::shared_ptr<::gloo::rendezvous::Context> context_;
  std::uint32_t tag_ = 0;
  std::uint64_t calls_ = 0;
  std::vector<char> scratch_;
};

}  // namespace gtp::detail
