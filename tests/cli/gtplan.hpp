// Runs the program under test, and makes the files it reads.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/process.hpp"

namespace gtp::test {

/// Without NO_COLOR and locale, so that a developer's environment decides nothing.
inline Outcome gtplan(std::vector<std::string> words, std::string folder = {}, std::string input = {}) {
  words.insert(words.begin(), GTPLAN_BINARY);
  return run({.words = std::move(words), .folder = std::move(folder), .input = std::move(input)});
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void write_file(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// A folder of its own for one test, gone at its end.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "gtplan-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Writes a file and returns its path.
  std::string file(std::string_view name, std::string_view text) const {
    const std::filesystem::path path = path_ / name;
    write_file(path, text);
    return path.string();
  }

 private:
  std::filesystem::path path_;
};

/// Valid, with GTP_remat 4 on a world of 64, and complete enough for `plan`, `ranks` and `batch`.
inline constexpr std::string_view kValid =
    "world_size: 64\n"
    "gpus_per_node: 8\n"
    "tensor_model_parallel_size: 2\n"
    "tensor_parallel_num_weight_shards: 8\n"
    "pipeline_model_parallel_size: 2\n"
    "num_layers: 16\n"
    "add_bias_linear: false\n"
    "untie_embeddings_and_output_weights: true\n"
    "micro_batch_size: 1\n"
    "global_batch_size: 64\n";

/// Three weight shards for every two TP ranks: GTP003.
inline constexpr std::string_view kInvalid =
    "tensor_model_parallel_size: 4\n"
    "tensor_parallel_num_weight_shards: 6\n";

}  // namespace gtp::test
