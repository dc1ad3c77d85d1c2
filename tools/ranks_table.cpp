#include "tools/ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "tools/rank_columns.hpp"

namespace gtp::cli {

namespace {

std::size_t digits_of(std::int64_t number) { return fmt::formatted_size("{}", number); }

/// Writes rows cell by cell in one of the table styles.
class RowWriter {
 public:
  /// A column of an aligned table is as wide as its name, or as `widths` says if that is more.
  RowWriter(TableStyle style, std::span<const std::string_view> names, std::vector<std::size_t> widths, Output& output)
      : style_(style), output_(output), widths_(std::move(widths)) {
    for (std::size_t i = 0; i < names.size(); ++i) widths_[i] = std::max(names[i].size(), widths_[i]);
    for (std::size_t i = 0; i < names.size(); ++i) cell(i, names[i]);
    end_row();
  }

  void cell(std::size_t column, std::string_view text) {
    if (column > 0) row_ += style_ == TableStyle::Csv ? "," : style_ == TableStyle::Tsv ? "\t" : "  ";
    if (style_ == TableStyle::Aligned && text.size() < widths_[column]) row_.append(widths_[column] - text.size(), ' ');
    row_ += text;
  }

  void cell(std::size_t column, std::int64_t number) {
    std::array<char, 24> digits{};
    const std::to_chars_result end = std::to_chars(digits.data(), digits.data() + digits.size(), number);
    cell(column, std::string_view(digits.data(), static_cast<std::size_t>(end.ptr - digits.data())));
  }

  void end_row() {
    row_ += '\n';
    output_.write(row_);
    row_.clear();
  }

 private:
  TableStyle style_;
  Output& output_;
  std::vector<std::size_t> widths_;
  std::string row_;
};

std::string_view separator_of(TableStyle style) {
  switch (style) {
    case TableStyle::Csv:
      return ",";
    case TableStyle::Tsv:
      return "\t";
    case TableStyle::Aligned:
      break;
  }
  return "  ";
}

/// Where no cluster lists the hosts, names are placeholders for the launcher's own: equally long, in order.
class HostName {
 public:
  explicit HostName(const RankMap& map)
      : names_(map.hosts),
        width_(std::max<std::size_t>(2, digits_of((map.topology.world_size - 1) / *map.gpus_per_node))) {}
  [[nodiscard]] std::string operator()(std::int64_t host) const {
    return names_.empty() ? fmt::format("node{:0{}}", host, width_) : names_[static_cast<std::size_t>(host)];
  }

 private:
  const std::vector<std::string>& names_;
  std::size_t width_;
};

}  // namespace

void write_rank_table(const RankMap& map, TableStyle style, Output& output) {
  const Grid dense = dense_grid(map.topology), expert = expert_grid(map.topology);
  const std::int64_t last = dense.world_size() - 1;
  const AxisValues dense_last = *dense.coordinates(last), expert_last = *expert.coordinates(last);
  std::vector<std::string_view> names{"rank"};
  std::vector<std::size_t> widths{digits_of(last)};
  if (map.gpus_per_node) {
    names.insert(names.end(), {"host", "local_rank"});
    widths.insert(widths.end(), {digits_of(last / *map.gpus_per_node), digits_of(*map.gpus_per_node - 1)});
  }
  for (const RankColumn& column : kRankColumns) {
    names.push_back(column.name);
    widths.push_back(digits_of(column.of(dense_last, expert_last)));
  }
  RowWriter rows(style, names, std::move(widths), output);
  for (std::int64_t rank = 0; rank <= last; ++rank) {
    std::size_t at = 0;
    rows.cell(at++, rank);
    if (map.gpus_per_node) {
      rows.cell(at++, rank / *map.gpus_per_node);
      rows.cell(at++, rank % *map.gpus_per_node);
    }
    const AxisValues on_dense = *dense.coordinates(rank), on_expert = *expert.coordinates(rank);
    for (const RankColumn& column : kRankColumns) rows.cell(at++, column.of(on_dense, on_expert));
    rows.end_row();
  }
}

void write_group_table(const RankMap& map, TableStyle style, Output& output) {
  constexpr std::array<std::string_view, 4> kNames{"family", "group", "position", "rank"};
  const std::int64_t last = map.topology.world_size - 1;
  std::vector<std::size_t> widths(kNames.size(), digits_of(last));
  for (const GroupFamilyRow* row : map.families) widths[0] = std::max(widths[0], row->name.size());
  RowWriter rows(style, kNames, std::move(widths), output);
  for (const GroupFamilyRow* row : map.families) {
    const GroupFamily family = make_group_family(map.topology, *row);
    for (const GroupView group : family) {
      std::int64_t position = 0;
      for (const std::int64_t rank : group) {
        rows.cell(0, row->name);
        rows.cell(1, group.index());
        rows.cell(2, position++);
        rows.cell(3, rank);
        rows.end_row();
      }
    }
  }
}

void write_digest_table(const RankMap& map, TableStyle style, Output& output) {
  std::size_t longest = 0;
  if (style == TableStyle::Aligned)
    for (const GroupFamilyRow* row : map.families) longest = std::max(longest, row->name.size());
  const std::string_view separator = separator_of(style);
  output.write(fmt::format("{:{}}{}sha256\n", "family", longest, separator));
  for (const GroupFamilyRow* row : map.families)
    output.write(
        fmt::format("{:{}}{}{}\n", row->name, longest, separator, digest_of(make_group_family(map.topology, *row))));
}

void write_slurm_hostfile(const RankMap& map, Output& output) {
  const HostName name(map);
  for (std::int64_t rank = 0; rank < map.topology.world_size; ++rank)
    output.write(name(rank / *map.gpus_per_node) + '\n');
}

void write_mpi_rankfile(const RankMap& map, Output& output) {
  const HostName name(map);
  for (std::int64_t rank = 0; rank < map.topology.world_size; ++rank)
    output.write(fmt::format("rank {}={} slot={}\n", rank, name(rank / *map.gpus_per_node), rank % *map.gpus_per_node));
}

}  // namespace gtp::cli
