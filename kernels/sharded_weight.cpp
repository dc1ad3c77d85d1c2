#include "kernels/sharded_weight.hpp"

#include "kernels/weight_state.hpp"

namespace gtp {

ShardedWeight::ShardedWeight(WeightSpec spec, const Group& group)
    : spec_(std::move(spec)), group_(&group), state_(std::make_unique<detail::WeightState>()) {}

ShardedWeight::~ShardedWeight() = default;

std::uint64_t ShardedWeight::version() const noexcept { return state_->version; }

}  // namespace gtp
