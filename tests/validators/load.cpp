#include "validators/load.hpp"

#include <doctest/doctest.h>

#include <array>
#include <random>

#include "loading.hpp"

using namespace gtp;
using namespace gtp::test;

namespace {

constexpr std::array kAllFormats{InputFormat::Json,         InputFormat::Yaml,        InputFormat::MegatronTestYaml,
                                 InputFormat::MegatronArgs, InputFormat::HuggingFace, InputFormat::NemoRl,
                                 InputFormat::Shell,        InputFormat::Env,         InputFormat::Plan};

InputFormat format_of(std::string text, std::string name = "input") {
  return load_text(std::move(text), std::move(name)).format;
}

}  // namespace

TEST_CASE("every format has one name") {
  for (const InputFormat format : kAllFormats) CHECK(find_input_format(to_text(format)) == format);
  CHECK(to_text(InputFormat::MegatronTestYaml) == "megatron-test-yaml");
  CHECK(to_text(InputFormat::HuggingFace) == "hf-config");
  CHECK_FALSE(find_input_format("toml"));
}

TEST_CASE("the format is told by the content first and then by the name") {
  CHECK(format_of("{}") == InputFormat::Json);
  CHECK(format_of(" \n\t{\"bf16\": true}", "a.yaml") == InputFormat::Json);
  CHECK(format_of("{\"architectures\": []}") == InputFormat::HuggingFace);
  CHECK(format_of("{\"format\": \"gtplan-plan\", \"format_version\": \"1.0\"}") == InputFormat::Plan);
  CHECK(format_of("bf16: true\n") == InputFormat::Yaml);
  CHECK(format_of("ENV_VARS: {}\n") == InputFormat::MegatronTestYaml);
  CHECK(format_of("# comment\n\n--bf16\n") == InputFormat::MegatronArgs);
  CHECK(format_of("---\nbf16: true\n") == InputFormat::Yaml);
  CHECK(format_of("policy: {}\ncluster: {}\n") == InputFormat::NemoRl);
  CHECK(format_of("defaults: [a.yaml]\ngrpo: {}\n") == InputFormat::NemoRl);
  CHECK(format_of("defaults: [_self_, a]\n") == InputFormat::Yaml);
  CHECK(format_of("#!/bin/bash\n--bf16\n") == InputFormat::Shell);
  CHECK(format_of("# only a comment\n", "a.args") == InputFormat::MegatronArgs);
  CHECK_FALSE(load_text("bf16: true\n", "a.json").readable);
}

TEST_CASE("a forced format is used whatever the content looks like") {
  const Loaded loaded = load_text("MODEL_ARGS:\n  bf16: true\n", "a", InputFormat::Yaml);
  CHECK(loaded.format == InputFormat::Yaml);
  CHECK(value(loaded, "bf16") == "true");
  CHECK(load_text("{\"bf16\": true}", "a", InputFormat::Yaml).format == InputFormat::Yaml);
  CHECK_FALSE(load_text("bf16: true\n", "a", InputFormat::Json).readable);
}

TEST_CASE("bytes that are no text are refused with their place") {
  const auto refusal = [](std::string text) {
    const Loaded loaded = load_text(std::move(text));
    return loaded.readable || loaded.diagnostics.size() != 1
               ? "readable"
               : start_of(loaded, loaded.diagnostics[0].primary.place) + ' ' + loaded.diagnostics[0].primary.text;
  };
  CHECK(refusal("a: \xFF\n") == "1:4 not UTF-8 text");
  CHECK(refusal("a: \xC0\x80\n") == "1:4 not UTF-8 text");
  CHECK(refusal("a: \xED\xA0\x80\n") == "1:4 not UTF-8 text");
  CHECK(refusal("a: \xF4\x90\x80\x80\n") == "1:4 not UTF-8 text");
  CHECK(refusal("b: 1\na: \xE2\x82") == "2:4 not UTF-8 text");
  CHECK(refusal(std::string("a: \0\n", 5)) == "1:4 a control character: this is not a text file");
  CHECK(refusal("\x7f"
                "ELF\x02\x01\x01")
            .find("control character") != std::string::npos);
  CHECK(refusal("\xFF\xFE"
                "a\x00")
            .find("not UTF-8") != std::string::npos);
}

TEST_CASE("words that are no text are refused like files") {
  CHECK_FALSE(load_words({"--load", "\xFF"}).readable);
  LoadRequest request = request_for("bf16: true\n");
  request.set = {"load=\xFF"};
  const Loaded loaded = load(request);
  CHECK_FALSE(loaded.readable);
  CHECK(codes(loaded) == "GTP901");
  CHECK(loaded.sources[loaded.diagnostics[0].primary.place.source].name == "<command line>");
}

TEST_CASE("a text that is too large is refused") {
  const Loaded loaded = load_text(std::string((std::size_t{64} << 20U) + 1, ' '));
  CHECK_FALSE(loaded.readable);
  CHECK(loaded.diagnostics.at(0).primary.text == "larger than 64 MiB");
}

TEST_CASE("an unreadable model file makes the whole load unreadable") {
  LoadRequest request = request_for("num_layers: 4\n");
  request.model = Text{"config.json", "{"};
  const Loaded loaded = load(request);
  CHECK_FALSE(loaded.readable);
  CHECK(codes(loaded) == "GTP901");
}

TEST_CASE("nothing at all is a valid request") {
  const Loaded loaded = load({});
  CHECK(loaded.readable);
  CHECK(codes(loaded) == "");
  CHECK(loaded.config.settings().empty());
}

TEST_CASE("random changes of small inputs never crash a reader") {
  const std::array<std::string, 8> seeds{
      R"({"tensor_model_parallel_size": 2, "env": {"A": "\u00e9"}, "recompute_modules": ["mlp", 1e5]})",
      "a: &x {micro_batch_size: 1, <<: {b: [1, 'q']}}\nb: *x\nc: |\n  t\nd: >-\n  u\n",
      "ENV_VARS:\n  A: 1\nMODEL_ARGS:\n  --recompute-modules: \"[a b]\"\n  --load: ${X}\n  trainer.devices: 8\n",
      "--bf16 --load 'a b' \\\n --micro-batch-size=${MBS:-4} # c\n",
      R"({"model_type": "x", "num_hidden_layers": 4, "num_experts": 2, "first_k_dense_replace": 1, "block_configs": [{}]})",
      "policy: {megatron_cfg: {enabled: '${a}', lr: '${mul:2,${.b}}', b: '${..c.d}'}, c: {d: 1}}\ncluster: {num_nodes: "
      "1}\n",
      "#!/bin/sh\nexport A=${B:-8} C='x'\nX=( --bf16 $A )\n[ $A = 8 ] && X+=(--lr $((A*2)))\npython a.py \"${X[@]}\"\n",
      R"({"format": "gtplan-plan", "format_version": "1.0", "options": {"bf16": true}})"};
  std::mt19937 random(20260822);
  std::size_t readable = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = seeds[random() % seeds.size()];
    for (std::size_t change = random() % 4; change > 0 && !text.empty(); --change) {
      const std::size_t at = random() % text.size();
      if (random() % 3 == 0)
        text.erase(at, random() % 4);
      else if (random() % 2 == 0)
        text.insert(at, 1, "{}[]\"':,-&*|>\\\n \t#$01\x80\xC3"[random() % 23]);
      else
        text += text.substr(at);
    }
    for (const InputFormat format : kAllFormats) readable += load_text(text, "a", format).readable ? 1 : 0;
    readable += load_text(text).readable ? 1 : 0;
  }
  CHECK(readable > 1000);
}
