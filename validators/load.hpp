// From text to a configuration: every input format ends in one `Config` with places, and what is wrong
// with the text in diagnostics. Values in, values out: no file, terminal or environment is touched.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtp/cluster.hpp>
#include <gtp/config.hpp>
#include <gtp/diagnostic.hpp>
#include <gtp/target.hpp>

#include "validators/source.hpp"

namespace gtp {

enum class InputFormat : std::uint8_t {
  Json,
  Yaml,
  MegatronTestYaml,
  MegatronArgs,
  HuggingFace,
  BridgeYaml,
  BridgeOverrides,
  NemoRl,
  Shell,
  Env,
  Plan,
};

[[nodiscard]] std::string_view to_text(InputFormat format);
[[nodiscard]] std::optional<InputFormat> find_input_format(std::string_view name);

struct Text {
  std::string name;
  std::string text;
};

/// What a text names by a path: its text, or why it cannot be had, as a label.
struct Included {
  std::optional<Text> text{};
  std::string reason{};
};

/// Gets the text that the text named `from` means by `path`. The text's name tells equal files apart.
using Include = std::function<Included(std::string_view from, std::string_view path)>;

/// One `--cluster`: a preset, or the text of a file.
struct ClusterInput {
  const ClusterPreset* preset = nullptr;
  std::optional<Text> text{};
};

/// Sizes are texts as typed, so that a slip in them is reported like one in a file.
struct LoadRequest {
  /// Nothing: Megatron-Bridge's for its own formats, the default target for all others.
  std::optional<Target> target{};
  std::optional<InputFormat> format{};  ///< nothing: detected from content and name
  std::optional<Text> config{};
  std::vector<std::string> argv{};       ///< a Megatron argv, in place of `config`
  std::optional<Text> model{};           ///< a Hugging Face config.json; everything else wins over it
  std::optional<Text> env_file{};        ///< variables of the job; those that the configuration sets win over it
  std::vector<ClusterInput> clusters{};  ///< hardware; each adds what those before it leave open
  Include include{};                     ///< none: a configuration that builds on other files cannot be read
  std::vector<std::string> set{};        ///< `option=value`; wins over everything
  std::optional<std::string> world_size{};
  std::optional<std::string> nodes{};
  std::optional<std::string> gpus_per_node{};
};

struct Loaded {
  Config config;
  Sources sources;
  InputFormat format = InputFormat::Json;
  Diagnostics diagnostics;
  /// False exactly when a text could not be parsed at all; the diagnostic is then `kUnreadable`.
  bool readable = true;
  /// What the request's clusters say together.
  std::optional<Cluster> cluster{};
};

/// Layers, highest first: `set`, `world_size`, `nodes` x `gpus_per_node`, the configuration, the model file, the
/// file of variables and the clusters.
/// Never throws for bad input; reports at most some hundred problems and then stops reading.
[[nodiscard]] Loaded load(const LoadRequest& request);

}  // namespace gtp
