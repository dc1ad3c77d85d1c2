#include "validators/load.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <unordered_set>
#include <utility>
#include <variant>

#include <gtp/checked.hpp>

#include "validators/args_file.hpp"
#include "validators/argv.hpp"
#include "validators/bridge.hpp"
#include "validators/cluster.hpp"
#include "validators/command_line.hpp"
#include "validators/env_file.hpp"
#include "validators/flat.hpp"
#include "validators/hugging_face.hpp"
#include "validators/input_format.hpp"
#include "validators/json_reader.hpp"
#include "validators/megatron_test.hpp"
#include "validators/nemo_rl.hpp"
#include "validators/plan.hpp"
#include "validators/shell.hpp"
#include "validators/word_source.hpp"
#include "validators/yaml_events.hpp"

namespace gtp {

namespace {

using namespace gtp::literals;
using namespace gtp::readers;

/// Places are 32-bit offsets, and no configuration is anywhere near this size.
constexpr std::size_t kMaxBytes = std::size_t{64} << 20U;

class Loader {
 public:
  explicit Loader(const LoadRequest& request)
      : request_(request), loaded_{Config(request.target.value_or(kDefaultTarget)), {}, {}, {}, true} {}

  Loaded load() {
    std::optional<std::uint32_t> config;  // source 0, also where a file of variables comes first in time
    if (request_.config) config = add(*request_.config);
    if (loaded_.readable && request_.env_file) read_variables(*request_.env_file);
    const std::size_t lower = loaded_.config.env.size();
    if (loaded_.readable && config)
      read_config(*config);
    else if (loaded_.readable)
      read_arguments();
    drop_overridden(lower);
    const bool words = request_.world_size || request_.nodes || request_.gpus_per_node || !request_.set.empty();
    std::optional<std::uint32_t> overrides;
    if (loaded_.readable) read_clusters();
    if (loaded_.readable && words) {
      overrides = static_cast<std::uint32_t>(loaded_.sources.size());
      apply_command_line(request_, loaded_.config, loaded_.sources, loaded_.diagnostics);
      if (!check_text(*overrides)) return std::move(loaded_);
    }
    if (loaded_.readable && request_.model) read_model(*request_.model, overrides);
    if (loaded_.readable) set_world_from_cluster();
    return std::move(loaded_);
  }

 private:
  /// One diagnostic says why; what the part that could be parsed led to does not matter.
  bool unreadable(Diagnostic why) {
    loaded_.readable = false;
    loaded_.diagnostics.clear();
    loaded_.diagnostics.push_back(std::move(why));
    return false;
  }

  bool unreadable() { return unreadable(Diagnostic(loaded_.diagnostics.back())); }

  bool unreadable(Place place, std::string label) {
    return unreadable(rules::at_place(rules::kUnreadable, "", place, std::move(label)));
  }

  std::uint32_t add(const Text& text) {
    const bool large = text.text.size() > kMaxBytes;
    const std::uint32_t index = loaded_.sources.add(text.name, large ? std::string() : text.text);
    if (large) unreadable({index, 0, 0}, fmt::format("larger than {} MiB", kMaxBytes >> 20U));
    return index;
  }

  bool check_text(std::uint32_t source) {
    const std::string& text = loaded_.sources[source].text;
    const std::optional<NotText> problem = find_not_text(text);
    if (!problem) return true;
    const auto at = static_cast<std::uint32_t>(problem->offset);
    return unreadable({source, at, at + 1}, problem->what);
  }

  void read_config(std::uint32_t source) {
    if (request_.format) loaded_.format = *request_.format;
    if (!check_text(source)) return;
    const Syntax syntax = request_.format ? syntax_of(*request_.format)
                                          : syntax_of(loaded_.sources[source].text, loaded_.sources[source].name);
    switch (syntax) {
      case Syntax::Json:
        return read_json_config(source);
      case Syntax::Yaml:
        return read_yaml_config(source);
      case Syntax::Words:
        return read_args_config(source);
      case Syntax::Overrides:
        return read_overrides_config(source);
      case Syntax::Script:
        return read_script(source);
      case Syntax::Variables:
        return set_variables(source);
    }
  }

