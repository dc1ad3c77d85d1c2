// Backward against differences of forward, and the pieces that other tests lean on.
#include "examples/train/exact_sum.hpp"
#include "examples/train/synthetic.hpp"
#include "kernels/format/bf16.hpp"
#include "runs.hpp"

using namespace gtp;
using namespace gtp::test;
using namespace gtp::train;

namespace {

/// The largest gap between gradients of a tensor and central differences of the loss, relative where they are large.
/// Steps are whole bf16 values, so that rounding the weights does not blur them.
double largest_gap(const ModelShape& shape, const std::string& tensor) {
  ReferenceModel model(shape, 5, 1);
  Tensors grads, ignored;
  model.microbatch(7, 0, 2, 1.0F, grads);
  Vector& master = model.masters.at(tensor);
  for (float& value : master) value = to_float(to_bf16(value));
  double largest = 0.0;
  for (std::size_t i = 0; i < master.size(); i += 1 + master.size() / 16) {
    const float value = master[i];
    const auto loss_at = [&](float at) {
      master[i] = to_float(to_bf16(at));
      model.round_weights();
      return std::pair{model.microbatch(7, 0, 2, 1.0F, ignored), static_cast<double>(master[i])};
    };
    const auto [above, x1] = loss_at(value + 0.01F);
    const auto [below, x0] = loss_at(value - 0.01F);
    loss_at(value);
    const double slope = (above - below) / (x1 - x0);
    const double gap = std::fabs(slope - static_cast<double>(grads.at(tensor)[i]));
    largest = std::max(largest, gap / (1.0 + std::fabs(slope)));
  }
  return largest;
}

}  // namespace

TEST_CASE("gradients of a dense model are the slopes of its loss") {
  const ModelShape shape{.layers = 1, .hidden = 8, .heads = 2, .ffn = 8, .vocab = 16, .seq = 4};
  for (const std::string tensor :
       {"embedding", "position", "layers.0.norm1.gain", "layers.0.norm1.bias", "layers.0.qkv", "layers.0.proj",
        "layers.0.norm2.gain", "layers.0.fc1", "layers.0.fc2", "final_norm.gain", "final_norm.bias", "head"}) {
    INFO(tensor);
    CHECK(largest_gap(shape, tensor) < 0.01);
  }
}

TEST_CASE("gradients of a mixture of experts are the slopes of its loss") {
  const ModelShape shape{
      .layers = 1, .hidden = 8, .heads = 2, .ffn = 8, .vocab = 16, .seq = 4, .experts = 3, .topk = 3};
  for (const std::string tensor :
       {"layers.0.router", "layers.0.experts.fc1.1", "layers.0.experts.fc2.2", "layers.0.norm2.bias", "layers.0.qkv"}) {
    INFO(tensor);
    CHECK(largest_gap(shape, tensor) < 0.01);
  }
}

TEST_CASE("a sum of squares is the same in any order and grouping") {
  const std::vector<float> values{1e-9F, 3.5F, -1024.0F, 1.25e-3F, 7e5F, 0.1F, -0.3F};
  ExactSum forward, backward, left, right;
  double plain = 0.0;
  for (const float value : values) {
    forward.add_square(value);
    plain += static_cast<double>(value) * static_cast<double>(value);
  }
  for (std::size_t i = values.size(); i-- > 0;) backward.add_square(values[i]);
  for (std::size_t i = 0; i < values.size(); ++i) (i % 2 == 0 ? left : right).add_square(values[i]);
  right.add(left);
  CHECK(forward.value() == backward.value());
  CHECK(forward.value() == right.value());
  CHECK(forward.value() == doctest::Approx(plain).epsilon(1e-15));
}

TEST_CASE("a gradient that is not finite makes the sum of squares infinite") {
  for (const float value : {INFINITY, NAN, 3e6F}) {
    ExactSum sum, total;
    sum.add_square(value);
    total.add(sum);
    CHECK(std::isinf(total.value()));
  }
}

TEST_CASE("samples and initial weights are functions of seed and index") {
  std::vector<std::int32_t> one(9), other(9);
  make_sample(one, 1, DataSplit::kTrain, 3, 32);
  make_sample(other, 1, DataSplit::kTrain, 3, 32);
  CHECK(one == other);
  for (const std::int32_t token : one) CHECK((token >= 0 && token < 32));
  make_sample(other, 1, DataSplit::kValidation, 3, 32);
  CHECK(one != other);
  make_sample(other, 1, DataSplit::kTrain, 4, 32);
  CHECK(one != other);
  CHECK(uniform(1, "head", 5) == uniform(1, "head", 5));
  CHECK(uniform(1, "head", 5) != uniform(1, "head", 6));
  CHECK(uniform(1, "head", 5) != uniform(1, "embedding", 5));
}

TEST_CASE("work can also go through the host functions of a backend") {
  const PlanValues plan = dense_plan(2, 1, 2, 2);
  const WorldRun by_kernels = run_on_threads(plan, {}, {.steps = 2});
  HostWorld world({.ranks = 2, .seed = 1, .detect_races = false});
  std::vector<TrainLog> logs(2);
  const auto ends = world.run([&](std::int64_t rank, HostBackend& backend) {
    FunctionLauncher launcher(backend);
    logs[static_cast<std::size_t>(rank)] = train::train(plan, {}, {.steps = 2}, {backend, launcher, rank});
  });
  for (const RankOutcome& end : ends) {
    INFO(end.text);
    REQUIRE(end.ok());
  }
  CHECK(differing(*assemble(logs), by_kernels.weights) == 0);
}
