#include <doctest/doctest.h>
#include <gtp/layer_freq.hpp>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "support/data.hpp"

using namespace gtp;
using Json = nlohmann::json;
using List = std::vector<std::int64_t>;

namespace {

constexpr auto kMoe = LayerFreqOption::MoeLayerFreq;
constexpr auto kLinear = LayerFreqOption::LinearAttentionFreq;
constexpr auto kWindow = LayerFreqOption::WindowAttnSkipFreq;
constexpr auto kNoRope = LayerFreqOption::NoRopeFreq;

/// The value as JSON, or the id of what is wrong with the text.
Json read(std::string_view text) {
  const LayerFreqParse parse = parse_layer_freq(text);
  CHECK(parse.value.has_value() != parse.finding.has_value());
  if (!parse.value) return rule_id(parse.finding->problem);
  return std::visit([](const auto& value) { return Json(value); }, *parse.value);
}

std::string flags_of(LayerFreqOption option, const LayerFreq& freq, std::int64_t num_layers) {
  const LayerFlags expanded = expand_layer_freq(option, freq, num_layers);
  if (!expanded.flags) return std::string(rule_id(expanded.finding->problem));
  std::string text;
  for (const bool flag : *expanded.flags) text += flag ? '1' : '0';
  return text;
}

}  // namespace

TEST_CASE("every frequency row of the data gets upstream's value or refusal") {
  std::ifstream file(test::project_data("mini_languages.json"));
  int rows = 0;
  for (const Json& row : Json::parse(file)) {
    if (!row.contains("moe_layer_freq")) continue;
    ++rows;
    const auto text = row["moe_layer_freq"].get<std::string>();
    CAPTURE(text);
    const Json& expect = row["expect"];
    if (expect.contains("error"))
      CHECK_FALSE(parse_layer_freq(text).value);
    else
      CHECK(read(text) == expect["value"]);
  }
  CHECK(rows == 16);
}

TEST_CASE("an integer is read as Python reads it") {
  CHECK(read(" +1_000\n") == 1000);
  CHECK(read("-007") == -7);
  CHECK(read("-9223372036854775808") == INT64_MIN);
  CHECK(read("9223372036854775808") == "layer-freq-limit");
  for (const char* text : {"", " ", "-", "1__0", "_1", "1_", "0x10", "1 2", "--1", "(1)", "1\xC2\xA0"})
    CHECK(read(text) == "layer-freq-integer");
}

TEST_CASE("list expressions follow Python's grammar as far as the characters reach") {
  CHECK(read("[0]*2+2*[1]") == List{0, 0, 1, 1});
  CHECK(read("([1]+[0]*2)*2") == List{1, 0, 0, 1, 0, 0});
  CHECK(read("[]") == List{});
  CHECK(read("[0,1,]") == List{0, 1});
  CHECK(read("[1+1,2*3,2**3,+1,00]") == List{2, 6, 8, 1, 0});
  CHECK(read("[0]*2**3") == List(8, 0));
  CHECK(read("2**3**0*[1]") == List{1, 1});
  CHECK(read("[*[0]*2,*(1,1)]") == List{0, 0, 1, 1});
  CHECK(read("[4,5][1]") == 5);
  CHECK(read("[1]*[2][0]") == List{1, 1});
  CHECK(read("[0]*0*999") == List{});
}

TEST_CASE("what is not such an expression says why and where") {
  CHECK(read("[0]*3 + [1]") == "layer-freq-characters");
  CHECK(read("[__import__]") == "layer-freq-characters");
  for (const char* text : {"[0]*", "[0", "[0]]", "[,]", "[0,,1]", "[07]", "[0]1", "[(*[0])]", "[0]**", "+[", "[()"})
    CHECK(read(text) == "layer-freq-syntax");
  for (const char* text : {"[0]+1", "[0]*[1]", "+[0]", "[0]**2", "[0](1)", "[0][1]", "[0][0,0]", "[*1]", "1[0]"})
    CHECK(read(text) == "layer-freq-type");
  for (const char* text : {"[[0]]", "[0],[1]", "([0],)", "(*[0],1)"})
    CHECK(read(text) == "layer-freq-list-of-integers");
  CHECK(parse_layer_freq("[0]*3 ").finding->offset == 5);
}

