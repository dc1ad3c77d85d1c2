// Random interleavings of whole training steps against a synchronous reference. GTP_INTERLEAVINGS: how many seeds.
#include <cstdlib>
#include <cstring>

#include "rig.hpp"
#include "toy_model.hpp"

using namespace gtp;
using namespace gtp::test;
using toy::Activation;
using toy::kWidth;

namespace {

constexpr std::int64_t kMicrobatches = 2;
constexpr std::int64_t kSteps = 2;
constexpr std::size_t kExperts = 2;

struct LayerShape {
  std::size_t rows;
  bool experts;  ///< fc1 and fc2 of kExperts experts, whose outputs add up.
  bool recompute;
};

/// One network, cut over `ranks`.
struct Case {
  std::int64_t ranks = 2;
  std::vector<LayerShape> layers;
  RuntimeOptions options;
  ElementType grad_type = ElementType::kFloat32;
  bool tied = false;  ///< The first weight is used once more at the end.
};

Case case_of(std::uint64_t seed) {
  Case c;
  c.ranks = 2 + static_cast<std::int64_t>(seed % 3);
  const std::size_t count = 2 + seed / 3 % 3;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t kind = seed / 7 + i * 3;
    c.layers.push_back({6 + kind % 2 * 5, kind % 3 == 1, kind % 4 == 2});
  }
  c.options.prefetch_depth = static_cast<std::uint32_t>(1 + seed / 5 % 2);
  c.options.async_reduction = seed % 11 != 0;
  c.options.calculate_per_token_loss = seed % 4 == 3;
  c.options.gtp_remat_reduce_scatter_with_fp32_accumulation = seed % 2 == 1;
  c.options.poison_free_buffers = seed % 3 != 2;
  c.options.graph_wgrad_ring_size = static_cast<std::uint32_t>(1 + seed / 2 % 3);
  c.grad_type = seed % 5 < 2 ? ElementType::kBFloat16 : ElementType::kFloat32;
  c.tied = seed % 2 == 0;
  return c;
}

/// Weights in forward order: one per dense layer, fc1 and fc2 per expert layer.
struct WeightPlace {
  std::size_t layer;
  std::size_t rows;
  std::size_t shards;
  ChainRole role;
};
std::vector<WeightPlace> places_of(const Case& c) {
  std::vector<WeightPlace> places;
  for (std::size_t layer = 0; layer < c.layers.size(); ++layer) {
    const LayerShape& shape = c.layers[layer];
    if (!shape.experts) {
      places.push_back({layer, shape.rows, 1, ChainRole::kGeneral});
    } else {
      places.push_back({layer, shape.rows, kExperts, ChainRole::kExpertFc1});
      places.push_back({layer, shape.rows, kExperts, ChainRole::kExpertFc2});
    }
  }
  if (c.tied) places.push_back({places[0].layer, places[0].rows, places[0].shards, places[0].role});
  return places;
}

/// Index of the weight at a place: the last place of a tied network is the first weight.
std::size_t weight_at(const Case& c, const std::vector<WeightPlace>& places, std::size_t place) {
  return c.tied && place + 1 == places.size() ? 0 : place;
}

using Bits = std::vector<std::vector<std::uint16_t>>;  ///< By weight and shard: the whole weight, unpadded.

std::size_t slot(std::size_t weight, std::size_t shard) { return weight * kExperts + shard; }

float round_to(ElementType type, float value) {
  return type == ElementType::kFloat32 ? value : to_float(to_bf16(value));
}

