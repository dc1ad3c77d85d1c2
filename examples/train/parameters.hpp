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
#include "weight_formats.hpp"

namespace gtp::train {

/// In elements: 256 bytes of bf16.
inline constexpr std::size_t kFlatAlignment = 128;

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
  bool quantizes = false;  ///< May be gathered in another format than bf16.
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
  std::size_t flat_offset = 0;  ///< In elements, a multiple of kFlatAlignment; local tensors follow each other.
  Weights values{};             ///< Of a replicated parameter.
  Floats grad{};                ///< Of a replicated parameter.
  ShardedWeight* weight = nullptr;
  std::span<std::uint16_t> scratch{};  ///< For the decoded values of a quantized weight; all weights share it.

  std::size_t held() const noexcept { return held_rows * cols; }
  /// Rows of `held_rows` that are not padding.
  std::size_t real_rows() const noexcept { return rows > first_row ? std::min(held_rows, rows - first_row) : 0; }
  HeldPart part() const noexcept { return {cols, real_rows(), row_begin + first_row, col_begin, spec.cols}; }
  /// Of a local tensor, from held element `first` on.
  InitialValues initial_values(std::size_t tensor, std::size_t first, std::uint64_t seed) const noexcept {
    return {part(), tensor_key(seed, names[tensor]), spec.initial_mean, spec.initial_range, first};
  }
};

/// All parameters of one domain, one after the other from aligned places on, padded to equal slices for replicate DP.
/// What lies between and behind them is 0, and stays 0.
struct FlatBuffers {
  const Group* replicas = nullptr;
  Floats grads{};
  std::span<std::uint16_t> values{};  ///< bf16; the shards that the runtime gathers from.
  std::vector<Parameter*> parameters;

  std::size_t slice() const noexcept { return grads.size() / static_cast<std::size_t>(replicas->size()); }
};

struct ParameterOptions {
  std::uint64_t seed = 0;
  /// Of weight gradients in flight.
  ElementType wire = ElementType::kFloat32;
  /// Of the large weights of a layer.
  WeightFormat format = WeightFormat::kBf16;
  bool graphed = false;  ///< They are consumed in captured graphs.
};

class Parameters {
 public:
  Parameters(Rank& rank, const ModelShape& shape, const ParameterOptions& options);

  /// Precondition: the model has it.
  Parameter& find(const std::string& name);
  FlatBuffers& domain(WeightDomain domain) noexcept { return flat_[static_cast<std::size_t>(domain)]; }
  std::deque<Parameter>& all() noexcept { return parameters_; }

  /// Quantized shards follow the values in the flat buffers; enqueued on the compute stream.
  void refresh_quantized() { quantized_->refresh(); }

 private:
  void place(TensorSpec spec);
  void lay_out(WeightDomain domain, const Group& replicas);
  void initialize(WeightDomain domain);
  void prepare_quantized();
  void add_to_runtime(Parameter& parameter);
  void declare_chains();

  Rank& rank_;
  const ParameterOptions options_;
  std::deque<Parameter> parameters_;
  std::array<FlatBuffers, 2> flat_;
  std::optional<QuantizedShards> quantized_;
  DrainFirst drain_first_;
};

/// The tensors of a model in order of use.
std::vector<TensorSpec> tensors_of(const ModelShape& shape);

}  // namespace gtp::train
