#include <gtp/assign.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "../support/config.hpp"

using namespace gtp;
using namespace gtp::literals;

namespace {

std::optional<Value> parse(OptionId option, std::vector<Word> words, Diagnostics& out) {
  return parse_value(row_of(option), words, {}, out);
}

std::string code_of(OptionId option, std::vector<Word> words) {
  Diagnostics out;
  const auto value = parse(option, std::move(words), out);
  return out.empty() ? (value ? "" : "silent") : std::string(out.front().code);
}

}  // namespace

TEST_CASE("integers are read as Python's int does") {
  CHECK(parse_int("8").value == 8);
  CHECK(parse_int(" +1_000 ").value == 1000);
  CHECK(parse_int("-3").value == -3);
  CHECK(parse_int("007").value == 7);
  for (const char* wrong : {"", " ", "8.0", "1e3", "0x10", "++1", "+-1", "1__0", "_1", "1_", "eight"})
    CHECK_MESSAGE(!parse_int(wrong).value, wrong);
  CHECK(parse_int("9223372036854775807").value == std::numeric_limits<std::int64_t>::max());
  CHECK(parse_int("9223372036854775808").error == ParseError::OutOfRange);
  CHECK(parse_int("-99999999999999999999").error == ParseError::OutOfRange);
}

TEST_CASE("numbers are read as Python's float does") {
  CHECK(parse_float("1e-4").value == 1e-4);
  CHECK(parse_float(".5").value == 0.5);
  CHECK(parse_float("5.").value == 5.0);
  CHECK(parse_float("+1_0.5").value == 10.5);
  CHECK(std::isinf(parse_float("inf").value.value()));
  CHECK(std::isinf(parse_float("1e999").value.value()));
  CHECK(parse_float("1e-999").value == 0.0);
  CHECK(std::isnan(parse_float("NaN").value.value()));
  for (const char* wrong : {"", "1e", "e5", "0x1p3", "nan(1)", "1,5", "--1"})
    CHECK_MESSAGE(!parse_float(wrong).value, wrong);
}

TEST_CASE("a value of the wrong type is reported with its type") {
  CHECK(code_of("tensor_model_parallel_size"_opt, {{"two"}}) == "GTP903");
  CHECK(code_of("tensor_model_parallel_size"_opt, {{"2.0"}}) == "GTP903");
  CHECK(code_of("tensor_model_parallel_size"_opt, {{"2", {}, true}}) == "GTP903");
  CHECK(code_of("sequence_parallel"_opt, {{"1"}}) == "GTP903");
  CHECK(code_of("lr"_opt, {{"fast"}}) == "GTP903");
  CHECK(code_of("moe_layer_freq"_opt, {{"[0]*"}}) == "GTP903");
  CHECK(code_of("tensor_model_parallel_size"_opt, {{"99999999999999999999"}}) == "GTP907");
}

TEST_CASE("a value outside the choices is reported with the nearest choice") {
  Diagnostics out;
  CHECK(!parse("distributed_backend"_opt, {{"ncl"}}, out));
  REQUIRE(out.size() == 1);
  CHECK(out[0].code == "GTP904");
  CHECK(out[0].help == "did you mean `nccl`?");
  CHECK(out[0].notes.at(0) == "choices: nccl, gloo");
}

TEST_CASE("an option takes as many words as upstream's parser") {
  CHECK(code_of("tensor_model_parallel_size"_opt, {}) == "GTP908");
  CHECK(code_of("tensor_model_parallel_size"_opt, {{"1"}, {"2"}}) == "GTP908");
  CHECK(code_of("rampup_batch_size"_opt, {{"1"}, {"2"}}) == "GTP908");
  CHECK(code_of("hierarchical_context_parallel_sizes"_opt, {}) == "GTP908");
  Diagnostics out;
  CHECK(parse("hierarchical_context_parallel_sizes"_opt, {{"2"}, {"4"}}, out) == Value(IntList{2, 4}));
  CHECK(out.empty());
}

TEST_CASE("a frequency is an integer or a list") {
  Diagnostics out;
  CHECK(parse("moe_layer_freq"_opt, {{"2"}}, out) == Value(std::int64_t{2}));
  CHECK(parse("moe_layer_freq"_opt, {{"([0]*2+[1]*2)"}}, out) == Value(IntList{0, 0, 1, 1}));
  CHECK(out.empty());
}

TEST_CASE("an unknown name suggests the nearest, also as a flag") {
  Diagnostics out;
  CHECK(!resolve_name("tensor_model_paralel_size", {}, kDefaultTarget, out));
  CHECK(out.back().help == "did you mean `tensor_model_parallel_size`?");
  CHECK(!resolve_flag("--tensor_model_parallel_size", {}, kDefaultTarget, out));
  CHECK(out.back().help == "did you mean `--tensor-model-parallel-size`?");
  CHECK(!resolve_name("zzzzzz", {}, kDefaultTarget, out));
  CHECK(out.back().code == "GTP902");
  CHECK(!resolve_name("logit_dtype", {}, kTargets[0], out));
  CHECK(out.back().notes.at(0) == "another target knows `logit_dtype`");
}

TEST_CASE("a derived value cannot be set, and what to set instead is said") {
  Diagnostics out;
  CHECK(!resolve_name("gtp_weight_remat_size", {}, kDefaultTarget, out));
  CHECK(out.back().code == "GTP009");
  CHECK(out.back().help == "set `tensor_parallel_num_weight_shards` instead");
  CHECK(!resolve_flag("--data-parallel-size", {}, kDefaultTarget, out));
  CHECK(out.back().code == "GTP913");
}

TEST_CASE("an option whose value is wrong is unknown, not default") {
  Diagnostics out;
  const Config config = test::make_config({{"tensor_model_parallel_size", "two"}}, out);
  CHECK(config.given("tensor_model_parallel_size"_opt) == nullptr);
  CHECK(config.given_unknown("tensor_model_parallel_size"_opt));
  CHECK(!Facts(config).known("tensor_model_parallel_size"_opt));
  CHECK(Facts(config).known("context_parallel_size"_opt));
}

TEST_CASE("the nearest name is found through swaps and dashes, and not at any price") {
  constexpr std::array<std::string_view, 3> kNames{"check", "plan", "ranks"};
  CHECK(nearest("chekc", kNames) == "check");
  CHECK(nearest("rank", kNames) == "ranks");
  CHECK(nearest("xyz", kNames).empty());
  CHECK(nearest("", kNames).empty());
  CHECK(nearest(std::string(100000, 'x'), kNames).empty());
  CHECK(edit_distance("ab", "ba") == 1);
}
