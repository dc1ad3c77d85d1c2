#include "validators/bridge_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <gtp/bridge.hpp>
#include <gtp/checked.hpp>
#include <gtp/nearest.hpp>

#include "validators/bridge_homes.hpp"
#include "validators/flat.hpp"
#include "validators/interpolation.hpp"

namespace gtp::readers {

namespace {

using namespace gtp::literals;

struct Home {
  std::string_view path;
  OptionId option;
  BridgeForm form = BridgeForm::Same;
  BridgeRank rank = BridgeRank::Home;
};

/// All homes, sorted by option and then by who wins.
const std::vector<Home>& homes() {
  static const std::vector<Home> all = [] {
    std::vector<Home> list;
    for (const OptionId id : sorted_options()) {
      const Option& row = row_of(id, kBridgeTarget.version);
      // The padded size of the vocabulary is the model's own only when nothing is padded.
      if (!row.bridge.empty() && row.name != "padded_vocab_size" && row.name != "mixed_precision")
        list.push_back({row.bridge, id});
    }
    for (const BridgeHome& home : kBridgeHomes)
      list.push_back({home.path, *find_option(home.option), home.form, home.rank});
    std::stable_sort(list.begin(), list.end(), [](const Home& a, const Home& b) {
      return a.option.index != b.option.index ? a.option.index < b.option.index : a.rank < b.rank;
    });
    return list;
  }();
  return all;
}

/// Paths that mean something, sorted.
const std::vector<std::string_view>& known_paths() {
  static const std::vector<std::string_view> all = [] {
    std::vector<std::string_view> list{"comm_overlap",
                                       "comm_overlap.data_parallel_size",
                                       "dataset._target_",
                                       "mixed_precision",
                                       "model.activation_func",
                                       "model.bias_activation_fusion",
                                       "model.expert_gtp_weight_remat_size",
                                       "model.gated_linear_unit",
                                       "model.gtp_weight_remat_size",
                                       "model.should_pad_vocab"};
    for (const Home& home : homes()) list.push_back(home.path);
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    return list;
  }();
  return all;
}

bool is_known(std::string_view path) { return std::binary_search(known_paths().begin(), known_paths().end(), path); }

std::string_view last_part(std::string_view dotted) { return dotted.substr(dotted.rfind('.') + 1); }

/// A number type under the name that Megatron's options have for it.
std::string_view number_type(std::string_view dotted) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kTypes{
      {{"float32", "fp32"}, {"bfloat16", "bf16"}, {"float16", "fp16"}, {"half", "fp16"}, {"uint8", "fp8"}}};
  for (const auto& [name, ours] : kTypes)
    if (name == last_part(dotted)) return ours;
  return last_part(dotted);
}

/// The word that a value stands for: itself, or the name of the object that `_target_` names.
std::optional<Word> word_of(const Node& value) {
  if (value.kind == Kind::Scalar) {
    if (value.text.starts_with("torch.")) return Word{std::string(number_type(value.text)), value.place, true};
    return Word{value.text, value.place, value.quoted};
  }
  if (value.kind != Kind::Map) return std::nullopt;
  if (const Node* name = find(value, "_name_"); name != nullptr) return Word{name->text, name->place, true};
  const Node* target = find(value, "_target_");
  if (target == nullptr || target->kind != Kind::Scalar) return std::nullopt;
  const bool type = target->text.starts_with("torch.") && !target->text.starts_with("torch.nn");
  return Word{std::string(type ? number_type(target->text) : last_part(target->text)), target->place, true};
}

/// Nothing for a value of a form that the option has no words for.
std::optional<std::vector<Word>> words_of(const Option& row, const Node& value) {
  if (value.kind != Kind::List) {
    std::optional<Word> word = word_of(value);
    if (!word) return std::nullopt;
    return std::vector<Word>{*std::move(word)};
  }
  if (!is_list(row.type) && row.type != Type::Frequency) {
    std::optional<std::string> text = list_as_text(row.name, value);
    if (!text) return std::nullopt;
    return std::vector<Word>{{*std::move(text), value.place, true}};
  }
  std::vector<Word> words;
  for (const Node& item : value.items) {
    std::optional<Word> word = word_of(item);
    if (!word) return std::nullopt;
    words.push_back(*std::move(word));
  }
  if (is_list(row.type)) return words;
  std::string list;
  for (const Word& word : words) list += (list.empty() ? "" : ",") + word.text;
  return std::vector<Word>{{'[' + list + ']', value.place, false}};
}

/// Python compares 500000.0 with 500000: a whole number may be written as a real one.
void make_whole(const Option& row, Word& word) {
  constexpr double kMostExact = 9007199254740992.0;
  if (row.type != Type::Int || word.quoted || parse_int(word.text).value) return;
  const auto number = parse_float(word.text).value;
  if (number && std::floor(*number) == *number && std::fabs(*number) < kMostExact)
    word.text = fmt::format("{}", static_cast<std::int64_t>(*number));
}

/// `yes` and `on`, which YAML 1.1 reads as true.
void make_boolean(const Option& row, Word& word) {
  if (row.type != Type::Bool || word.quoted) return;
  if (contains(std::array<std::string_view, 6>{"yes", "Yes", "YES", "on", "On", "ON"}, word.text)) word.text = "true";
  if (contains(std::array<std::string_view, 6>{"no", "No", "NO", "off", "Off", "OFF"}, word.text)) word.text = "false";
}

/// Options whose values Bridge reads as Megatron's parser does. Of the others Bridge may know more forms, and a value
/// that is not understood is left alone.
bool judged(const Option& row, const Node& value) {
  const bool simple = row.type == Type::Bool || row.type == Type::Int || row.type == Type::Float;
  return row.section == Section::Bridge || (simple && value.kind == Kind::Scalar);
}

std::optional<std::int64_t> positive(const Node* value) {
  if (value == nullptr || value->kind != Kind::Scalar) return std::nullopt;
  const auto number = parse_int(value->text).value;
  return number && *number > 0 ? number : std::nullopt;
}

bool is_true(const Node* value) { return value != nullptr && parse_bool(value->text).value.value_or(false); }

}  // namespace

