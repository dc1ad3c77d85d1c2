// What holds for a run: what the input gave, the target's defaults for sections the input describes,
// and what upstream derives or silently changes. Everything else is unknown, and unknown is not zero.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtp/config.hpp>
#include <gtp/options/bridge_defaults.hpp>

namespace gtp {

namespace detail {

inline StringList split_words(std::string_view text) {
  StringList words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) words.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

inline Value to_value(const Option& row, const Literal& literal) {
  switch (literal.kind) {
    case Literal::Kind::None:
      return {};
    case Literal::Kind::Bool:
      return literal.boolean;
    case Literal::Kind::Int:
      return row.type == Type::Float ? Value(static_cast<double>(literal.integer)) : Value(literal.integer);
    case Literal::Kind::Float:
      return literal.real;
    case Literal::Kind::String:
      break;
  }
  switch (row.type) {
    case Type::Words:
      return split_words(literal.text);
    case Type::Integers:
      return IntList{};  // the only list of integers with a default is empty
    case Type::Floats: {
      FloatList numbers;
      for (const std::string& word : split_words(literal.text)) numbers.push_back(std::strtod(word.c_str(), nullptr));
      return numbers;
    }
    case Type::Bool:
    case Type::Int:
    case Type::Float:
    case Type::String:
    case Type::Frequency:
      break;
  }
  return std::string(literal.text);
}

inline Value to_value(const Option& row) { return to_value(row, row.default_value); }

/// Where Megatron-Bridge's default of an option differs; null where it does not.
inline const BridgeDefault* bridge_default(std::string_view option) {
  for (const BridgeDefault& row : kBridgeDefaults)
    if (row.option == option) return &row;
  return nullptr;
}

/// A Megatron-Bridge recipe says these, so that no default is right when a configuration does not.
inline bool from_recipe(const Target& target, std::string_view option) {
  return target.framework == Framework::kBridge &&
         std::find(kFromBridgeRecipe.begin(), kFromBridgeRecipe.end(), option) != kFromBridgeRecipe.end();
}

struct Default {
  Value value{};
  Section section{};
  bool stands = false;  ///< it is what upstream takes when a described section does not say otherwise
};

/// One a row of the table.
inline std::vector<Default> make_defaults(const Target& target) {
  std::vector<Default> defaults;
  defaults.reserve(kOptions.size());
  for (std::size_t i = 0; i < kOptions.size(); ++i) {
    const Option& row = row_of({static_cast<std::uint16_t>(i)}, target.version);
    const BridgeDefault* other = target.framework == Framework::kBridge ? bridge_default(row.name) : nullptr;
    const bool stands =
        !row.required && row.section != Section::Derived && row.in(target) && !from_recipe(target, row.name);
    defaults.push_back({other == nullptr ? to_value(row) : to_value(row, other->value), row.section, stands});
  }
  return defaults;
}

inline const std::vector<Default>& defaults_of(const Target& target) { return once_for<make_defaults>(target); }

}  // namespace detail

/// The values of one run. Ids are those of the table of options, derived values included.
/// Holds references into `config`, which must outlive it.
class Facts {
 public:
  explicit Facts(const Config& config)
      : config_(&config), defaults_(&detail::defaults_of(config.target())), index_(kOptions.size(), kNotSet) {}

  [[nodiscard]] const Config& config() const { return *config_; }
  [[nodiscard]] Version version() const { return config_->version(); }
  [[nodiscard]] bool on_bridge() const { return config_->target().framework == Framework::kBridge; }

  /// Null when unknown. Valid until the next `set`.
  [[nodiscard]] const Value* find(OptionId option) const {
    const std::int16_t at = index_[option.index];
    if (at >= 0) return &derived_[static_cast<std::size_t>(at)];
    return at == kForgotten ? nullptr : original(option);
  }

  /// The value before any `set` or `forget`: what the input gave, or the default. Null when unknown.
  [[nodiscard]] const Value* original(OptionId option) const {
    const Setting* setting = config_->given(option);
    if (setting != nullptr && !is_none(setting->value)) return &setting->value;
    const detail::Default& fallback = (*defaults_)[option.index];
    if (!fallback.stands || config_->given_unknown(option) || !described(fallback.section)) return nullptr;
    return &fallback.value;
  }

  /// Known: a value or None.
  [[nodiscard]] bool known(OptionId option) const { return find(option) != nullptr; }
  /// Known and not None.
  [[nodiscard]] bool has(OptionId option) const {
    const Value* value = find(option);
    return value != nullptr && !is_none(*value);
  }
  /// Known and true.
  [[nodiscard]] bool on(OptionId option) const {
    const Value* value = find(option);
    return value != nullptr && std::holds_alternative<bool>(*value) && std::get<bool>(*value);
  }

  /// The integer, or nothing when unknown, None or of another type.
  [[nodiscard]] std::optional<std::int64_t> integer(OptionId option) const {
    const Value* value = find(option);
    if (value == nullptr || !std::holds_alternative<std::int64_t>(*value)) return std::nullopt;
    return std::get<std::int64_t>(*value);
  }

  /// The integer of an option that a rule listed among its needs and found to be set.
  [[nodiscard]] std::int64_t operator[](OptionId option) const {
    const std::optional<std::int64_t> value = integer(option);
    assert(value.has_value());
    return value.value_or(0);
  }

  /// The text, or nothing when unknown, None or of another type.
  [[nodiscard]] std::optional<std::string_view> text(OptionId option) const {
    const Value* value = find(option);
    if (value == nullptr || !std::holds_alternative<std::string>(*value)) return std::nullopt;
    return std::get<std::string>(*value);
  }

  /// A variable of the job's environment; nothing when it is not set. Meaningful with the fact `env` among the needs.
  [[nodiscard]] const Variable* variable(std::string_view name) const {
    const Variable* last = nullptr;
    for (const Variable& variable : config_->env)
      if (variable.name == name) last = &variable;
    return last;
  }

  /// Applies what upstream derives or silently changes.
  void set(OptionId option, Value value) {
    derived_.push_back(std::move(value));
    index_[option.index] = static_cast<std::int16_t>(derived_.size() - 1);
  }
  /// The value cannot be known: what it depends on is unknown or wrong.
  void forget(OptionId option) { index_[option.index] = kForgotten; }

  /// Shape options may come from a checkpoint (`use_checkpoint_args`): then absent is unknown.
  [[nodiscard]] bool described(Section section) const {
    using namespace literals;
    if (!config_->described(section)) return false;
    if (section != Section::Model) return true;
    const Setting* from_checkpoint = config_->given("use_checkpoint_args"_opt);
    return from_checkpoint == nullptr || from_checkpoint->value != Value(true);
  }

 private:
  static constexpr std::int16_t kNotSet = -1, kForgotten = -2;

  const Config* config_;
  const std::vector<detail::Default>* defaults_;
  std::vector<std::int16_t> index_;
  std::vector<Value> derived_;
};

}  // namespace gtp
