#include "validators/flat.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace gtp::readers {

namespace {

Word word_of(const Node& scalar) { return {scalar.text, scalar.place, scalar.quoted}; }

bool all_scalars(const Node& list) {
  return std::all_of(list.items.begin(), list.items.end(), [](const Node& item) { return item.kind == Kind::Scalar; });
}

std::string joined(const Node& list) {
  std::string text;
  for (const Node& item : list.items) {
    if (!text.empty()) text += ',';
    text += item.text;
  }
  return text;
}

/// Megatron Core's list form of a layout: a list of stages, each a list of layer names.
std::optional<std::string> layout_text(const Node& stages) {
  constexpr std::array<std::pair<std::string_view, char>, 4> kLayers{
      {{"embedding", 'E'}, {"decoder", 't'}, {"mtp", 'm'}, {"loss", 'L'}}};
  std::string text;
  for (const Node& stage : stages.items) {
    if (stage.kind != Kind::List) return std::nullopt;
    if (&stage != &stages.items.front()) text += '|';
    for (const Node& layer : stage.items) {
      const auto known =
          std::find_if(kLayers.begin(), kLayers.end(), [&](auto row) { return row.first == layer.text; });
      if (layer.kind != Kind::Scalar || known == kLayers.end()) return std::nullopt;
      text += known->second;
    }
  }
  return text;
}

/// The name that a key in another spelling means: `--no-bias-gelu-fusion`, `context-parallel-size`.
std::string_view meant_by(std::string_view key, const Target& target) {
  if (key.find('-') == std::string_view::npos) return {};
  std::string flag(key.starts_with("--") ? "" : "--");
  flag += key;
  if (const auto match = find_flag(flag, target.version)) return name_of(match->option);
  std::string name(key.substr(std::min(key.find_first_not_of('-'), key.size())));
  std::replace(name.begin(), name.end(), '-', '_');
  if (const auto option = find_settable(name); option && exists(*option, target)) return name_of(*option);
  return {};
}

class FlatReader {
 public:
  explicit FlatReader(Reading& reading) : reading_(reading) {}

  void walk(const Node& map, bool to_checkpoint) {
    for (const Entry& entry : map.entries) {
      if (entry.overridden || entry.value.kind == Kind::Null) continue;
      if (full(reading_.out)) return report_rest(reading_.out);
      visit(entry, to_checkpoint);
    }
  }

 private:
  void visit(const Entry& entry, bool to_checkpoint) {
    if (entry.key == "scenario") return;
    if (entry.value.kind == Kind::Map) {
      if (entry.key == "env") return read_env(reading_, entry.value);
      if (entry.key == "checkpoint") return walk(entry.value, true);
      if (!find_settable(entry.key)) return walk(entry.value, to_checkpoint);
    }
    const std::optional<OptionId> option = resolve(entry, to_checkpoint);
    if (!option) return;
    if (entry.value.kind == Kind::List && entry.value.items.empty() && !to_checkpoint && set_empty(*option, entry))
      return;
    const std::optional<std::vector<Word>> words = words_of(*option, entry.value);
    if (to_checkpoint)
      set_checkpoint(*option, words, entry.value.place);
    else
      set(*option, words, entry);
  }

  /// Derived sizes cannot be set, but a checkpoint has them, and facts of its own.
  std::optional<OptionId> resolve(const Entry& entry, bool to_checkpoint) {
    if (to_checkpoint)
      if (const auto derived = find_option(entry.key)) return derived;
    const std::string_view meant = meant_by(entry.key, reading_.config.target());
    if (meant.empty()) return resolve_name(entry.key, entry.key_place, reading_.config.target(), reading_.out);
    Diagnostic d = rules::at_place(rules::kUnknownOption, entry.key, entry.key_place,
                                   "a flag's spelling; options are named in snake_case here");
    d.help = fmt::format("write `{}`", meant);
    reading_.out.push_back(std::move(d));
    return std::nullopt;
  }

  /// `[]`, which no command line can say for an option that takes at least one word. False for other types.
  bool set_empty(OptionId option, const Entry& entry) {
    const Type type = row_of(option, reading_.config.version()).type;
    if (!is_list(type)) return false;
    reading_.config.set(option, empty_list(type), entry.value.place);
    return true;
  }

  /// Nothing, and a diagnostic, if the value has a form that the option cannot take.
  std::optional<std::vector<Word>> words_of(OptionId option, const Node& value) {
    const Option& row = row_of(option, reading_.config.version());
    if (value.kind == Kind::Scalar) return std::vector<Word>{word_of(value)};
    if (value.kind == Kind::List) {
      if (is_list(row.type) && all_scalars(value)) {
        std::vector<Word> words;
        for (const Node& item : value.items) words.push_back(word_of(item));
        return words;
      }
      if (row.type == Type::Frequency && all_scalars(value))
        return std::vector<Word>{{'[' + joined(value) + ']', value.place, false}};
      if (auto text = list_as_text(row.name, value)) return std::vector<Word>{{*std::move(text), value.place, true}};
    }
    reading_.out.push_back(rules::at_place(rules::kWrongType, row.name, value.place,
                                           fmt::format("{} is not {}", to_text(value.kind), gtp::to_text(row.type))));
    return std::nullopt;
  }

  void set(OptionId option, const std::optional<std::vector<Word>>& words, const Entry& entry) {
    if (const Setting* earlier = reading_.config.given(option);
        earlier != nullptr && earlier->place.source == reading_.source) {
      reading_.out.push_back(
          rules::at_place(rules::kDuplicateKey, name_of(option), entry.key_place, "sets the same option again"));
      reading_.out.back().related.push_back({std::string(name_of(option)), earlier->place, "first given here"});
    }
    if (words)
      set_option(reading_, option, *words, entry.value.place);
    else
      make_unknown(reading_.config, option);
  }

  void set_checkpoint(OptionId option, const std::optional<std::vector<Word>>& words, Place place) {
    if (!words) return;
    const Option& row = row_of(option, reading_.config.version());
    if (std::optional<Value> value = parse_value(row, *words, place, reading_.out))
      reading_.config.checkpoint.push_back({option, *std::move(value), place});
  }

  Reading& reading_;
};

}  // namespace

std::optional<std::string> list_as_text(std::string_view option, const Node& list) {
  if (option == "pipeline_model_parallel_layout") return layout_text(list);
  if ((option == "window_size" || option == "split") && all_scalars(list)) return joined(list);
  return std::nullopt;
}

void read_flat(Reading& reading, const Node& root) { FlatReader(reading).walk(root, false); }

void read_checkpoint(Reading& reading, const Node& map) { FlatReader(reading).walk(map, true); }

void read_env(Reading& reading, const Node& map) {
  reading.config.env_known = true;
  for (const Entry& entry : map.entries) {
    if (entry.overridden || entry.value.kind == Kind::Null) continue;
    if (full(reading.out)) return report_rest(reading.out);
    if (entry.value.kind == Kind::Scalar)
      reading.config.env.push_back({entry.key, entry.value.text, entry.value.place});
    else
      reading.out.push_back(rules::at_place(rules::kNotUnderstood, "", entry.value.place,
                                            fmt::format("{} is no variable's value", to_text(entry.value.kind))));
  }
}

}  // namespace gtp::readers
