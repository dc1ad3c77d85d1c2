// From what a user sets (sizes and weight shards) to the sizes of both rank grids, or to upstream's reason to refuse.
// Plain constexpr values without allocation; batch, model and precision rules live elsewhere.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

#include "gtp/checked.hpp"

namespace gtp {

/// The options that fix the rank grids, under Megatron's names. Any value is accepted; `make_topology` judges them.
struct TopologyOptions {
  std::int64_t world_size = 1;
  std::int64_t tensor_model_parallel_size = 1;
  std::optional<std::int64_t> tensor_parallel_num_weight_shards = std::nullopt;
  std::int64_t context_parallel_size = 1;
  std::int64_t pipeline_model_parallel_size = 1;
  std::int64_t expert_model_parallel_size = 1;
  /// Absent: the tensor-parallel size (megatron/training/arguments.py:587).
  std::optional<std::int64_t> expert_tensor_parallel_size = std::nullopt;
  std::optional<std::int64_t> expert_tensor_parallel_num_weight_shards = std::nullopt;
  bool use_tp_pp_dp_mapping = false;
};

/// The sizes of the dense and the expert grid. For one that `make_topology` returned, every size is positive and
/// `world_size == tp * gtp_remat * cp * dp * pp == etp * ep * egtp_remat * edp * pp`.
struct Topology {
  std::int64_t world_size = 1;
  std::int64_t tp = 1;
  std::int64_t gtp_remat = 1;
  std::int64_t cp = 1;
  std::int64_t pp = 1;
  /// Replicate DP: ranks that hold the same dense weight shard.
  std::int64_t dp = 1;
  std::int64_t etp = 1;
  std::int64_t ep = 1;
  std::int64_t egtp_remat = 1;
  /// Ranks that hold the same expert weight shard.
  std::int64_t edp = 1;
  /// `use_tp_pp_dp_mapping`: pipeline stages have a smaller stride than replicas.
  bool pp_before_dp = false;
  /// CP has a smaller stride than GTP_remat on the dense grid: Megatron-LM since pull request 6868.
  bool cp_before_gtp_remat = false;

  /// Ranks that read different samples: replicate DP x GTP_remat. At most `world_size` for a valid topology.
  constexpr std::int64_t data_distribution_size() const noexcept { return dp * gtp_remat; }

  friend constexpr bool operator==(const Topology&, const Topology&) = default;
};

/// Why a topology is refused, in the order in which Megatron core notices: ModelParallelConfig, then process groups.
/// Its command line differs in one pair: it looks at the dense grid before the expert shards
/// (megatron/training/arguments.py).
enum class TopologyError : std::uint8_t {
  kSizesMustBePositive,
  kDenseShardsBelowTp,
  kDenseShardsMultipleOfTp,
  kExpertShardsBelowEtp,
  kExpertShardsMultipleOfEtp,
  kWorldDivisibleByDenseGrid,
  kWorldDivisibleByExpertGrid,
  kNonPpLastNeedsEqualDp,
};

struct TopologyErrorRow {
  TopologyError error;
  std::string_view rule;
  /// File and line in Megatron-LM d98e8a64; empty where upstream has no check of its own.
  std::string_view source;
};

inline constexpr std::array<TopologyErrorRow, 8> kTopologyErrors{{
    {TopologyError::kSizesMustBePositive, "sizes-must-be-positive", ""},
    {TopologyError::kDenseShardsBelowTp, "dense-shards-below-tp", "megatron/core/model_parallel_config.py:31"},
    {TopologyError::kDenseShardsMultipleOfTp, "dense-shards-multiple-of-tp",
     "megatron/core/model_parallel_config.py:36"},
    {TopologyError::kExpertShardsBelowEtp, "expert-shards-below-etp", "megatron/training/arguments.py:1507"},
    {TopologyError::kExpertShardsMultipleOfEtp, "expert-shards-multiple-of-etp", "megatron/training/arguments.py:1507"},
    {TopologyError::kWorldDivisibleByDenseGrid, "world-divisible-by-dense-grid", "megatron/training/arguments.py:432"},
    {TopologyError::kWorldDivisibleByExpertGrid, "world-divisible-by-expert-grid",
     "megatron/core/parallel_state.py:881"},
    {TopologyError::kNonPpLastNeedsEqualDp, "non-pp-last-needs-equal-dp", "megatron/core/parallel_state.py:898"},
}};

constexpr const TopologyErrorRow& topology_error_row(TopologyError error) noexcept {
  return kTopologyErrors[static_cast<std::size_t>(error)];
}

/// True if `shards` is set but smaller than `parallel` (TP for dense weights, ETP for expert weights).
constexpr bool shards_below(std::optional<std::int64_t> shards, std::int64_t parallel) noexcept {
  return shards && *shards < parallel;
}

/// True if `shards` is set and large enough, but no whole number of remat shards comes out.
constexpr bool shards_not_multiple(std::optional<std::int64_t> shards, std::int64_t parallel) noexcept {
  return shards && *shards >= parallel && !divides(parallel, *shards);
}

/// GTP_remat from dense shards and TP, or EGTP_remat from expert shards and ETP; 1 when no shards are set. nullopt if
/// upstream refuses the pair or a size is not positive (megatron/core/model_parallel_config.py:27-41).
constexpr std::optional<std::int64_t> remat_size(std::optional<std::int64_t> shards, std::int64_t parallel) noexcept {
  if (!shards) return 1;
  if (*shards <= 0) return std::nullopt;
  return exact_quotient(*shards, parallel);
}

/// ETP, which upstream takes from TP when it is absent (megatron/training/arguments.py:587).
constexpr std::int64_t expert_tensor_size(std::optional<std::int64_t> expert_tensor_parallel_size,
                                          std::int64_t tensor_model_parallel_size) noexcept {
  return expert_tensor_parallel_size.value_or(tensor_model_parallel_size);
}

/// World / product of `model_sizes`: replicate DP for {TP, PP, CP, GTP_remat}, expert DP for {ETP, EP, PP, EGTP_remat}
/// (megatron/core/parallel_state.py:825, 880). nullopt if a size is not positive or the product does not divide the
/// world; a product beyond 64 bits exceeds every world, so it cannot divide one either.
constexpr std::optional<std::int64_t> replicate_size(std::int64_t world_size,
                                                     std::span<const std::int64_t> model_sizes) noexcept {
  if (world_size <= 0) return std::nullopt;
  for (const std::int64_t size : model_sizes) {
    if (size <= 0) return std::nullopt;
  }
  const std::optional<std::int64_t> model_size = checked_product(model_sizes);
  return model_size ? exact_quotient(world_size, *model_size) : std::nullopt;
}

constexpr std::optional<std::int64_t> replicate_size(std::int64_t world_size,
                                                     std::initializer_list<std::int64_t> model_sizes) noexcept {
  return replicate_size(world_size, std::span<const std::int64_t>(model_sizes.begin(), model_sizes.size()));
}

/// True if dense and expert grid agree on the pipeline groups. They always do when PP is the outermost axis; otherwise
/// only with equal replicate degrees (megatron/core/parallel_state.py:898).
constexpr bool pipeline_groups_agree(bool pp_before_dp, std::int64_t pp, std::int64_t dp, std::int64_t edp) noexcept {
  return !pp_before_dp || pp == 1 || dp == edp;
}

/// Exactly one member is set.
struct TopologyResult {
  std::optional<Topology> topology = std::nullopt;
  /// What upstream would notice first.
  std::optional<TopologyError> error = std::nullopt;