void BridgeValues::take(std::string path, const Node& value, Place key_place) {
  constexpr std::string_view kInner = "model.transformer";  // where a model built from a GPTModelConfig has its options
  if (path.starts_with(kInner) && (path.size() == kInner.size() || path[kInner.size()] == '.'))
    path.erase(std::string_view("model").size(), std::string_view(".transformer").size());
  if (value.kind == Kind::Null) return drop(path);
  if (value.kind == Kind::Map && path.find('.') == std::string::npos) return take_group(path, value, key_place);
  if (is_known(path))
    taken_.insert_or_assign(std::move(path), value);
  else
    check_name(path, key_place);
}

void BridgeValues::take_group(const std::string& path, const Node& group, Place key_place) {
  if (path == "env_vars") return read_env(reading_, group);
  if (path == "comm_overlap") taken_[path].place = key_place;
  for (const Entry& entry : group.entries) {
    if (full(reading_.out)) return report_rest(reading_.out);
    if (entry.overridden) continue;
    std::string inner = path + '.' + entry.key;
    if (path == "model" && entry.key == "transformer" && entry.value.kind == Kind::Map)
      take_group(path, entry.value, entry.key_place);
    else
      take(std::move(inner), entry.value, entry.key_place);
  }
}

void BridgeValues::drop(std::string_view path) {
  if (const auto at = taken_.find(path); at != taken_.end()) taken_.erase(at);
  const std::string below = std::string(path) + '.';
  const auto first = taken_.lower_bound(below);
  auto last = first;
  while (last != taken_.end() && last->first.starts_with(below)) ++last;
  taken_.erase(first, last);
}

