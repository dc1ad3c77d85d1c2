#include "validators/yaml_events.hpp"

#include <doctest/doctest.h>

#include "loading.hpp"

using namespace gtp;
using namespace gtp::test;

namespace {

std::string refusal(const std::string& text) {
  const Loaded loaded = load_text(text, "a.yaml");
  if (loaded.readable || loaded.diagnostics.size() != 1) return "readable";
  const Label& label = loaded.diagnostics[0].primary;
  return start_of(loaded, label.place) + ' ' + label.text;
}

std::string place_of(const Loaded& loaded, std::string_view option) {
  const Setting* found = setting(loaded, option);
  return found == nullptr ? "none" : start_of(loaded, found->place) + ' ' + text_at(loaded, found->place);
}

}  // namespace

TEST_CASE("YAML values have the place of exactly their bytes") {
  const Loaded loaded = load_text(
      "tensor_model_parallel_size:   4   # four\n"
      "load: \"a b\"\n"
      "save: 'it''s'\n"
      "split: 99,\n  1\n"
      "tokenizer_model: |\n  x\n  y\n\n"
      "micro_batch_size: &m 2\n"
      "global_batch_size: !!int 8\n"
      "eval_iters: *m\n"
      "recompute_modules: [ mlp, 'moe' ]\n");
  CHECK(codes(loaded) == "");
  CHECK(place_of(loaded, "tensor_model_parallel_size") == "1:31 4");
  CHECK(place_of(loaded, "load") == "2:7 \"a b\"");
  CHECK(place_of(loaded, "save") == "3:7 'it''s'");
  CHECK(place_of(loaded, "split") == "4:8 99,\n  1");
  CHECK(value(loaded, "split") == "99, 1");
  CHECK(place_of(loaded, "tokenizer_model") == "6:18 |\n  x\n  y");
  CHECK(place_of(loaded, "micro_batch_size") == "10:22 2");
  CHECK(place_of(loaded, "global_batch_size") == "11:26 8");
  CHECK(place_of(loaded, "eval_iters") == "10:22 2");
  CHECK(place_of(loaded, "recompute_modules") == "13:20 [ mlp, 'moe' ]");
}

TEST_CASE("places are bytes after characters outside ASCII, carriage returns and a byte order mark") {
  const Loaded loaded =
      load_text("\xEF\xBB\xBF# \xC3\xA9\xF0\x9F\x98\x80\r\nload: \xE2\x82\xAC\xE2\x82\xAC\r\nmicro_batch_size: 7\r\n");
  CHECK(codes(loaded) == "");
  CHECK(place_of(loaded, "load") == "2:7 \xE2\x82\xAC\xE2\x82\xAC");
  CHECK(place_of(loaded, "micro_batch_size") == "3:19 7");
}

TEST_CASE("a syntax error has its place") {
  CHECK(refusal("micro_batch_size: 1\nload: a: b\n") == "2:8 mapping values are not allowed in this context");
  CHECK(refusal("recompute_modules: [mlp\n").find("2:1 did not find expected ',' or ']'") == 0);
  CHECK(refusal("\xC3\xA9: %x\n").substr(0, 3) == "1:4");
  CHECK(refusal("a:\n\tb: 1\n").substr(0, 2) == "2:");
}

TEST_CASE("plain nulls of every spelling are as if absent and quoted ones are text") {
  const Loaded loaded = load_text(
      "micro_batch_size:\nglobal_batch_size: ~\nseq_length: null\nnum_layers: Null\nhidden_size: NULL\nload: "
      "\"null\"\n");
  CHECK(codes(loaded) == "");
  CHECK(given(loaded) == "load");
  CHECK_FALSE(loaded.config.described(Section::Batch));
}

TEST_CASE("scalars are typed by the option and not by a YAML version") {
  const Loaded loaded =
      load_text("lr: 1e-4\nload: 1e-4\nbf16: True\nsave: True\ndata_cache_path: 04:00:00\nmicro_batch_size: 010\n");
  CHECK(codes(loaded) == "");
  CHECK(std::get<double>(setting(loaded, "lr")->value) == 1e-4);
  CHECK(value(loaded, "load") == "1e-4");
  CHECK(value(loaded, "bf16") == "true");
  CHECK(value(loaded, "save") == "True");
  CHECK(value(loaded, "data_cache_path") == "04:00:00");
  CHECK(value(loaded, "micro_batch_size") == "10");
}

