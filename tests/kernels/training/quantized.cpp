// Weights that are kept and gathered as MXFP8 or NVFP4: close to BF16, and the same however they are sharded.
#include "moe_plans.hpp"
#include "runs.hpp"

using namespace gtp;
using namespace gtp::test;
using namespace gtp::train;

namespace {

/// Every shard up to GTP_remat 4 has whole blocks of either format.
constexpr ModelShape kDense{.layers = 2, .hidden = 128, .heads = 4, .ffn = 128, .vocab = 32, .seq = 4};
constexpr ModelShape kMoe{
    .layers = 1, .hidden = 64, .heads = 4, .ffn = 64, .vocab = 32, .seq = 4, .experts = 4, .topk = 2};

TrainOptions with_format(WeightFormat format, std::int64_t steps = 3) {
  TrainOptions options;
  options.steps = steps;
  options.weight_format = format;
  return options;
}

/// Loss by loss, relative.
double loss_gap(const WorldRun& a, const WorldRun& b) {
  double largest = 0.0;
  const std::vector<double> x = losses_of(a.ranks[0]), y = losses_of(b.ranks[0]);
  REQUIRE(x.size() == y.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    REQUIRE(std::isfinite(x[i]));
    largest = std::max(largest, std::fabs(x[i] - y[i]) / y[i]);
  }
  return largest;
}

void check_equal(const WorldRun& sharded, const WorldRun& whole) {
  CHECK(differing(sharded.weights, whole.weights) == 0);
  CHECK(losses_of(sharded.ranks[0]) == losses_of(whole.ranks[0]));
}

}  // namespace

TEST_CASE("a dense model with MXFP8 weights is the same with GTP_remat 2 and 4 as without it, bit for bit") {
  for (const std::int64_t shards : {2, 4}) {
    const TrainOptions options = with_format(WeightFormat::kMxfp8);
    const WorldRun whole = run_on_threads(dense_plan(shards, 1, 1, shards), kDense, options);
    const WorldRun sharded = run_on_threads(dense_plan(shards, 1, shards, shards), kDense, options);
    check_equal(sharded, whole);
    CHECK(whole.ranks[0].counters.gathers == 0);
    CHECK(sharded.ranks[0].counters.gathers > 0);
  }
}

TEST_CASE("a dense model with NVFP4 weights is the same with GTP_remat 2 and 4 as without it, bit for bit") {
  for (const std::int64_t shards : {2, 4}) {
    const TrainOptions options = with_format(WeightFormat::kNvfp4);
    const WorldRun whole = run_on_threads(dense_plan(shards, 1, 1, shards), kDense, options);
    const WorldRun sharded = run_on_threads(dense_plan(shards, 1, shards, shards), kDense, options);
    check_equal(sharded, whole);
    CHECK(sharded.ranks[0].calls.amax == 4);  // before the first step, and after each
  }
}

TEST_CASE("experts with quantized weights are the same with EGTP_remat 2 as without it, bit for bit") {
  for (const WeightFormat format : {WeightFormat::kMxfp8, WeightFormat::kNvfp4}) {
    const TrainOptions options = with_format(format, 2);
    check_equal(run_on_threads(moe_plan(2, 2, 1, 2, 2), kMoe, options),
                run_on_threads(moe_plan(2, 1, 1, 1, 2), kMoe, options));
    const std::string sums = "\"calculate_per_token_loss\": true";  // so that GTP_remat may differ from EGTP_remat
    check_equal(run_on_threads(moe_plan(4, 4, 2, 2, 4, sums), kMoe, options),
                run_on_threads(moe_plan(4, 1, 2, 1, 4, sums), kMoe, options));
  }
}

TEST_CASE("losses with quantized weights stay near those with BF16 weights") {
  const auto gap = [](WeightFormat format, const PlanValues& plan, const ModelShape& shape) {
    return loss_gap(run_on_threads(plan, shape, with_format(format)),
                    run_on_threads(plan, shape, with_format(WeightFormat::kBf16)));
  };
  for (const WeightFormat format : {WeightFormat::kMxfp8, WeightFormat::kNvfp4}) {
    const double limit = format == WeightFormat::kMxfp8 ? 0.02 : 0.1;
    const double dense = gap(format, dense_plan(2, 1, 2, 4), kDense);
    CHECK(dense < limit);
    CHECK(dense > 1e-5);                                              // so that the format is at work
    CHECK(gap(format, moe_plan(2, 2, 1, 2, 4), kMoe) < 2.5 * limit);  // some tokens go to other experts
  }
}

TEST_CASE("quantized gathers move as many bytes as their layout says, and half of them or fewer than BF16") {
  const PlanValues plan = dense_plan(2, 1, 2, 2);
  const auto bytes = [&](WeightFormat format) {
    return run_on_threads(plan, kDense, with_format(format, 1)).ranks[0].counters.gathered_bytes;
  };
  const std::int64_t bf16 = bytes(WeightFormat::kBf16);
  const std::int64_t rest = 3 * 2 * 16 * 128;  // embedding forward, head forward and backward
  CHECK((bytes(WeightFormat::kMxfp8) - rest) * 20 < (bf16 - rest) * 11);
  CHECK((bytes(WeightFormat::kNvfp4) - rest) * 20 < (bf16 - rest) * 6);
}

TEST_CASE("quantized weights learn with TP and replicas too, whatever the order of streams") {
  const PlanValues plan = dense_plan(8, 2, 4, 4);
  for (const WeightFormat format : {WeightFormat::kMxfp8, WeightFormat::kNvfp4}) {
    const WorldRun first = run_on_threads(plan, kDense, with_format(format, 2), 1);
    const WorldRun second = run_on_threads(plan, kDense, with_format(format, 2), 77);
    CHECK(differing(first.weights, second.weights) == 0);
    CHECK(std::isfinite(first.ranks[0].steps[1].loss));
  }
}

TEST_CASE("a shape without whole blocks is refused by name") {
  HostWorld world({.ranks = 1, .seed = 1});
  HostLauncher launcher(world.backend(0));
  const auto refused = [&] {
    train::train(dense_plan(1, 1, 1, 4), {.hidden = 48, .heads = 4}, with_format(WeightFormat::kMxfp8),
                 {world.backend(0), launcher, 0});
  };
  CHECK_THROWS_WITH(refused(), "layers.0.qkv: rows of an MXFP8 shard must be a multiple of 32");
}