  void read_script(std::uint32_t source) {
    loaded_.format = InputFormat::Shell;
    Reading reading{loaded_.config, loaded_.diagnostics, source};
    if (!read_shell(reading, loaded_.sources[source].text)) unreadable();
  }

  void set_variables(std::uint32_t source) {
    for (Variable& variable : read_env_file(loaded_.sources[source], source, loaded_.diagnostics))
      loaded_.config.env.push_back(std::move(variable));
    loaded_.config.env_known = true;
  }

  /// Of the first `lower` variables, those that the configuration sets again.
  void drop_overridden(std::size_t lower) {
    std::vector<Variable>& env = loaded_.config.env;
    if (env.size() <= lower) return;
    const auto end = env.begin() + static_cast<std::ptrdiff_t>(lower);
    std::unordered_set<std::string> names;
    for (auto later = end; later != env.end(); ++later) names.insert(later->name);
    env.erase(std::remove_if(env.begin(), end, [&](const Variable& v) { return names.contains(v.name); }), end);
  }

  void read_variables(const Text& text) {
    const std::uint32_t source = add(text);
    if (loaded_.readable && check_text(source)) set_variables(source);
  }

  /// The root of a JSON text, which must be an object.
  std::optional<JsonText> read_json_object(std::uint32_t source) {
    std::optional<JsonText> json = read_json(loaded_.sources[source], source, loaded_.diagnostics);
    if (!json) {
      unreadable();
    } else if (json->root.kind != Kind::Map) {
      unreadable(json->root.place, fmt::format("expected an object, not {}", readers::to_text(json->root.kind)));
      json.reset();
    }
    return json;
  }

  void read_json_config(std::uint32_t source) {
    const std::optional<JsonText> json = read_json_object(source);
    if (!json) return;
    if (!request_.format)
      loaded_.format = is_plan(json->root)           ? InputFormat::Plan
                       : is_hugging_face(json->root) ? InputFormat::HuggingFace
                                                     : InputFormat::Json;
    if (loaded_.format == InputFormat::HuggingFace) return set_model(json->root);
    if (json->not_json) {
      unreadable(*json->not_json, "expected a value: JSON has no such number");
      return;
    }
    Reading reading{loaded_.config, loaded_.diagnostics, source};
    if (loaded_.format != InputFormat::Plan) return read_flat(reading, json->root);
    aim_at_target_of(json->root);
    if (!read_plan(reading, json->root)) unreadable();
  }

  /// Before anything but a file of variables is read into the configuration.
  void aim_at(const Target& target) {
    Config config(target);
    config.env = std::move(loaded_.config.env);
    config.env_known = loaded_.config.env_known;
    loaded_.config = std::move(config);
  }

  /// A plan was made for a target, and holds for no other.
  void aim_at_target_of(const Node& plan) {
    const Node* name = find(plan, "target");
    const auto target = name == nullptr || request_.target ? std::nullopt : find_target(name->text);
    if (target) aim_at(*target);
  }

