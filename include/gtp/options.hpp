// The one table of options, and how to find a row: by name at compile time ("..."_opt) or at run
// time. Readers, `--set`, JSON, documentation and rules all refer to these rows.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtp/option.hpp>
#include <gtp/options/batch.hpp>
#include <gtp/options/bridge.hpp>
#include <gtp/options/checkpoint.hpp>
#include <gtp/options/cuda_graphs.hpp>
#include <gtp/options/data.hpp>
#include <gtp/options/derived.hpp>
#include <gtp/options/model.hpp>
#include <gtp/options/optimizer.hpp>
#include <gtp/options/overlap.hpp>
#include <gtp/options/precision.hpp>
#include <gtp/options/recompute.hpp>
#include <gtp/options/run.hpp>
#include <gtp/options/surroundings.hpp>
#include <gtp/options/topology.hpp>

namespace gtp {

namespace detail {

template <std::size_t... N>
constexpr auto concatenate(const Option (&... parts)[N]) {
  std::array<Option, (N + ...)> rows{};
  std::size_t at = 0;
  ((std::copy(std::begin(parts), std::end(parts), rows.begin() + static_cast<std::ptrdiff_t>(at)), at += N), ...);
  return rows;
}

}  // namespace detail

/// All rows, section by section. A name with a different default, type or choices in different
/// versions has several rows next to each other with disjoint versions.
inline constexpr auto kOptions =
    detail::concatenate(options::kTopology, options::kModel, options::kBatch, options::kPrecision, options::kOverlap,
                        options::kOptimizer, options::kCudaGraphs, options::kRecompute, options::kCheckpoint,
                        options::kData, options::kRun, options::kBridge, options::kSurroundings, options::kDerived);

/// Index of an option's first row: one id for one name.
struct OptionId {
  std::uint16_t index = 0;
  friend constexpr bool operator==(OptionId, OptionId) = default;
};

[[nodiscard]] constexpr std::string_view name_of(OptionId id) { return kOptions[id.index].name; }

/// The row that holds for a version. For a name that the version does not know, the first row.
[[nodiscard]] constexpr const Option& row_of(OptionId id, Version version = kDefaultTarget.version) {
  for (std::size_t i = id.index; i < kOptions.size() && kOptions[i].name == name_of(id); ++i)
    if (kOptions[i].in(version)) return kOptions[i];
  return kOptions[id.index];
}

/// Whether the option exists in that version.
[[nodiscard]] constexpr bool exists(OptionId id, Version version) { return row_of(id, version).in(version); }
/// Whether the option exists in that target.
[[nodiscard]] constexpr bool exists(OptionId id, const Target& target) { return row_of(id, target.version).in(target); }

namespace detail {

/// First rows sorted by name: an array, and how much of it is filled.
struct SortedOptions {
  std::array<OptionId, kOptions.size()> ids{};
  std::size_t count = 0;
};

inline constexpr SortedOptions kSorted = [] {
  SortedOptions sorted;
  for (std::size_t i = 0; i < kOptions.size(); ++i)
    if (i == 0 || kOptions[i].name != kOptions[i - 1].name)
      sorted.ids[sorted.count++] = {static_cast<std::uint16_t>(i)};
  std::sort(sorted.ids.begin(), sorted.ids.begin() + static_cast<std::ptrdiff_t>(sorted.count),
            [](OptionId a, OptionId b) { return name_of(a) < name_of(b); });
  return sorted;
}();

}  // namespace detail

/// Every option once, sorted by name.
[[nodiscard]] constexpr std::span<const OptionId> sorted_options() {
  return {detail::kSorted.ids.data(), detail::kSorted.count};
}

/// The option of that name in any version, derived values included; nothing for an unknown name.
[[nodiscard]] constexpr std::optional<OptionId> find_option(std::string_view name) {
  const auto ids = sorted_options();
  const auto at = std::lower_bound(ids.begin(), ids.end(), name,
                                   [](OptionId id, std::string_view text) { return name_of(id) < text; });
  if (at == ids.end() || name_of(*at) != name) return std::nullopt;
  return *at;
}

namespace literals {

/// `"context_parallel_size"_opt`: a misspelt name does not compile.
consteval OptionId operator""_opt(const char* text, std::size_t size) {
  const std::optional<OptionId> option = find_option({text, size});
  if (!option) throw "no such option";
  return *option;
}

}  // namespace literals

namespace detail {

/// Names that Megatron Core's configuration objects use where the command line says otherwise.
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kAliases{{
    {"virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank"},
    {"num_layers_in_first_pipeline_stage", "decoder_first_pipeline_num_layers"},
    {"num_layers_in_last_pipeline_stage", "decoder_last_pipeline_num_layers"},
}};

}  // namespace detail

/// As `find_option`, for what a user sets: accepts the aliases of Megatron Core's field names.
[[nodiscard]] inline std::optional<OptionId> find_settable(std::string_view name) {
  for (const auto& [alias, option] : detail::kAliases)
    if (alias == name) return find_option(option);
  return find_option(name);
}

/// One command-line flag: either it takes words, or it stores `constant`.
struct Flag {
  std::string text;
  std::optional<bool> constant{};
};

/// The flags that set an option. Regular ones are not written in the table: `--the-name` with a value;
/// for a boolean that is off by default the bare flag; for one that is on `--no-...` and `--disable-...`.
[[nodiscard]] inline std::vector<Flag> flags_of(const Option& option) {
  std::vector<Flag> flags;
  if (option.section >= Section::Bridge) return flags;
  if (option.flags.empty()) {
    std::string dashed(option.name);
    std::replace(dashed.begin(), dashed.end(), '_', '-');
    if (option.type != Type::Bool)
      flags.push_back({"--" + dashed});
    else if (!option.default_value.boolean)
      flags.push_back({"--" + dashed, true});
    else
      flags = {{"--no-" + dashed, false}, {"--disable-" + dashed, false}};
    return flags;
  }
  for (std::size_t at = 0; at < option.flags.size();) {
    const std::size_t end = std::min(option.flags.find(' ', at), option.flags.size());
    const std::string_view word = option.flags.substr(at, end - at);
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos)
      flags.push_back({std::string(word)});
    else
      flags.push_back({std::string(word.substr(0, equals)), word.substr(equals + 1) == "true"});
    at = end + 1;
  }
  return flags;
}

