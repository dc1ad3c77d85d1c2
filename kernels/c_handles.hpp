// What stands behind the handles of include/gtp/runtime.h, and how a handle that is none is found out. Private to
// c_api.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gtp/runtime.h"
#include "kernels/host_backend.hpp"
#include "kernels/host_world.hpp"
#include "kernels/runtime.hpp"
#include "kernels/trace.hpp"

namespace gtp::capi {

enum class HandleKind : std::uint8_t { kWorld, kCudaWorld, kBackend, kStream, kRuntime, kWeight, kGraph };

constexpr std::string_view handle_name(HandleKind kind) noexcept {
  switch (kind) {
    case HandleKind::kWorld:
      return "gtp_host_world";
    case HandleKind::kCudaWorld:
      return "gtp_cuda_world";
    case HandleKind::kBackend:
      return "gtp_backend";
    case HandleKind::kStream:
      return "gtp_stream";
    case HandleKind::kRuntime:
      return "gtp_runtime";
    case HandleKind::kWeight:
      return "gtp_weight";
    case HandleKind::kGraph:
      return "gtp_graph";
  }
  return "";
}

/// A caller's mistake that the types of C cannot prevent: GTP_INVALID_ARGUMENT.
class InvalidArgument : public std::exception {
 public:
  explicit InvalidArgument(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

/// The handles that are alive, of the whole process: a dangling one is refused without being followed. It cannot tell a
/// dead handle from a new object of the same kind at the same address.
class HandleTable {
 public:
  void add(const void* handle, HandleKind kind) {
    const std::unique_lock lock(mutex_);
    kinds_[handle] = kind;
  }
  void remove(const void* handle) noexcept {
    const std::unique_lock lock(mutex_);
    kinds_.erase(handle);
  }
  bool has(const void* handle, HandleKind kind) const {
    const std::shared_lock lock(mutex_);
    const auto known = kinds_.find(handle);
    return known != kinds_.end() && known->second == kind;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<const void*, HandleKind> kinds_;
};

/// Outlives every object that statics may hold.
inline HandleTable& handles() {
  static HandleTable& table = *new HandleTable;
  return table;
}

enum class RankPhase : std::uint8_t { kNew, kBegun, kFinished };

}  // namespace gtp::capi

struct gtp_stream {
  gtp_backend* backend;
  gtp::Stream stream;
};

/// One rank of any kind of world, which owns it.
struct gtp_backend {
  gtp_backend(gtp::Backend& on, std::int64_t self, std::int64_t ranks) : device(on), rank(self), world_size(ranks) {}

  /// The handle of a stream of the backend, also of those that the runtime made.
  gtp_stream* handle_of(gtp::Stream stream) {
    std::unique_ptr<gtp_stream>& known = streams[stream.handle];
    if (!known) {
      known.reset(new gtp_stream{this, stream});
      gtp::capi::handles().add(known.get(), gtp::capi::HandleKind::kStream);
    }
    return known.get();
  }

  /// The handle and those of its streams are dead from now on. Throws if a runtime is left.
  void forget() {
    if (runtimes != 0) {
      throw gtp::RuntimeError(
          gtp::RuntimeStatus::kInvalidUse,
          "rank " + std::to_string(rank) + " has " + std::to_string(runtimes) + " runtimes left: destroy them first");
    }
    for (const auto& [stream, wrapper] : streams) gtp::capi::handles().remove(wrapper.get());
    gtp::capi::handles().remove(this);
  }

  gtp::Backend& device;
  const std::int64_t rank;
  const std::int64_t world_size;
  gtp::host::World* world = nullptr;  ///< Of a rank of a host world, as `host`.
  gtp::HostBackend* host = nullptr;
  std::atomic<gtp::capi::RankPhase> phase{gtp::capi::RankPhase::kNew};
  std::int64_t runtimes = 0;
  std::unordered_map<void*, std::unique_ptr<gtp_stream>> streams;
  std::set<std::string, std::less<>> names;  ///< Of kernels: operations refer to the text.
};

namespace gtp::capi {

struct HostRank {
  HostRank(host::World& world, std::int64_t rank) : host(world, rank), handle(host, rank, world.options().ranks) {
    handle.world = &world;
    handle.host = &host;
  }

  HostBackend host;
  gtp_backend handle;
};

}  // namespace gtp::capi

struct gtp_host_world {
  explicit gtp_host_world(const gtp::HostWorldOptions& options) : world(options) {
    for (std::int64_t rank = 0; rank < options.ranks; ++rank) {
      backends.push_back(std::make_unique<gtp::capi::HostRank>(world, rank));
    }
  }

  gtp::ChromeTrace trace;
  gtp::host::World world;
  std::vector<std::unique_ptr<gtp::capi::HostRank>> backends;
  bool traced = false;
};

struct gtp_weight {
  gtp_runtime* owner = nullptr;
  gtp::ShardedWeight* weight = nullptr;
};

struct gtp_graph {
  gtp_runtime* owner = nullptr;
  gtp::GraphScope* scope = nullptr;
};

/// The runtime is destroyed before the handles that its callbacks mention.
struct gtp_runtime {
  gtp_backend* backend = nullptr;
  std::deque<std::unique_ptr<gtp_weight>> weights;
  std::deque<std::unique_ptr<gtp_graph>> graphs;
  std::unique_ptr<gtp::Runtime> runtime;
};
