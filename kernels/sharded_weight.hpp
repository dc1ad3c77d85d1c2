// One weight, or the N experts of one grouped weight, of which this rank holds a shard: what the caller declares, and
// the handle it drives the runtime with. Schedules live in PrefetchChain, buffers in BufferCache.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/element_type.hpp"
#include "kernels/group.hpp"
#include "kernels/shard_layout.hpp"

namespace gtp {

class PrefetchChain;
class Runtime;
class ShardedWeight;
namespace detail {
struct WeightState;
}

/// Why a weight is materialized. A recompute runs inside backward, beside the dgrad gathers of the same weights.
enum class Use : std::uint8_t { kForward, kDgrad, kRecompute };
inline constexpr std::size_t kUseCount = 3;

/// Selects the group a weight is sharded over: GTP_remat or EGTP_remat.
enum class WeightDomain : std::uint8_t { kDense, kExpert };

/// Experts link role by role (`fc1` of this block to `fc1` of the next), which gives a gather a whole block of runway.
/// Under capture they join the general chain, because only that one is joined at the border of a graph.
enum class ChainRole : std::uint8_t { kGeneral, kExpertFc1, kExpertFc2 };

/// Weights with equal keys are prefetched along one chain. Graphed and ungraphed never link.
struct ChainKey {
  std::uint32_t model_chunk = 0;  ///< Of virtual pipeline parallelism.
  bool graphed = false;           ///< Consumed in captured CUDA graphs.
  ChainRole role = ChainRole::kGeneral;
  friend constexpr bool operator==(const ChainKey&, const ChainKey&) = default;
};

/// Parameters published together (a DDP bucket); from Runtime::add_ready_bucket.
enum class ReadyBucket : std::uint32_t { kNone = 0 };

/// One tensor on this rank. The memory is the caller's, and stays where it is while the runtime lives.
struct ShardSpec {
  /// By Component: this rank's shard, `layout.extent(c).shard_bytes` bytes; nullptr where the format has none.
  std::array<const void*, kComponentCount> data{};
  /// `layout.shard_elements()` elements, pad rows included; nullptr for a frozen weight.
  void* main_grad = nullptr;
};

struct WeightSpec {
  std::string name;
  ShardLayout layout;             ///< For a group size equal to that of the weight's group.
  std::vector<ShardSpec> shards;  ///< One, or one per local expert: all of the same layout, moved in one operation.
  WeightDomain domain = WeightDomain::kDense;
  /// Another group than the domain's. Not owned.
  const Group* group = nullptr;
  ChainKey chain{};
  ElementType main_grad_type = ElementType::kFloat32;
  /// Of the reduce-scatter and of the buffer the wgrad GEMM writes; absent: the type of main_grad.
  std::optional<ElementType> wire_type = std::nullopt;
  /// False where backward never reads the weight (an embedding, a first layer): it is not prefetched for dgrad.
  bool needs_dgrad = true;
  /// The framework adds what `dummy_wgrad` returns to main_grad, so that must be zero.
  bool zero_out_wgrad = false;
  ReadyBucket bucket = ReadyBucket::kNone;
  /// Called on the host after the adds into main_grad of all shards were enqueued, once per reduce_grad. Main_grad is
  /// final for work that waits for an event recorded on the given stream from now on. May enqueue; must not throw, nor
  /// call the runtime.
  std::function<void(ShardedWeight&, Stream)> grad_ready = nullptr;
};

/// One materialized tensor: addresses of the whole, padded weight.
struct GatheredView {
  /// By Component; nullptr where this direction gathers none. NVFP4 amax points at the shard's own.
  std::array<const void*, kComponentCount> data{};
  std::int64_t rows = 0;  ///< Logical, without padding.
  std::int64_t padded_rows = 0;
  std::int64_t cols = 0;
  bool swizzled = false;         ///< Scales are in cuBLASLt's tiled layout.
  std::uint64_t version = 0;     ///< Of the shard these bytes came from.
  std::uint64_t generation = 0;  ///< Rises with every gather of this weight; 0 in a group of one.

  const void* row_data() const noexcept { return data[static_cast<std::size_t>(Component::kRowData)]; }
};

/// Where the wgrad GEMM writes: [rows, cols] of a padded send buffer, or main_grad itself in a group of one.
struct WgradView {
  void* data = nullptr;
  ElementType type = ElementType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  /// The GEMM must add to what is there (beta = 1) instead of overwriting it. True only in a group of one.
  bool accumulate = false;
};

/// Made by Runtime::add_weight and owned by that runtime; the address is stable. Not for use with another runtime.
class ShardedWeight {
 public:
  ShardedWeight(WeightSpec spec, const Group& group);
  ShardedWeight(const ShardedWeight&) = delete;
  ShardedWeight& operator=(const ShardedWeight&) = delete;
  ~ShardedWeight();

  const std::string& name() const noexcept { return spec_.name; }
  const ShardLayout& layout() const noexcept { return spec_.layout; }
  const WeightSpec& spec() const noexcept { return spec_; }
  const Group& group() const noexcept { return *group_; }
  std::size_t shard_count() const noexcept { return spec_.shards.size(); }
  ElementType wire_type() const noexcept { return spec_.wire_type.value_or(spec_.main_grad_type); }
  /// Rises with every publish.
  std::uint64_t version() const noexcept;
  /// Nothing is sharded: views alias the shard, gradients go straight to main_grad.
  bool is_alias() const noexcept { return group_->size() == 1; }

  /// For the parts of the runtime.
  detail::WeightState& state() noexcept { return *state_; }
  const detail::WeightState& state() const noexcept { return *state_; }

 private:
  WeightSpec spec_;
  const Group* group_;
  std::unique_ptr<detail::WeightState> state_;
};

}  // namespace gtp