/// All ranks in one loop, one operation after the other, no shards.
class Reference {
 public:
  explicit Reference(const Case& c) : case_(c), places_(places_of(c)) {
    for (std::size_t place = 0; place < places_.size(); ++place) {
      for (std::size_t shard = 0; shard < kExperts; ++shard) {
        std::vector<std::uint16_t> weight(places_[place].rows * kWidth);
        for (std::size_t i = 0; i < weight.size(); ++i) {
          weight[i] = bits_of(to_bf16(toy::initial(slot(place, shard), i)));
        }
        weights.push_back(std::move(weight));
        main_grads.emplace_back(places_[place].rows * kWidth, 0.0F);
      }
    }
    for (std::int64_t step = 0; step < kSteps; ++step) {
      for (std::int64_t m = 0; m < kMicrobatches; ++m) microbatch(static_cast<std::uint64_t>(step * kMicrobatches + m));
      for (std::size_t i = 0; i < weights.size(); ++i) {
        for (std::size_t k = 0; k < weights[i].size(); ++k) weights[i][k] = toy::step(weights[i][k], main_grads[i][k]);
        if (step + 1 < kSteps) std::ranges::fill(main_grads[i], 0.0F);
      }
    }
  }

  Bits weights;
  std::vector<std::vector<float>> main_grads;

 private:
  void microbatch(std::uint64_t number) {
    const auto ranks = static_cast<std::size_t>(case_.ranks);
    std::vector<std::vector<std::array<Activation, kExperts>>> inputs(ranks);
    std::vector<Activation> d_out(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      inputs[rank].resize(places_.size());
      Activation x = toy::input(static_cast<std::int64_t>(rank), number);
      std::array<Activation, kExperts> split{};
      for (std::size_t p = 0; p < places_.size(); ++p) run_forward(p, x, split, inputs[rank][p]);
      d_out[rank] = x;
    }
    for (std::size_t p = places_.size(); p-- > 0;) backward(p, inputs, d_out);
  }

  void run_forward(std::size_t p, Activation& x, std::array<Activation, kExperts>& split,
                   std::array<Activation, kExperts>& in) {
    const WeightPlace& place = places_[p];
    const std::size_t weight = weight_at(case_, places_, p);
    if (place.role != ChainRole::kExpertFc2) split.fill(x);
    in = split;
    for (std::size_t e = 0; e < place.shards; ++e) toy::forward(weights[slot(weight, e)], place.rows, in[e], split[e]);
    x = split[0];
    if (place.role == ChainRole::kExpertFc2) {
      for (std::size_t i = 0; i < kWidth; ++i) x[i] += split[1][i];
    }
  }

  void backward(std::size_t p, const std::vector<std::vector<std::array<Activation, kExperts>>>& inputs,
                std::vector<Activation>& d_out) {
    const WeightPlace& place = places_[p];
    const std::size_t weight = weight_at(case_, places_, p);
    if (d_split_.size() != d_out.size()) d_split_.resize(d_out.size());
    for (std::size_t rank = 0; rank < d_out.size(); ++rank) {
      if (place.role != ChainRole::kExpertFc1) d_split_[rank].fill(d_out[rank]);
    }
    for (std::size_t e = 0; e < place.shards; ++e) add_grads(p, weight, e, inputs);
    for (std::size_t rank = 0; rank < d_out.size(); ++rank) {
      std::array<Activation, kExperts> d_in{};
      for (std::size_t e = 0; e < place.shards; ++e) {
        toy::dgrad(weights[slot(weight, e)], place.rows, d_split_[rank][e], d_in[e]);
      }
      d_split_[rank] = d_in;
      d_out[rank] = d_in[0];
      if (place.role == ChainRole::kExpertFc1) {
        for (std::size_t i = 0; i < kWidth; ++i) d_out[rank][i] += d_in[1][i];
      }
    }
  }

