// What differs between two configurations: what they say, what follows, who talks to whom, and what `check` has to say.
// Values in, values out; the renderers below make text of them.
#pragma once

#include <gtp/groups.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/input.hpp"
#include "tools/paint.hpp"

namespace gtp::cli {

/// What one configuration says of an option.
struct Said {
  enum class How : std::uint8_t {
    Given,
    Default,   ///< the target's, in a section that the input describes
    Variable,  ///< it speaks of it, but what it says cannot be known
    Unknown,   ///< the input says nothing of the section, or upstream has no default
    NoOption,  ///< the target has no such option
  };
  How how = How::Unknown;
  const Value* value = nullptr;  ///< null unless given or default
};

struct OptionDifference {
  OptionId option;
  Said a, b;
};

/// Absent: not set, or not known.
struct VariableDifference {
  std::string name;
  const std::string* a;
  const std::string* b;
};

/// Null: not known.
struct ValueDifference {
  OptionId option;
  const Value* a;
  const Value* b;
};

struct LayersDifference {
  const LayersPerStage* a;
  const LayersPerStage* b;
};

struct GroupDifference {
  const GroupFamilyRow* row;
  GroupFamily a, b;
  /// The lowest rank whose group has other members, or that is in a group on one side only; absent when it is beyond
  /// the first 2^20 members compared.
  std::optional<std::int64_t> first_rank;
};

/// Refers to both configurations.
struct Difference {
  const Checked& a;
  const Checked& b;
  std::vector<OptionDifference> options;  ///< in the order of the table
  bool env_known_differs = false;
  std::vector<VariableDifference> env;      ///< by name
  std::vector<ValueDifference> checkpoint;  ///< what is said of the checkpoint to be loaded; by name
  /// Derived values, then options that upstream changes to different values although the same is said of them.
  std::vector<ValueDifference> derived;
  std::optional<LayersDifference> layers;
  /// Absent unless both configurations are valid and their ranks can be laid out.
  std::optional<std::vector<GroupDifference>> groups;
  std::vector<const Diagnostic*> only_a, only_b, both;

  [[nodiscard]] bool any() const;
};

/// Precondition: both were readable.
[[nodiscard]] Difference compare(const Checked& a, const Checked& b);

[[nodiscard]] std::string diff_text(const Difference& difference, Paint paint);
[[nodiscard]] std::string diff_json(const Difference& difference);

}  // namespace gtp::cli
