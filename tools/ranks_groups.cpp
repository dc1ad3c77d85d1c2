#include "tools/ranks.hpp"

#include <fmt/format.h>
#include <nettle/sha2.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "tools/json_writer.hpp"
#include "tools/render.hpp"

namespace gtp::cli {

namespace {

using Layout = JsonWriter::Layout;

constexpr std::size_t kMostMembersShown = 16, kMembersBeforeGap = 8;

/// The axes that have a meaning on a grid: there is no EP on the dense one, no CP on the expert one.
constexpr bool has_axis(GridKind kind, Axis axis) { return axis != (kind == GridKind::kDense ? Axis::kEp : Axis::kCp); }

std::string members_text(const GroupView& group) {
  std::string text;
  std::size_t at = 0;
  const auto size = static_cast<std::size_t>(group.size());
  for (const std::int64_t rank : group) {
    if (size > kMostMembersShown && at == kMembersBeforeGap) break;
    if (at++ > 0) text += ' ';
    text += fmt::format("{}", rank);
  }
  return at == size ? text : fmt::format("{} ... ({} ranks)", text, size);
}

std::string coordinates_text(const Topology& topology, GridKind kind, std::int64_t rank) {
  const Grid grid = make_grid(kind, topology);
  const AxisValues at = *grid.coordinates(rank);
  std::string text;
  for (const GridAxis& axis : grid.axes())
    if (has_axis(kind, axis.axis))
      text += fmt::format("  {} {}/{}", axis_token(axis.axis), at[axis_index(axis.axis)], axis.size);
  return text;
}

void write_coordinates(JsonWriter& json, const Topology& topology, GridKind kind, std::int64_t rank) {
  const Grid grid = make_grid(kind, topology);
  const AxisValues at = *grid.coordinates(rank);
  json.begin_object(Layout::Inline);
  for (const GridAxis& axis : grid.axes())
    if (has_axis(kind, axis.axis)) json.field(axis_token(axis.axis), at[axis_index(axis.axis)]);
  json.end();
}

/// What a JSON writer has collected, passed on.
void drain(std::string& text, Output& output) {
  output.write(text);
  text.clear();
}

void write_members(JsonWriter& json, const GroupView& group, std::string& text, Output& output) {
  if (group.size() > kLargestListedWorld) return json.null();
  json.begin_array(Layout::Inline);
  for (const std::int64_t rank : group) {
    json.value(rank);
    drain(text, output);
  }
  json.end();
}

void write_place(JsonWriter& json, const RankMap& map, const GroupFamilyRow& row, std::int64_t rank, std::string& text,
                 Output& output) {
  const GroupFamily family = make_group_family(map.topology, row);
  const std::optional<GroupPlace> place = family.group_of(rank);
  json.key(row.name);
  if (!place) return json.null();
  json.begin_object(Layout::Inline);
  json.field("index", place->group);
  json.field("position", place->position);
  json.field("size", family.size());
  json.key("members");
  write_members(json, *family.group(place->group), text, output);
  json.end();
}

}  // namespace

std::string digest_of(const GroupFamily& family) {
  sha256_ctx state;
  sha256_init(&state);
  write_json(family, [&](std::string_view piece) {
    sha256_update(&state, piece.size(), reinterpret_cast<const std::uint8_t*>(piece.data()));
  });
  std::array<std::uint8_t, SHA256_DIGEST_SIZE> digest{};
  sha256_digest(&state, digest.size(), digest.data());
  std::string text;
  for (const std::uint8_t byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

void write_groups_json(const RankMap& map, bool digest, Output& output) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.field("world_size", map.topology.world_size);
  json.key("derived");
  write_derived(json, map.report);
  json.key("groups");
  json.begin_object();
  for (const GroupFamilyRow* row : map.families) {
    const GroupFamily family = make_group_family(map.topology, *row);
    json.key(row->name);
    if (digest) {
      json.value(digest_of(family));
    } else {
      json.raw();
      drain(text, output);
      write_json(family, [&](std::string_view piece) { output.write(piece); });
    }
  }
  json.end();
  json.end();
  drain(text, output);
}

void write_one_rank_text(const RankMap& map, std::int64_t rank, Output& output) {
  output.write(fmt::format("rank {} of {}\n", rank, map.topology.world_size));
  if (map.gpus_per_node)
    output.write(fmt::format("host {}, local rank {}\n", rank / *map.gpus_per_node, rank % *map.gpus_per_node));
  output.write(fmt::format("dense grid {}\n", coordinates_text(map.topology, GridKind::kDense, rank)));
  output.write(fmt::format("expert grid{}\n\n", coordinates_text(map.topology, GridKind::kExpert, rank)));
  output.write(fmt::format("{:18}  {:>8}  {:>8}  {:>8}  ranks\n", "family", "group", "position", "size"));
  for (const GroupFamilyRow* row : map.families) {
    const GroupFamily family = make_group_family(map.topology, *row);
    const std::optional<GroupPlace> place = family.group_of(rank);
    if (place)
      output.write(fmt::format("{:18}  {:>8}  {:>8}  {:>8}  {}\n", row->name, place->group, place->position,
                               family.size(), members_text(*family.group(place->group))));
    else
      output.write(fmt::format("{:18}  {:>8}  {:>8}  {:>8}\n", row->name, "-", "-", "-"));
  }
}

void write_one_rank_json(const RankMap& map, std::int64_t rank, Output& output) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.field("world_size", map.topology.world_size);
  json.field("rank", rank);
  if (map.gpus_per_node) {
    json.field("host", rank / *map.gpus_per_node);
    json.field("local_rank", rank % *map.gpus_per_node);
  }
  json.key("derived");
  write_derived(json, map.report);
  json.key("dense");
  write_coordinates(json, map.topology, GridKind::kDense, rank);
  json.key("expert");
  write_coordinates(json, map.topology, GridKind::kExpert, rank);
  json.key("groups");
  json.begin_object();
  for (const GroupFamilyRow* row : map.families) write_place(json, map, *row, rank, text, output);
  json.end();
  json.end();
  drain(text, output);
}

}  // namespace gtp::cli