  void add_grads(std::size_t p, std::size_t weight, std::size_t e,
                 const std::vector<std::vector<std::array<Activation, kExperts>>>& inputs) {
    const ElementType type = case_.grad_type;
    const auto ranks = static_cast<std::size_t>(case_.ranks);
    const bool fp32 =
        case_.options.gtp_remat_reduce_scatter_with_fp32_accumulation && ranks > 2 && type == ElementType::kBFloat16;
    const float factor = case_.options.calculate_per_token_loss ? 1.0F : 1.0F / static_cast<float>(ranks);
    for (std::size_t row = 0; row < places_[p].rows; ++row) {
      for (std::size_t col = 0; col < kWidth; ++col) {
        float sum = 0;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          const float part = round_to(type, toy::wgrad(d_split_[rank][e], inputs[rank][p][e], row, col));
          sum = rank == 0 ? part : fp32 ? sum + part : round_to(type, sum + part);
        }
        float& grad = main_grads[slot(weight, e)][row * kWidth + col];
        grad = round_to(type, grad + factor * sum);
      }
    }
  }

  const Case& case_;
  std::vector<WeightPlace> places_;
  std::vector<std::array<Activation, kExperts>> d_split_;
};

/// The same on one rank, with the runtime.
class Trained {
 public:
  Trained(const Case& c, HostBackend& backend)
      : case_(c), places_(places_of(c)), rig_(backend, plan(c.ranks), c.options), backend_(backend) {
    const std::size_t count = places_.size() - (c.tied ? 1 : 0);
    for (std::size_t p = 0; p < count; ++p) {
      const WeightPlace& place = places_[p];
      Held& held =
          rig_.add("w" + std::to_string(p), {.rows = static_cast<std::int64_t>(place.rows),
                                             .cols = kWidth,
                                             .pad_for_alignment = 2,
                                             .shards = place.shards,
                                             .chain = {.role = place.role},
                                             .domain = place.shards > 1 ? WeightDomain::kExpert : WeightDomain::kDense,
                                             .main_grad_type = c.grad_type});
      for_shard_elements(
          held,
          [&](std::size_t shard, std::size_t local, std::size_t whole) {
            held.shards[shard][local] = bits_of(to_bf16(toy::initial(slot(p, shard), whole)));
          },
          [&](std::size_t shard, std::size_t local) { held.shards[shard][local] = 0; });
    }
    inputs_.resize(places_.size());
    for (std::int64_t step = 0; step < kSteps; ++step) {
      for (std::int64_t m = 0; m < kMicrobatches; ++m) microbatch(static_cast<std::uint64_t>(step * kMicrobatches + m));
      rig_.gtp->fence_grads(rig_.compute);
      optimize(step + 1 < kSteps);
    }
    rig_.finish();
  }

  std::int64_t differences(const Reference& reference) {
    std::int64_t wrong = 0;
    for (std::size_t w = 0; w < rig_.weights.size(); ++w) {
      Held& held = rig_.weights[w];
      for_shard_elements(
          held,
          [&](std::size_t shard, std::size_t local, std::size_t whole) {
            const std::size_t place = slot(w, shard);
            if (held.shards[shard][local] != reference.weights[place][whole]) ++wrong;
            const float grad = held.main_grad(shard, static_cast<std::int64_t>(local));
            if (std::memcmp(&grad, &reference.main_grads[place][whole], sizeof grad) != 0) ++wrong;
          },
          [&](std::size_t shard, std::size_t local) {
            if (held.main_grad(shard, static_cast<std::int64_t>(local)) != 0) ++wrong;
          });
    }
    return wrong;
  }
  const Counters& counters() { return rig_.counters(); }

 private:
  template <class OnElement, class OnPadding>
  static void for_shard_elements(Held& held, OnElement on_element, OnPadding on_padding) {
    const ShardLayout& layout = held.weight->layout();
    const auto begin = static_cast<std::size_t>(layout.row_begin(held.weight->group().position()) * layout.cols());
    const auto whole = static_cast<std::size_t>(layout.rows() * layout.cols());
    for (std::size_t shard = 0; shard < held.shards.size(); ++shard) {
      for (std::size_t i = 0; i < held.shards[shard].size(); ++i) {
        if (begin + i < whole) {
          on_element(shard, i, begin + i);
        } else {
          on_padding(shard, i);
        }
      }
    }
  }

  Held& at(std::size_t place) { return rig_.weights[weight_at(case_, places_, place)]; }

