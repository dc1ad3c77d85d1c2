#include "weight_formats.hpp"

#include <utility>

#include "kernels/bookkeeping/nvfp4_amax.hpp"
#include "parameters.hpp"

namespace gtp::train {

namespace {

std::size_t index_of(Component component) noexcept { return static_cast<std::size_t>(component); }

std::span<const std::uint8_t> gathered(const GatheredView& view, const ShardLayout& layout, Component component) {
  const void* data = view.data[index_of(component)];
  if (data == nullptr) return {};
  return {static_cast<const std::uint8_t*>(data), static_cast<std::size_t>(layout.extent(component).gathered_bytes)};
}

}  // namespace

QuantizedShards::QuantizedShards(Rank& rank, WeightFormat format, std::array<std::size_t, 2> shards) : rank_(rank) {
  if (format != WeightFormat::kNvfp4) return;
  for (std::size_t i = 0; i < domains_.size(); ++i) {
    if (shards[i] == 0) continue;
    Domain& domain = domains_[i];
    ParamTags tags;
    tags.expert = i == 1;
    domain.amaxes = domain.own = rank.floats(shards[i]);
    auto group =
        std::make_unique<Group>(rank.backend(), group_of_plan(rank.topology(), amax_group_family(tags), rank.index()));
    if (group->size() == 1) continue;
    domain.own = rank.floats(shards[i]);
    domain.of_members = rank.floats(shards[i] * static_cast<std::size_t>(group->size()));
    domain.group = std::move(group);
  }
}

std::array<const void*, kComponentCount> QuantizedShards::add(const Parameter& parameter, const ShardLayout& layout,
                                                              Weights values) {
  Domain& domain = domains_[parameter.spec.is_expert() ? 1 : 0];
  const auto memory = [&](Component component) {
    const auto bytes = static_cast<std::size_t>(layout.extent(component).shard_bytes);
    return bytes == 0 ? std::span<std::uint8_t>{} : rank_.memory<std::uint8_t>(bytes);
  };
  QuantizedShard out{.format = layout.format(), .rows = layout.shard_rows(), .cols = layout.cols()};
  out.row_data = memory(Component::kRowData);
  out.row_scales = memory(Component::kRowScale);
  out.col_data = memory(Component::kColData);
  out.col_scales = memory(Component::kColScale);
  if (!domain.amaxes.empty()) out.amax = domain.amaxes.subspan(domain.shards.size(), 1);
  domain.shards.push_back({&parameter, out, values});
  return {out.row_data.data(), out.row_scales.data(), out.col_data.data(), out.col_scales.data(), out.amax.data()};
}

void QuantizedShards::exchange_amaxes(Domain& domain) {
  for (std::size_t i = 0; i < domain.shards.size(); ++i) {
    const Shard& shard = domain.shards[i];
    rank_.arithmetic().amax(rank_.task(shard.parameter->spec.name, "amax"), domain.own.subspan(i, 1), shard.values);
  }
  if (domain.group == nullptr) return;
  rank_.all_gather(*domain.group, std::as_writable_bytes(domain.of_members), std::as_bytes(domain.own),
                   {"weights", "amax"}, rank_.calls().amax);
  rank_.arithmetic().largest(rank_.task("weights", "amax"), domain.amaxes, domain.of_members);
}

void QuantizedShards::refresh() {
  for (Domain& domain : domains_) {
    if (!domain.amaxes.empty()) exchange_amaxes(domain);
    for (const Shard& shard : domain.shards) {
      rank_.arithmetic().quantize(rank_.task(shard.parameter->spec.name, "quantize"), shard.out, shard.values);
    }
  }
}

Weights usable_weight(Rank& rank, const Parameter& parameter, const GatheredView& view, CopyDirection direction) {
  const auto elements = static_cast<std::size_t>(view.rows * view.cols);
  const ShardLayout& layout = parameter.weight->layout();
  if (layout.format() == WeightFormat::kBf16) return {static_cast<const std::uint16_t*>(view.row_data()), elements};
  GatheredMatrix in{.format = layout.format(), .rows = view.padded_rows, .cols = view.cols};
  in.row_data = gathered(view, layout, Component::kRowData);
  in.row_scales = gathered(view, layout, Component::kRowScale);
  in.col_data = gathered(view, layout, Component::kColData);
  in.col_scales = gathered(view, layout, Component::kColScale);
  if (const void* amax = view.data[index_of(Component::kAmax)]) in.amax = {static_cast<const float*>(amax), 1};
  const auto out = parameter.scratch.first(static_cast<std::size_t>(layout.gathered_elements()));
  rank.arithmetic().dequantize(rank.task(parameter.spec.name, "dequantize"), out, in, direction);
  return out.first(elements);
}

}  // namespace gtp::train
