// Weights in the formats that the runtime gathers: quantized shards made from bf16 values, and the bf16 values that a
// GEMM reads made from what was gathered.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rank.hpp"

namespace gtp::train {

struct Parameter;

/// The shards of all quantized weights on one rank.
class QuantizedShards {
 public:
  /// For `shards` shards of each weight domain. With NVFP4 it makes the groups over which amaxes are taken: collective.
  QuantizedShards(Rank& rank, WeightFormat format, std::array<std::size_t, 2> shards);

  /// The components of a shard whose bf16 values are, and stay, `values`. Written by refresh().
  std::array<const void*, kComponentCount> add(const Parameter& parameter, const ShardLayout& layout, Weights values);
  /// Enqueues, on the compute stream, that the shards follow their values. Precondition: nothing gathers from them.
  void refresh();

 private:
  struct Shard {
    const Parameter* parameter;
    QuantizedShard out;
    Weights values;
  };
  /// The shards of one weight domain, whose amaxes are exchanged together.
  struct Domain {
    std::vector<Shard> shards;
    std::unique_ptr<Group> group;          ///< Null unless the amaxes of several ranks count.
    std::span<float> amaxes{};             ///< Of the whole weights.
    std::span<float> own{}, of_members{};  ///< Of the shards.
  };
  void exchange_amaxes(Domain& domain);

  Rank& rank_;
  std::array<Domain, 2> domains_;
};

/// The logical rows of a materialized weight in bf16: what was gathered or, for a quantized weight, its copy of this
/// direction decoded into the parameter's scratch, which the next decoding of any weight overwrites.
Weights usable_weight(Rank& rank, const Parameter& parameter, const GatheredView& view, CopyDirection direction);

}  // namespace gtp::train
