// Real configuration files of other projects, judged and derived as upstream's own start-up code does.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtp/check.hpp>

#include "tests/support/data.hpp"
#include "tests/support/json_config.hpp"
#include "validators/load.hpp"

using namespace gtp;

namespace {

Loaded load_at_size(const std::filesystem::path& path, const std::string& world_size) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  LoadRequest request;
  request.config = Text{path.string(), text.str()};
  request.world_size = world_size;
  return load(request);
}

std::vector<std::string> split(const std::string& line, char separator) {
  std::vector<std::string> fields;
  std::istringstream stream(line);
  for (std::string field; std::getline(stream, field, separator);) fields.push_back(field);
  return fields;
}

bool is_valid(const Loaded& loaded) {
  return loaded.readable && !has_errors(loaded.diagnostics) && !has_errors(check(loaded.config).diagnostics);
}

}  // namespace

TEST_CASE("every recorded corpus file gets the derived values of upstream's start-up code") {
  const auto rows_path = test::shared_or_message("corpus_derived.json"), corpus = test::shared_or_message("corpus");
  if (!rows_path || !corpus) return;
  std::ifstream file(*rows_path);
  const nlohmann::json rows = nlohmann::json::parse(file);
  CHECK(rows.size() == 116);
  for (const nlohmann::json& row : rows) {
    CAPTURE(row.at("file").get<std::string>());
    const Loaded loaded = load_at_size(*corpus / row.at("file").get<std::string>(), row.at("world_size").dump());
    CHECK(is_valid(loaded));
    const Derivation derivation = derive(loaded.config);
    for (const auto& item : row.at("derived").items()) {
      const std::string& name = item.key();
      const nlohmann::json& value = item.value();
      if (name != "layers_per_stage") {
        CHECK_MESSAGE(test::derived_json(derivation.facts, name) == value, name);
        continue;
      }
      REQUIRE(derivation.layers_per_stage.has_value());
      CHECK(nlohmann::json(*derivation.layers_per_stage) == value);
    }
  }
}

TEST_CASE("every active functional-test file is valid at its world size") {
  const auto index = test::shared_or_message("corpus/INDEX.tsv");
  if (!index) return;
  std::ifstream file(*index);
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> header = split(line, '\t');
  const auto column = [&](const std::vector<std::string>& row, std::string_view name) {
    const auto at = static_cast<std::size_t>(std::find(header.begin(), header.end(), name) - header.begin());
    return at < row.size() ? row[at] : std::string();
  };
  int checked = 0;
  while (std::getline(file, line)) {
    const std::vector<std::string> row = split(line, '\t');
    const std::string name = column(row, "file"), world = column(row, "world_size");
    if (!column(row, "status").starts_with("active") || !name.ends_with("model_config.yaml") || world == "-") continue;
    for (const std::string& size : split(world, '|'))
      CHECK_MESSAGE(is_valid(load_at_size(index->parent_path() / name, size)), name, " at ", size);
    ++checked;
  }
  CHECK(checked > 100);
}
