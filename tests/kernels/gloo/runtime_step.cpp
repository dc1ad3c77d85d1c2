// Whole steps of the runtime between processes: every bit is that of the thread backend.
#include <doctest/doctest.h>

#include <cmath>
#include <deque>

#include "job.hpp"
#include "kernels/format/bf16.hpp"
#include "kernels/gloo_backend.hpp"
#include "kernels/runtime.hpp"

namespace gtp::test {

namespace {

constexpr std::chrono::milliseconds kLimit{30000};
constexpr std::int64_t kRows = 24;
constexpr std::int64_t kCols = 8;
constexpr int kWeights = 3;

/// Not exact in sums: the order of additions shows.
float value(std::int64_t rank, int weight, int round, std::size_t index) {
  return std::sin(static_cast<float>(rank * 31 + weight * 17 + round * 5) + static_cast<float>(index) * 0.37F);
}

struct Memory {
  std::vector<std::uint16_t> shard;
  std::vector<float> main_grad;
  ShardedWeight* weight = nullptr;
};

/// Everything that a rank can observe of its steps.
struct Result {
  std::vector<std::uint16_t> gathered;
  std::vector<float> main_grads;
  friend bool operator==(const Result&, const Result&) = default;
};

struct Choices {
  ElementType wire = ElementType::kFloat32;
  bool fp32_accumulation = false;
  bool graphed = false;
};

template <class Device>
class Trainer {
 public:
  Trainer(Device& backend, std::int64_t ranks, Choices choices)
      : backend_(backend), stream_(backend.create_stream("compute", StreamPriority::kNormal)), choices_(choices) {
    TopologyOptions options;
    options.world_size = ranks;
    options.tensor_parallel_num_weight_shards = ranks;
    RuntimeOptions runtime;
    runtime.gtp_remat_reduce_scatter_with_fp32_accumulation = choices.fp32_accumulation;
    runtime.graph_wgrad_ring_size = kWeights;
    gtp_ = std::make_unique<Runtime>(backend, require_topology(options), backend.rank(), runtime);
    for (int index = 0; index < kWeights; ++index) add(index);
  }

  Result run() {
    if (choices_.graphed) {
      run_graph();
    } else {
      for (int step = 0; step < 2; ++step) {
        microbatch(step * 2);
        microbatch(step * 2 + 1);
        gtp_->fence_grads(stream_);
      }
    }
    backend_.synchronize(stream_, kLimit);
    for (const Memory& memory : memory_) {
      result_.main_grads.insert(result_.main_grads.end(), memory.main_grad.begin(), memory.main_grad.end());
    }
    return result_;
  }

 private:
  void add(int index) {
    const std::int64_t ranks = gtp_->group(WeightDomain::kDense).size();
    const auto layout = make_shard_layout({kRows, kCols, WeightFormat::kBf16, 1, ranks});
    REQUIRE(layout);
    Memory& memory = memory_.emplace_back();
    memory.shard.resize(static_cast<std::size_t>(layout->shard_elements()));
    memory.main_grad.resize(memory.shard.size());
    for (std::size_t i = 0; i < memory.shard.size(); ++i) {
      memory.shard[i] = bits_of(to_bf16(value(backend_.rank(), index, 99, i)));
    }
    WeightSpec spec{.name = "w" + std::to_string(index),
                    .layout = *layout,
                    .shards = {{{memory.shard.data()}, memory.main_grad.data()}}};
    spec.wire_type = choices_.wire;
    spec.chain.graphed = choices_.graphed;
    memory.weight = &gtp_->add_weight(std::move(spec));
  }

  void microbatch(int round) {
    for (Memory& memory : memory_) read(memory, Use::kForward);
    for (auto memory = memory_.rbegin(); memory != memory_.rend(); ++memory) {
      read(*memory, Use::kDgrad);
      write_wgrad(*memory, round);
      gtp_->reduce_grad(*memory->weight, stream_);
    }
  }

  void read(Memory& memory, Use use) {
    const GatheredView view = gtp_->materialize(*memory.weight, use, stream_)[0];
    const std::span<const std::uint16_t> whole(static_cast<const std::uint16_t*>(view.row_data()),
                                               static_cast<std::size_t>(view.padded_rows * view.cols));
    backend_.enqueue(stream_, {memory.weight->name(), "gemm"}, {reads(whole)},
                     [this, whole] { result_.gathered.insert(result_.gathered.end(), whole.begin(), whole.end()); });
  }

  void write_wgrad(Memory& memory, int round) {
    const WgradView view = gtp_->grad_buffer(*memory.weight, stream_)[0];
    const auto count = static_cast<std::size_t>(view.rows * view.cols);
    const Access touched[] = {{view.data, count * element_bytes(view.type), true}};
    const int weight = static_cast<int>(memory.weight->name()[1]);
    backend_.enqueue(stream_, {memory.weight->name(), "wgrad"}, std::span<const Access>(touched), [=, this] {
      for (std::size_t i = 0; i < count; ++i) {
        const float next = value(backend_.rank(), weight, round, i);
        if (view.type == ElementType::kFloat32) {
          static_cast<float*>(view.data)[i] = next;
        } else {
          static_cast<std::uint16_t*>(view.data)[i] = bits_of(to_bf16(next));
        }
      }
    });
  }

  void run_graph() {
    gtp_->begin_warmup(stream_);
    microbatch(0);
    microbatch(0);
    gtp_->end_warmup(stream_);
    GraphScope& scope = gtp_->begin_capture("step", stream_);
    microbatch(1);
    gtp_->end_capture(scope);
    for (int replay = 0; replay < 4; ++replay) gtp_->replay(scope, stream_);
    gtp_->fence_grads(stream_);
  }

  Device& backend_;
  Stream stream_;
  Choices choices_;
  std::deque<Memory> memory_;
  Result result_;
  std::unique_ptr<Runtime> gtp_;
};

void compare_with_threads(Choices choices) {
  GlooWorld world = GlooWorld::from_environment(kLimit);
  std::vector<Result> expected(static_cast<std::size_t>(world.size()));
  HostWorld threads({.ranks = world.size(), .seed = 1});
  for (const RankOutcome& outcome : threads.run([&](std::int64_t rank, HostBackend&backend) {
         expected[static_cast<std::size_t>(rank)] = Trainer(backend, world.size(), choices).run();
       })) {
    INFO(outcome.text);
    REQUIRE(outcome.ok());
  }
  const Result result = Trainer(world.backend(), world.size(), choices).run();
  CHECK(!result.gathered.empty());
  CHECK(result.main_grads[0] != 0.0F);
  CHECK(result == expected[static_cast<std::size_t>(world.rank())]);
}

}  // namespace

TEST_CASE("child step" * doctest::skip()) { compare_with_threads({}); }
TEST_CASE("child fp32 accumulation" * doctest::skip()) {
  compare_with_threads({.wire = ElementType::kBFloat16, .fp32_accumulation = true});
}
TEST_CASE("child graph" * doctest::skip()) { compare_with_threads({.graphed = true}); }

TEST_CASE("steps of 2 and of 4 processes equal those of threads bit for bit") {
  CHECK(run_job("child step", 2) == "0 0");
  CHECK(run_job("child step", 4) == "0 0 0 0");
}

TEST_CASE("steps with fp32 accumulation of bf16 gradients equal those of threads bit for bit") {
  CHECK(run_job("child fp32 accumulation", 4) == "0 0 0 0");
}

TEST_CASE("captured steps that are replayed equal those of threads bit for bit") {
  CHECK(run_job("child graph", 2) == "0 0");
}

}  // namespace gtp::test
