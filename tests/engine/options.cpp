#include <gtp/options.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cctype>
#include <fstream>
#include <set>
#include <string>

#include <gtp/facts.hpp>

#include "../support/data.hpp"

using namespace gtp;
using namespace gtp::literals;

namespace {

using Json = nlohmann::json;

/// Whether Megatron-LM's parser knows the option.
bool is_upstreams(const Option& row) { return row.section < Section::Bridge; }

Json to_json(const Value& value) {
  return std::visit(
      [](const auto& v) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::monostate>)
          return nullptr;
        else
          return v;
      },
      value);
}

/// Upstream's default as our table has it: lists where an option takes several words, the signal by its name.
Json upstream_default(const Json& row, const Option& ours) {
  if (ours.name == "exit_signal") return "SIGTERM";
  const Json& value = row.at("default");
  const bool list = ours.arity != Arity::One;
  return list && !value.is_null() && !value.is_array() ? Json::array({value}) : value;
}

std::set<std::string> upstream_flags(const Json& row) {
  std::set<std::string> flags;
  const bool optional_boolean = row.value("nargs", Json()) == 0;
  for (const Json& flag : row.at("flags")) {
    if (flag.is_object())
      for (const auto& [text, constant] : flag.items())
        flags.insert(text + (constant.get<bool>() ? "=true" : "=false"));
    else if (optional_boolean)
      flags.insert(flag.get<std::string>() + (flag.get<std::string>().starts_with("--no-") ? "=false" : "=true"));
    else
      flags.insert(flag.get<std::string>());
  }
  return flags;
}

std::set<std::string> our_flags(const Option& row) {
  std::set<std::string> flags;
  for (const Flag& flag : flags_of(row))
    flags.insert(flag.text + (!flag.constant ? "" : *flag.constant ? "=true" : "=false"));
  return flags;
}

void compare_with_upstream(Version version, const char* file, std::size_t count) {
  const auto path = test::shared_or_message(file);
  if (!path) return;
  std::ifstream stream(*path);
  const Json rows = Json::parse(stream);
  CHECK(rows.size() == count);
  std::set<std::string_view> seen;
  for (const Json& row : rows) {
    const auto name = row.at("option").get<std::string>();
    CAPTURE(name);
    const auto id = find_option(name);
    REQUIRE(id.has_value());
    REQUIRE(exists(*id, version));
    const Option& ours = row_of(*id, version);
    seen.insert(ours.name);
    CHECK(our_flags(ours) == upstream_flags(row));
    const Json expected = upstream_default(row, ours);
    const Json actual = to_json(detail::defaults_of({"", version, ""})[id->index].value);
    CHECK(actual == expected);
    std::string choices;
    if (row.contains("choices") && ours.name != "exit_signal")
      for (const Json& choice : row.at("choices"))
        choices += (choices.empty() ? "" : " ") + (choice.is_string() ? choice.get<std::string>() : choice.dump());
    CHECK(ours.choices == choices);
  }
  for (const OptionId id : sorted_options()) {
    const Option& ours = row_of(id, version);
    if (is_upstreams(ours) && ours.in(version)) CHECK_MESSAGE(seen.contains(ours.name), ours.name);
  }
}

}  // namespace

TEST_CASE("the table agrees with upstream's parser at d98e8a64") {
  compare_with_upstream(Version::kd98e8a64, "options_d98e8a64.json", 837);
}

TEST_CASE("the table agrees with upstream's parser at 6513e3e2") {
  compare_with_upstream(Version::k6513e3e2, "options_6513e3e2.json", 806);
}

TEST_CASE("rows of one name stand together and hold for different versions") {
  for (std::size_t i = 1; i < kOptions.size(); ++i) {
    const Option &a = kOptions[i - 1], &b = kOptions[i];
    if (a.name == b.name) CHECK_MESSAGE(a.last < b.first, a.name);
  }
  const auto ids = sorted_options();
  for (std::size_t i = 1; i < ids.size(); ++i) CHECK(name_of(ids[i - 1]) < name_of(ids[i]));
}

TEST_CASE("every option has a line of documentation and stands in its section's file") {
  for (const Option& row : kOptions) {
    CAPTURE(row.name);
    CHECK(row.doc.size() >= 15);
    CHECK(row.doc.size() <= 120);
    CHECK(std::isupper(static_cast<unsigned char>(row.doc.front())) != 0);
    CHECK(row.doc.back() != '.');
  }
}

TEST_CASE("an option is found by name, by alias and by flag") {
  CHECK(find_option("context_parallel_size") == "context_parallel_size"_opt);
  CHECK(!find_option("context_paralel_size"));
  CHECK(!find_option(""));
  CHECK(find_settable("num_layers_in_first_pipeline_stage") == "decoder_first_pipeline_num_layers"_opt);
  CHECK(find_settable("virtual_pipeline_model_parallel_size") == "num_virtual_stages_per_pipeline_rank"_opt);
  const auto flag = find_flag("--tensor-model-parallel-size", kNewestVersion);
  REQUIRE(flag.has_value());
  CHECK(flag->option == "tensor_model_parallel_size"_opt);
  CHECK(!flag->constant.has_value());
  CHECK(!find_flag("--tensor-model-parallel", kNewestVersion));
  CHECK(!find_flag("--world-size", kNewestVersion));
}

TEST_CASE("flags without a value store their constant") {
  CHECK(find_flag("--sequence-parallel", kNewestVersion)->constant == true);
  CHECK(find_flag("--disable-bias-linear", kNewestVersion)->constant == false);
  CHECK(find_flag("--no-align-grad-reduce", kNewestVersion)->constant == false);
  CHECK(find_flag("--disable-align-grad-reduce", kNewestVersion)->constant == false);
}

TEST_CASE("a version knows its own options, defaults and choices") {
  CHECK(exists("logit_dtype"_opt, Version::kd98e8a64));
  CHECK(!exists("logit_dtype"_opt, Version::k6513e3e2));
  CHECK(!exists("stream_ckpt_dequant"_opt, Version::kd98e8a64));
  CHECK(row_of("muon_tp_mode"_opt, Version::k6513e3e2).default_value.text == "blockwise");
  CHECK(row_of("muon_tp_mode"_opt, Version::kd98e8a64).default_value.text == "duplicated");
  CHECK(!find_flag("--logit-dtype", Version::k6513e3e2));
}
