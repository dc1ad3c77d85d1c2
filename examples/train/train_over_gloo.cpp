#include "train_over_gloo.hpp"

#include <fmt/format.h>

#include "kernels/gloo_backend.hpp"

namespace gtp::train {

namespace {

class GlooLauncher final : public Launcher {
 public:
  explicit GlooLauncher(GlooBackend& backend) : backend_(backend) {}
  void launch(Stream stream, OpLabel label, std::span<const Access> accesses, std::function<void()> body) override {
    backend_.enqueue(stream, label, accesses, std::move(body));
  }

 private:
  GlooBackend& backend_;
};

}  // namespace

TrainLog train_over_gloo(const PlanValues& plan, const ModelShape& shape, const TrainOptions& options,
                         TraceSink* trace) {
  GlooWorld world = GlooWorld::from_environment();
  if (world.size() != plan.topology.world_size) {
    throw RuntimeError(RuntimeStatus::kInvalidPlan,
                       fmt::format("the job has {} processes, but the plan is for a world of {}", world.size(),
                                   plan.topology.world_size));
  }
  world.backend().set_trace(trace);
  GlooLauncher launcher(world.backend());
  return train(plan, shape, options, {world.backend(), launcher, world.rank()});
}

}  // namespace gtp::train
