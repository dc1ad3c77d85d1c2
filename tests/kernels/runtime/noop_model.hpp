// A runtime on the no-op backend with a chain of weights: what is measured is the runtime's own host time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/noop_backend.hpp"
#include "kernels/runtime.hpp"

namespace gtp::test {

/// Of two ranks, `count` BF16 weights of one shape.
struct NoopModel {
  explicit NoopModel(std::size_t count, RuntimeOptions options = {}) {
    TopologyOptions plan;
    plan.world_size = 2;
    plan.tensor_parallel_num_weight_shards = 2;
    gtp = std::make_unique<Runtime>(backend, require_topology(plan), 0, options);
    const auto layout = make_shard_layout({64, 32, WeightFormat::kBf16, 16, 2});
    shard.resize(static_cast<std::size_t>(layout->shard_elements()));
    main_grad.resize(shard.size());
    for (std::size_t i = 0; i < count; ++i) {
      WeightSpec spec{.name = "w" + std::to_string(i), .layout = *layout, .shards = {}};
      spec.shards.push_back({{shard.data()}, main_grad.data()});
      weights.push_back(&gtp->add_weight(std::move(spec)));
    }
    compute = backend.create_stream("compute", StreamPriority::kNormal);
  }

  void forward() {
    for (ShardedWeight* weight : weights) gtp->materialize(*weight, Use::kForward, compute);
  }
  void backward() {
    for (auto weight = weights.rbegin(); weight != weights.rend(); ++weight) {
      gtp->materialize(**weight, Use::kDgrad, compute);
      gtp->grad_buffer(**weight, compute);
      gtp->reduce_grad(**weight, compute);
    }
  }
  void step() {
    forward();
    backward();
    gtp->fence_grads(compute);
    gtp->publish(weights, compute);
  }

  NoopBackend backend;
  std::vector<std::uint16_t> shard;
  std::vector<float> main_grad;
  std::unique_ptr<Runtime> gtp;
  std::vector<ShardedWeight*> weights;
  Stream compute{};
};

}  // namespace gtp::test