  static toy::Weight bits(const GatheredView& view) {
    return {static_cast<const std::uint16_t*>(view.row_data()), static_cast<std::size_t>(view.padded_rows * view.cols)};
  }

  void compute(std::string_view what, std::span<const GatheredView> views, std::function<void()> body) {
    std::vector<Access> touched;
    for (const GatheredView& view : views) touched.push_back(reads(bits(view)));
    backend_.enqueue(rig_.compute, {what, ""}, touched, std::move(body));
  }

  void microbatch(std::uint64_t number) {
    compute("input", {}, [=, this] { x_ = toy::input(backend_.rank(), number); });
    for (std::size_t p = 0; p < places_.size(); ++p) forward(p, Use::kForward);
    compute("loss", {}, [this] { d_out_ = x_; });
    for (std::size_t p = places_.size(); p-- > 0;) {
      // A recomputed layer is run again before its first backward.
      const bool last_of_layer = p + 1 == places_.size() || places_[p + 1].layer != places_[p].layer;
      const bool tied_use = case_.tied && p + 1 == places_.size();
      if (last_of_layer && !tied_use && case_.layers[places_[p].layer].recompute) recompute(places_[p].layer);
      backward(p);
    }
  }

  void recompute(std::size_t layer) {
    for (std::size_t p = 0; p + (case_.tied ? 1 : 0) < places_.size(); ++p) {
      if (places_[p].layer == layer) forward(p, Use::kRecompute);
    }
  }

  void forward(std::size_t p, Use use) {
    const WeightPlace place = places_[p];
    const auto views = rig_.gtp->materialize(*at(p).weight, use, rig_.compute);
    const std::vector<GatheredView> copy(views.begin(), views.end());
    compute(at(p).weight->name(), views, [=, this] {
      std::array<Activation, kExperts> in = use == Use::kRecompute ? inputs_[p] : split_;
      if (use != Use::kRecompute && place.role != ChainRole::kExpertFc2) in.fill(x_);
      if (use == Use::kRecompute && place.role == ChainRole::kExpertFc2) in = split_;
      inputs_[p] = in;
      for (std::size_t e = 0; e < place.shards; ++e) toy::forward(bits(copy[e]), place.rows, in[e], split_[e]);
      if (use == Use::kRecompute) return;
      x_ = split_[0];
      if (place.role != ChainRole::kExpertFc2) return;
      for (std::size_t i = 0; i < kWidth; ++i) x_[i] += split_[1][i];
    });
  }

  void backward(std::size_t p) {
    const WeightPlace place = places_[p];
    compute("split", {}, [=, this] {
      if (place.role != ChainRole::kExpertFc1) d_split_.fill(d_out_);
    });
    wgrad(p);
    const auto views = rig_.gtp->materialize(*at(p).weight, Use::kDgrad, rig_.compute);
    const std::vector<GatheredView> copy(views.begin(), views.end());
    compute(at(p).weight->name(), views, [=, this] {
      std::array<Activation, kExperts> d_in{};
      for (std::size_t e = 0; e < place.shards; ++e) toy::dgrad(bits(copy[e]), place.rows, d_split_[e], d_in[e]);
      d_split_ = d_in;
      d_out_ = d_in[0];
      if (place.role != ChainRole::kExpertFc1) return;
      for (std::size_t i = 0; i < kWidth; ++i) d_out_[i] += d_in[1][i];
    });
  }

  void wgrad(std::size_t p) {
    const WeightPlace place = places_[p];
    const auto views = rig_.gtp->grad_buffer(*at(p).weight, rig_.compute);
    for (std::size_t e = 0; e < place.shards; ++e) {
      const WgradView view = views[e];
      const Access touched[] = {{view.data, place.rows * kWidth * element_bytes(view.type), true}};
      backend_.enqueue(rig_.compute, {at(p).weight->name(), "wgrad"}, std::span<const Access>(touched), [=, this] {
        for (std::size_t i = 0; i < place.rows * kWidth; ++i) {
          Rig::store(view, i, toy::wgrad(d_split_[e], inputs_[p][e], i / kWidth, i % kWidth));
        }
      });
    }
    rig_.gtp->reduce_grad(*at(p).weight, rig_.compute);
  }

