// One rank under test: a runtime on the host backend, weights whose every element is known from (weight, version,
// index), kernels that compare what they read with that.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernels/format/bf16.hpp"
#include "kernels/host_backend.hpp"
#include "kernels/runtime.hpp"

namespace gtp::test {

inline constexpr std::chrono::milliseconds kLimit{20000};

/// Exact in bf16, and so are sums of a few.
inline float weight_value(std::uint64_t weight, std::uint64_t version, std::int64_t index) {
  const auto mixed = weight * 31 + version * 17 + static_cast<std::uint64_t>(index) * 13;
  return static_cast<float>(mixed % 251) - 125.0F;
}
inline float wgrad_value(std::int64_t rank, std::uint64_t weight, std::uint64_t round, std::int64_t index) {
  const auto mixed = static_cast<std::uint64_t>(rank) * 5 + weight * 3 + round * 7 + static_cast<std::uint64_t>(index);
  return static_cast<float>(mixed % 29) - 14.0F;
}

/// GTP_remat `gtp_remat` times replicate DP; experts are cut over the same number of ranks.
inline Topology plan(std::int64_t gtp_remat, std::int64_t dp = 1) {
  TopologyOptions options;
  options.world_size = gtp_remat * dp;
  options.tensor_parallel_num_weight_shards = gtp_remat;
  options.expert_tensor_parallel_num_weight_shards = gtp_remat;
  return require_topology(options);
}

struct WeightOptions {
  std::int64_t rows = 8;
  std::int64_t cols = 4;
  std::int64_t pad_for_alignment = 1;
  std::size_t shards = 1;
  ChainKey chain{};
  WeightDomain domain = WeightDomain::kDense;
  ElementType main_grad_type = ElementType::kFloat32;
  std::optional<ElementType> wire_type = std::nullopt;
  bool needs_dgrad = true;
  bool zero_out_wgrad = false;
  ReadyBucket bucket = ReadyBucket::kNone;
  std::function<void(ShardedWeight&, Stream)> grad_ready = nullptr;
};

/// A weight with its memory.
struct Held {
  std::uint64_t id = 0;
  std::vector<std::vector<std::uint16_t>> shards;
  std::vector<std::vector<std::byte>> main_grads;
  ShardedWeight* weight = nullptr;
  std::uint64_t version = 0;

  std::uint64_t key(std::size_t shard) const { return id * 100 + shard; }
  float main_grad(std::size_t shard, std::int64_t index) const {
    const std::byte* data = main_grads[shard].data();
    if (weight->spec().main_grad_type == ElementType::kFloat32) {
      float value = 0;
      std::memcpy(&value, data + index * 4, 4);
      return value;
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, data + index * 2, 2);
    return to_float(Bf16{bits});
  }
};

class Rig {
 public:
  Rig(HostBackend& backend_in, const Topology& topology_in, RuntimeOptions options = {}, MemoryCallbacks memory = {})
      : backend(backend_in), topology(topology_in) {
    compute = backend.create_stream("compute", StreamPriority::kNormal);
    gtp = std::make_unique<Runtime>(backend, topology, backend.rank(), options, std::move(memory));
  }

  Held& add(std::string name, WeightOptions o = {}) {
    Held& held = weights.emplace_back();
    held.id = weights.size();
    const Group& group = gtp->group(o.domain);
    LayoutRequest request{o.rows, o.cols, WeightFormat::kBf16, o.pad_for_alignment, group.size()};
    const auto layout = make_shard_layout(request);
    REQUIRE(layout);
    WeightSpec spec{.name = std::move(name), .layout = *layout, .shards = {}};
    for (std::size_t shard = 0; shard < o.shards; ++shard) {
      held.shards.emplace_back(static_cast<std::size_t>(layout->shard_elements()));
      held.main_grads.emplace_back(static_cast<std::size_t>(layout->shard_elements()) *
                                   element_bytes(o.main_grad_type));
    }
    for (std::size_t shard = 0; shard < o.shards; ++shard) {
      spec.shards.push_back({{held.shards[shard].data()}, held.main_grads[shard].data()});
    }
    spec.domain = o.domain;
    spec.chain = o.chain;
    spec.main_grad_type = o.main_grad_type;
    spec.wire_type = o.wire_type;
    spec.needs_dgrad = o.needs_dgrad;
    spec.zero_out_wgrad = o.zero_out_wgrad;
    spec.bucket = o.bucket;
    spec.grad_ready = o.grad_ready;
    held.weight = &gtp->add_weight(std::move(spec));
    write_shards(held, 0);
    return held;
  }

  /// From the host: only while nothing is under way.
  void write_shards(Held& held, std::uint64_t version) {
    held.version = version;
    const ShardLayout& layout = held.weight->layout();
    const std::int64_t begin = layout.row_begin(held.weight->group().position()) * layout.cols();
    for (std::size_t shard = 0; shard < held.shards.size(); ++shard) {
      for (std::int64_t i = 0; i < layout.shard_elements(); ++i) {
        held.shards[shard][static_cast<std::size_t>(i)] = bits_of(to_bf16(value(held, shard, version, begin + i)));
      }
    }
  }

  /// What an optimizer does: rewrites the shard in stream order.
  void update(Held& held, std::uint64_t version, Stream stream) {
    held.version = version;
    const ShardLayout layout = held.weight->layout();
    const std::int64_t begin = layout.row_begin(held.weight->group().position()) * layout.cols();
    for (std::size_t shard = 0; shard < held.shards.size(); ++shard) {
      const std::span<std::uint16_t> memory(held.shards[shard]);
      backend.enqueue(stream, {held.weight->name(), "update"}, {writes(memory)}, [=, &held] {
        for (std::size_t i = 0; i < memory.size(); ++i) {
          memory[i] = bits_of(to_bf16(value(held, shard, version, begin + static_cast<std::int64_t>(i))));
        }
      });
    }
  }