TEST_CASE("neither length nor depth nor work is unbounded") {
  CHECK(read("[0]*1000001") == "layer-freq-limit");
  CHECK(read("[0]*9**99") == "layer-freq-limit");
  CHECK(read("[1]*99999999999999999999") == "layer-freq-limit");
  CHECK(read("[0]*1**999999999999*2") == List{0, 0});
  CHECK(read(std::string(200, '(') + "[0]" + std::string(200, ')')) == "layer-freq-depth");
  CHECK(read(std::string(500'000, '[')) == "layer-freq-depth");
  CHECK(read("[" + std::string(900'000, '+') + "1]") == List{1});
  CHECK(read(std::string(kMaxLayerFreqLength + 1, '[')) == "layer-freq-limit");
  std::string repeated = "[0]";
  for (int i = 0; i < 10'000; ++i) repeated += "+[0]*1000000*0";
  CHECK(read(repeated) == "layer-freq-limit");
  std::string tuples = "0";
  for (int i = 0; i < 150; ++i) tuples = "(" + tuples + "),0";
  CHECK(read("[" + tuples + "]") == "layer-freq-list-of-integers");
}

TEST_CASE("one expert layer in N starts with the first layer") {
  CHECK(flags_of(kMoe, 1, 4) == "1111");
  CHECK(flags_of(kMoe, 2, 5) == "10101");
  CHECK(flags_of(kMoe, -2, 4) == "1010");
  CHECK(flags_of(kMoe, 0, 4) == "layer-freq-zero");
  CHECK(flags_of(kMoe, List{0, 1, 1}, 3) == "011");
  CHECK(flags_of(kMoe, List{0, 1}, 3) == "layer-freq-length");
  CHECK(flags_of(kMoe, List{0, 2}, 2) == "layer-freq-values");
  CHECK(is_moe_layer(3, 6));
  CHECK_FALSE(is_moe_layer(3, 7));
  CHECK_FALSE(is_moe_layer(List{1}, 1));
  CHECK_FALSE(is_moe_layer(0, 0));
}

TEST_CASE("one full attention layer in N ends its group") {
  CHECK(flags_of(kLinear, 4, 8) == "11101110");
  CHECK(flags_of(kLinear, List{1, 0, 2}, 3) == "100");
  CHECK(flags_of(kLinear, List{1}, 3) == "layer-freq-length");
  CHECK(flags_of(kWindow, 3, 6) == "110110");
  CHECK(flags_of(kWindow, List{2, 0, 1, 1}, 3) == "101");
  CHECK(flags_of(kWindow, List{1}, 3) == "layer-freq-length");
  CHECK(flags_of(kWindow, 0, 3) == "layer-freq-zero");
}

TEST_CASE("rotary embedding is skipped on the last layer of a group that tiles the model") {
  CHECK(flags_of(kNoRope, 4, 8) == "00010001");
  CHECK(flags_of(kNoRope, 0, 3) == "000");
  CHECK(flags_of(kNoRope, 3, 8) == "no-rope-freq");
  CHECK(flags_of(kNoRope, -2, 8) == "no-rope-freq");
  CHECK(flags_of(kNoRope, List{1, 0}, 2) == "10");
  CHECK(flags_of(kNoRope, List{1, 0}, 3) == "no-rope-freq");
  CHECK(flags_of(kNoRope, List{}, 3) == "000");
}

TEST_CASE("absurd depths and layer numbers do no harm") {
  CHECK(flags_of(kMoe, 1, -1) == "layer-freq-limit");
  CHECK(flags_of(kMoe, 1, INT64_MAX) == "layer-freq-limit");
  CHECK(flags_of(kLinear, INT64_MIN, 2) == "11");
  CHECK_FALSE(is_moe_layer(1, -1));
  CHECK_FALSE(is_moe_layer(1, INT64_MAX));
}
