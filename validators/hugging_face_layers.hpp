// How many layers a Hugging Face `config.json` describes, and which of them are what. Private to hugging_face.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "validators/tree.hpp"

namespace gtp::readers {

inline constexpr std::string_view kLayerKeys = "num_hidden_layers n_layer num_layers";

struct Layers {
  std::optional<std::string> count{};  ///< as written, or counted from a pattern
  bool count_quoted = false;           ///< the file has text where the number should be
  Place place{};
  std::optional<std::string> hybrid_pattern{};  ///< Megatron's, with a `/` part for each MTP depth
  Place pattern_place{};
  std::optional<std::string> moe_frequency{};  ///< absent where every layer is MoE, or none
  Place frequency_place{};
  bool too_many = false;  ///< more layers than a pattern is made for
};

[[nodiscard]] Layers find_layers(const Node& model);

/// The largest block of a model whose `block_configs` differ (Nemotron-NAS): Megatron's options describe
/// equal layers, so the largest stands for all.
struct Block {
  std::int64_t ffn_hidden_size = 0;
  std::int64_t heads_in_group = 0;
  Place place{};
};

[[nodiscard]] std::optional<Block> widest_block(const Node& model);

}  // namespace gtp::readers
