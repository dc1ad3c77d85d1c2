// Real Megatron-Bridge configurations and recipes, when the shared data folder is there.
#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtp/check.hpp>

#include "loading.hpp"
#include "tests/support/data.hpp"

using namespace gtp;

namespace {

using Row = std::map<std::string, std::string>;

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream stream(line);
  for (std::string cell; std::getline(stream, cell, '\t');) cells.push_back(cell);
  return cells;
}

/// Rows of a table with a header line, by column name.
std::vector<Row> table_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> header = cells_of(line);
  std::vector<Row> rows;
  while (std::getline(file, line)) {
    const std::vector<std::string> cells = cells_of(line);
    Row& row = rows.emplace_back();
    for (std::size_t i = 0; i < header.size() && i < cells.size(); ++i) row[header[i]] = cells[i];
  }
  return rows;
}

/// Columns of a table and the paths they are written at.
constexpr std::pair<const char*, const char*> kPaths[] = {
    {"TP", "model.tensor_model_parallel_size"},
    {"PP", "model.pipeline_model_parallel_size"},
    {"CP", "model.context_parallel_size"},
    {"EP", "model.expert_model_parallel_size"},
    {"ETP", "model.expert_tensor_parallel_size"},
    {"VPP", "model.virtual_pipeline_model_parallel_size"},
    {"SP", "model.sequence_parallel"},
    {"micro_batch", "train.micro_batch_size"},
    {"global_batch", "train.global_batch_size"},
    {"pp_layout", "model.pipeline_model_parallel_layout"},
    {"megatron_fsdp", "ddp.use_megatron_fsdp"},
};

bool is_value(const std::string& cell) { return !cell.empty() && cell != "-" && cell != "?" && cell != "None"; }

/// A row's sizes as overrides. The tables do not say how many microbatches a burst of an interleaved schedule takes.
std::string overrides_of(const Row& row) {
  std::string text = "model.microbatch_group_size_per_vp_stage=???\n";
  for (const auto& [column, path] : kPaths) {
    const auto cell = row.find(column);
    if (cell == row.end() || !is_value(cell->second)) continue;
    const std::string quote = std::string_view(column) == "pp_layout" ? "'" : "";
    text += path + ("=" + quote) + cell->second + quote + '\n';
  }
  return text;
}

/// The codes of all errors, of the reader and of the rules.
std::string errors_of(const std::string& overrides, const std::string& world_size) {
  LoadRequest request = test::request_for(overrides, "overrides", InputFormat::BridgeOverrides);
  request.world_size = world_size;
  const Loaded loaded = load(request);
  std::string codes;
  const auto add = [&](const Diagnostics& diagnostics) {
    for (const Diagnostic& d : diagnostics)
      if (d.severity == Severity::Error) codes += std::string(d.code) + ' ';
  };
  add(loaded.diagnostics);
  const Report report = check(loaded.config);
  add(report.diagnostics);
  return codes;
}

}  // namespace

TEST_CASE("every Megatron-Bridge file of the corpus that is a configuration reads without a problem") {
  const auto corpus = test::shared_or_message("corpus");
  if (!corpus) return;
  int files = 0;
  for (const Row& row : table_of(*corpus / "INDEX.tsv")) {
    if (row.at("kind") != "bridge override yaml") continue;
    CAPTURE(row.at("file"));
    std::ifstream file(*corpus / row.at("file"));
    std::ostringstream text;
    text << file.rdbuf();
    const Loaded loaded = test::load_text(text.str(), row.at("file"));
    CHECK(loaded.format == InputFormat::BridgeYaml);
    CHECK(loaded.config.target() == kBridgeTarget);
    CHECK(test::codes(loaded) == "");
    CHECK(check(loaded.config).diagnostics.empty());
    for (const auto& each : {std::pair{"TP", "tensor_model_parallel_size"},
                             {"PP", "pipeline_model_parallel_size"},
                             {"CP", "context_parallel_size"},
                             {"micro_batch", "micro_batch_size"},
                             {"global_batch", "global_batch_size"}})
      CHECK_MESSAGE(test::value(loaded, each.second) == row.at(each.first), each.first);
    ++files;
  }
  CHECK(files == 9);
}

TEST_CASE("every verified item of a model card is valid at its world size") {
  const auto index = test::shared_or_message("corpus/INDEX.tsv");
  if (!index) return;
  int items = 0;
  for (const Row& row : table_of(*index)) {
    if (!row.at("file").starts_with("megatron-bridge/") || !row.at("status").starts_with("card:verified")) continue;
    if (!is_value(row.at("world_size")) || !is_value(row.at("TP"))) continue;
    CAPTURE(row.at("file"));
    CHECK(errors_of(overrides_of(row), row.at("world_size")) == "");
    ++items;
  }
  CHECK(items > 100);
}

TEST_CASE("of Bridge's own recipes those are refused whose sizes do not fit the number of GPUs in their name") {
  const auto path = test::shared_or_message("corpus/derived/bridge_recipe_parallelism.tsv");
  if (!path) return;
  int recipes = 0, failing = 0;
  for (const Row& row : table_of(*path)) {
    if (!is_value(row.at("TP")) || !is_value(row.at("gpus_in_name"))) continue;
    CAPTURE(row.at("recipe_function"));
    const bool fails = row.at("dense_check").starts_with("FAIL") || row.at("expert_check").starts_with("FAIL") ||
                       row.at("batch_check").starts_with("FAIL");
    const std::string errors = errors_of(overrides_of(row), row.at("gpus_in_name"));
    if (fails)
      CHECK(errors != "");
    else
      CHECK(errors == "");
    ++recipes;
    failing += fails ? 1 : 0;
  }
  CHECK(recipes > 600);
  CHECK(failing == 19);
}
