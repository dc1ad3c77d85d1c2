#include "tools/launch/arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>
#include <variant>

#include <gtp/rules/form.hpp>

#include "tools/launch/bridge.hpp"
#include "validators/reading.hpp"

namespace gtp::cli {

namespace {

using namespace literals;

constexpr auto kTp = "tensor_model_parallel_size"_opt, kEtp = "expert_tensor_parallel_size"_opt,
               kEp = "expert_model_parallel_size"_opt, kShards = "tensor_parallel_num_weight_shards"_opt,
               kExpertShards = "expert_tensor_parallel_num_weight_shards"_opt;

/// A recipe of Bridge has a value of its own for each of these.
constexpr std::array kBridgeSizes{kTp,
                                  "pipeline_model_parallel_size"_opt,
                                  "context_parallel_size"_opt,
                                  kEp,
                                  "sequence_parallel"_opt,
                                  "micro_batch_size"_opt,
                                  "global_batch_size"_opt};

/// Options that some command line sets.
bool can_be_told(const Option& row) { return row.section != Section::Surroundings && row.section != Section::Derived; }

/// The target's defaults: those of a configuration that describes every section and gives nothing.
class Defaults {
 public:
  explicit Defaults(const Target& target) : config_(target) {
    for (int section = 0; section < kSectionCount; ++section) config_.describe(static_cast<Section>(section));
  }
  [[nodiscard]] const Facts& facts() const { return facts_; }

 private:
  Config config_;
  Facts facts_{config_};
};

class Selection {
 public:
  Selection(const Config& config, const Facts& facts, LaunchFramework framework)
      : config_(config), facts_(facts), defaults_(config.target()) {
    select_beside_shards();
    if (framework == LaunchFramework::MegatronBridge)
      wanted_.insert(wanted_.end(), kBridgeSizes.begin(), kBridgeSizes.end());
  }

  std::vector<Setting> settings() {
    for (std::size_t i = 0; i < kOptions.size(); ++i)
      if (i == 0 || kOptions[i].name != kOptions[i - 1].name) consider({static_cast<std::uint16_t>(i)});
    keep_sections_described();
    std::stable_sort(settings_.begin(), settings_.end(),
                     [](const Setting& a, const Setting& b) { return a.option.index < b.option.index; });
    return std::move(settings_);
  }

 private:
  void select_beside_shards() {
    const auto gives = [&](OptionId option) { return config_.given(option) != nullptr; };
    if (gives(kShards)) wanted_.push_back(kTp);
    const auto ep = facts_.integer(kEp);
    if (gives(kExpertShards) || facts_.has("num_experts"_opt) || (ep && *ep > 1)) wanted_.push_back(kEtp);
  }

  void consider(OptionId option) {
    if (!can_be_told(kOptions[option.index])) return;
    const Setting* given = config_.given(option);
    const bool wanted = std::find(wanted_.begin(), wanted_.end(), option) != wanted_.end();
    if (given != nullptr && !is_none(given->value) && (wanted || !goes_without_saying(*given))) return add(*given);
    const Value* value = wanted ? facts_.find(option) : nullptr;
    if (value != nullptr && !is_none(*value)) add({option, *value, {}});
  }

  /// A default does, where defaults are known to hold; and one that no flag can set.
  [[nodiscard]] bool goes_without_saying(const Setting& setting) const {
    const Value* value = defaults_.facts().find(setting.option);
    if (value == nullptr || *value != setting.value) return false;
    const Option& row = row_of(setting.option, config_.version());
    const std::vector<Flag> flags = flags_of(row);
    return facts_.described(row.section) || std::ranges::none_of(flags, [&](const Flag& flag) {
             return !flag.constant || Value(*flag.constant) == setting.value;
           });
  }

  void add(Setting setting) {
    told_.set(static_cast<std::size_t>(kOptions[setting.option.index].section));
    settings_.push_back(std::move(setting));
  }

  /// Without it, what is a default in the input would be unknown in what is told.
  void keep_sections_described() {
    for (int i = 0; i < kSectionCount; ++i) {
      const auto section = static_cast<Section>(i);
      if (section == Section::Model || told_.test(static_cast<std::size_t>(i)) || !config_.described(section)) continue;
      if (const auto option = default_to_tell(section)) add({*option, *defaults_.facts().find(*option), {}});
    }
  }

  /// One of the input's own if possible.
  [[nodiscard]] std::optional<OptionId> default_to_tell(Section section) const {
    std::optional<OptionId> other;
    for (const OptionId option : sorted_options()) {
      if (!can_be_told(kOptions[option.index]) || kOptions[option.index].section != section) continue;
      const Value* value = defaults_.facts().find(option);
      if (value == nullptr || !std::holds_alternative<std::int64_t>(*value)) continue;
      if (config_.given(option) != nullptr) return option;
      if (!other && exists(option, config_.version())) other = option;
    }
    return other;
  }