  void read_yaml_config(std::uint32_t source) {
    if (!request_.format) loaded_.format = InputFormat::Yaml;
    std::optional<Node> root = read_yaml(loaded_.sources[source], source, loaded_.diagnostics);
    if (!root) {
      unreadable();
      return;
    }
    if (root->kind == Kind::Null) return;
    if (root->kind != Kind::Map) {
      unreadable(first_line(root->place),
                 fmt::format("expected options and values, not {}", readers::to_text(root->kind)));
      return;
    }
    if (!request_.format && is_megatron_test(*root)) loaded_.format = InputFormat::MegatronTestYaml;
    if (!request_.format && is_bridge(*root)) loaded_.format = InputFormat::BridgeYaml;
    if (loaded_.format == InputFormat::BridgeYaml) aim_at_bridge();
    if (!request_.format && is_nemo_rl(*root)) loaded_.format = InputFormat::NemoRl;
    if (loaded_.format == InputFormat::NemoRl) aim_at_bridge();  // NeMo-RL builds its Megatron models with Bridge
    if (loaded_.format == InputFormat::NemoRl) return read_nemo_rl_config(*std::move(root), source);
    Reading reading{loaded_.config, loaded_.diagnostics, source};
    if (loaded_.format == InputFormat::MegatronTestYaml)
      read_megatron_test(reading, *root, loaded_.sources[source].text);
    else if (loaded_.format == InputFormat::BridgeYaml)
      read_bridge(reading, *root);
    else
      read_flat(reading, *root);
  }

  void read_overrides_config(std::uint32_t source) {
    loaded_.format = InputFormat::BridgeOverrides;
    aim_at_bridge();
    Reading reading{loaded_.config, loaded_.diagnostics, source};
    if (!read_bridge_overrides(reading, loaded_.sources[source].text)) unreadable();
  }

  /// Before anything is read into the configuration.
  void aim_at_bridge() {
    if (!request_.target) aim_at(kBridgeTarget);
  }

  void read_nemo_rl_config(Node root, std::uint32_t source) {
    const auto whole = with_defaults(std::move(root), request_.include, loaded_.sources, loaded_.diagnostics);
    if (!whole) {
      unreadable();
      return;
    }
    Reading reading{loaded_.config, loaded_.diagnostics, source};
    read_nemo_rl(reading, *whole);
  }

  [[nodiscard]] Place first_line(Place place) const {
    const std::size_t end = loaded_.sources[place.source].text.find('\n', place.begin);
    place.end = static_cast<std::uint32_t>(std::min<std::size_t>(place.end, end));
    return place;
  }

  void read_args_config(std::uint32_t source) {
    loaded_.format = InputFormat::MegatronArgs;
    const auto words = split_args(loaded_.sources[source], source, loaded_.diagnostics);
    if (!words) {
      unreadable();
      return;
    }
    Reading reading{loaded_.config, loaded_.diagnostics, source};
    read_argv(reading, *words);
  }

  void read_arguments() {
    loaded_.format = request_.format.value_or(request_.argv.empty() ? InputFormat::Json : InputFormat::MegatronArgs);
    if (request_.argv.empty()) return;
    WordSource joined;
    std::vector<Word> words;
    const auto next = static_cast<std::uint32_t>(loaded_.sources.size());
    for (const std::string& argument : request_.argv) {
      const WordPlace at = joined.add(argument);
      words.push_back({argument, WordSource::part(at, argument, next, 0, argument.size()), false});
    }
    const std::uint32_t source = add({"<arguments>", joined.text()});
    if (!loaded_.readable || !check_text(source)) return;
    Reading reading{loaded_.config, loaded_.diagnostics, source};
    read_argv(reading, words);
  }

  void set_model(const Node& root) {
    for (Setting& setting : read_hugging_face(root, loaded_.config.target(), place_of_type(root), loaded_.diagnostics))
      loaded_.config.set(setting.option, std::move(setting.value), setting.place);
    loaded_.config.describe(Section::Model);
  }

  static Place place_of_type(const Node& root) {
    const Node* type = find(root, "model_type");
    if (type != nullptr) return type->place;
    return {root.place.source, root.place.begin, root.place.begin + 1};
  }

