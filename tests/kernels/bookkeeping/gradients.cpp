#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "kernels/bookkeeping/grad_reduction.hpp"
#include "kernels/bookkeeping/param_tags.hpp"
#include "kernels/shard_layout.hpp"

namespace {

using gtp::AxisReduction;
using gtp::ElementType;
using gtp::ParamTags;
using gtp::ReducePath;
using gtp::Topology;

constexpr ParamTags kDenseShard{.gtp_sharded = true, .tp_sharded = true};
constexpr ParamTags kNorm{};
constexpr ParamTags kExpertBias{.gtp_sharded = false, .tp_sharded = true, .expert = true};

gtp::GradReduction reduction_of(const gtp::GradReductionRequest& request) {
  const auto choice = gtp::choose_grad_reduction(request);
  REQUIRE(choice);
  return *choice;
}

Topology topology_of(const gtp::TopologyOptions& options) {
  const auto result = gtp::make_topology(options);
  REQUIRE(result);
  return *result;
}

gtp::RankPlace rank_place(const ParamTags& tags, const Topology& topology, std::int64_t rank) {
  const auto place = gtp::place_of(tags, topology, rank);
  REQUIRE(place);
  return *place;
}

/// Reduces one number per rank over every group of a family.
void reduce_over(const Topology& topology, std::string_view family, bool average, std::vector<double>& of_ranks) {
  const gtp::GroupFamilyRow* row = gtp::find_group_family(family);
  REQUIRE(row != nullptr);
  for (const gtp::GroupView group : gtp::make_group_family(topology, *row)) {
    double sum = 0;
    for (const std::int64_t rank : group) sum += of_ranks[static_cast<std::size_t>(rank)];
    if (average) sum /= static_cast<double>(group.size());
    for (const std::int64_t rank : group) of_ranks[static_cast<std::size_t>(rank)] = sum;
  }
}

/// Gradients 1, 2, 4... of the ranks of a world after data-parallel reduction and the finalize of `tags`.
std::vector<double> finalized(const Topology& topology, const ParamTags& tags, bool per_token_loss) {
  std::vector<double> gradients(static_cast<std::size_t>(topology.world_size));
  for (std::size_t rank = 0; rank < gradients.size(); ++rank) gradients[rank] = std::ldexp(1.0, static_cast<int>(rank));
  reduce_over(topology, gtp::shard_replica_family(tags), !per_token_loss, gradients);
  const auto reduction = gtp::replicated_reduction(tags, rank_place(tags, topology, 0), per_token_loss);
  if (reduction.reduction != AxisReduction::kNone) {
    reduce_over(topology, reduction.group_family, reduction.reduction == AxisReduction::kAverage, gradients);
  }
  return gradients;
}

double squared_sum(const std::vector<float>& values) {
  return std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
}

}  // namespace

TEST_CASE("T13 the wire and the weight-gradient GEMM have the type of main_grad") {
  for (const bool registered : {false, true}) {
    for (const bool accumulate : {false, true}) {
      for (const std::int64_t size : {1, 2, 8}) {
        CHECK(reduction_of({ElementType::kFloat32, size, registered, accumulate}).wire == ElementType::kFloat32);
        CHECK(reduction_of({ElementType::kBFloat16, size, registered, accumulate}).wire == ElementType::kBFloat16);
      }
    }
  }
}

TEST_CASE("T13 fp32 accumulation turns itself off when the wire is fp32") {
  CHECK(reduction_of({ElementType::kFloat32, 8, false, true}).path == ReducePath::kReduceScatter);
  CHECK(reduction_of({ElementType::kBFloat16, 8, false, true}).path == ReducePath::kFp32AllToAll);
  CHECK(reduction_of({ElementType::kBFloat16, 8, false, false}).path == ReducePath::kReduceScatter);
}

TEST_CASE("fp32 accumulation is bypassed by a registered pool and up to two ranks") {
  CHECK(reduction_of({ElementType::kBFloat16, 8, true, true}).path == ReducePath::kRegisteredReduceScatter);
  CHECK(reduction_of({ElementType::kBFloat16, 2, false, true}).path == ReducePath::kReduceScatter);
  CHECK(reduction_of({ElementType::kBFloat16, 3, false, true}).path == ReducePath::kFp32AllToAll);
  CHECK_FALSE(gtp::choose_grad_reduction({ElementType::kByte, 8, false, true}));
}

TEST_CASE("T20 replicated gradients that differ per rank are the same everywhere after the finalize") {
  const Topology topology = topology_of({.world_size = 8, .tensor_parallel_num_weight_shards = 4});
  CHECK(topology.dp == 2);
  CHECK(finalized(topology, kNorm, false) == std::vector<double>(8, 255.0 / 8));
  CHECK(finalized(topology, kNorm, true) == std::vector<double>(8, 255.0));
}

