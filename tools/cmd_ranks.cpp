// gtplan ranks: who is where, and who talks to whom.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>

#include <gtp/assign.hpp>

#include "tools/commands.hpp"
#include "tools/ranks.hpp"
#include "tools/render.hpp"

namespace gtp::cli {

namespace {

constexpr std::array<std::string_view, 7> kFormats{"text", "table",          "json",        "csv",
                                                   "tsv",  "slurm-hostfile", "mpi-rankfile"};

constexpr const char* kDescription =
    "Lays out the ranks of a valid configuration: where each one is on the dense and on the expert grid, and the\n"
    "members of the 22 families of process groups, in upstream's order.";
constexpr const char* kExamples =
    "Examples:\n"
    "  gtplan ranks --world-size 64 config.yaml                        a row for each rank\n"
    "  gtplan ranks --world-size 64 config.yaml --rank 13              everything about one rank\n"
    "  gtplan ranks plan.json --format json --group gtp_remat,ep       the ranks of every group of two families\n"
    "  gtplan ranks plan.json --format json --digest                   to compare two layouts\n"
    "  gtplan ranks plan.json --gpus-per-node 8 --format mpi-rankfile -o rankfile\n"
    "  gtplan ranks plan.json --cluster gb200-nvl72 --placement        which groups leave a host or an NVLink domain\n"
    "  gtplan ranks plan.json --cluster slurm --cluster topology.txt --place --format slurm-hostfile\n"
    "\n"
    "Hosts that no --cluster lists are called node00, node01, ...: replace them by those that the scheduler gave.";

struct Options {
  InputOptions input;
  std::vector<std::string> groups;
  std::optional<std::string> rank;
  bool digest = false;
  bool placement = false;
  bool place = false;
};

/// All families when none is named. In upstream's order, whatever the order of the names.
std::vector<const GroupFamilyRow*> select_families(const std::vector<std::string>& names) {
  std::vector<std::string_view> known;
  for (const GroupFamilyRow& row : kGroupFamilies) known.push_back(row.name);
  for (const std::string& name : names) expect_choice("--group", name, known);
  std::vector<const GroupFamilyRow*> families;
  for (const GroupFamilyRow& row : kGroupFamilies)
    if (names.empty() || std::find(names.begin(), names.end(), row.name) != names.end()) families.push_back(&row);
  return families;
}

/// What is wanted, once every word is understood.
struct Wanted {
  std::string_view format;
  std::vector<const GroupFamilyRow*> families;
  bool some_families = false;
  std::optional<std::int64_t> rank;
  bool digest = false;
  bool placement = false;  ///< instead of ranks
  bool place = false;

