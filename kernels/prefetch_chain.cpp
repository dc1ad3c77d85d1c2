#include "kernels/prefetch_chain.hpp"

#include "kernels/weight_state.hpp"

namespace gtp {

namespace {

std::size_t index_of(Use use) noexcept { return static_cast<std::size_t>(use); }

}  // namespace

std::string PrefetchChain::name() const {
  std::string text = "GTP_remat";
  switch (key_.role) {
    case ChainRole::kGeneral:
      break;
    case ChainRole::kExpertFc1:
      text += "_grouped_fc1";
      break;
    case ChainRole::kExpertFc2:
      text += "_grouped_fc2";
      break;
  }
  text += key_.graphed ? "_graphed" : "_ungraphed";
  if (key_.model_chunk != 0) text += "_chunk" + std::to_string(key_.model_chunk);
  return text;
}

bool PrefetchChain::append(ShardedWeight& weight, bool recompute) {
  Order& order = orders_[recompute ? 1 : 0];
  std::size_t& position = weight.state().positions[recompute ? 1 : 0];
  if (order.sealed || position != detail::WeightState::kNowhere) return false;
  position = order.nodes.size();
  order.nodes.push_back(&weight);
  return true;
}

void PrefetchChain::seal(bool recompute) noexcept {
  Order& order = orders_[recompute ? 1 : 0];
  if (order.sealed || order.nodes.empty()) return;
  order.sealed = true;
  cursors_[index_of(recompute ? Use::kRecompute : Use::kForward)].expected = 0;
}

void PrefetchChain::end_passes() noexcept { cursors_ = {}; }

/// The node at a place along the direction of travel.
ShardedWeight* PrefetchChain::node(Use use, std::size_t place) const noexcept {
  const auto& nodes = order_of(use).nodes;
  return nodes[use == Use::kDgrad ? nodes.size() - 1 - place : place];
}

/// The first place from `place` on that this use visits: dgrad leaves out weights that backward does not read.
std::size_t PrefetchChain::next_visited(Use use, std::size_t place) const noexcept {
  const std::size_t size = order_of(use).nodes.size();
  while (use == Use::kDgrad && place < size && !node(use, place)->spec().needs_dgrad) ++place;
  return place;
}

Step PrefetchChain::advance(ShardedWeight& weight, Use use) {
  if (!order_of(use).sealed) {
    if (use != Use::kDgrad) append(weight, use == Use::kRecompute);
    return Step::kRecording;
  }
  const std::size_t position = weight.state().positions[use == Use::kRecompute ? 1 : 0];
  if (position == detail::WeightState::kNowhere) return Step::kForeign;
  const std::size_t size = order_of(use).nodes.size();
  const std::size_t place = use == Use::kDgrad ? size - 1 - position : position;
  return step_to(place, use);
}

/// A second visit of the first node is either a repeat (a shared embedding) or a new pass after one that broke off;
/// the visit after it tells.
Step PrefetchChain::step_to(std::size_t place, Use use) noexcept {
  Cursor& cursor = cursors_[index_of(use)];
  const std::size_t first = next_visited(use, 0);
  const bool finished = next_visited(use, cursor.expected) == order_of(use).nodes.size();
  if (place == first && (cursor.expected == 0 || finished)) {
    cursor.expected = place + 1;
    cursor.restart_candidate = false;
    return Step::kHead;
  }
  if (place >= cursor.expected) {
    cursor.expected = place + 1;
    cursor.restart_candidate = false;
    return Step::kNext;
  }
  if (cursor.restart_candidate && place == next_visited(use, first + 1)) {
    cursor.expected = place + 1;
    cursor.restart_candidate = false;
    return Step::kNext;
  }
  cursor.restart_candidate = place == first;
  return Step::kRepeat;
}

ShardedWeight* PrefetchChain::ahead(Use use, std::uint32_t distance) const noexcept {
  const Cursor& cursor = cursors_[index_of(use)];
  std::size_t place = next_visited(use, cursor.expected);
  for (; distance > 1; --distance) place = next_visited(use, place + 1);
  return place < order_of(use).nodes.size() ? node(use, place) : nullptr;
}

ShardedWeight* PrefetchChain::successor(const ShardedWeight& weight) const noexcept {
  const std::size_t position = weight.state().positions[0];
  const auto& nodes = orders_[0].nodes;
  return position == detail::WeightState::kNowhere || position + 1 >= nodes.size() ? nullptr : nodes[position + 1];
}

bool PrefetchChain::is_head(const ShardedWeight& weight) const noexcept { return weight.state().positions[0] == 0; }

}  // namespace gtp
