#include "tools/project.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <variant>

#include "tools/config_paths.hpp"
#include "tools/file.hpp"
#include "tools/suggest.hpp"
#include "validators/yaml_events.hpp"

namespace gtp::cli {

namespace {

using readers::Entry;
using readers::Kind;
using readers::Node;

template <class Field>
struct Key {
  std::string_view name;
  Field ProjectOptions::*field;
};

constexpr std::array kWords{Key<std::string>{"target", &ProjectOptions::target},
                            Key<std::string>{"input-format", &ProjectOptions::input_format},
                            Key<std::string>{"model", &ProjectOptions::model},
                            Key<std::string>{"env-file", &ProjectOptions::env_file}};
constexpr std::array kSizes{Key<std::optional<std::string>>{"world-size", &ProjectOptions::world_size},
                            Key<std::optional<std::string>>{"nodes", &ProjectOptions::nodes},
                            Key<std::optional<std::string>>{"gpus-per-node", &ProjectOptions::gpus_per_node}};
constexpr std::array kLists{Key<std::vector<std::string>>{"cluster", &ProjectOptions::clusters},
                            Key<std::vector<std::string>>{"set", &ProjectOptions::set},
                            Key<std::vector<std::string>>{"require", &ProjectOptions::require},
                            Key<std::vector<std::string>>{"ignore", &ProjectOptions::ignore}};
constexpr std::array kSwitches{Key<bool>{"strict", &ProjectOptions::strict},
                               Key<bool>{"complete", &ProjectOptions::complete}};

class Parser {
 public:
  explicit Parser(Source source) : source_(std::move(source)) {}

  Project parse() {
    Diagnostics problems;
    const std::optional<Node> root = readers::read_yaml(source_, 0, problems);
    if (!problems.empty())
      fail(problems.front().primary.place,
           fmt::format("{}: {}", problems.front().message, problems.front().primary.text));
    Project project;
    if (!root || root->kind == Kind::Null) return project;
    expect(*root, Kind::Map);
    for (const Entry& entry : root->entries) {
      if (entry.key == "configs")
        project.configs = list(entry.value);
      else if (entry.key == "files")
        project.files = files(entry.value);
      else
        read_option(entry, project.options, {"configs", "files"});
    }
    return project;
  }

 private:
  [[noreturn]] void fail(Place place, const std::string& what, std::string help = {}) const {
    const Position at = locate(source_, place.begin, place.end).start;
    throw CouldNotRun{fmt::format("{}:{}:{}: {}", source_.name, at.line, at.column, what), std::move(help)};
  }
  void expect(const Node& node, Kind kind) const {
    if (node.kind != kind)
      fail(node.place, fmt::format("expected {}, not {}", readers::to_text(kind), readers::to_text(node.kind)));
  }

  std::vector<Project::Files> files(const Node& node) const {
    expect(node, Kind::List);
    std::vector<Project::Files> all;
    for (const Node& item : node.items) {
      expect(item, Kind::Map);
      Project::Files& one = all.emplace_back();
      for (const Entry& entry : item.entries) {
        if (entry.key == "match")
          one.match = list(entry.value);
        else
          read_option(entry, one.options, {"match"});
      }
      if (one.match.empty()) fail(item.place, "no `match` says for which files this is");
    }
    return all;
  }

  void read_option(const Entry& entry, ProjectOptions& out, std::vector<std::string_view> also) const {
    for (const auto& key : kWords)
      if (key.name == entry.key) return void(out.*key.field = word(entry.value));
    for (const auto& key : kSizes)
      if (key.name == entry.key) return void(out.*key.field = word(entry.value));
    for (const auto& key : kLists)
      if (key.name == entry.key) return void(out.*key.field = list(entry.value));
    for (const auto& key : kSwitches)
      if (key.name == entry.key) return void(out.*key.field = boolean(entry.value));
    const auto add = [&](const auto& keys) {
      for (const auto& key : keys) also.push_back(key.name);
    };
    add(kWords), add(kSizes), add(kLists), add(kSwitches);
    fail(entry.key_place, fmt::format("`{}` is no key of a project file", entry.key), suggest(entry.key, also));
  }

  std::string word(const Node& node) const {
    expect(node, Kind::Scalar);
    return node.text;
  }
  bool boolean(const Node& node) const {
    expect(node, Kind::Scalar);
    if (node.text != "true" && node.text != "false") fail(node.place, "expected true or false");
    return node.text == "true";
  }
  /// One word stands for a list of one.
  std::vector<std::string> list(const Node& node) const {
    if (node.kind == Kind::Scalar) return {node.text};
    expect(node, Kind::List);
    std::vector<std::string> words;
    for (const Node& item : node.items) words.push_back(word(item));
    return words;
  }

  Source source_;
};

/// Earlier words stay in front, so that what the command line sets is applied last by appending it.
void add(InputOptions& to, const ProjectOptions& from) {
  const auto fill = [](auto& word, const auto& value) {
    if (word == std::decay_t<decltype(word)>{}) word = value;
  };
  fill(to.target, from.target);
  fill(to.input_format, from.input_format);
  fill(to.model, from.model);
  fill(to.env_file, from.env_file);
  if (!to.world_size && !to.nodes) {
    fill(to.world_size, from.world_size);
    fill(to.nodes, from.nodes);
  }
  fill(to.gpus_per_node, from.gpus_per_node);
  to.clusters.insert(to.clusters.begin(), from.clusters.begin(), from.clusters.end());
  to.set.insert(to.set.begin(), from.set.begin(), from.set.end());
  to.require.insert(to.require.end(), from.require.begin(), from.require.end());
  to.ignore.insert(to.ignore.end(), from.ignore.begin(), from.ignore.end());
  to.strict = to.strict || from.strict;
  to.complete = to.complete || from.complete;
}

}  // namespace

Project parse_project(const std::string& name, const std::string& text) { return Parser({name, text}).parse(); }

InputOptions with_project(const InputOptions& given, const Project& project, const std::string& path) {
  InputOptions options = given;
  // The last entry that matches says most, so it comes first here: what is filled stays.
  for (auto files = project.files.rbegin(); files != project.files.rend(); ++files)
    if (std::ranges::any_of(files->match, [&](const std::string& pattern) { return matches(pattern, path); }))
      add(options, files->options);
  add(options, project.options);
  return options;
}

std::optional<Project> find_project(const InputOptions& options) {
  struct stat status {};
  std::string path = options.project;
  if (path.empty()) {
    if (options.no_project || ::stat(kProjectFile, &status) != 0) return std::nullopt;
    path = kProjectFile;
  }
  auto text = read_input(path);
  if (const auto* unreadable = std::get_if<Unreadable>(&text))
    throw CouldNotRun{fmt::format("cannot read `{}`: {}", path, unreadable->reason)};
  return parse_project(path, std::get<std::string>(text));
}

}  // namespace gtp::cli
