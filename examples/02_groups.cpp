// Process groups as views: nothing is stored, so a million ranks cost no memory.
#include <fmt/format.h>

#include <gtp/groups.hpp>
#include <gtp/topology.hpp>

int main() {
  const auto topology = gtp::make_topology({.world_size = 16,
                                            .tensor_model_parallel_size = 2,
                                            .tensor_parallel_num_weight_shards = 4,
                                            .pipeline_model_parallel_size = 2});
  if (!topology) return 1;
  const gtp::GroupFamily remat = gtp::make_group_family(*topology, *gtp::find_group_family("gtp_remat"));
  for (const auto group : remat) fmt::print("[{}] ", fmt::join(group, ","));
  const auto place = remat.group_of(7);
  fmt::print("\nrank 7 is member {} of group {}\n", place->position, place->group);
}
