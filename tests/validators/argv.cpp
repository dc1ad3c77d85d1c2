#include "validators/argv.hpp"

#include <doctest/doctest.h>

#include "loading.hpp"

using namespace gtp;
using namespace gtp::test;

namespace {

Loaded load_args(std::string text) { return load_text(std::move(text), "a.args"); }

std::string first_label(const Loaded& loaded) {
  return loaded.diagnostics.empty() ? "" : loaded.diagnostics[0].primary.text;
}

}  // namespace

TEST_CASE("flags take their values with a space or an equals sign and the last wins") {
  const Loaded loaded =
      load_words({"--tensor-model-parallel-size", "2", "--micro-batch-size=4", "--tensor-model-parallel-size", "8"});
  CHECK(loaded.format == InputFormat::MegatronArgs);
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "tensor_model_parallel_size") == "8");
  CHECK(value(loaded, "micro_batch_size") == "4");
  CHECK(loaded.sources[0].name == "<arguments>");
  CHECK(text_at(loaded, setting(loaded, "micro_batch_size")->place) == "4");
}

TEST_CASE("a switch stores its constant and takes no value") {
  const Loaded loaded = load_words({"--bf16", "--disable-bias-linear", "--no-gradient-accumulation-fusion"});
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "bf16") == "true");
  CHECK(value(loaded, "add_bias_linear") == "false");
  CHECK(value(loaded, "gradient_accumulation_fusion") == "false");
  for (const Loaded& wrong : {load_words({"--bf16", "true"}), load_words({"--bf16=true"})}) {
    CHECK(codes(wrong) == "GTP908");
    CHECK(first_label(wrong) == "`--bf16` takes no value");
    CHECK(text_at(wrong, wrong.diagnostics[0].primary.place) == "true");
    CHECK(value(wrong, "bf16") == "?");
  }
}

TEST_CASE("list flags take words up to the next flag") {
  const Loaded loaded = load_words({"--recompute-modules", "mlp", "moe", "--hierarchical-context-parallel-sizes", "2",
                                    "2", "--rampup-batch-size", "16", "8", "5000", "--data-path"});
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "recompute_modules") == "[mlp, moe]");
  CHECK(text_at(loaded, setting(loaded, "recompute_modules")->place) == "mlp moe");
  CHECK(value(loaded, "hierarchical_context_parallel_sizes") == "[2, 2]");
  CHECK(value(loaded, "rampup_batch_size") == "[16, 8, 5000]");
  CHECK(value(loaded, "data_path") == "[]");
}

TEST_CASE("a wrong number of values is reported") {
  CHECK(first_label(load_words({"--micro-batch-size"})) == "takes one value, 0 given");
  CHECK(first_label(load_words({"--micro-batch-size", "--bf16"})) == "takes one value, 0 given");
  CHECK(first_label(load_words({"--micro-batch-size", "1", "2"})) == "takes one value, 2 given");
  CHECK(first_label(load_words({"--rampup-batch-size", "1", "2"})) == "takes three values, 2 given");
  CHECK(codes(load_words({"--recompute-modules"})) == "GTP908");
}

TEST_CASE("negative numbers are values as argparse tells them") {
  const Loaded loaded = load_words({"--seed", "-1", "--lr", "-.5", "--min-lr", "-0.25"});
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "seed") == "-1");
  CHECK(value(loaded, "lr") == "-0.5");
  CHECK(codes(load_words({"--lr", "-1e-4"})) == "GTP908 GTP902");
  CHECK(value(load_words({"--lr=-1e-4"}), "lr") == "-0.0001");
}

TEST_CASE("an unknown flag is reported once and its values are skipped") {
  const Loaded loaded = load_words({"--tensor-model-paralel-size", "2", "3", "--micro-batch-size", "1"});
  REQUIRE(codes(loaded) == "GTP902");
  CHECK(text_at(loaded, loaded.diagnostics[0].primary.place) == "--tensor-model-paralel-size");
  CHECK(loaded.diagnostics[0].help.find("--tensor-model-parallel-size") != std::string::npos);
  CHECK(value(loaded, "micro_batch_size") == "1");
}

