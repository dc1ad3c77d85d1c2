// One rank under test on a GPU: weights whose every element is known from (weight, version, index). A reader is a copy
// of what it read, in stream order, that `finish` compares; a wgrad GEMM is a copy of a gradient known from (rank,
// weight, round, index). Both can be captured. Delays are host functions that sleep.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device_array.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/runtime.hpp"

namespace gtp::test {

inline constexpr std::chrono::milliseconds kLimit{60000};

/// Exact in bf16, and so are sums of a few.
inline float weight_value(std::uint64_t weight, std::uint64_t version, std::int64_t index) {
  return static_cast<float>((weight * 31 + version * 17 + static_cast<std::uint64_t>(index) * 13) % 251) - 125.0F;
}
inline float wgrad_value(std::int64_t rank, std::uint64_t weight, std::uint64_t round, std::int64_t index) {
  const auto mixed = static_cast<std::uint64_t>(rank) * 5 + weight * 3 + round * 7 + static_cast<std::uint64_t>(index);
  return static_cast<float>(mixed % 29) - 14.0F;
}

inline Topology plan(std::int64_t gtp_remat, std::int64_t dp = 1) {
  TopologyOptions options;
  options.world_size = gtp_remat * dp;
  options.tensor_parallel_num_weight_shards = gtp_remat;
  options.expert_tensor_parallel_num_weight_shards = gtp_remat;
  return require_topology(options);
}

struct WeightOptions {
  std::int64_t rows = 250;
  std::int64_t cols = 512;
  std::int64_t pad_for_alignment = 16;
  bool graphed = false;
  ElementType main_grad_type = ElementType::kFloat32;
  std::optional<ElementType> wire_type = std::nullopt;
};

struct Held {
  std::uint64_t id = 0;
  std::uint64_t version = 0;
  ElementType wire = ElementType::kFloat32;
  DeviceArray<std::uint16_t> shard;
  DeviceArray<std::uint8_t> main_grad;
  std::map<std::uint64_t, DeviceArray<std::uint8_t>> wgrads;  ///< By round.
  ShardedWeight* weight = nullptr;
};

inline void sleep_milliseconds(void* argument) {
  std::this_thread::sleep_for(std::chrono::milliseconds(reinterpret_cast<std::intptr_t>(argument)));
}

class DeviceRig {
 public:
  DeviceRig(CudaBackend& backend_in, const Topology& topology, RuntimeOptions options = {})
      : backend(backend_in), arena_(kArena) {
    compute = backend.create_stream("compute", StreamPriority::kNormal);
    gtp = std::make_unique<Runtime>(backend, topology, backend.rank(), options);
  }
  ~DeviceRig() {
    gtp.reset();
    backend.destroy_stream(compute);
  }

  Held& add(std::string name, WeightOptions o = {}) {
    Held& held = weights.emplace_back();
    held.id = weights.size();
    const Group& group = gtp->group(WeightDomain::kDense);
    const auto layout = make_shard_layout({o.rows, o.cols, WeightFormat::kBf16, o.pad_for_alignment, group.size()});
    REQUIRE(layout);
    const auto elements = static_cast<std::size_t>(layout->shard_elements());
    held.shard = DeviceArray<std::uint16_t>(elements);
    held.main_grad = DeviceArray<std::uint8_t>(std::vector<std::uint8_t>(elements * element_bytes(o.main_grad_type)));
    held.wire = o.wire_type.value_or(o.main_grad_type);
    WeightSpec spec{.name = std::move(name), .layout = *layout, .shards = {}};
    spec.shards.push_back({{held.shard.data()}, held.main_grad.data()});
    spec.chain.graphed = o.graphed;
    spec.main_grad_type = o.main_grad_type;
    spec.wire_type = o.wire_type;
    held.weight = &gtp->add_weight(std::move(spec));
    held.shard.set(shard_values(held, 0));
    return held;
  }

  std::vector<std::uint16_t> shard_values(const Held& held, std::uint64_t version) const {
    const ShardLayout& layout = held.weight->layout();
    const std::int64_t begin = layout.row_begin(held.weight->group().position()) * layout.cols();
    std::vector<std::uint16_t> values;
    for (std::int64_t i = 0; i < layout.shard_elements(); ++i) values.push_back(bf16(value(held, version, begin + i)));
    return values;
  }
  static float value(const Held& held, std::uint64_t version, std::int64_t index) {
    const ShardLayout& layout = held.weight->layout();
    return index < layout.rows() * layout.cols() ? weight_value(held.id, version, index) : 0.0F;
  }

  /// What an optimizer does: rewrites the shard in stream order.
  void update(Held& held, std::uint64_t version, Stream stream) {
    held.version = version;
    const DeviceArray<std::uint16_t>& next = kept_.emplace_back(shard_values(held, version));
    copy_bytes(held.shard.data(), next.data(), next.bytes(), stream);
  }

  /// Materializes, and enqueues a reader.
  GatheredView read(Held& held, Use use, std::uint64_t version) {
    const GatheredView view = gtp->materialize(*held.weight, use, compute)[0];
    const auto bytes = static_cast<std::size_t>(view.padded_rows * view.cols) * 2;
    REQUIRE(used_ + bytes <= kArena);
    snapshots_.push_back({&held, version, used_, bytes});
    copy_bytes(arena_.data() + used_, view.row_data(), bytes, compute);
    used_ += bytes;
    return view;
  }
  GatheredView read(Held& held, Use use = Use::kForward) { return read(held, use, held.version); }

