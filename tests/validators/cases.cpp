// Public bug reports as small inputs, with the right answer to each, when the shared data folder is there.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtp/check.hpp>
#include <gtp/groups.hpp>
#include <gtp/rules/names.hpp>
#include <gtp/rules/resume.hpp>

#include "../support/data.hpp"
#include "../support/json_config.hpp"
#include "loading.hpp"

using namespace gtp;
using namespace gtp::literals;
using nlohmann::json;

namespace {

/// What a report measured, what a memory estimate says, or what belongs to one weight: no value of a configuration.
bool is_no_value_of_options(std::string_view name) {
  constexpr std::array<std::string_view, 10> kPrefixes{"measured_",    "reported_",   "tolerance_", "weight_",
                                                       "activation_",  "padded_rows", "padding_",   "under_",
                                                       "lower_bound_", "must_"};
  constexpr std::array<std::string_view, 11> kNames{"rows_per_rank",   "all_padding_ranks",       "shard_rows",
                                                    "expected_rows",   "tokens_per_rank",         "next_valid",
                                                    "example_split",   "gpu_memory_gib",          "failed_request_mib",
                                                    "fp32_logits_mib", "stage_aware_estimate_gib"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](auto prefix) { return name.starts_with(prefix); }) ||
         std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

std::vector<std::string> ids(const Diagnostics& diagnostics, Severity severity) {
  std::vector<std::string> found;
  for (const Diagnostic& d : diagnostics)
    if (d.severity == severity) found.emplace_back(d.rule);
  return found;
}

bool is_change(std::string_view id) { return find_rule(id)->change != nullptr; }

json groups_of(const Topology& topology, std::string_view name) {
  std::string text;
  write_json(make_group_family(topology, *find_group_family(name)), [&](std::string_view piece) { text += piece; });
  return json::parse(text);
}

std::int64_t product(const Facts& f, std::initializer_list<OptionId> sizes) {
  std::int64_t all = 1;
  for (const OptionId size : sizes) all *= f[size];
  return all;
}

/// One number of every entry of the batch schedule.
template <class Of>
json of_entries(const BatchSchedule& schedule, Of&& of) {
  json values = json::array();
  for (const ScheduleEntry& entry : schedule.entries()) values.push_back(of(entry));
  return values;
}

std::int64_t samples_of_a_microbatch(const Facts& f) {
  return product(f, {"micro_batch_size"_opt, "data_distribution_size"_opt});
}

std::optional<json> schedule_value(const Derivation& d, std::string_view name) {
  if (!d.schedule) return std::nullopt;
  if (name == "thresholds_samples")
    return of_entries(*d.schedule, [](const ScheduleEntry& entry) { return entry.threshold_samples; });
  if (name == "batch_sizes")
    return of_entries(*d.schedule, [](const ScheduleEntry& entry) { return entry.global_batch_size; });
  const std::int64_t unit = samples_of_a_microbatch(d.facts);
  if (name == "num_microbatches_per_step")
    return of_entries(*d.schedule, [&](const ScheduleEntry& entry) { return entry.global_batch_size / unit; });
  if (name != "bad_entries") return std::nullopt;
  json bad = json::array();
  for (const ScheduleEntry& entry : d.schedule->entries())
    if (entry.global_batch_size % unit != 0) bad.push_back(entry.global_batch_size);
  return bad;
}

/// Samples that all iterations consume, each with the batch of its step.
std::int64_t consumed_at_the_end(const Derivation& d) {
  std::int64_t consumed = 0;
  for (std::int64_t i = 0; i < d.facts["train_iters"_opt]; ++i)
    consumed += d.schedule ? d.schedule->schedule_at(consumed).global_batch_size : d.facts["global_batch_size"_opt];
  return consumed;
}

std::optional<json> group_value(const Derivation& d, std::string_view name) {
  if (!d.topology) return std::nullopt;
  if (name == "cp_group_of_rank0") return groups_of(*d.topology, "cp")[0];
  if (name == "dp_group_of_rank0") return groups_of(*d.topology, "dp")[0];
  if (name == "gtp_groups") return groups_of(*d.topology, "gtp_remat");
  if (name == "tp_groups") return groups_of(*d.topology, "tp");
  if (name == "pp_groups") return groups_of(*d.topology, "pp");
  return std::nullopt;
}

std::optional<json> layer_value(const Derivation& d, std::string_view name, const json& expected) {
  if (name == "segments")
    return parse_hybrid_pattern(*d.facts.text("hybrid_layer_pattern"_opt)).pattern->num_segments();
  if (!d.layers_per_stage) return std::nullopt;
  if (name == "layers_per_stage" && expected.is_array()) return json(*d.layers_per_stage);
  std::int64_t stages = 0, most = 0, all = 0;
  for (const auto& rank : *d.layers_per_stage)
    for (const std::int64_t layers : rank) {
      ++stages;
      most = std::max(most, layers);
      all += layers;
    }
  if (name == "layers_per_stage") return all;  // of a layout: the layers of all stages
  if (name == "num_stages") return stages;
  if (name == "max_layers_per_stage") return most;
  return std::nullopt;
}

/// The value under the name that a case gives it; nothing when the configuration has none.
std::optional<json> value_of(const Derivation& d, const std::string& name, const json& expected) {
  const Facts& f = d.facts;
  if (name == "dense_grid") return product(f, {rules::kTp, rules::kPp, rules::kCp, rules::kGtpRemat});
  if (name == "expert_grid") return product(f, {rules::kEtp, rules::kEp, rules::kPp, rules::kEgtpRemat});
  if (name == "data_parallel_world_size_with_gtp") return f[rules::kLanes];
  if (name == "micro_batch_times_dp") return samples_of_a_microbatch(f);
  if (name == "consumed_train_samples_end") return consumed_at_the_end(d);
  if (name == "dropped_samples") return f["train_samples"_opt] - consumed_at_the_end(d);
  if (name == "padded_vocab_size")
    if (const auto size = rules::detail::padded_vocabulary(f)) return *size;
  for (const auto& value : {schedule_value(d, name), group_value(d, name), layer_value(d, name, expected)})
    if (value) return value;
  if (const auto option = find_option(name)) return test::derived_json(f, name);
  return std::nullopt;
}

std::optional<json> cases() {
  const auto path = test::shared_or_message("cases.json");
  if (!path) return std::nullopt;
  std::ifstream file(*path);
  return json::parse(file);
}

}  // namespace