  const Config& config_;
  const Facts& facts_;
  Defaults defaults_;
  std::vector<OptionId> wanted_;
  std::vector<Setting> settings_;
  std::bitset<kSectionCount> told_;
};

/// The shortest digits that are read back as the same number; without an exponent where `plain`.
std::string number_text(double number, bool plain) {
  if (!std::isfinite(number)) return fmt::format("{}", number);
  std::array<char, 400> digits{};
  const auto end = plain ? std::to_chars(digits.data(), digits.data() + digits.size(), number, std::chars_format::fixed)
                         : std::to_chars(digits.data(), digits.data() + digits.size(), number);
  return {digits.data(), end.ptr};
}

/// `([0]*3+[1]*58)`: equal neighbours are written once.
std::string frequency_text(const IntList& list) {
  std::string text;
  for (std::size_t at = 0, next = 0; at < list.size(); at = next) {
    while (next < list.size() && list[next] == list[at]) ++next;
    text += fmt::format("{}[{}]*{}", at == 0 ? "" : "+", list[at], next - at);
  }
  return list.empty() ? "[]" : '(' + text + ')';
}

TrainerArgument words_of(const Option& row, const Value& value) {
  struct Writer {
    const Option& row;
    TrainerArgument operator()(std::monostate) const { return {}; }
    TrainerArgument operator()(bool flag) const { return {flag ? "true" : "false"}; }
    TrainerArgument operator()(std::int64_t number) const { return {fmt::format("{}", number)}; }
    TrainerArgument operator()(double number) const { return {number_text(number, false)}; }
    TrainerArgument operator()(const std::string& text) const { return {text}; }
    TrainerArgument operator()(const StringList& list) const { return list; }
    TrainerArgument operator()(const IntList& list) const {
      if (row.type == Type::Frequency) return {frequency_text(list)};
      TrainerArgument words;
      for (const std::int64_t number : list) words.push_back(fmt::format("{}", number));
      return words;
    }
    TrainerArgument operator()(const FloatList& list) const {
      TrainerArgument words;
      for (const double number : list) words.push_back(number_text(number, number < 0));
      return words;
    }
  };
  return std::visit(Writer{row}, value);
}

/// What argparse takes for a negative number and not for a flag: digits with at most one point.
bool is_plain_negative(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && word.back() != '.' &&
         word.find_first_not_of("0123456789.", 1) == std::string_view::npos &&
         std::count(word.begin(), word.end(), '.') <= 1;
}

bool looks_like_flag(std::string_view word) { return word.size() > 1 && word[0] == '-'; }

/// Nothing when argparse would not hand the words to the option.
std::optional<TrainerArgument> flag_and_words(const std::string& flag, const Option& row, TrainerArgument words) {
  if (words.size() == 1 && looks_like_flag(words[0])) return TrainerArgument{flag + '=' + words[0]};
  if (words.empty() && row.arity != Arity::Any) return std::nullopt;
  for (const std::string& word : words)
    if (looks_like_flag(word) && !is_plain_negative(word)) return std::nullopt;
  words.insert(words.begin(), flag);
  return words;
}

std::optional<TrainerArgument> megatron_argument(const Setting& setting, Version version) {
  const Option& row = row_of(setting.option, version);
  for (const Flag& flag : flags_of(row)) {
    if (!flag.constant) return flag_and_words(flag.text, row, words_of(row, setting.value));
    if (Value(*flag.constant) == setting.value) return TrainerArgument{flag.text};
  }
  return std::nullopt;
}

/// Why a text cannot stand in a file that is read back; null when it can.
const char* unwritable(const TrainerArgument& words) {
  for (const std::string& word : words)
    if (const auto problem = readers::find_not_text(word)) return problem->what;
  return nullptr;
}

Diagnostic cannot_carry(const Setting& setting, std::string label) {
  Diagnostic d = rules::at_place(rules::kWrongType, name_of(setting.option), setting.place, std::move(label));
  d.message = "no command line can carry the value";
  d.help = "choose another value";
  return d;
}

void append(const Setting& setting, std::optional<TrainerArgument> words, TrainerArguments& out) {
  if (!words)
    out.problems.push_back(cannot_carry(
        setting, fmt::format("{} would be taken for flags, or for nothing at all", gtp::to_text(setting.value))));
  else if (const char* problem = unwritable(*words))
    out.problems.push_back(cannot_carry(setting, problem));
  else
    out.list.push_back(*std::move(words));
}

}  // namespace

std::vector<Setting> settings_to_tell(const Config& config, const Facts& facts, LaunchFramework framework) {
  return Selection(config, facts, framework).settings();
}

TrainerArguments make_arguments(const Config& config, const Facts& facts, LaunchFramework framework) {
  TrainerArguments out;
  for (const Setting& setting : settings_to_tell(config, facts, framework)) {
    if (framework == LaunchFramework::MegatronLm) {
      append(setting, megatron_argument(setting, config.version()), out);
      continue;
    }
    std::vector<std::string> overrides = bridge_overrides(setting, facts);
    const bool implied =
        setting.option == "group_query_attention"_opt && config.given("num_query_groups"_opt) != nullptr;
    if (overrides.empty() && !implied) out.left_out.push_back(name_of(setting.option));
    for (std::string& override : overrides) append(setting, TrainerArgument{std::move(override)}, out);
  }
  return out;
}

}  // namespace gtp::cli