  constexpr TopologyResult(const Topology& value) noexcept : topology(value) {}
  constexpr TopologyResult(TopologyError first) noexcept : error(first) {}
  constexpr explicit operator bool() const noexcept { return topology.has_value(); }
  constexpr const Topology& operator*() const noexcept { return *topology; }
  constexpr const Topology* operator->() const noexcept { return &*topology; }
};

namespace detail {

constexpr bool sizes_are_positive(const TopologyOptions& options) noexcept {
  return options.world_size > 0 && options.tensor_model_parallel_size > 0 && options.context_parallel_size > 0 &&
         options.pipeline_model_parallel_size > 0 && options.expert_model_parallel_size > 0 &&
         options.expert_tensor_parallel_size.value_or(1) > 0;
}

}  // namespace detail

/// Derives both grids in the order of TopologyError and stops at the first thing upstream refuses. Never overflows.
constexpr TopologyResult make_topology(const TopologyOptions& options) noexcept {
  if (!detail::sizes_are_positive(options)) return TopologyError::kSizesMustBePositive;
  const std::int64_t world = options.world_size;
  const std::int64_t tp = options.tensor_model_parallel_size;
  const std::int64_t cp = options.context_parallel_size;
  const std::int64_t pp = options.pipeline_model_parallel_size;
  const std::int64_t ep = options.expert_model_parallel_size;
  const std::optional<std::int64_t> shards = options.tensor_parallel_num_weight_shards;
  const std::optional<std::int64_t> expert_shards = options.expert_tensor_parallel_num_weight_shards;

  if (shards_below(shards, tp)) return TopologyError::kDenseShardsBelowTp;
  const std::optional<std::int64_t> gtp_remat = remat_size(shards, tp);
  if (!gtp_remat) return TopologyError::kDenseShardsMultipleOfTp;
  const std::int64_t etp = expert_tensor_size(options.expert_tensor_parallel_size, tp);
  if (shards_below(expert_shards, etp)) return TopologyError::kExpertShardsBelowEtp;
  const std::optional<std::int64_t> egtp_remat = remat_size(expert_shards, etp);
  if (!egtp_remat) return TopologyError::kExpertShardsMultipleOfEtp;

  const std::optional<std::int64_t> dp = replicate_size(world, {tp, pp, cp, *gtp_remat});
  if (!dp) return TopologyError::kWorldDivisibleByDenseGrid;
  const std::optional<std::int64_t> edp = replicate_size(world, {etp, ep, pp, *egtp_remat});
  if (!edp) return TopologyError::kWorldDivisibleByExpertGrid;

  const bool pp_before_dp = options.use_tp_pp_dp_mapping;
  if (!pipeline_groups_agree(pp_before_dp, pp, *dp, *edp)) return TopologyError::kNonPpLastNeedsEqualDp;
  return Topology{world, tp, *gtp_remat, cp, pp, *dp, etp, ep, *egtp_remat, *edp, pp_before_dp};
}

}  // namespace gtp