TEST_CASE("quoted numbers are text unless a tag says otherwise") {
  const Loaded loaded = load_text("micro_batch_size: \"1\"\nglobal_batch_size: !!int \"8\"\nseq_length: !!str 8\n");
  CHECK(codes(loaded) == "GTP903 GTP903");
  CHECK(value(loaded, "micro_batch_size") == "?");
  CHECK(value(loaded, "global_batch_size") == "8");
  CHECK(value(loaded, "seq_length") == "?");
}

TEST_CASE("of equal keys the last wins and the later one is reported") {
  const Loaded loaded = load_text("micro_batch_size: 1\nseq_length: 2\nmicro_batch_size: 4\nmicro_batch_size: 8\n");
  CHECK(value(loaded, "micro_batch_size") == "8");
  REQUIRE(codes(loaded) == "GTP905 GTP905");
  const Diagnostic& first = loaded.diagnostics[0];
  CHECK(first.severity == Severity::Warning);
  CHECK(start_of(loaded, first.primary.place) == "3:1");
  REQUIRE(first.related.size() == 1);
  CHECK(start_of(loaded, first.related[0].place) == "1:1");
  CHECK(start_of(loaded, loaded.diagnostics[1].primary.place) == "4:1");
}

TEST_CASE("aliases and merge keys are resolved and explicit keys win") {
  const Loaded loaded = load_text(
      "base: &base\n  micro_batch_size: 1\n  seq_length: 128\n"
      "extra: &extra {micro_batch_size: 3, num_layers: 5}\n"
      "scenario: 1\n",
      "a.yaml");
  CHECK(value(loaded, "num_layers") == "5");
  const Loaded merged = load_text(
      "scenario:\n  - &base {micro_batch_size: 1, seq_length: 128}\n  - &extra {seq_length: 3, num_layers: 5}\n"
      "group:\n  <<: [*base, *extra]\n  micro_batch_size: 2\n");
  CHECK(codes(merged) == "");
  CHECK(value(merged, "micro_batch_size") == "2");
  CHECK(value(merged, "seq_length") == "128");
  CHECK(value(merged, "num_layers") == "5");
  CHECK(text_at(merged, setting(merged, "seq_length")->place) == "128");
}

TEST_CASE("an alias without an anchor is refused") {
  CHECK(refusal("micro_batch_size: *none\n") == "1:19 no anchor of this name comes before");
  CHECK(refusal("scenario: &a [*a]\n") == "1:15 no anchor of this name comes before");
}

TEST_CASE("aliases that expand to too much are refused") {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 10; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) text += (j == 0 ? "" : ", ") + before;
    text += "]\n";
  }
  CHECK(refusal("scenario: 1\n" + text).find("expand to too much") != std::string::npos);
  std::string wide = "scenario: [&a " + std::string(1 << 20, 'x');
  for (int i = 0; i < 100; ++i) wide += ", *a";
  CHECK(refusal(wide + "]\n").find("expand to too much") != std::string::npos);
}

TEST_CASE("YAML nested beyond the limit is refused in flow and in block style") {
  CHECK(refusal("scenario: " + std::string(100'000, '[')).find("nested deeper than 64 levels") != std::string::npos);
  std::string block = "scenario:\n";
  for (int i = 0; i < 20'000; ++i) block += "- ";
  CHECK(refusal(block + "x\n").find("nested deeper than 64 levels") != std::string::npos);
  CHECK(load_text("scenario: " + std::string(60, '[') + std::string(60, ']')).readable);
}

TEST_CASE("only the first document is read and a second one is reported") {
  const Loaded loaded = load_text("---\nmicro_batch_size: 1\n---\nmicro_batch_size: 2\n");
  CHECK(value(loaded, "micro_batch_size") == "1");
  REQUIRE(codes(loaded) == "GTP909");
  CHECK(start_of(loaded, loaded.diagnostics[0].primary.place) == "3:1");
}

TEST_CASE("a key that is no word is reported and left out") {
  const Loaded loaded = load_text("? [a, b]\n: 1\nmicro_batch_size: 2\n");
  CHECK(codes(loaded) == "GTP909");
  CHECK(value(loaded, "micro_batch_size") == "2");
}

TEST_CASE("an empty text says nothing and a text without keys is refused") {
  for (const char* text : {"", "\n", "# only a comment\n", "---\n", "\xEF\xBB\xBF"}) {
    const Loaded loaded = load_text(text);
    CHECK(loaded.readable);
    CHECK(codes(loaded) == "");
    CHECK(given(loaded) == "");
  }
  CHECK(refusal("hello world\n") == "1:1 expected options and values, not a value");
  CHECK(refusal("- a\n- b\n") == "1:1 expected options and values, not a list");
}