/// Bridge has many more fields than Megatron has options, so only what looks like a slip is reported.
void BridgeValues::check_name(std::string_view path, Place key_place) {
  constexpr std::size_t kMostNames = 1000, kLeastSize = 10, kFewSlips = 2, kLongest = 64;
  const std::size_t dot = path.find('.');
  const std::string_view name = path.substr(dot == std::string_view::npos ? 0 : dot + 1);
  const bool plain = name.find('.') == std::string_view::npos && !name.starts_with('_');
  if (!partial_ || !plain || name.size() < kLeastSize || name.size() > kLongest || contains(kLookAlikes, name) ||
      names_checked_++ >= kMostNames)
    return;
  const std::string section(path.substr(0, path.size() - name.size()));
  const auto& paths = known_paths();
  for (auto at = std::lower_bound(paths.begin(), paths.end(), section); at != paths.end() && at->starts_with(section);
       ++at) {
    const std::string_view meant = at->substr(section.size());
    const std::size_t more = std::max(meant.size(), name.size()) - std::min(meant.size(), name.size());
    if (more > kFewSlips || edit_distance(name, meant) > kFewSlips) continue;
    reading_.out.push_back(
        rules::at_place(rules::kNotUnderstood, "", key_place, fmt::format("`{}` is no field that is known", path)));
    reading_.out.back().help = fmt::format("did you mean `{}{}`?", section, meant);
    return;
  }
}

const Node* BridgeValues::taken(std::string_view path) const {
  const auto at = taken_.find(path);
  return at == taken_.end() ? nullptr : &at->second;
}

void BridgeValues::apply() {
  set_recipe();
  set_options();
  set_activation();
  set_dataset();
  set_vocabulary();
  if (const Node* overlap = taken("comm_overlap"); overlap != nullptr) set("comm_overlap"_opt, true, overlap->place);
  set_world();
  refuse_remat_sizes();
}

/// A Bridge target derives the options from the recipe itself.
void BridgeValues::set_recipe() {
  const Node* value = taken("mixed_precision");
  if (value == nullptr || value->kind != Kind::Scalar) return;
  Node name = *value;
  std::replace(name.text.begin(), name.text.end(), '-', '_');
  constexpr auto kRecipe = "mixed_precision"_opt;
  if (has(kRecipe)) return set(kRecipe, name);
  if (const BridgeRecipe* recipe = find_bridge_recipe(name.text))
    for (RecipeValue& each : values_of(*recipe)) reading_.config.set(each.option, std::move(each.value), name.place);
}

void BridgeValues::set_options() {
  const auto& all = homes();
  const bool recipe = taken("mixed_precision") != nullptr && !has("mixed_precision"_opt);
  for (std::size_t i = 0; i < all.size();) {
    const OptionId option = all[i].option;
    const bool any = contains(kOnInAnyHome, name_of(option));
    const Home* best = nullptr;
    for (; i < all.size() && all[i].option == option; ++i) {
      const Node* value = taken(all[i].path);
      if (value == nullptr) continue;
      if (best == nullptr ||
          (any && best->rank != BridgeRank::Override && !is_true(taken(best->path)) && is_true(value)))
        best = &all[i];
    }
    if (best == nullptr || !has(option) || (recipe && reading_.config.given(option) != nullptr)) continue;
    const Node& value = *taken(best->path);
    switch (best->form) {
      case BridgeForm::Same:
        set(option, value);
        break;
      case BridgeForm::Not:
        if (const auto flag = parse_bool(value.text).value) set(option, !*flag, value.place);
        break;
      case BridgeForm::Given:
        set(option, true, value.place);
        break;
    }
  }
}

