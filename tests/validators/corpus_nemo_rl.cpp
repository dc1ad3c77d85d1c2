// NeMo-RL's own configurations, when the shared data folder is there.
#include <doctest/doctest.h>

#include <gtp/check.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "../support/data.hpp"
#include "loading.hpp"

using namespace gtp;
using namespace gtp::test;

namespace {

namespace fs = std::filesystem;

std::optional<std::string> content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string{std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream stream(line);
  for (std::string cell; std::getline(stream, cell, '\t');) cells.push_back(cell);
  return cells;
}

Included include_file(std::string_view from, std::string_view path) {
  const fs::path name = (fs::path(from).parent_path() / path).lexically_normal();
  auto text = content_of(name);
  if (!text) return {std::nullopt, "no such file or directory"};
  return {Text{name.string(), *std::move(text)}, {}};
}

Loaded load_file(const fs::path& path) {
  LoadRequest request = request_for(content_of(path).value_or(""), path.string());
  request.include = include_file;
  return load(request);
}

/// Files that the index knows but whose chain of `defaults` leaves the folder.
bool lacks_a_file(const Loaded& loaded) {
  return !loaded.readable &&
         loaded.diagnostics.at(0).primary.text.find("no such file or directory") != std::string::npos;
}

void check_sizes(const Loaded& loaded, std::map<std::string, std::string>& row) {
  CHECK(value(loaded, "tensor_model_parallel_size") == row["TP"]);
  CHECK(value(loaded, "pipeline_model_parallel_size") == row["PP"]);
  CHECK(value(loaded, "context_parallel_size") == row["CP"]);
  CHECK(value(loaded, "expert_model_parallel_size") == row["EP"]);
  CHECK(value(loaded, "expert_tensor_parallel_size") == row["ETP"]);
  CHECK(value(loaded, "micro_batch_size") == row["micro_batch"]);
  if (row["global_batch"] != "-") CHECK(value(loaded, "global_batch_size") == row["global_batch"]);
  // The index counts a node for teachers as one of training; NeMo-RL does not, and neither is in the file.
  const bool teachers = row["world_basis"].find("mopd-teachers") != std::string::npos;
  CHECK(value(loaded, "world_size") == (row["world_size"] == "-" || teachers ? "?" : row["world_size"]));
}

}  // namespace

TEST_CASE("every NeMo-RL configuration that trains with Megatron has the sizes of its index and no error") {
  const auto folder = shared_or_message("corpus");
  if (!folder) return;
  std::istringstream lines(*content_of(*folder / "INDEX.tsv"));
  std::string line;
  std::getline(lines, line);
  const std::vector<std::string> header = cells_of(line);
  std::size_t read = 0, lacking = 0;
  while (std::getline(lines, line)) {
    const std::vector<std::string> cells = cells_of(line);
    std::map<std::string, std::string> row;
    for (std::size_t i = 0; i < header.size() && i < cells.size(); ++i) row[header[i]] = cells[i];
    if (!row["file"].starts_with("nemo-rl/") || row["TP"] == "-" || !fs::exists(*folder / row["file"])) continue;
    INFO(row["file"]);
    const Loaded loaded = load_file(*folder / row["file"]);
    if (lacks_a_file(loaded)) {
      ++lacking;
      continue;
    }
    CHECK(loaded.format == InputFormat::NemoRl);
    CHECK(loaded.readable);
    check_sizes(loaded, row);
    Diagnostics all = loaded.diagnostics;
    for (const Diagnostic& d : check(loaded.config).diagnostics) all.push_back(d);
    for (const Diagnostic& d : all)
      CHECK_MESSAGE(d.severity != Severity::Error, d.code << " " << d.message << " " << d.primary.text);
    ++read;
  }
  CHECK(read >= 25);
  if (lacking > 0) MESSAGE(lacking, " files build on others that are not in the folder");
}
