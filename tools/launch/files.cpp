// The files that every launcher comes with.
#include <fmt/format.h>

#include <array>
#include <charconv>

#include <gtp/grid.hpp>

#include "tools/launch/job.hpp"
#include "tools/launch/quote.hpp"
#include "tools/rank_columns.hpp"

namespace gtp::cli {

namespace {

void append_number(std::string& text, std::int64_t number, char end) {
  std::array<char, 24> digits{};
  const auto [stop, error] = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  text.append(digits.data(), stop);
  text.push_back(end);
}

std::string sizes_text(const Topology& t) {
  return fmt::format(
      "{} ranks = TP {} x GTP_remat {} x CP {} x DP {} x PP {}; experts: ETP {} x EP {} x EGTP_remat {} x DP {} x PP "
      "{}",
      t.world_size, t.tp, t.gtp_remat, t.cp, t.dp, t.pp, t.etp, t.ep, t.egtp_remat, t.edp, t.pp);
}

}  // namespace

std::string heading(const Job& job, std::string_view what) {
  std::string text = fmt::format("# {}\n# Written by gtplan {} for {}. GTP is experimental upstream.\n# {}\n", what,
                                 GTPLAN_VERSION, job.target.name, sizes_text(job.topology));
  for (const std::string& warning : job.warnings) text += fmt::format("# WARNING: {}\n", comment_text(warning));
  return text;
}

std::string arguments_file(const Job& job) {
  const std::string_view name = job.bridge() ? kOverridesFile : kArgumentsFile;
  std::string text = heading(job, job.bridge() ? "Overrides of Megatron-Bridge, in Hydra's grammar"
                                               : "Arguments of Megatron-LM, words of a POSIX shell");
  text +=
      fmt::format("# The launch file holds the same words. To check them: gtplan check {} {}\n", job.size_words, name);
  for (const TrainerArgument& argument : job.arguments) {
    for (std::size_t i = 0; i < argument.size(); ++i) {
      const bool bare = job.bridge() && argument[i].find('\n') == std::string::npos;
      text.append(i == 0 ? "" : " ").append(bare ? argument[i] : shell_quoted(argument[i]));
    }
    text += '\n';
  }
  return text;
}

std::string environment_file(const Job& job) {
  std::string text =
      "# shellcheck shell=sh disable=SC1003,SC2016\n" + heading(job, "Environment of every process of the job");
  for (const Assignment& variable : job.environment.list)
    text +=
        fmt::format("# {}\nexport {}={}\n", comment_text(variable.why), variable.name, shell_quoted(variable.value));
  for (const std::string& undecided : job.environment.undecided)
    text += fmt::format("# not set: {}\n", comment_text(undecided));
  return text;
}

std::string communicators_file(const Job& job) {
  std::string text = heading(job, "NCCL communicators whose collectives start ahead of the GEMMs that hide them");
  for (const std::string& group : job.high_priority)
    text += fmt::format("{}: {{is_high_priority_stream: true}}\n", yaml_quoted(group));
  return text;
}

std::string rank_map(const Topology& topology, std::optional<std::int64_t> gpus_per_node) {
  const Grid dense = dense_grid(topology), expert = expert_grid(topology);
  std::string text("rank\t");
  if (gpus_per_node) text += "host\tlocal_rank\t";
  for (const RankColumn& column : kRankColumns)
    text.append(column.name).push_back(&column == &kRankColumns.back() ? '\n' : '\t');
  for (std::int64_t rank = 0; rank < topology.world_size; ++rank) {
    append_number(text, rank, '\t');
    if (gpus_per_node) {
      append_number(text, rank / *gpus_per_node, '\t');
      append_number(text, rank % *gpus_per_node, '\t');
    }
    const AxisValues on_dense = *dense.coordinates(rank), on_expert = *expert.coordinates(rank);
    for (const RankColumn& column : kRankColumns)
      append_number(text, column.of(on_dense, on_expert), &column == &kRankColumns.back() ? '\n' : '\t');
  }
  return text;
}

}  // namespace gtp::cli
