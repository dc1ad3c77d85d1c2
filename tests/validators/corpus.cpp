// Real configuration files, when the shared data folder is there.
#include <doctest/doctest.h>

#include <algorithm>
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

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream stream(line);
  for (std::string cell; std::getline(stream, cell, '\t');) cells.push_back(cell);
  return cells;
}

/// Rows of a table with a header line, by column name.
std::vector<std::map<std::string, std::string>> table_of(const fs::path& path) {
  std::istringstream lines(content_of(path));
  std::string line;
  std::getline(lines, line);
  const std::vector<std::string> header = cells_of(line);
  std::vector<std::map<std::string, std::string>> rows;
  while (std::getline(lines, line)) {
    const std::vector<std::string> cells = cells_of(line);
    auto& row = rows.emplace_back();
    for (std::size_t i = 0; i < header.size() && i < cells.size(); ++i) row[header[i]] = cells[i];
  }
  return rows;
}

std::optional<fs::path> corpus() {
  const auto folder = shared_data("corpus");
  if (!folder) MESSAGE("skipped: the shared corpus is not there");
  return folder;
}

std::string or_default(const Loaded& loaded, std::string_view option, const std::string& fallback) {
  const std::string given = value(loaded, option);
  return given == "-" ? fallback : given;
}

/// VPP as the index counts it, from whichever of its inputs the file has; `-` without one.
std::string virtual_stages(const Loaded& loaded) {
  const std::int64_t pp = std::stoll(or_default(loaded, "pipeline_model_parallel_size", "1"));
  if (const std::string vpp = value(loaded, "num_virtual_stages_per_pipeline_rank"); vpp != "-") return vpp;
  if (const std::string size = value(loaded, "num_layers_per_virtual_pipeline_stage"); size != "-")
    return std::to_string(std::stoll(value(loaded, "num_layers")) / pp / std::stoll(size));
  return "-";
}

bool full_shape(const Loaded& loaded) {
  const auto has = [&](std::string_view option) { return setting(loaded, option) != nullptr; };
  for (const char* option : {"num_layers", "hidden_size", "num_attention_heads", "vocab_size"})
    if (!has(option)) return false;
  const bool experts = has("num_experts");
  return (has("ffn_hidden_size") || has("moe_ffn_hidden_size")) &&
         (!experts || (has("moe_router_topk") && has("moe_ffn_hidden_size")));
}

}  // namespace

TEST_CASE("every active functional test of Megatron-LM reads without an error and with its sizes") {
  const auto folder = corpus();
  if (!folder) return;
  std::size_t rows = 0, with_vpp = 0;
  for (auto& row : table_of(*folder / "INDEX.tsv")) {
    const fs::path path = *folder / row["file"];
    if (!row["file"].starts_with("megatron-lm/") || !row["status"].starts_with("active") || !fs::exists(path)) continue;
    INFO(row["file"]);
    const Loaded loaded = load_text(content_of(path), row["file"]);
    CHECK(loaded.format == InputFormat::MegatronTestYaml);
    CHECK(loaded.readable);
    for (const Diagnostic& d : loaded.diagnostics) CHECK_MESSAGE(d.severity != Severity::Error, d.primary.text);
    CHECK(or_default(loaded, "tensor_model_parallel_size", "1") == row["TP"]);
    CHECK(or_default(loaded, "pipeline_model_parallel_size", "1") == row["PP"]);
    CHECK(or_default(loaded, "context_parallel_size", "1") == (row["CP"] == "-" ? "1" : row["CP"]));
    CHECK(or_default(loaded, "expert_model_parallel_size", "1") == (row["EP"] == "-" ? "1" : row["EP"]));
    CHECK(value(loaded, "expert_tensor_parallel_size") == row["ETP"]);
    const bool other_input = value(loaded, "pipeline_model_parallel_layout") != "-" ||
                             or_default(loaded, "hybrid_layer_pattern", "").find('|') != std::string::npos;
    if (!other_input) CHECK(virtual_stages(loaded) == row["VPP"]);
    if (row["VPP"] != "-") ++with_vpp;
    ++rows;
  }
  CHECK(rows >= 130);
  CHECK(with_vpp >= 10);
}