  static float value(const Held& held, std::size_t shard, std::uint64_t version, std::int64_t index) {
    const ShardLayout& layout = held.weight->layout();
    return index < layout.rows() * layout.cols() ? weight_value(held.key(shard), version, index) : 0.0F;
  }

  /// Materializes, and enqueues a reader that compares with `version`.
  GatheredView read(Held& held, Use use, std::uint64_t version) { return read(held, use, version, compute); }
  GatheredView read(Held& held, Use use, std::uint64_t version, Stream stream) {
    const auto views = gtp->materialize(*held.weight, use, stream);
    for (std::size_t shard = 0; shard < views.size(); ++shard) compare(held, shard, views[shard], version, stream);
    return views[0];
  }
  GatheredView read(Held& held, Use use = Use::kForward) { return read(held, use, held.version); }

  void compare(Held& held, std::size_t shard, const GatheredView& view, std::uint64_t version, Stream stream) {
    const auto count = static_cast<std::size_t>(view.padded_rows * view.cols);
    const std::span<const std::uint16_t> memory(static_cast<const std::uint16_t*>(view.row_data()), count);
    backend.enqueue(stream, {held.weight->name(), "gemm"}, {reads(memory)}, [=, this, &held] {
      ++readings;
      for (std::size_t i = 0; i < memory.size(); ++i) {
        const float expected = value(held, shard, version, static_cast<std::int64_t>(i));
        if (memory[i] != bits_of(to_bf16(expected))) ++mismatches;
      }
    });
  }

  /// Writes the wgrad of this round (the wgrad GEMM) into grad_buffer.
  void write_wgrad(Held& held, std::uint64_t round, Stream stream) {
    const auto views = gtp->grad_buffer(*held.weight, stream);
    for (std::size_t shard = 0; shard < views.size(); ++shard) {
      const WgradView view = views[shard];
      const auto count = static_cast<std::size_t>(view.rows * view.cols);
      const Access touched[] = {{view.data, count * element_bytes(view.type), true}};
      const std::uint64_t key = held.key(shard);
      backend.enqueue(stream, {held.weight->name(), "wgrad"}, std::span<const Access>(touched), [=, this] {
        for (std::size_t i = 0; i < count; ++i) {
          float next = wgrad_value(backend.rank(), key, round, static_cast<std::int64_t>(i));
          if (view.accumulate) next += load(view, i);
          store(view, i, next);
        }
      });
    }
  }
  void reduce(Held& held, std::uint64_t round) {
    write_wgrad(held, round, compute);
    gtp->reduce_grad(*held.weight, compute);
  }

  /// Forward over all, backward over all.
  void microbatch(std::uint64_t round) {
    for (Held& held : weights) read(held, Use::kForward);
    for (auto held = weights.rbegin(); held != weights.rend(); ++held) {
      read(*held, Use::kDgrad);
      reduce(*held, round);
    }
  }

  /// The sum over the group's ranks and over rounds [0, rounds), times factor.
  float expected_grad(const Held& held, std::size_t shard, std::int64_t index, std::uint64_t rounds,
                      float factor) const {
    const ShardLayout& layout = held.weight->layout();
    const std::int64_t whole = layout.row_begin(held.weight->group().position()) * layout.cols() + index;
    if (whole >= layout.rows() * layout.cols()) return 0;
    float sum = 0;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      for (const std::int64_t rank : held.weight->group().ranks()) {
        sum += wgrad_value(rank, held.key(shard), round, whole);
      }
    }
    return sum * factor;
  }
  std::int64_t wrong_grads(std::uint64_t rounds, float factor) const {
    std::int64_t wrong = 0;
    for (const Held& held : weights) {
      for (std::size_t shard = 0; shard < held.shards.size(); ++shard) {
        for (std::int64_t i = 0; i < held.weight->layout().shard_elements(); ++i) {
          if (held.main_grad(shard, i) != expected_grad(held, shard, i, rounds, factor)) ++wrong;
        }
      }
    }
    return wrong;
  }

  void finish() { backend.synchronize(compute, kLimit); }
  const Counters& counters() const { return gtp->counters(); }

  static float load(const WgradView& view, std::size_t i) {
    if (view.type == ElementType::kFloat32) return static_cast<const float*>(view.data)[i];
    return to_float(Bf16{static_cast<const std::uint16_t*>(view.data)[i]});
  }
  static void store(const WgradView& view, std::size_t i, float value) {
    if (view.type == ElementType::kFloat32) {
      static_cast<float*>(view.data)[i] = value;
    } else {
      static_cast<std::uint16_t*>(view.data)[i] = bits_of(to_bf16(value));
    }
  }

  HostBackend& backend;
  Topology topology;
  Stream compute{};
  std::int64_t mismatches = 0;
  std::int64_t readings = 0;
  std::deque<Held> weights;
  std::unique_ptr<Runtime> gtp;
};

inline RuntimeOptions poisoned(RuntimeOptions options = {}) {
  options.poison_free_buffers = true;
  return options;
}

/// Runs on every rank and requires that all end well.
inline void run_all(HostWorld& world, const std::function<void(std::int64_t, HostBackend&)>& function) {
  for (const RankOutcome& outcome : world.run(function)) {
    INFO(outcome.text);
    REQUIRE(outcome.ok());
  }
}

}  // namespace gtp::test