  /// The lowest layer: only what nothing else has said. `overrides` is the source of `--set`, which may
  /// differ from the model without a word.
  void read_model(const Text& text, std::optional<std::uint32_t> overrides) {
    const std::uint32_t source = add(text);
    if (!loaded_.readable || !check_text(source)) return;
    const std::optional<JsonText> json = read_json_object(source);
    if (!json) return;
    Config& config = loaded_.config;
    for (Setting& setting :
         read_hugging_face(json->root, config.target(), place_of_type(json->root), loaded_.diagnostics)) {
      const Setting* given = config.given(setting.option);
      if (given == nullptr && !config.given_unknown(setting.option))
        config.set(setting.option, std::move(setting.value), setting.place);
      else if (given != nullptr && given->place.source != overrides && conflict(*given, setting))
        report_conflict(*given, setting);
    }
    config.describe(Section::Model);
  }

  /// What a job's size may follow from is set before the command line, which wins over it.
  void read_clusters() {
    for (const ClusterInput& input : request_.clusters) {
      std::optional<Cluster> cluster;
      if (input.preset != nullptr) cluster = make_cluster(*input.preset);
      if (input.text) cluster = read_cluster_text(*input.text);
      if (!cluster) return;
      if (!loaded_.cluster) loaded_.cluster.emplace();
      add_missing(*loaded_.cluster, *std::move(cluster));
    }
    if (!loaded_.cluster) return;
    if (const auto gpus = common_gpus_per_host(*loaded_.cluster)) set_if_unknown("gpus_per_node"_opt, *gpus);
    if (!loaded_.cluster->gpu_arch.empty()) set_if_unknown("gpu_arch"_opt, loaded_.cluster->gpu_arch);
    if (loaded_.cluster->gpu_memory_gib) set_if_unknown("gpu_memory_gib"_opt, *loaded_.cluster->gpu_memory_gib);
  }

  std::optional<Cluster> read_cluster_text(const Text& text) {
    const std::uint32_t source = add({text.name, without_escapes(text.text)});
    if (!loaded_.readable || !check_text(source)) return std::nullopt;
    std::optional<Cluster> cluster = read_cluster(loaded_.sources[source], source, loaded_.diagnostics);
    if (!cluster) unreadable();
    return cluster;
  }

  void set_if_unknown(OptionId option, Value value) {
    if (loaded_.config.given(option) == nullptr) loaded_.config.set(option, std::move(value));
  }

  /// All GPUs of the listed hosts, as far as the job uses them.
  void set_world_from_cluster() {
    if (!loaded_.cluster || loaded_.cluster->hosts.empty()) return;
    std::optional<std::int64_t> world = total_gpus(*loaded_.cluster);
    const Setting* gpus = loaded_.config.given("gpus_per_node"_opt);
    if (gpus != nullptr) {
      const auto* count = std::get_if<std::int64_t>(&gpus->value);
      if (count == nullptr) return;
      world = checked_multiply(static_cast<std::int64_t>(loaded_.cluster->hosts.size()), *count);
    }
    if (world) set_if_unknown("world_size"_opt, *world);
  }

  /// Not compared: how long a sequence may be, which is not in the weights, and a frequency with a list.
  /// Pipeline cuts do not change a pattern.
  static bool conflict(const Setting& given, const Setting& model) {
    if (given.option == "max_position_embeddings"_opt || given.value.index() != model.value.index()) return false;
    if (given.option != "hybrid_layer_pattern"_opt) return given.value != model.value;
    const auto* text = std::get_if<std::string>(&given.value);
    if (text == nullptr) return true;
    std::string uncut = *text;
    std::erase(uncut, '|');
    return Value(uncut) != model.value;
  }

  void report_conflict(const Setting& given, const Setting& model) {
    const std::string name(name_of(given.option));
    Diagnostic d = rules::at_place(rules::kConflictingSources, name, given.place,
                                   fmt::format("{} here", gtp::to_text(given.value)));
    d.related.push_back({name, model.place, fmt::format("{} in the model file", gtp::to_text(model.value))});
    loaded_.diagnostics.push_back(std::move(d));
  }

  const LoadRequest& request_;
  Loaded loaded_;
};

}  // namespace

Loaded load(const LoadRequest& request) { return Loader(request).load(); }

}  // namespace gtp
