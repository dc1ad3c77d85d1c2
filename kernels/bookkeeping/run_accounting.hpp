// Seeds of the weight-initialization streams, and what a step and an evaluation count as, when ranks along GTP_remat
// read different samples. Values only; batch rules are in gtp/batch.hpp.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

#include "gtp/batch_math.hpp"
#include "gtp/checked.hpp"
#include "gtp/topology.hpp"

namespace gtp {

/// Names of the states in upstream's tracker, by which a checkpoint finds them. random.py:100
inline constexpr std::string_view kGtpRematRngTracker = "gtp-remat-rng";
inline constexpr std::string_view kExpertGtpRematRngTracker = "egtp-remat-rng";

/// Ranks of one process along the axes that seeds depend on.
struct SeedPlace {
  std::int64_t tp_rank = 0;
  std::int64_t ep_rank = 0;
  std::int64_t etp_rank = 0;
  std::int64_t gtp_rank = 0;
  std::int64_t egtp_rank = 0;
};

struct InitSeeds {
  std::int64_t data_parallel = 0;   ///< Replicated parameters: the same on every rank.
  std::int64_t model_parallel = 0;  ///< TP shards: the same along GTP_remat.
  std::int64_t expert_parallel = 0;
  std::optional<std::int64_t> gtp_remat;  ///< GTP shards of dense weights; absent where GTP_remat is 1.
  std::optional<std::int64_t> expert_gtp_remat;

  friend constexpr bool operator==(const InitSeeds&, const InitSeeds&) = default;
};

namespace detail {

/// base + stride * (1 + rank)
constexpr std::optional<std::int64_t> seed_of_shard(std::int64_t base, std::int64_t rank) noexcept {
  constexpr std::int64_t kShardStride = 65536;
  const auto steps = checked_add(rank, 1);
  const auto offset = steps ? checked_multiply(*steps, kShardStride) : std::nullopt;
  return offset ? checked_add(base, *offset) : std::nullopt;
}

constexpr std::optional<std::int64_t> sum(std::initializer_list<std::int64_t> terms) noexcept {
  std::optional<std::int64_t> total = 0;
  for (const std::int64_t term : terms) {
    total = checked_add(*total, term);
    if (!total) return std::nullopt;
  }
  return total;
}

}  // namespace detail

/// nullopt if a seed does not fit. random.py:446
constexpr std::optional<InitSeeds> init_seeds(std::int64_t seed, const Topology& topology,
                                              const SeedPlace& place) noexcept {
  const auto model = detail::sum({seed, 2718, place.tp_rank});
  const auto experts_before = checked_multiply(place.ep_rank, 100);
  if (!model || !experts_before) return std::nullopt;
  const auto expert = detail::sum({seed, 1024, *experts_before, place.etp_rank});
  const auto expert_shards = expert ? checked_add(*expert, 32768) : std::nullopt;
  if (!expert_shards) return std::nullopt;
  InitSeeds seeds{seed, *model, *expert, std::nullopt, std::nullopt};
  if (topology.gtp_remat > 1) {
    seeds.gtp_remat = detail::seed_of_shard(*model, place.gtp_rank);
    if (!seeds.gtp_remat) return std::nullopt;
  }
  if (topology.egtp_remat > 1) {
    seeds.expert_gtp_remat = detail::seed_of_shard(*expert_shards, place.egtp_rank);
    if (!seeds.expert_gtp_remat) return std::nullopt;
  }
  return seeds;
}

/// Samples that all ranks of the data distribution read in one step; nullopt if that does not fit.
constexpr std::optional<std::int64_t> samples_of_step(std::int64_t micro_batch_size, const Topology& topology,
                                                      std::int64_t num_microbatches) noexcept {
  const auto lanes = checked_multiply(topology.dp, topology.gtp_remat);
  const auto samples = lanes ? samples_per_microbatch(micro_batch_size, *lanes) : std::nullopt;
  return samples ? checked_multiply(*samples, num_microbatches) : std::nullopt;
}

/// The loss to report of an evaluation: the mean over every rank of the data distribution, GTP_remat peers included.
/// `of_lanes` holds the mean loss of each; nullopt unless there are replicate DP x GTP_remat of them.
inline std::optional<double> evaluation_loss(std::span<const double> of_lanes, const Topology& topology) noexcept {
  const auto lanes = checked_multiply(topology.dp, topology.gtp_remat);
  if (!lanes || *lanes <= 0 || of_lanes.size() != static_cast<std::size_t>(*lanes)) return std::nullopt;
  double sum = 0.0;
  for (const double loss : of_lanes) sum += loss;
  return sum / static_cast<double>(*lanes);
}

}  // namespace gtp
