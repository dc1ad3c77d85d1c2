#include "tools/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include <gtp/grid.hpp>
#include <gtp/groups.hpp>

#include "tools/json_writer.hpp"
#include "tools/render.hpp"

namespace gtp::cli {

namespace {

using Layout = JsonWriter::Layout;

/// In the order of names. An option of which the input gave no value that could be known is a variable here too: left
/// out, its default would hold when the plan is read.
void write_options(JsonWriter& json, const Config& config) {
  json.begin_object();
  for (const OptionId option : sorted_options())
    if (const Setting* setting = config.given(option))
      json.field(name_of(option), setting->value);
    else if (config.given_unknown(option))
      json.field(name_of(option), fmt::format("${{{}}}", name_of(option)));
  json.end();
}

void write_checkpoint(JsonWriter& json, std::vector<Setting> settings) {
  std::sort(settings.begin(), settings.end(),
            [](const Setting& a, const Setting& b) { return name_of(a.option) < name_of(b.option); });
  json.begin_object();
  for (const Setting& setting : settings) json.field(name_of(setting.option), setting.value);
  json.end();
}

/// Of several variables of one name the last one counts.
void write_env(JsonWriter& json, const std::vector<Variable>& env) {
  std::vector<const Variable*> sorted;
  for (const Variable& variable : env) sorted.push_back(&variable);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Variable* a, const Variable* b) { return a->name < b->name; });
  json.begin_object();
  for (std::size_t i = 0; i < sorted.size(); ++i)
    if (i + 1 == sorted.size() || sorted[i + 1]->name != sorted[i]->name) json.field(sorted[i]->name, sorted[i]->value);
  json.end();
}

void write_grid(JsonWriter& json, std::string_view name, const Grid& grid, const AxisOrder& order) {
  json.key(name);
  json.begin_object();
  json.field("order", AxisOrderText(order).view());
  json.key("sizes");
  json.begin_object(Layout::Inline);
  for (const GridAxis& axis : grid.axes())
    if (order.contains(axis.axis)) json.field(axis_token(axis.axis), axis.size);
  json.end();
  json.end();
}

void write_grids(JsonWriter& json, const Topology& topology) {
  json.begin_object();
  write_grid(json, "dense", dense_grid(topology), dense_order(topology.pp_before_dp, topology.cp_before_gtp_remat));
  write_grid(json, "expert", expert_grid(topology), expert_order(topology.pp_before_dp));
  json.end();
}

void write_groups(JsonWriter& json, const Topology& topology) {
  json.begin_object();
  for (const GroupFamilyRow& row : kGroupFamilies) {
    const GroupFamily family = make_group_family(topology, row);
    json.key(row.name);
    json.begin_object(Layout::Inline);
    json.field("count", family.count());
    json.field("size", family.size());
    json.end();
  }
  json.end();
}

}  // namespace

std::string write_plan(const Checked& checked) {
  const Config& config = checked.loaded.config;
  const Topology& topology = *checked.report->derivation.topology;
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  json.field("format", "gtplan-plan");
  json.field("format_version", "1.0");
  json.field("target", config.target().name);
  json.key("options");
  write_options(json, config);
  if (config.env_known) {
    json.key("env");
    write_env(json, config.env);
  }
  if (!config.checkpoint.empty()) {
    json.key("checkpoint");
    write_checkpoint(json, config.checkpoint);
  }
  json.key("derived");
  write_derived(json, *checked.report);
  json.key("grids");
  write_grids(json, topology);
  json.key("groups");
  write_groups(json, topology);
  json.end();
  return out;
}

}  // namespace gtp::cli