TEST_CASE("T20 sharded parameters are left alone") {
  const Topology topology = topology_of({.world_size = 4, .tensor_parallel_num_weight_shards = 4});
  CHECK(finalized(topology, kDenseShard, false) == std::vector<double>{1, 2, 4, 8});
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    CHECK(gtp::replicated_reduction(kDenseShard, rank_place(kDenseShard, topology, rank), true) ==
          gtp::ReplicatedReduction{});
  }
}

TEST_CASE("T20 expert parameters use the expert group also where EP is 1 and EGTP differs from GTP") {
  const Topology topology = topology_of({.world_size = 8,
                                         .tensor_parallel_num_weight_shards = 4,
                                         .expert_model_parallel_size = 1,
                                         .expert_tensor_parallel_num_weight_shards = 2});
  CHECK(topology.gtp_remat == 4);
  CHECK(topology.egtp_remat == 2);
  const auto reduction = gtp::replicated_reduction(kExpertBias, rank_place(kExpertBias, topology, 0), false);
  CHECK(reduction == gtp::ReplicatedReduction{AxisReduction::kAverage, "expt_gtp_remat"});
  CHECK(finalized(topology, kExpertBias, true) == std::vector<double>(8, 255.0));
  CHECK(finalized(topology, kExpertBias, false) == std::vector<double>(8, 255.0 / 8));
  CHECK(gtp::replicated_reduction(kNorm, rank_place(kNorm, topology, 0), false).group_family == "gtp_remat");
}

TEST_CASE("T20 nothing is reduced along an axis of one") {
  const Topology topology = topology_of(
      {.world_size = 4, .tensor_parallel_num_weight_shards = 4, .expert_tensor_parallel_num_weight_shards = 1});
  CHECK(gtp::replicated_reduction(kExpertBias, rank_place(kExpertBias, topology, 3), true) ==
        gtp::ReplicatedReduction{});
}

TEST_CASE("T21 at G=4 shards are counted on all ranks and replicated gradients on rank 0 of the axis only") {
  const Topology topology = topology_of({.world_size = 4, .tensor_parallel_num_weight_shards = 4});
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    CHECK(gtp::counted_in_grad_norm(kDenseShard, rank_place(kDenseShard, topology, rank)));
    CHECK(gtp::counted_in_grad_norm(kNorm, rank_place(kNorm, topology, rank)) == (rank == 0));
  }
}

TEST_CASE("T21 the norm of shards and replicas, by the tags of their fp32 masters, is the unsharded norm") {
  const Topology topology =
      topology_of({.world_size = 8, .tensor_model_parallel_size = 2, .tensor_parallel_num_weight_shards = 8});
  const auto layout = gtp::make_shard_layout({10, 3, gtp::WeightFormat::kBf16, 2, 4});
  REQUIRE(layout);
  double unsharded = 0, counted = 0;
  const std::vector<float> norm_weight{3, 4, 12};
  unsharded += squared_sum(norm_weight);
  for (std::int64_t rank = 0; rank < 8; ++rank) {
    const gtp::RankPlace place = rank_place(kDenseShard, topology, rank);
    std::vector<float> shard(static_cast<std::size_t>(layout->shard_elements()));
    for (std::int64_t i = 0; i < layout->local_rows(place.gtp_rank) * 3; ++i) {
      shard[static_cast<std::size_t>(i)] =
          static_cast<float>(place.tp_rank * 100 + layout->row_begin(place.gtp_rank) + i);
    }
    unsharded += squared_sum(shard);
    for (const gtp::MasterParam& master :
         {gtp::make_master(kDenseShard, shard), gtp::make_master(kNorm, norm_weight)}) {
      const bool counts = gtp::counted_in_grad_norm(master.tags, rank_place(master.tags, topology, rank));
      if (counts) counted += squared_sum(master.values);
    }
  }
  CHECK(counted == unsharded);
}

TEST_CASE("T21 tags survive the copy to the fp32 master") {
  const ParamTags tags{.gtp_sharded = true, .tp_sharded = true, .expert = true, .pad_length = 28};
  const gtp::MasterParam master = gtp::make_master(tags, std::vector<float>{1, 2});
  CHECK(master.tags == tags);
  CHECK(master.values == std::vector<float>{1, 2});
}

TEST_CASE("a rank outside the world has no place") {
  const Topology topology = topology_of({.world_size = 4, .tensor_parallel_num_weight_shards = 2});
  CHECK_FALSE(gtp::place_of(kNorm, topology, 4));
  CHECK_FALSE(gtp::place_of(kNorm, topology, -1));
}
