// The order in which weights are consumed, and so the order in which they are gathered ahead. Forward follows it,
// dgrad follows it backwards, recompute has an order of its own. A pure value: it enqueues nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/sharded_weight.hpp"

namespace gtp {

/// What a consume is to its chain; decides which counter a gather that was not prefetched goes to.
enum class Step : std::uint8_t {
  kHead,       ///< First of a pass.
  kNext,       ///< Further along, as expected or with weights left out.
  kRecording,  ///< The chain is not sealed yet; nothing is prefetched.
  kRepeat,     ///< Behind the cursor: consumed before in this pass, or out of order. Nothing is prefetched from here.
  kForeign,    ///< Not on the sealed chain.
};

/// Declared, or recorded as weights are first consumed; once sealed it never links again. A weight consumed more often
/// than once a pass has one node: its other consumes are kRepeat. Weights are not owned.
class PrefetchChain {
 public:
  PrefetchChain(ChainKey key, std::uint32_t id, std::uint32_t depth) noexcept : key_(key), id_(id), depth_(depth) {}

  const ChainKey& key() const noexcept { return key_; }
  std::uint32_t id() const noexcept { return id_; }
  /// Gathers are issued this many weights ahead.
  std::uint32_t depth() const noexcept { return depth_; }
  /// `GTP_remat_ungraphed`, `GTP_remat_grouped_fc1_ungraphed`...
  std::string name() const;

  /// Forward order; for recompute the order of recomputation.
  std::span<ShardedWeight* const> order(bool recompute) const noexcept { return orders_[recompute ? 1 : 0].nodes; }
  bool sealed(bool recompute) const noexcept { return orders_[recompute ? 1 : 0].sealed; }
  /// No weight joins after this. An empty order stays open. Passes start anew.
  void seal(bool recompute) noexcept;

  /// Appends a weight that is not there yet, unless sealed. True if it was appended.
  bool append(ShardedWeight& weight, bool recompute);

  /// Whatever passes were under way are over: the next consume begins one.
  void end_passes() noexcept;

  /// Moves the cursor of `use` to this weight; while forward or recompute is recorded, appends it.
  Step advance(ShardedWeight& weight, Use use);
  /// The weight `distance` >= 1 after the cursor in the direction of `use`, or nullptr.
  ShardedWeight* ahead(Use use, std::uint32_t distance) const noexcept;
  /// The neighbour whose reduction is due once this weight's gradient is on its way; nullptr at the tail.
  ShardedWeight* successor(const ShardedWeight& weight) const noexcept;
  /// Backward reaches it last, so nobody finalizes it later.
  bool is_head(const ShardedWeight& weight) const noexcept;

 private:
  struct Order {
    std::vector<ShardedWeight*> nodes;
    bool sealed = false;
  };
  /// Places count along the direction of travel. Whatever lies at `expected` or beyond was not consumed in this pass.
  struct Cursor {
    std::size_t expected = 0;
    bool restart_candidate = false;
  };

  const Order& order_of(Use use) const noexcept { return orders_[use == Use::kRecompute ? 1 : 0]; }
  ShardedWeight* node(Use use, std::size_t place) const noexcept;
  std::size_t next_visited(Use use, std::size_t place) const noexcept;
  Step step_to(std::size_t place, Use use) noexcept;

  ChainKey key_;
  std::uint32_t id_;
  std::uint32_t depth_;
  std::array<Order, 2> orders_;
  std::array<Cursor, kUseCount> cursors_;
};

/// A grouped role has a chain of its own only outside graphs.
constexpr ChainKey effective_chain_key(ChainKey key) noexcept {
  if (key.graphed) key.role = ChainRole::kGeneral;
  return key;
}

}  // namespace gtp