/// What a flag sets. `option` is its first row's id; the row is the one of the version asked for.
struct FlagMatch {
  OptionId option;
  std::optional<bool> constant{};
};

namespace detail {

using FlagIndex = std::vector<std::pair<std::string, FlagMatch>>;

inline FlagIndex make_flag_index(Version version) {
  FlagIndex index;
  for (const OptionId id : sorted_options())
    if (exists(id, version))
      for (Flag& flag : flags_of(row_of(id, version))) index.push_back({std::move(flag.text), {id, flag.constant}});
  std::sort(index.begin(), index.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return index;
}

inline const FlagIndex& flag_index(Version version) {
  static std::array<FlagIndex, kVersionCount> indices;
  static std::array<std::once_flag, kVersionCount> made;
  const auto at = static_cast<std::size_t>(version);
  std::call_once(made[at], [&] { indices[at] = make_flag_index(version); });
  return indices[at];
}

}  // namespace detail

/// The option behind a flag such as `--context-parallel-size`, exactly as argparse without
/// abbreviations would find it.
[[nodiscard]] inline std::optional<FlagMatch> find_flag(std::string_view flag, Version version) {
  const auto& index = detail::flag_index(version);
  const auto at = std::lower_bound(index.begin(), index.end(), flag,
                                   [](const auto& entry, std::string_view text) { return entry.first < text; });
  if (at == index.end() || at->first != flag) return std::nullopt;
  return at->second;
}

}  // namespace gtp
