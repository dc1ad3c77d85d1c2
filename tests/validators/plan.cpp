#include "validators/plan.hpp"

#include <doctest/doctest.h>

#include "loading.hpp"

using namespace gtp;
using namespace gtp::test;

TEST_CASE("a plan gives its options, environment and checkpoint and nothing else") {
  const Loaded loaded = load_text(
      R"({"format": "gtplan-plan", "format_version": "1.7", "target": "x", "options": {"tensor_model_parallel_size": 2,
          "world_size": 16, "recompute_modules": ["mlp"], "lr": null}, "env": {"A": "1"}, "checkpoint": {"data_parallel_size": 4},
          "derived": {"data_parallel_size": 8}, "not_checked": []})");
  CHECK(loaded.format == InputFormat::Plan);
  CHECK(codes(loaded) == "");
  CHECK(given(loaded) == "tensor_model_parallel_size world_size recompute_modules");
  CHECK(variable(loaded, "A") == "1");
  REQUIRE(loaded.config.checkpoint.size() == 1);
  CHECK(to_text(loaded.config.checkpoint[0].value) == "4");
}

TEST_CASE("a plan of another major version is refused") {
  const Loaded loaded = load_text(R"({"format": "gtplan-plan", "format_version": "2.0", "options": {}})");
  CHECK_FALSE(loaded.readable);
  REQUIRE(codes(loaded) == "GTP901");
  CHECK(text_at(loaded, loaded.diagnostics[0].primary.place) == "\"2.0\"");
}

TEST_CASE("what says nothing of being a plan is refused as one") {
  CHECK_FALSE(load_text("{}", "a", InputFormat::Plan).readable);
  CHECK_FALSE(load_text(R"({"format": "gtplan-plan"})").readable);
  CHECK_FALSE(load_text(R"({"format": "gtplan-plan", "format_version": "10.0"})").readable);
}