TEST_CASE("every public bug report gets its verdict") {
  const auto rows = cases();
  if (!rows) return;
  CHECK(rows->size() == 106);
  for (const json& row : *rows) {
    const std::string id = row.at("id"), verdict = row.at("expect").at("verdict");
    const bool about_memory = id.starts_with("mem-");  // `gtplan memory` judges what fits
    CAPTURE(id);
    const Loaded loaded = test::load_text(row.at("config").dump(), "case.json");
    REQUIRE(loaded.readable);
    CHECK(test::codes(loaded) == "");
    const Diagnostics found = check(loaded.config).diagnostics;
    const auto errors = ids(found, Severity::Error);
    CAPTURE(json(errors).dump());
    if (verdict == "error" && !about_memory) CHECK(!errors.empty());
    if (verdict != "error") CHECK(errors.empty());
    if (verdict == "warning" && !about_memory) {
      const auto notes = ids(found, Severity::Note);  // of what upstream warns about and changes
      const bool told = !ids(found, Severity::Warning).empty() || std::any_of(notes.begin(), notes.end(), is_change);
      CHECK(told);
    }
  }
}

TEST_CASE("the values that a public bug report expects are derived") {
  const auto rows = cases();
  if (!rows) return;
  std::size_t compared = 0;
  for (const json& row : *rows) {
    if (!row.at("expect").contains("values")) continue;
    const std::string id = row.at("id");
    CAPTURE(id);
    const Loaded loaded = test::load_text(row.at("config").dump(), "case.json");
    const Derivation d = derive(loaded.config);
    for (const auto& item : row.at("expect").at("values").items()) {
      const std::string& name = item.key();
      if (is_no_value_of_options(name)) continue;
      const auto value = value_of(d, name, item.value());
      REQUIRE_MESSAGE(value.has_value(), name);
      CHECK_MESSAGE(*value == item.value(), name);
      ++compared;
    }
  }
  CHECK(compared >= 170);
}