TEST_CASE("every Hugging Face file gives a full shape") {
  const auto folder = corpus();
  if (!folder) return;
  std::size_t files = 0;
  for (const auto& file : fs::directory_iterator(*folder / "hf-config-json")) {
    INFO(file.path().filename().string());
    const Loaded loaded = load_text(content_of(file.path()), "config.json");
    CHECK(loaded.format == InputFormat::HuggingFace);
    CHECK(codes(loaded) == "");
    CHECK(full_shape(loaded));
    ++files;
  }
  CHECK(files == 50);
}

TEST_CASE("shapes of published models are those their makers state") {
  const auto folder = corpus();
  if (!folder) return;
  struct Shape {
    const char *file, *layers, *hidden, *heads, *groups, *experts, *topk, *expert_ffn;
  };
  constexpr Shape kShapes[] = {
      {"Qwen--Qwen3-235B-A22B", "94", "4096", "64", "4", "128", "8", "1536"},
      {"deepseek-ai--DeepSeek-V3", "61", "7168", "128", "-", "256", "8", "2048"},
      {"moonshotai--Kimi-K2.5", "61", "7168", "64", "-", "384", "8", "2048"},
      {"meta-llama--Meta-Llama-3.1-405B", "126", "16384", "128", "8", "-", "-", "-"},
      {"openai--gpt-oss-120b", "36", "2880", "64", "8", "128", "4", "2880"},
      {"mistralai--Mixtral-8x22B-v0.1", "56", "6144", "48", "8", "8", "2", "16384"},
      {"nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", "108", "8192", "64", "2", "512", "22", "5120"},
      {"google--gemma-4-26B-A4B", "30", "2816", "16", "8", "128", "8", "704"},
  };
  for (const Shape& shape : kShapes) {
    INFO(shape.file);
    const Loaded loaded =
        load_text(content_of(*folder / "hf-config-json" / (std::string(shape.file) + "_config.json")));
    CHECK(value(loaded, "num_layers") == shape.layers);
    CHECK(value(loaded, "hidden_size") == shape.hidden);
    CHECK(value(loaded, "num_attention_heads") == shape.heads);
    CHECK(value(loaded, "num_query_groups") == shape.groups);
    CHECK(value(loaded, "num_experts") == shape.experts);
    CHECK(value(loaded, "moe_router_topk") == shape.topk);
    CHECK(value(loaded, "moe_ffn_hidden_size") == shape.expert_ffn);
  }
}

TEST_CASE("every file of the corpus loads in every format and every place is inside its source") {
  const auto folder = corpus();
  if (!folder) return;
  std::size_t files = 0;
  for (const auto& file : fs::recursive_directory_iterator(*folder)) {
    if (!file.is_regular_file()) continue;
    INFO(file.path().string());
    const std::string text = content_of(file.path());
    std::vector<std::optional<InputFormat>> formats{std::nullopt};
    for (int i = 0; i <= static_cast<int>(InputFormat::Plan); ++i) formats.emplace_back(static_cast<InputFormat>(i));
    for (const auto& format : formats) {
      const Loaded loaded = load_text(text, file.path().filename().string(), format);
      CHECK(loaded.readable != (loaded.diagnostics.size() == 1 && loaded.diagnostics[0].code == "GTP901"));
      const auto inside = [&](Place place) {
        return !place.known() || (place.source < loaded.sources.size() && place.begin <= place.end &&
                                  place.end <= loaded.sources[place.source].text.size());
      };
      for (const Setting& s : loaded.config.settings()) CHECK(inside(s.place));
      for (const Diagnostic& d : loaded.diagnostics) CHECK(inside(d.primary.place));
    }
    ++files;
  }
  CHECK(files > 300);
}
