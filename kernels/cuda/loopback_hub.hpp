// Where the threads of a LoopbackWorld meet. Private to loopback_*.cpp.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/cuda/failure_cell.hpp"
#include "kernels/cuda/loopback_world.hpp"
#include "kernels/cuda/owners.hpp"
#include "kernels/cuda/transport.hpp"

namespace gtp::cuda {

/// What a member shows its peers at a meeting.
struct LoopbackPosting {
  CollectiveKind kind{};
  ElementType type{};
  std::vector<CollectivePart> parts;
  cudaEvent_t ready = nullptr;  ///< Its buffers may be read and written.
  cudaEvent_t done = nullptr;   ///< It has read all it needs.
};

/// The members of one communicator.
struct LoopbackGroup {
  std::string name;
  std::vector<std::int64_t> ranks;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<LoopbackPosting> postings;
  std::vector<bool> here;
  std::size_t arrived = 0;
  std::uint64_t meetings = 0;
};

class LoopbackHub {
 public:
  explicit LoopbackHub(LoopbackOptions options);

  const LoopbackOptions& options() const noexcept { return options_; }
  cudaMemPool_t pool() const noexcept { return pool_.get(); }
  std::shared_ptr<FailureCell> failure_of(std::int64_t rank) { return failures_[static_cast<std::size_t>(rank)]; }

  /// The same object for all members that ask with the same key.
  std::shared_ptr<LoopbackGroup> group(const std::string& key, const CommunicatorSpec& spec);
  /// Waits until all members are here. Throws what failed, or kTimeout naming who is missing.
  void meet(LoopbackGroup& group, std::size_t position, std::int64_t rank);
  void barrier(std::int64_t rank);
  /// Every other rank fails with kAborted and this text, and whoever waits learns it.
  void fail(std::int64_t rank, const std::string& text) noexcept;

 private:
  [[noreturn]] void missing(const LoopbackGroup& group, std::int64_t rank) const;

  LoopbackOptions options_;
  UniqueMemPool pool_;
  std::vector<std::shared_ptr<FailureCell>> failures_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<LoopbackGroup>> groups_;
  std::shared_ptr<LoopbackGroup> everybody_;
};

}  // namespace gtp::cuda
