// What follows backward: gradients are completed over the replicas, measured and clipped, and Adam updates fp32
// masters. Each replica keeps masters and moments of one slice of its shards and sends the others its new weights.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "parameters.hpp"
#include "plan_values.hpp"

namespace gtp::train {

/// The elements of a tensor that a rank holds: fp32 masters and their places in the whole tensor.
struct WeightPiece {
  std::string tensor;
  std::size_t rows = 0;  ///< Of the whole tensor.
  std::size_t cols = 0;
  std::vector<std::size_t> where;
  std::vector<float> values;
};

class Optimizer {
 public:
  Optimizer(Rank& rank, Parameters& parameters, const PlanValues& plan, std::uint64_t seed);

  void zero_grads();
  /// Completes, clips and applies the gradients of a step of `tokens` tokens on all ranks.
  void step(double lr, std::int64_t tokens);
  /// On the device, of the latest step: the gradient norm before clipping, and what gradients were multiplied by.
  std::span<const double> clip() const noexcept { return clip_; }
  /// Completes the masters of all slices, synchronizes, and hands out this rank's tensors.
  std::vector<WeightPiece> pieces(std::chrono::milliseconds limit);

 private:
  /// Elements of the flat buffers that decay alike.
  struct DecayRange {
    std::size_t begin = 0;
    std::size_t end = 0;
    float decay = 0.0F;
  };
  /// Of one domain. Members hold one slice.
  struct State {
    FlatBuffers* flat = nullptr;
    Floats masters{}, first_moment{}, second_moment{};
    std::span<std::uint16_t> updated{};  ///< bf16, before the replicas exchange slices; unused without replicas.
    std::vector<DecayRange> decay;       ///< All elements, in order.
    std::vector<ConstFloats> counted;    ///< Gradients that this rank contributes to the norm.
    std::size_t begin = 0;               ///< Of the slice.
  };

  State make_state(FlatBuffers& flat, std::uint64_t seed);
  void note_parameter(State& state, const Parameter& parameter) const;
  void initialize_masters(State& state, std::uint64_t seed);
  void complete_grads(State& state, WeightDomain domain, std::int64_t tokens);
  void measure();
  void apply(State& state, AdamStep adam);
  void collect(State& state, std::span<const float> masters, std::vector<WeightPiece>& out);

  Rank& rank_;
  Parameters& parameters_;
  const PlanValues& plan_;
  std::array<State, 2> states_;
  std::vector<ShardedWeight*> weights_;
  std::array<std::span<ExactSum>, 2> sums_;  ///< Of squares, by domain, of this rank.
  std::array<std::span<ExactSum>, 2> all_sums_;
  std::span<double> clip_;
  int steps_ = 0;
  DrainFirst drain_first_;
};

}  // namespace gtp::train
