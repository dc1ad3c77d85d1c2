#include "validators/json_reader.hpp"

#include <doctest/doctest.h>

#include "loading.hpp"

using namespace gtp;
using namespace gtp::test;

namespace {

/// The label and place of the one diagnostic of a text that is not JSON.
std::string refusal(const std::string& text) {
  const Loaded loaded = load_text(text, "a.json");
  if (loaded.readable || loaded.diagnostics.size() != 1) return "readable";
  const Label& label = loaded.diagnostics[0].primary;
  return start_of(loaded, label.place) + ' ' + label.text;
}

}  // namespace

TEST_CASE("JSON values have the place of exactly their bytes") {
  const Loaded loaded = load_text("{\n  \"tensor_model_parallel_size\" : 4,\n  \"fp8\":\"hybrid\"}");
  REQUIRE(loaded.format == InputFormat::Json);
  const Setting* tp = setting(loaded, "tensor_model_parallel_size");
  REQUIRE(tp != nullptr);
  CHECK(text_at(loaded, tp->place) == "4");
  CHECK(start_of(loaded, tp->place) == "2:34");
  CHECK(text_at(loaded, setting(loaded, "fp8")->place) == "\"hybrid\"");
}

TEST_CASE("JSON escapes become text") {
  const Loaded loaded = load_text(R"({"load": "a\"\\\/\b\f\n\r\té\u20AC\ud83d\ude00"})");
  CHECK(value(loaded, "load") == "a\"\\/\b\f\n\r\t\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
}

TEST_CASE("bad JSON says what was expected and where") {
  CHECK(refusal("{\"a\": 1,}") == "1:9 expected a key: JSON has no comma after the last entry");
  CHECK(refusal("{\"a\" 1}") == "1:6 expected `:` after the key");
  CHECK(refusal("{\"a\": 1 \"b\": 2}") == "1:9 expected `,` or `}`");
  CHECK(refusal("{\"a\": [1 2]}") == "1:10 expected `,` or `]`");
  CHECK(refusal("{\"a\": tru}") == "1:7 expected a value: text needs double quotes");
  CHECK(refusal("{\"a\": 'x'}") == "1:7 expected double quotes");
  CHECK(refusal("{'a': 1}") == "1:2 expected a key in double quotes");
  CHECK(refusal("{\"a\": 1} x") == "1:10 expected the end of the text after the value");
  CHECK(refusal("{\n// no\n\"a\": 1}") == "2:1 expected a key: JSON has no comments");
  CHECK(refusal("{\"a\": \"x") == "1:7 the string that starts here has no end");
  CHECK(refusal("{\"a\": \"x\ny\"}") == "1:9 expected an escape: a string cannot hold a line end or a tab");
  CHECK(refusal("{\"a\": \"\\x\"}") == "1:8 expected one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u");
  CHECK(refusal("{\"a\": \"\\u12g4\"}") == "1:8 expected four hexadecimal digits after \\u");
  CHECK(refusal("{\"a\": \"\\ude00\"}") == "1:8 half of a surrogate pair");
  CHECK(refusal("{\"a\": \"\\ud83dx\"}") == "1:8 half of a surrogate pair");
  CHECK(refusal("{\"a\": \"\\ud83d\\u0041\"}") == "1:8 expected the second half of a surrogate pair");
  CHECK(refusal("{") == "1:2 expected a key in double quotes");
  CHECK(refusal("{\"a\":") == "1:6 expected a value");
}

TEST_CASE("numbers follow JSON's grammar") {
  for (const char* number : {"0", "-0", "8", "-1.5", "1e5", "1E+5", "0.5e-3"})
    CHECK(load_text("{\"scenario\": " + std::string(number) + "}").readable);
  for (const char* number : {"01", "+1", ".5", "1.", "1e", "1e+", "-", "0x8", "1_000", "--1", "1.5.2"})
    CHECK_MESSAGE(!load_text("{\"scenario\": " + std::string(number) + "}").readable, number);
}

TEST_CASE("NaN and Infinity are read in a model file only") {
  CHECK(refusal("{\"lr\": Infinity}") == "1:8 expected a value: JSON has no such number");
  CHECK(refusal("{\"lr\": [0, -Infinity, NaN]}") == "1:12 expected a value: JSON has no such number");
  CHECK(load_text("{\"model_type\": \"x\", \"time_step_limit\": [0.0, Infinity]}").readable);
}

TEST_CASE("a top level that is no object is refused") {
  CHECK(refusal("[1]") == "1:1 expected an object, not a list");
  CHECK(refusal("8") == "1:1 expected an object, not a value");
  CHECK(refusal("null") == "1:1 expected an object, not nothing");
}

TEST_CASE("nesting beyond the limit is refused and up to it is read") {
  const auto nested = [](std::size_t depth) {
    return "{\"scenario\": " + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  CHECK(load_text(nested(readers::kMaxDepth - 1)).readable);
  CHECK(refusal(nested(100'000)).find("nested deeper than 64 levels") != std::string::npos);
}

TEST_CASE("more values than the limit are refused") {
  std::string text = "{\"scenario\": [1";
  for (std::size_t i = 0; i < readers::kMaxNodes; ++i) text += ",1";
  CHECK(refusal(text + "]}").find("more than 250000 values") != std::string::npos);
}