  void optimize(bool zero) {
    std::vector<ShardedWeight*> all;
    for (Held& held : rig_.weights) {
      std::vector<Access> touched;
      for (auto& shard : held.shards) touched.push_back(writes(std::span(shard)));
      for (auto& grad : held.main_grads) touched.push_back(writes(std::span(grad)));
      backend_.enqueue(rig_.compute, {held.weight->name(), "optimizer"}, touched, [=, &held] {
        for (std::size_t shard = 0; shard < held.shards.size(); ++shard) {
          for (std::size_t i = 0; i < held.shards[shard].size(); ++i) {
            std::uint16_t& bits = held.shards[shard][i];
            bits = toy::step(bits, held.main_grad(shard, static_cast<std::int64_t>(i)));
          }
          if (zero) std::ranges::fill(held.main_grads[shard], std::byte{0});
        }
      });
      all.push_back(held.weight);
    }
    rig_.gtp->publish(all, rig_.compute);
  }

  const Case& case_;
  std::vector<WeightPlace> places_;
  Rig rig_;
  HostBackend& backend_;
  Activation x_{};
  Activation d_out_{};
  std::array<Activation, kExperts> split_{};
  std::array<Activation, kExperts> d_split_{};
  std::vector<std::array<Activation, kExperts>> inputs_;
};

std::uint64_t interleavings() {
  const char* text = std::getenv("GTP_INTERLEAVINGS");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 300;
}

}  // namespace

TEST_CASE("every interleaving of a training step gives the bits of the synchronous reference") {
  const std::uint64_t count = interleavings();
  std::int64_t prefetched = 0;
  std::int64_t deferred = 0;
  for (std::uint64_t seed = 0; seed < count; ++seed) {
    const Case c = case_of(seed);
    const Reference reference(c);
    HostWorld world({.ranks = c.ranks, .seed = seed});
    if (seed % 4 == 0) world.inject({.operation = seed % 8 == 0 ? "all-gather" : "reduce-scatter", .steps = seed % 23});
    std::vector<std::int64_t> differences(static_cast<std::size_t>(c.ranks), -1);
    std::vector<Counters> counters(differences.size());
    const auto outcomes = world.run([&](std::int64_t rank, HostBackend& backend) {
      Trained trained(c, backend);
      differences[static_cast<std::size_t>(rank)] = trained.differences(reference);
      counters[static_cast<std::size_t>(rank)] = trained.counters();
    });
    INFO("seed ", seed);
    for (const RankOutcome& outcome : outcomes) {
      INFO(outcome.text);
      REQUIRE(outcome.ok());
    }
    for (const std::int64_t wrong : differences) REQUIRE(wrong == 0);
    for (const Counters& each : counters) REQUIRE(each == counters[0]);
    prefetched += counters[0].prefetched_gathers;
    deferred += counters[0].deferred_finalizes;
  }
  CHECK(prefetched > 0);
  CHECK(deferred > 0);
}

TEST_CASE("one seed gives one interleaving") {
  struct Order final : TraceSink {
    std::string text;
    void span(const TraceSpan& span) override {
      text += std::string(span.operation) + " " + std::string(span.weight) + " " + std::to_string(span.rank) + ";";
    }
  };
  const auto order = [](std::uint64_t seed) {
    const Case c = case_of(4);
    HostWorld world({.ranks = c.ranks, .seed = seed});
    Order trace;
    world.backend(0).set_trace(&trace);
    run_all(world, [&](std::int64_t, HostBackend& backend) { Trained trained(c, backend); });
    return trace.text;
  };
  CHECK(order(1) == order(1));
  CHECK(order(1) != order(2));
}