TEST_CASE("abbreviated flags are unknown") { CHECK(codes(load_words({"--micro-batch", "1"})) == "GTP902"); }

TEST_CASE("flags of upstream's scripts are skipped with their values") {
  const Loaded loaded = load_words({"--prompts", "a b", "c", "--temperature", "1.0", "--top_k", "1", "--bf16"});
  CHECK(codes(loaded) == "");
  CHECK(given(loaded) == "bf16");
}

TEST_CASE("words that belong to no flag are reported together") {
  const Loaded loaded = load_words({"torchrun", "pretrain_gpt.py", "--bf16"});
  REQUIRE(codes(loaded) == "GTP909");
  CHECK(text_at(loaded, loaded.diagnostics[0].primary.place) == "torchrun pretrain_gpt.py");
  CHECK(value(loaded, "bf16") == "true");
}

TEST_CASE("flags with underscores are flags of their own") {
  const Loaded loaded = load_words({"--override-opt_param-scheduler"});
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "override_opt_param_scheduler") == "true");
}

TEST_CASE("variables in words are never guessed") {
  const Loaded loaded =
      load_words({"${EXTRA_ARGS}", "--load", "$ROOT/x", "--micro-batch-size", "$MBS", "--${FLAG}", "1"});
  CHECK(codes(loaded) == "GTP906 GTP906 GTP906");
  CHECK(value(loaded, "load") == "$ROOT/x");
  CHECK(value(loaded, "micro_batch_size") == "?");
  const Loaded again = load_words({"--micro-batch-size", "4", "--micro-batch-size", "$MBS"});
  CHECK(value(again, "micro_batch_size") == "?");
}

TEST_CASE("words that a shell would split are quoted in the source and keep their places") {
  const Loaded loaded = load_words({"--load", "it's here", "--save", "", "--micro-batch-size", "x y"});
  CHECK(loaded.sources[0].text == "--load 'it'\\''s here' --save '' --micro-batch-size 'x y'");
  CHECK(value(loaded, "load") == "it's here");
  CHECK(text_at(loaded, setting(loaded, "load")->place) == "it'\\''s here");
  CHECK(text_at(loaded, loaded.diagnostics.at(0).primary.place) == "x y");
}

TEST_CASE("an args file has comments, quotes, continued lines and values on later lines") {
  const Loaded loaded = load_args(
      "# sizes\n--tensor-model-parallel-size 2 # two\n\n--load 'a b'\"c\"\\ d \\\n  --save x#y\n"
      "--recompute-modules\n  mlp\n  moe\n--data-cache-path \"\\$X \\\"q\\\" \\n\"\n--micro-batch-size=4 \\");
  CHECK(loaded.format == InputFormat::MegatronArgs);
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "tensor_model_parallel_size") == "2");
  CHECK(start_of(loaded, setting(loaded, "tensor_model_parallel_size")->place) == "2:30");
  CHECK(value(loaded, "load") == "a bc d");
  CHECK(text_at(loaded, setting(loaded, "load")->place) == "'a b'\"c\"\\ d");
  CHECK(value(loaded, "save") == "x#y");
  CHECK(value(loaded, "recompute_modules") == "[mlp, moe]");
  CHECK(value(loaded, "data_cache_path") == "$X \"q\" \\n");
  CHECK(value(loaded, "micro_batch_size") == "4");
  CHECK(text_at(loaded, setting(loaded, "micro_batch_size")->place) == "4");
}

TEST_CASE("expansions stay one word") {
  CHECK(value(load_args("--load ${A:-b c}/d --save $(date +%s)x\n"), "load") == "${A:-b c}/d");
  CHECK(value(load_args("--load ${A:-b c}/d --save $(date +%s)x\n"), "save") == "$(date +%s)x");
  CHECK(codes(load_args("--load ${A\n--bf16\n")) == "");
}

TEST_CASE("a quote without an end is refused at the quote") {
  const Loaded loaded = load_args("--bf16\n--load 'a\n--fp16\n");
  CHECK_FALSE(loaded.readable);
  REQUIRE(codes(loaded) == "GTP901");
  CHECK(start_of(loaded, loaded.diagnostics[0].primary.place) == "2:8");
}