void BridgeValues::set_activation() {
  const Node* function = taken("model.activation_func");
  const std::optional<Word> word = function == nullptr ? std::nullopt : word_of(*function);
  const std::string_view name = word ? last_part(word->text) : std::string_view{};
  const bool gated = is_true(taken("model.gated_linear_unit"));
  const bool swiglu = gated && (name == "silu" || name == "swiglu");
  if (swiglu) set("swiglu"_opt, true, word->place);
  if (gated && name == "quick_gelu") set("quick_geglu"_opt, true, word->place);
  if (name == "squared_relu") set("squared_relu"_opt, true, word->place);
  const Node* fusion = taken("model.bias_activation_fusion");
  if (word && fusion != nullptr) set(swiglu ? "bias_swiglu_fusion"_opt : "bias_gelu_fusion"_opt, *fusion);
}

void BridgeValues::set_dataset() {
  const Node* target = taken("dataset._target_");
  if (target == nullptr || target->kind != Kind::Scalar) return;
  Node name = *target;
  name.text = last_part(target->text);
  set("dataset_config"_opt, name);
}

/// A vocabulary that is not to be padded has as many rows as it has tokens (gpt_provider.py:266).
void BridgeValues::set_vocabulary() {
  const Node *size = taken("model.vocab_size"), *pad = taken("model.should_pad_vocab");
  if (size != nullptr && pad != nullptr && parse_bool(pad->text).value == false) set("padded_vocab_size"_opt, *size);
}

/// The file holds no world size, but a comm_overlap section holds the data-parallel size it was run with.
void BridgeValues::set_world() {
  const Node* dp = taken("comm_overlap.data_parallel_size");
  auto world = positive(dp);
  for (const char* path :
       {"model.tensor_model_parallel_size", "model.pipeline_model_parallel_size", "model.context_parallel_size"}) {
    const Node* size = taken(path);
    const auto count = size == nullptr ? std::optional<std::int64_t>(1) : positive(size);
    world = world && count ? checked_multiply(*world, *count) : std::nullopt;
  }
  if (world) reading_.config.set("world_size"_opt, *world, dp->place);
}

void BridgeValues::refuse_remat_sizes() {
  for (const std::string_view name : {"gtp_weight_remat_size", "expert_gtp_weight_remat_size"}) {
    const Node* value = taken("model." + std::string(name));
    if (positive(value).value_or(1) > 1) reading_.out.push_back(gtp::detail::derived_option(name, value->place));
  }
}

void BridgeValues::set(OptionId option, bool value, Place place) {
  if (has(option)) reading_.config.set(option, value, place);
}

void BridgeValues::set(OptionId option, const Node& value) {
  if (!has(option)) return;
  const Option& row = row_of(option, reading_.config.version());
  if (value.kind == Kind::List && value.items.empty() && is_list(row.type))
    return reading_.config.set(option, empty_list(row.type), value.place);
  std::optional<std::vector<Word>> words = words_of(row, value);
  if (!words) return make_unknown(reading_.config, option);
  for (Word& word : *words) {
    make_whole(row, word);
    make_boolean(row, word);
    if (partial_) word.text = unescaped(word.text);  // what is merged over a recipe goes through OmegaConf
  }
  Diagnostics problems;
  const bool variable = std::any_of(words->begin(), words->end(), [](const Word& w) { return has_variable(w.text); });
  if (!variable && !judged(row, value) && !parse_value(row, *words, value.place, problems))
    return make_unknown(reading_.config, option);
  set_words(option, *words, value.place);
}

/// `???` is OmegaConf's value that is still to be given.
void BridgeValues::set_words(OptionId option, const std::vector<Word>& words, Place place) {
  const Option& row = row_of(option, reading_.config.version());
  const bool missing = std::any_of(words.begin(), words.end(), [](const Word& word) { return word.text == "???"; });
  if (!missing) return set_option(reading_, option, words, place);
  if (row.type != Type::String && row.type != Type::Words)
    reading_.out.push_back(rules::at_place(rules::kUnresolved, row.name, place, "`???` is still to be given"));
  make_unknown(reading_.config, option);
}

}  // namespace gtp::readers