  [[nodiscard]] bool json() const { return format == "json"; }
  [[nodiscard]] bool hostfile() const { return format == "slurm-hostfile" || format == "mpi-rankfile"; }
};

void expect_consistent(const Wanted& wanted) {
  if (wanted.rank && wanted.digest)
    throw CouldNotRun{"--rank and --digest exclude each other", "a digest covers the groups of all ranks"};
  if (wanted.rank && !wanted.json() && wanted.format != "text" && wanted.format != "table")
    throw CouldNotRun{fmt::format("--rank has no format `{}`", wanted.format), "use text or json"};
  if (wanted.hostfile() && (wanted.digest || wanted.some_families))
    throw CouldNotRun{fmt::format("the format `{}` knows no groups", wanted.format), "leave out --group and --digest"};
  if (wanted.placement && (wanted.rank || wanted.digest || wanted.hostfile()))
    throw CouldNotRun{"--placement counts groups, and shows no ranks", "leave out --rank, --digest and host files"};
}

/// Without a host file to be written, --place shows what it does.
bool shows_placement(const Options& options, std::string_view format) {
  return options.placement || (options.place && format != "slurm-hostfile" && format != "mpi-rankfile");
}

Wanted understand(const Options& options) {
  const std::string_view format = format_of(options.input, kFormats);
  Wanted wanted{.format = format,
                .families = select_families(options.groups),
                .some_families = !options.groups.empty(),
                .rank = {},
                .digest = options.digest,
                .placement = shows_placement(options, format),
                .place = options.place};
  if (options.rank) {
    wanted.rank = parse_int(*options.rank).value;
    if (!wanted.rank) throw CouldNotRun{fmt::format("--rank `{}` is not a number of a rank", *options.rank)};
  }
  expect_consistent(wanted);
  return wanted;
}

void expect_listable(const Wanted& wanted, std::int64_t world_size) {
  if (wanted.rank && (*wanted.rank < 0 || *wanted.rank >= world_size))
    throw CouldNotRun{fmt::format("there is no rank {} in a world of {}", *wanted.rank, world_size),
                      fmt::format("ranks are 0 to {}", world_size - 1)};
  if (!wanted.rank && world_size > kLargestListedWorld)
    throw CouldNotRun{fmt::format("a world of {} ranks is too large to be listed", world_size),
                      fmt::format("--rank R works for any world; lists end at {} ranks", kLargestListedWorld)};
}

TableStyle style_of(std::string_view format) {
  if (format == "csv") return TableStyle::Csv;
  return format == "tsv" ? TableStyle::Tsv : TableStyle::Aligned;
}

void write(const Wanted& wanted, const RankMap& map, Output& output) {
  if (wanted.rank)
    return wanted.json() ? write_one_rank_json(map, *wanted.rank, output)
                         : write_one_rank_text(map, *wanted.rank, output);
  if (wanted.json()) return write_groups_json(map, wanted.digest, output);
  if (wanted.format == "slurm-hostfile") return write_slurm_hostfile(map, output);
  if (wanted.format == "mpi-rankfile") return write_mpi_rankfile(map, output);
  if (wanted.digest) return write_digest_table(map, style_of(wanted.format), output);
  if (wanted.some_families) return write_group_table(map, style_of(wanted.format), output);
  write_rank_table(map, style_of(wanted.format), output);
}

/// A cluster that only says how large hosts are is what the job's options say, too.
Cluster cluster_of(const Checked& checked, std::optional<std::int64_t> gpus_per_node) {
  Cluster cluster = checked.loaded.cluster.value_or(Cluster{});
  if (!cluster.gpus_per_host) cluster.gpus_per_host = gpus_per_node;
  return cluster;
}

void write_placed(const Wanted& wanted, RankMap& map, const Cluster& cluster, Output& output) {
  const RankPlacement placement(cluster, map, wanted.place);
  if (!wanted.json())
    for (const std::string& warning : placement.warnings()) write_error(fmt::format("warning: {}\n", warning));
  if (wanted.placement)
    return wanted.json() ? placement.write_json(output) : placement.write_table(style_of(wanted.format), output);
  if (wanted.place) write_error(placement.changes());
  map.hosts = placement.hosts();
  write(wanted, map, output);
}

Exit run(const Options& options) {
  using namespace literals;
  const Wanted wanted = understand(options);
  if (list_targets(options.input)) return Exit::Valid;
  CheckedList list = load_and_check(options.input);
  need_topology(list, "ranks");
  Checked& checked = list.configs.front();
  const bool listed = checked.loaded.cluster && !checked.loaded.cluster->hosts.empty();
  if (wanted.hostfile() || (wanted.placement && !listed)) need(checked, "ranks", std::array{"gpus_per_node"_opt});
  if (!report_unless_valid(list, options.input)) return list.exit();
  const Report& report = *checked.report;
  RankMap map{report, *report.derivation.topology, report.derivation.facts.integer("gpus_per_node"_opt),
              wanted.families};
  expect_listable(wanted, map.topology.world_size);
  if (wanted.place && !listed)
    throw CouldNotRun{"--place needs the hosts", "name them with --cluster FILE, or --cluster slurm inside of a job"};
  Output output(options.input.output);
  if (wanted.placement || (wanted.hostfile() && listed))
    write_placed(wanted, map, cluster_of(checked, map.gpus_per_node), output);
  else
    write(wanted, map, output);
  output.finish();
  return Exit::Valid;
}

}  // namespace

Action setup_ranks(Arguments& arguments) {
  const auto options = std::make_shared<Options>();
  arguments.describe(kDescription, kExamples);
  add_input_options(arguments, HowMany::One, kFormats, options->input);
  arguments.list("--group", options->groups, "NAME", "Only these families of groups; may be repeated");
  arguments.word("--rank", options->rank, "R", "One rank: coordinates, host and groups");
  arguments.flag("--placement", options->placement, "How many groups stay on a host, in an NVLink domain, or cross");
  arguments.flag("--place", options->place, "Reorder the hosts of --cluster so that groups fit");
  arguments.flag("--digest", options->digest, "The SHA-256 of each family's compact JSON instead of the ranks");
  return [options] { return run(*options); };
}

}  // namespace gtp::cli
