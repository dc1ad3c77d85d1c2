// Buffers for gathers and reductions, found by tickets. Weights with the same key and slot share one buffer; a buffer
// remembers the event after which nobody reads it any more. It enqueues nothing: who acquires must wait for that event.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/shard_layout.hpp"

namespace gtp {

class Group;

enum class BufferUse : std::uint8_t { kGather, kWgrad, kReduceOutput, kReduceScratch, kDummy, kBackup };

/// Two weights may share a buffer only if all of this agrees: the same collective order (group, capture axis), the same
/// contents by shape, and the same place in a step that keeps them apart in time.
struct BufferKey {
  const Group* group = nullptr;
  bool graphed = false;
  BufferUse use = BufferUse::kGather;
  std::int64_t padded_rows = 0;
  std::int64_t cols = 0;
  WeightFormat format = WeightFormat::kBf16;
  ElementType type = ElementType::kByte;
  bool columns = false;  ///< A gather of the column copy, where the two copies differ.
  bool recompute = false;
  std::uint32_t expert = 0;
  std::uint32_t chain = 0;  ///< Of a grouped chain, whose two roles are in flight together; else 0.
  friend bool operator==(const BufferKey&, const BufferKey&) = default;
};

/// What memory is for: windows are registered for the group's communicator.
struct MemoryRequest {
  std::size_t bytes = 0;
  MemoryKind kind = MemoryKind::kPlain;
  bool graphed = false;  ///< Addresses end up in graphs: use the graphs' pool if there is one.
};

/// Where a runtime gets memory. Absent members mean the backend. `allocate` returns nullptr when there is none left.
struct MemoryCallbacks {
  std::function<void*(const MemoryRequest&)> allocate = nullptr;
  std::function<void(void*, const MemoryRequest&)> deallocate = nullptr;
  std::function<void*(Communicator, void*, std::size_t)> register_window = nullptr;
  std::function<void(Communicator, void*)> deregister_window = nullptr;
};

/// Owned by the cache, at a stable address.
struct Buffer {
  void* data = nullptr;
  std::size_t bytes = 0;
  /// Reuse must wait for it; null: never used. Owned by whoever recorded it.
  Event last_reader{};
  /// The same inside capture number `capture`, for reuse in that capture.
  Event captured_reader{};
  std::uint64_t capture = 0;
  void* window = nullptr;
  bool in_use = false;
  bool prepared = false;  ///< For its user: what need be written only once was written.
  /// For its user, of buffers that graphs send from: external, recorded when a reduction has read it.
  Event sent{};
};

/// Of BufferCache::reserve. Stays valid, and keeps its preferred buffer, while the cache lives.
enum class Ticket : std::uint32_t { kNone = 0xFFFFFFFFU };

class BufferCache {
 public:
  BufferCache(Backend& backend, MemoryCallbacks callbacks);
  BufferCache(const BufferCache&) = delete;
  BufferCache& operator=(const BufferCache&) = delete;
  /// Deregisters windows, then frees. Precondition: the device is drained or aborted.
  ~BufferCache();

  /// Tickets of one key and slot share a buffer; slots of one key never do. Allocates nothing yet. A communicator makes
  /// the buffers windows of it.
  Ticket reserve(const BufferKey& key, std::uint32_t slot, std::size_t bytes, Communicator window = {});

  /// Takes the ticket's buffer, or, if that is in use, another of its key. Throws kInvalidUse if the ticket holds one
  /// already, kOutOfMemory if none is left.
  Buffer& acquire(Ticket ticket);
  /// The buffer that this ticket holds; throws kInvalidUse if it holds none: its contents would be another weight's.
  Buffer& get(Ticket ticket) const;
  bool holds(Ticket ticket) const noexcept;
  /// Hands the buffer back. Whoever acquires it next waits for `last_reader`, recorded in `capture` (0: in none).
  void release(Ticket ticket, Event last_reader, std::uint64_t capture) noexcept;

  /// Undoes an acquire: nothing that touches the buffer was enqueued.
  void put_back(Ticket ticket) noexcept;

  /// While forbidden, `acquire` throws instead of allocating: memory cannot be had during capture.
  void forbid_allocation(bool forbidden) noexcept { forbidden_ = forbidden; }

  /// Buffers that exist for a key, over all slots.
  std::size_t count(const BufferKey& key) const noexcept;
  std::size_t in_use() const noexcept;
  std::int64_t allocations() const noexcept { return allocations_; }
  std::int64_t bytes() const noexcept { return bytes_; }
  std::int64_t spills() const noexcept { return spills_; }

 private:
  struct Pool {
    BufferKey key;
    std::size_t bytes = 0;
    Communicator window{};
    /// By slot; then the spilled ones.
    std::vector<Buffer*> slots;
    std::vector<Buffer*> spilled;
  };
  struct TicketState {
    std::uint32_t pool = 0;
    std::uint32_t slot = 0;
    Buffer* held = nullptr;
  };

  Buffer* spill(Pool& pool);
  Buffer* allocate(Pool& pool);
  void free_buffer(const Pool& pool, Buffer& buffer) noexcept;
  MemoryRequest request(const Pool& pool) const noexcept;

  Backend& backend_;
  MemoryCallbacks callbacks_;
  std::vector<Pool> pools_;
  std::vector<TicketState> tickets_;
  std::deque<Buffer> buffers_;
  bool forbidden_ = false;
  std::int64_t allocations_ = 0;
  std::int64_t bytes_ = 0;
  std::int64_t spills_ = 0;
};

}  // namespace gtp
