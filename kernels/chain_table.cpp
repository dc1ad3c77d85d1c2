#include <fmt/format.h>

#include "kernels/runtime_core.hpp"

namespace gtp::detail {

namespace {

std::string_view format_name(WeightFormat format) noexcept {
  switch (format) {
    case WeightFormat::kBf16:
      return "BF16";
    case WeightFormat::kMxfp8:
      return "MXFP8";
    case WeightFormat::kNvfp4:
      return "NVFP4";
  }
  return "";
}

void add_order(std::string& text, const PrefetchChain& chain, bool recompute) {
  const auto order = chain.order(recompute);
  if (order.empty()) return;
  text += fmt::format("{}{}: {} weights, depth {}, {}\n", chain.name(), recompute ? " (recompute)" : "", order.size(),
                      chain.depth(), chain.sealed(recompute) ? "sealed" : "recording");
  text += fmt::format("  {:>4}  {:<32} {:>14}  {:<6} {:>7}  {:>4}  {}\n", "#", "weight", "shape", "format", "experts",
                      "slot", "group");
  for (std::size_t index = 0; index < order.size(); ++index) {
    const ShardedWeight& weight = *order[index];
    const ShardLayout& layout = weight.layout();
    text += fmt::format("  {:>4}  {:<32} {:>14}  {:<6} {:>7}  {:>4}  {}\n", index, weight.name(),
                        fmt::format("{}x{}", layout.padded_rows(), layout.cols()), format_name(layout.format()),
                        weight.shard_count(), weight.state().slots[recompute ? 1 : 0], weight.group().name());
  }
}

}  // namespace

std::string chain_table(const Core& core) {
  std::string text;
  for (const PrefetchChain& chain : core.chains) {
    add_order(text, chain, false);
    add_order(text, chain, true);
  }
  return text;
}

}  // namespace gtp::detail
