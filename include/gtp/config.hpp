// What an input says: options with their values and places, and the sections it speaks of. It holds
// nothing that was not said; defaults and derived values come in with facts.hpp.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtp/options.hpp>
#include <gtp/place.hpp>
#include <gtp/value.hpp>

namespace gtp {

struct Setting {
  OptionId option;
  Value value;
  Place place;
};

/// A variable of the job's environment.
struct Variable {
  std::string name;
  std::string value;
  Place place;
};

class Config {
 public:
  explicit Config(Target target = kDefaultTarget) : target_(target), index_(kOptions.size(), 0) {}

  [[nodiscard]] const Target& target() const { return target_; }
  [[nodiscard]] Version version() const { return target_.version; }

  /// The last setting of an option wins; it also describes the option's section, except that the
  /// model is described only by its depth or width (`describe` says it for a model file). None is as if absent.
  void set(OptionId option, Value value, Place place = {}) {
    std::uint16_t& at = index_[option.index];
    if (at == 0) {
      settings_.push_back({option, std::move(value), place});
      at = static_cast<std::uint16_t>(settings_.size());
    } else {
      settings_[at - 1U] = {option, std::move(value), place};
    }
    using namespace literals;
    const Section section = kOptions[option.index].section;
    if (section != Section::Model || option == "num_layers"_opt || option == "hidden_size"_opt) describe(section);
  }

  /// An input spoke of the option, but its value cannot be known (an unresolved variable): the
  /// option stays unknown rather than default, and its section is described.
  void set_unknown(OptionId option) {
    unknown_.push_back(option);
    describe(kOptions[option.index].section);
  }

  void describe(Section section) { described_.set(static_cast<std::size_t>(section)); }

  /// What the input gave; null when it gave nothing (or nothing that could be known).
  [[nodiscard]] const Setting* given(OptionId option) const {
    const std::uint16_t at = index_[option.index];
    return at == 0 ? nullptr : &settings_[at - 1U];
  }

  [[nodiscard]] bool given_unknown(OptionId option) const {
    for (const OptionId id : unknown_)
      if (id == option) return given(option) == nullptr;
    return false;
  }

  [[nodiscard]] bool described(Section section) const {
    const bool completed = !partial || section == Section::Topology || section == Section::Batch;
    return completed && described_.test(static_cast<std::size_t>(section));
  }
  [[nodiscard]] const std::vector<Setting>& settings() const { return settings_; }

  /// Only changes to something that is not in the input (Megatron-Bridge's overrides of a recipe): beside topology and
  /// batch an absent option is unknown.
  bool partial = false;

  /// What the input says of the checkpoint to be loaded; null when it does not say.
  [[nodiscard]] const Value* checkpoint_value(OptionId option) const {
    const Value* last = nullptr;
    for (const Setting& setting : checkpoint)
      if (setting.option == option) last = &setting.value;
    return last;
  }

  /// Variables of the job; meaningful only when `env_known`, then those not listed are not set.
  std::vector<Variable> env;
  bool env_known = false;
  /// Options of the checkpoint to be loaded, and what else it records (`iteration`, `has_rng`, `optimizer_sharding`).
  std::vector<Setting> checkpoint;

 private:
  Target target_;
  std::vector<std::uint16_t> index_;  // 1 + position in settings_; 0: not given
  std::vector<Setting> settings_;
  std::vector<OptionId> unknown_;
  std::bitset<kSectionCount> described_;
};

}  // namespace gtp
