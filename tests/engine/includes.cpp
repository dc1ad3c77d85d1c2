// Includes go one way: tools -> {planner, validators} -> include <- kernels.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct Layer {
  std::string folder;
  std::set<std::string> may_include;  // first path parts of quoted and angled includes that are ours, and libraries
};

std::vector<std::string> includes_of(const fs::path& file) {
  std::vector<std::string> result;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with("#include ")) continue;
    const std::size_t begin = line.find_first_of("<\""), end = line.find_last_of(">\"");
    if (begin != std::string::npos && end > begin) result.push_back(line.substr(begin + 1, end - begin - 1));
  }
  return result;
}

/// Folders of ours and libraries that an include can come from; everything else is the language's own.
const std::set<std::string> kKnown{"gtp",      "validators", "planner", "tools",   "kernels",  "fmt",
                                   "nlohmann", "CLI",        "nettle",  "doctest", "benchmark"};

bool is_source(const fs::path& path) {
  const auto extension = path.extension();
  return extension == ".hpp" || extension == ".cpp" || extension == ".h" || extension == ".cu" || extension == ".cuh";
}

}  // namespace

TEST_CASE("includes go one way") {
  const std::vector<Layer> layers{
      {"include", {"gtp", "fmt"}},
      {"validators", {"gtp", "fmt", "validators"}},
      {"planner", {"gtp", "fmt", "planner"}},
      {"kernels", {"gtp", "fmt", "kernels"}},
      {"tools", {"gtp", "fmt", "validators", "planner", "tools", "nlohmann", "CLI", "nettle"}}};
  int files = 0;
  for (const Layer& layer : layers) {
    const fs::path folder = fs::path(GTP_SOURCE_ROOT) / layer.folder;
    if (!fs::exists(folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (!is_source(entry.path())) continue;
      ++files;
      for (const std::string& include : includes_of(entry.path())) {
        CHECK_MESSAGE(include.find("..") == std::string::npos, entry.path().string(), " includes ", include);
        const std::string head = include.substr(0, include.find('/'));
        if (include.find('/') == std::string::npos || !kKnown.contains(head)) continue;
        CHECK_MESSAGE(layer.may_include.contains(head), entry.path().string(), " includes ", include);
      }
    }
  }
  CHECK(files > 30);
}
