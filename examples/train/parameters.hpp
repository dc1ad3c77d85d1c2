// Every parameter of the model on one rank: which part of the whole tensor it holds, where it lies in the flat buffers
// that optimizer and replicate DP work on, and its handle in the runtime.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "kernels/bookkeeping/param_tags.hpp"
#include "model_shape.hpp"
#include "rank.hpp"

namespace gtp::train {

/// Which way TP cuts a tensor.
enum class Cut : std::uint8_t { kNone, kRows, kCols };

/// A whole tensor; for the experts of one layer, one of them.
struct TensorSpec {
  std::string name;  ///< Of a grouped weight, without the number of the expert.
  std::size_t rows = 0;
  std::size_t cols = 0;
  Cut cut = Cut::kNone;
  bool sharded = true;      ///< Over GTP_remat (experts: EGTP_remat); else every rank of the axis holds it.
  std::size_t experts = 0;  ///< Of a grouped weight, in all.
  ChainRole role = ChainRole::kGeneral;
  bool needs_dgrad = true;
  bool decays = true;      ///< Takes weight decay.
  float initial_mean = 0;  ///< Initial values are uniform in mean +- range.
  float initial_range = 0;

  bool is_expert() const noexcept { return experts > 0; }
};

/// What this rank holds of it.
struct Parameter {
  TensorSpec spec;
  ParamTags tags;
  std::vector<std::string> names;  ///< One a local tensor: its expert's number included.
  std::size_t rows = 0;            ///< After TP, before GTP.
  std::size_t cols = 0;
  std::size_t row_begin = 0;  ///< In the whole tensor, of what TP leaves.
  std::size_t col_begin = 0;
  std::size_t first_row = 0;    ///< Of the GTP shard, within `rows`.
  std::size_t held_rows = 0;    ///< Pad rows included.
  std::size_t flat_offset = 0;  ///< In elements; local tensors follow each other.
  Weights values{};             ///< Of a replicated parameter.
  Floats grad{};                ///< Of a replicated parameter.
  ShardedWeight* weight = nullptr;

  std::size_t held() const noexcept { return held_rows * cols; }
  /// Rows of `held_rows` that are not padding.
  std::size_t real_rows() const noexcept { return rows > first_row ? std::min(held_rows, rows - first_row) : 0; }
  /// The index in the whole tensor of a held element; nullopt for padding.
  std::optional<std::size_t> whole_index(std::size_t held_index) const noexcept;
};

/// All parameters of one domain, end to end, padded to equal slices for replicate DP.
struct FlatBuffers {
  const Group* replicas = nullptr;
  Floats grads{};
  std::span<std::uint16_t> values{};  ///< bf16; the shards that the runtime gathers from.
  std::vector<Parameter*> parameters;

  std::size_t slice() const noexcept { return grads.size() / static_cast<std::size_t>(replicas->size()); }
};

class Parameters {
 public:
  Parameters(Rank& rank, const ModelShape& shape, std::uint64_t seed, ElementType wire);

  /// Precondition: the model has it.
  Parameter& find(const std::string& name);
  FlatBuffers& domain(WeightDomain domain) noexcept { return flat_[static_cast<std::size_t>(domain)]; }
  std::deque<Parameter>& all() noexcept { return parameters_; }

  /// The initial value of a held element; 0 for padding.
  static float initial_value(const Parameter& parameter, std::size_t tensor, std::size_t held_index,
                             std::uint64_t seed);

 private:
  void place(Rank& rank, TensorSpec spec);
  void lay_out(Rank& rank, WeightDomain domain, const Group& replicas);
  void initialize(Rank& rank, WeightDomain domain, std::uint64_t seed);
  void add_to_runtime(Rank& rank, Parameter& parameter, ElementType wire);
  void declare_chains(Rank& rank);

  std::deque<Parameter> parameters_;
  std::array<FlatBuffers, 2> flat_;
  DrainFirst drain_first_;
};

/// The tensors of a model in order of use.
std::vector<TensorSpec> tensors_of(const ModelShape& shape);

}  // namespace gtp::train
