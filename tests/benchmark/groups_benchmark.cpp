// All 22 group families of one large world: every member visited, and every digest of the JSON text computed.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>

#include "../support/sha256.hpp"
#include "gtp/groups.hpp"

namespace {

gtp::Topology large_topology(std::int64_t world_size) {
  return *gtp::make_topology({.world_size = world_size,
                              .tensor_model_parallel_size = 4,
                              .tensor_parallel_num_weight_shards = 16,
                              .context_parallel_size = 2,
                              .pipeline_model_parallel_size = 8,
                              .expert_model_parallel_size = 8,
                              .expert_tensor_parallel_size = 1,
                              .expert_tensor_parallel_num_weight_shards = 2});
}

void enumerate_all_families(benchmark::State& state) {
  const gtp::Topology topology = large_topology(state.range(0));
  for (auto _ : state) {
    std::int64_t sum = 0;
    for (const gtp::GroupFamilyRow& row : gtp::kGroupFamilies) {
      for (const gtp::GroupView group : gtp::make_group_family(topology, row)) {
        for (const std::int64_t rank : group) sum += rank ^ group.index();
      }
    }
    benchmark::DoNotOptimize(sum);
  }
  state.SetComplexityN(state.range(0));
}

void digest_all_families(benchmark::State& state) {
  const gtp::Topology topology = large_topology(state.range(0));
  for (auto _ : state) {
    for (const gtp::GroupFamilyRow& row : gtp::kGroupFamilies) {
      gtp::test::Sha256 digest;
      gtp::write_json(gtp::make_group_family(topology, row), digest);
      std::string text = digest.hex();
      benchmark::DoNotOptimize(text);
    }
  }
  state.SetComplexityN(state.range(0));
}

void place_every_rank_in_all_families(benchmark::State& state) {
  const gtp::Topology topology = large_topology(state.range(0));
  for (auto _ : state) {
    std::int64_t sum = 0;
    for (const gtp::GroupFamilyRow& row : gtp::kGroupFamilies) {
      const gtp::GroupFamily family = gtp::make_group_family(topology, row);
      for (std::int64_t rank = 0; rank < topology.world_size; ++rank) {
        sum += family.group_of(rank).value_or(gtp::GroupPlace{}).position;
      }
    }
    benchmark::DoNotOptimize(sum);
  }
  state.SetComplexityN(state.range(0));
}

void derive_topology(benchmark::State& state) {
  gtp::TopologyOptions options{.world_size = 4096,
                               .tensor_model_parallel_size = 4,
                               .tensor_parallel_num_weight_shards = 16,
                               .pipeline_model_parallel_size = 8,
                               .expert_model_parallel_size = 8};
  for (auto _ : state) {
    benchmark::DoNotOptimize(options);
    benchmark::DoNotOptimize(gtp::make_topology(options));
  }
}

}  // namespace

BENCHMARK(enumerate_all_families)
    ->Arg(16384)
    ->Arg(131072)
    ->Arg(1048576)
    ->Complexity(benchmark::oN)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(digest_all_families)
    ->Arg(16384)
    ->Arg(131072)
    ->Arg(1048576)
    ->Complexity(benchmark::oN)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(place_every_rank_in_all_families)
    ->Arg(16384)
    ->Arg(131072)
    ->Arg(1048576)
    ->Complexity(benchmark::oN)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(derive_topology);

BENCHMARK_MAIN();