  /// Gradients that captures will use must exist before.
  void prepare(std::uint64_t round) {
    for (Held& held : weights) wgrad(held, round);
  }
  void reduce(Held& held, std::uint64_t round) {
    const DeviceArray<std::uint8_t>& source = wgrad(held, round);
    const WgradView view = gtp->grad_buffer(*held.weight, compute)[0];
    REQUIRE(view.type == held.wire);
    const auto count = static_cast<std::size_t>(view.rows * view.cols);
    if (view.accumulate) {
      backend.add_into(view.data, view.type, source.data(), view.type, count, 1.0F, compute, {held.weight->name(), ""});
    } else {
      copy_bytes(view.data, source.data(), count * element_bytes(view.type), compute);
    }
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

  void delay(std::int64_t milliseconds, Stream stream) {
    backend.host_function(sleep_milliseconds, reinterpret_cast<void*>(milliseconds), stream, {"delay", ""});
  }

  /// Waits, compares what readers have seen, and forgets it. The number of wrong readers.
  std::int64_t finish() {
    backend.synchronize(compute, kLimit);
    const std::int64_t wrong = wrong_readers();
    forget();
    return wrong;
  }
  void forget() {
    snapshots_.clear();
    used_ = 0;
  }
  std::int64_t wrong_readers() const {
    std::int64_t wrong = 0;
    for (const Snapshot& each : snapshots_) {
      std::vector<std::uint16_t> seen(each.bytes / 2);
      download(seen.data(), arena_.data() + each.offset, each.bytes);
      bool same = true;
      for (std::size_t i = 0; i < seen.size(); ++i) {
        same = same && seen[i] == bf16(value(*each.held, each.version, static_cast<std::int64_t>(i)));
      }
      if (!same) ++wrong;
    }
    return wrong;
  }

  std::vector<float> main_grad(const Held& held) const {
    const std::vector<std::uint8_t> bytes = held.main_grad.get();
    const ElementType type = held.weight->spec().main_grad_type;
    std::vector<float> values(bytes.size() / element_bytes(type));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = load(bytes, type, i);
    return values;
  }
  /// Elements of main_grads that are not the sum over the group's ranks and these rounds, times factor.
  std::int64_t wrong_grads(const std::vector<std::uint64_t>& rounds, float factor) const {
    std::int64_t wrong = 0;
    for (const Held& held : weights) {
      const std::vector<float> values = main_grad(held);
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (values[i] != expected_grad(held, static_cast<std::int64_t>(i), rounds, factor)) ++wrong;
      }
    }
    return wrong;
  }

  CudaBackend& backend;
  Stream compute{};
  std::deque<Held> weights;
  std::unique_ptr<Runtime> gtp;

 private:
  static constexpr std::size_t kArena = std::size_t{192} << 20;
  struct Snapshot {
    Held* held;
    std::uint64_t version;
    std::size_t offset;
    std::size_t bytes;
  };

  void copy_bytes(void* to, const void* from, std::size_t bytes, Stream stream) {
    backend.copy(to, ElementType::kByte, from, ElementType::kByte, bytes, stream, {"rig", ""});
  }
  static float load(const std::vector<std::uint8_t>& bytes, ElementType type, std::size_t i) {
    if (type == ElementType::kFloat32) return reinterpret_cast<const float*>(bytes.data())[i];
    return from_bf16(reinterpret_cast<const std::uint16_t*>(bytes.data())[i]);
  }
  float expected_grad(const Held& held, std::int64_t index, const std::vector<std::uint64_t>& rounds,
                      float factor) const {
    const ShardLayout& layout = held.weight->layout();
    const std::int64_t whole = layout.row_begin(held.weight->group().position()) * layout.cols() + index;
    if (whole >= layout.rows() * layout.cols()) return 0;
    float sum = 0;
    for (const std::uint64_t round : rounds) {
      for (const std::int64_t rank : held.weight->group().ranks()) sum += wgrad_value(rank, held.id, round, whole);
    }
    return sum * factor;
  }
  const DeviceArray<std::uint8_t>& wgrad(Held& held, std::uint64_t round) {
    const auto known = held.wgrads.find(round);
    if (known != held.wgrads.end()) return known->second;
    const ShardLayout& layout = held.weight->layout();
    const auto count = static_cast<std::size_t>(layout.rows() * layout.cols());
    std::vector<std::uint8_t> bytes(count * element_bytes(held.wire));
    for (std::size_t i = 0; i < count; ++i) {
      const float next = wgrad_value(backend.rank(), held.id, round, static_cast<std::int64_t>(i));
      if (held.wire == ElementType::kFloat32) {
        reinterpret_cast<float*>(bytes.data())[i] = next;
      } else {
        reinterpret_cast<std::uint16_t*>(bytes.data())[i] = bf16(next);
      }
    }
    return held.wgrads.emplace(round, DeviceArray<std::uint8_t>(bytes)).first->second;
  }

  DeviceArray<std::uint8_t> arena_;
  std::size_t used_ = 0;
  std::vector<Snapshot> snapshots_;
  std::deque<DeviceArray<std::uint16_t>> kept_;
};

/// The status a call throws with and its text, or "nothing was thrown".
struct Refusal {
  bool thrown = false;
  RuntimeStatus status{};
  std::string text;
};
template <class Call>
Refusal refusal(Call&& call) {
  try {
    call();
  } catch (const RuntimeError& error) {
    return {true, error.status(), error.text()};
  }
  return {};
}

}  // namespace gtp::test
