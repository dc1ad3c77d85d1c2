#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "tools/json_writer.hpp"
#include "tools/ranks.hpp"
#include "tools/render.hpp"

namespace gtp::cli {

namespace {

using Layout = JsonWriter::Layout;
using planner::FamilyPlacement;
using planner::PlacementAdvice;

constexpr std::array<std::string_view, 7> kColumns{"family",    "groups", "size",    "in_node",
                                                   "in_domain", "cross",  "one_rail"};

std::array<std::string, kColumns.size()> cells_of(const FamilyPlacement& count) {
  return {std::string(count.family->name),  fmt::format("{}", count.groups),    fmt::format("{}", count.size),
          fmt::format("{}", count.in_host), fmt::format("{}", count.in_domain), fmt::format("{}", count.crossing),
          count.one_rail ? "yes" : "no"};
}

template <class Cells>
std::string row_of(const Cells& cells, TableStyle style) {
  constexpr std::array<std::size_t, kColumns.size()> kWidths{18, 9, 9, 9, 9, 9, 8};
  std::string row;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (style == TableStyle::Aligned)
      row += i == 0 ? fmt::format("{:{}}", cells[i], kWidths[i]) : fmt::format("  {:>{}}", cells[i], kWidths[i]);
    else
      row += fmt::format("{}{}", i == 0 ? "" : style == TableStyle::Csv ? "," : "\t", cells[i]);
  }
  return row + '\n';
}

void write_counts(JsonWriter& json, const FamilyPlacement& count) {
  json.key(count.family->name);
  json.begin_object(Layout::Inline);
  json.field("groups", count.groups);
  json.field("size", count.size);
  json.field("in_node", count.in_host);
  json.field("in_domain", count.in_domain);
  json.field("cross", count.crossing);
  json.field("one_rail", count.one_rail);
  json.end();
}

std::string text_of(const std::vector<planner::SizeChange>& changes) {
  std::string text;
  for (const planner::SizeChange& change : changes)
    text += fmt::format("{}{} {}", text.empty() ? "" : " and ", change.option, change.value);
  return text;
}

std::string text_of(const PlacementAdvice& advice) {
  std::string help;
  if (advice.crossing_reordered) help = fmt::format("with --place {} would", *advice.crossing_reordered);
  if (!advice.sizes.empty())
    help += fmt::format("{}with {} none would", help.empty() ? "" : ", and ", text_of(advice.sizes));
  return fmt::format("{} of {} {} groups leave their NVLink domain; {}", advice.crossing, advice.groups, advice.family,
                     help);
}

void write_advice(JsonWriter& json, const PlacementAdvice& advice) {
  json.begin_object(Layout::Inline);
  json.field("family", advice.family);
  json.field("cross", advice.crossing);
  if (advice.crossing_reordered) json.field("cross_reordered", *advice.crossing_reordered);
  json.key("options");
  json.begin_object(Layout::Inline);
  for (const planner::SizeChange& change : advice.sizes) json.field(change.option, change.value);
  json.end();
  json.field("message", text_of(advice));
  json.end();
}

}  // namespace

RankPlacement::RankPlacement(const Cluster& cluster, const RankMap& map, bool place)
    : cluster_(cluster), map_(map), placed_(place) {
  const std::int64_t world_size = map.topology.world_size;
  planner::LayoutResult result = planner::make_layout(cluster, world_size, map.gpus_per_node);
  if (!result.layout) throw CouldNotRun{result.problem, "correct --cluster, or the sizes of the job"};
  before_ = counts_ = planner::count_placements(map.topology, *result.layout);
  layout_ = std::move(result.layout);
  std::optional<planner::HostLayout> better;
  if (!cluster.hosts.empty()) better_ = planner::reorder_hosts(cluster, map.topology, map.gpus_per_node);
  if (std::is_sorted(better_.begin(), better_.end()))
    better_.clear();
  else
    better = planner::make_layout(cluster, world_size, map.gpus_per_node, better_).layout;
  if (placed_ && better) {
    layout_ = std::move(better);
    better.reset();
    counts_ = planner::count_placements(map.topology, *layout_);
  }
  advice_ = planner::advise_placement(map.report.derivation.facts.config(), map.topology, *layout_,
                                      better ? &*better : nullptr);
}

std::vector<std::string> RankPlacement::hosts() const {
  std::vector<std::string> names;
  std::vector<std::size_t> order(cluster_.hosts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (const std::size_t number : placed_ && !better_.empty() ? better_ : order)
    names.push_back(cluster_.hosts[number].name);
  if (!names.empty()) names.resize(static_cast<std::size_t>(layout_->host_count(map_.topology.world_size)));
  return names;
}

std::vector<std::string> RankPlacement::warnings() const {
  std::vector<std::string> texts;
  for (const PlacementAdvice& advice : advice_) texts.push_back(text_of(advice));
  return texts;
}

std::string RankPlacement::changes() const {
  std::string text;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    const FamilyPlacement &before = before_[i], &after = counts_[i];
    if (before.in_host != after.in_host || before.crossing != after.crossing)
      text +=
          fmt::format("{}: {} -> {} of {} groups stay on a host, {} -> {} leave their NVLink domain\n",
                      after.family->name, before.in_host, after.in_host, after.groups, before.crossing, after.crossing);
  }
  return text.empty() ? "the order of the hosts is as good as any that was tried\n" : text;
}

bool RankPlacement::shown(const FamilyPlacement& count) const {
  return std::find(map_.families.begin(), map_.families.end(), count.family) != map_.families.end();
}

void RankPlacement::write_table(TableStyle style, Output& output) const {
  if (style == TableStyle::Aligned) {
    const std::int64_t world_size = map_.topology.world_size;
    output.write(fmt::format("{} ranks on {} hosts in {} NVLink domains{}\n\n", world_size,
                             layout_->host_count(world_size), layout_->domain_count(world_size),
                             placed_ ? ", hosts reordered" : ""));
  }
  const auto write_rows = [&](const std::vector<FamilyPlacement>& counts) {
    output.write(row_of(kColumns, style));
    for (const FamilyPlacement& count : counts)
      if (shown(count)) output.write(row_of(cells_of(count), style));
  };
  write_rows(counts_);
  if (!placed_ || style != TableStyle::Aligned) return;
  output.write("\nbefore:\n");
  write_rows(before_);
  output.write(fmt::format("\nhosts:\n{}\n", fmt::join(hosts(), "\n")));
}

void RankPlacement::write_json(Output& output) const {
  std::string text;
  JsonWriter json(text);
  const auto write_all = [&](std::string_view key, const std::vector<FamilyPlacement>& counts) {
    json.key(key);
    json.begin_object();
    for (const FamilyPlacement& count : counts)
      if (shown(count)) write_counts(json, count);
    json.end();
  };
  const std::int64_t world_size = map_.topology.world_size;
  json.begin_object();
  json.field("world_size", world_size);
  json.key("derived");
  write_derived(json, map_.report);
  json.key("cluster");
  json.begin_object(Layout::Inline);
  json.field("name", cluster_.name);
  json.field("hosts", layout_->host_count(world_size));
  json.field("domains", layout_->domain_count(world_size));
  json.end();
  write_all("placement", counts_);
  if (placed_) {
    write_all("before", before_);
    json.field("hosts", hosts());
  }
  json.key("warnings");
  json.begin_array();
  for (const PlacementAdvice& advice : advice_) write_advice(json, advice);
  json.end();
  json.end();
  output.write(text);
}

}  // namespace gtp::cli
