#include "kernels/buffer_cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "kernels/group.hpp"

namespace gtp {

namespace {

std::string_view name_of(BufferUse use) noexcept {
  switch (use) {
    case BufferUse::kGather:
      return "gathered weight";
    case BufferUse::kWgrad:
      return "weight gradient";
    case BufferUse::kReduceOutput:
      return "reduced gradient";
    case BufferUse::kReduceScratch:
      return "all-to-all scratch";
    case BufferUse::kDummy:
      return "dummy gradient";
    case BufferUse::kBackup:
      return "gradient backup";
  }
  return "";
}

std::string describe(const BufferKey& key) {
  return fmt::format("{} buffer [{}, {}] of group {}", name_of(key.use), key.padded_rows, key.cols,
                     key.group != nullptr ? key.group->name() : "none");
}

}  // namespace

BufferCache::BufferCache(Backend& backend, MemoryCallbacks callbacks)
    : backend_(backend), callbacks_(std::move(callbacks)) {}

BufferCache::~BufferCache() {
  for (const Pool& pool : pools_) {
    for (Buffer* buffer : pool.slots) {
      if (buffer != nullptr) free_buffer(pool, *buffer);
    }
    for (Buffer* buffer : pool.spilled) free_buffer(pool, *buffer);
  }
}

void BufferCache::free_buffer(const Pool& pool, Buffer& buffer) noexcept {
  if (buffer.window != nullptr) {
    if (callbacks_.deregister_window) {
      callbacks_.deregister_window(pool.window, buffer.window);
    } else {
      backend_.deregister_window(pool.window, buffer.window);
    }
  }
  if (callbacks_.deallocate) {
    callbacks_.deallocate(buffer.data, request(pool));
  } else {
    backend_.deallocate(buffer.data, buffer.bytes, request(pool).kind);
  }
}

MemoryRequest BufferCache::request(const Pool& pool) const noexcept {
  const bool is_window = pool.window.handle != nullptr;
  return {pool.bytes, is_window ? MemoryKind::kWindow : MemoryKind::kPlain, pool.key.graphed};
}

Ticket BufferCache::reserve(const BufferKey& key, std::uint32_t slot, std::size_t bytes, Communicator window) {
  auto pool = std::ranges::find_if(pools_, [&](const Pool& known) { return known.key == key; });
  if (pool == pools_.end()) {
    pools_.push_back({key, bytes, window, {}, {}});
    pool = std::prev(pools_.end());
  }
  assert(pool->bytes == bytes);
  if (pool->slots.size() <= slot) pool->slots.resize(slot + 1, nullptr);
  tickets_.push_back({static_cast<std::uint32_t>(pool - pools_.begin()), slot, nullptr});
  return static_cast<Ticket>(tickets_.size() - 1);
}

Buffer& BufferCache::acquire(Ticket ticket) {
  TicketState& state = tickets_[static_cast<std::size_t>(ticket)];
  Pool& pool = pools_[state.pool];
  if (state.held != nullptr) {
    throw RuntimeError(RuntimeStatus::kInvalidUse, describe(pool.key) + " was acquired twice on one ticket");
  }
  Buffer*& preferred = pool.slots[state.slot];
  if (preferred == nullptr) preferred = allocate(pool);
  Buffer* buffer = preferred->in_use ? spill(pool) : preferred;
  buffer->in_use = true;
  state.held = buffer;
  return *buffer;
}

Buffer* BufferCache::spill(Pool& pool) {
  ++spills_;
  for (Buffer* buffer : pool.spilled) {
    if (!buffer->in_use) return buffer;
  }
  pool.spilled.reserve(pool.spilled.size() + 1);
  pool.spilled.push_back(allocate(pool));
  return pool.spilled.back();
}

Buffer* BufferCache::allocate(Pool& pool) {
  if (forbidden_) {
    throw RuntimeError(RuntimeStatus::kOutOfMemory, "a capture needs another " + describe(pool.key) +
                                                        " than warm-up left; nothing is allocated in "
                                                        "captures: run the captured pass eagerly first");
  }
  const MemoryRequest wanted = request(pool);
  void* data = callbacks_.allocate ? callbacks_.allocate(wanted) : backend_.allocate(wanted.bytes, wanted.kind);
  if (data == nullptr) {
    throw RuntimeError(RuntimeStatus::kOutOfMemory,
                       fmt::format("no {} bytes for a {}", pool.bytes, describe(pool.key)));
  }
  buffers_.push_back({data, pool.bytes, {}, {}, 0, nullptr, false, false, {}});
  Buffer& buffer = buffers_.back();
  if (wanted.kind == MemoryKind::kWindow) {
    buffer.window = callbacks_.register_window ? callbacks_.register_window(pool.window, data, pool.bytes)
                                               : backend_.register_window(pool.window, data, pool.bytes);
  }
  ++allocations_;
  bytes_ += static_cast<std::int64_t>(pool.bytes);
  return &buffer;
}

bool BufferCache::holds(Ticket ticket) const noexcept {
  return tickets_[static_cast<std::size_t>(ticket)].held != nullptr;
}

Buffer& BufferCache::get(Ticket ticket) const {
  const TicketState& state = tickets_[static_cast<std::size_t>(ticket)];
  if (state.held == nullptr) {
    throw RuntimeError(RuntimeStatus::kInvalidUse,
                       "nothing was gathered into this " + describe(pools_[state.pool].key) + " for its reader");
  }
  return *state.held;
}

void BufferCache::release(Ticket ticket, Event last_reader, std::uint64_t capture) noexcept {
  TicketState& state = tickets_[static_cast<std::size_t>(ticket)];
  if (state.held == nullptr) return;
  if (capture == 0) {
    state.held->last_reader = last_reader;
  } else {
    state.held->captured_reader = last_reader;
    state.held->capture = capture;
  }
  state.held->in_use = false;
  state.held = nullptr;
}

void BufferCache::put_back(Ticket ticket) noexcept {
  TicketState& state = tickets_[static_cast<std::size_t>(ticket)];
  if (state.held != nullptr) state.held->in_use = false;
  state.held = nullptr;
}

std::size_t BufferCache::count(const BufferKey& key) const noexcept {
  for (const Pool& pool : pools_) {
    if (!(pool.key == key)) continue;
    return pool.spilled.size() + static_cast<std::size_t>(std::ranges::count_if(
                                     pool.slots, [](const Buffer* buffer) { return buffer != nullptr; }));
  }
  return 0;
}

std::size_t BufferCache::in_use() const noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(buffers_, [](const Buffer& buffer) { return buffer.in_use; }));
}

}  // namespace gtp
