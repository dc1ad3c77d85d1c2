#include <gtp/facts.hpp>

#include <doctest/doctest.h>

using namespace gtp;
using namespace gtp::literals;

TEST_CASE("a section of which an input says nothing is unknown") {
  Config config;
  config.set("tensor_model_parallel_size"_opt, std::int64_t{2});
  const Facts f(config);
  CHECK(f["tensor_model_parallel_size"_opt] == 2);
  CHECK(f["context_parallel_size"_opt] == 1);
  CHECK(!f.known("global_batch_size"_opt));
  CHECK(!f.known("num_experts"_opt));
  CHECK(!f.known("world_size"_opt));
}

TEST_CASE("an option upstream cannot start without is unknown when absent") {
  Config config;
  config.set("global_batch_size"_opt, std::int64_t{8});
  const Facts f(config);
  CHECK(!f.known("micro_batch_size"_opt));
  CHECK(f.known("eval_global_batch_size"_opt));
  CHECK(!f.has("eval_global_batch_size"_opt));
}

TEST_CASE("the model is described by its depth or width only") {
  Config config;
  config.set("num_experts"_opt, std::int64_t{8});
  CHECK(!Facts(config).known("add_bias_linear"_opt));
  config.set("num_layers"_opt, std::int64_t{2});
  CHECK(Facts(config).on("add_bias_linear"_opt));
}

TEST_CASE("shape options may come from a checkpoint and are then unknown") {
  Config config;
  config.set("num_layers"_opt, std::int64_t{2});
  config.set("use_checkpoint_args"_opt, true);
  CHECK(!Facts(config).known("num_experts"_opt));
  CHECK(Facts(config).known("num_layers"_opt));
}

TEST_CASE("what upstream derives wins, and what cannot be known is forgotten") {
  Config config;
  config.set("sequence_parallel"_opt, true);
  Facts f(config);
  f.set("sequence_parallel"_opt, false);
  CHECK(!f.on("sequence_parallel"_opt));
  f.forget("sequence_parallel"_opt);
  CHECK(!f.known("sequence_parallel"_opt));
}

TEST_CASE("the last setting of an option wins") {
  Config config;
  config.set("tensor_model_parallel_size"_opt, std::int64_t{2}, {0, 1, 2});
  config.set("tensor_model_parallel_size"_opt, std::int64_t{4}, {0, 5, 6});
  CHECK(config.settings().size() == 1);
  CHECK(config.given("tensor_model_parallel_size"_opt)->place == Place{0, 5, 6});
}

TEST_CASE("an option of another version has no default") {
  Config config(kTargets[0]);
  config.set("num_layers"_opt, std::int64_t{2});
  CHECK(!Facts(config).known("logit_dtype"_opt));
}
