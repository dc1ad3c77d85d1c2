// Rows of rank_groups.json: a topology as options, with upstream's derived values and groups or its refusal.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "gtp/topology.hpp"

namespace gtp::test {

inline nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

inline TopologyOptions topology_options(const nlohmann::json& row) {
  const auto optional_size = [&row](const char* name) -> std::optional<std::int64_t> {
    if (!row.contains(name)) return std::nullopt;
    return row.at(name).get<std::int64_t>();
  };
  return {.world_size = row.at("world_size"),
          .tensor_model_parallel_size = row.at("tensor_model_parallel_size"),
          .tensor_parallel_num_weight_shards = optional_size("tensor_parallel_num_weight_shards"),
          .context_parallel_size = row.at("context_parallel_size"),
          .pipeline_model_parallel_size = row.at("pipeline_model_parallel_size"),
          .expert_model_parallel_size = row.at("expert_model_parallel_size"),
          .expert_tensor_parallel_size = optional_size("expert_tensor_parallel_size"),
          .expert_tensor_parallel_num_weight_shards = optional_size("expert_tensor_parallel_num_weight_shards"),
          .use_tp_pp_dp_mapping = row.at("use_tp_pp_dp_mapping")};
}

}  // namespace gtp::test
