// What is said of a checkpoint that is not like the run, as far as the input tells.
#include <doctest/doctest.h>

#include "../support/config.hpp"

using namespace gtp;
using namespace gtp::test;
using Ids = std::vector<std::string>;

namespace {

/// Rules that the settings violate when a checkpoint with these sizes and this optimizer format is loaded.
Ids violated_on_load(std::initializer_list<std::pair<std::string_view, std::string_view>> settings,
                     std::initializer_list<std::pair<std::string_view, Value>> saved) {
  Diagnostics diagnostics;
  Config config = make_config(settings, diagnostics);
  for (const auto& [name, value] : saved) config.checkpoint.push_back({*find_option(name), value, {}});
  Ids ids;
  for (const Diagnostic& d : check(config).diagnostics)
    if (d.severity != Severity::Note) ids.emplace_back(d.rule);
  return ids;
}

}  // namespace

TEST_CASE("only optimizer state that knows no parallel sizes loads under others") {
  const auto under = [](const char* sharding) {
    return violated_on_load(
        {{"tensor_model_parallel_size", "2"}, {"use_distributed_optimizer", "true"}, {"load", "x"}},
        {{"tensor_model_parallel_size", std::int64_t{1}}, {"optimizer_sharding", std::string(sharding)}});
  };
  CHECK(under("dp_reshardable") == Ids{"distopt-default-not-reshardable"});
  CHECK(under("fully_reshardable") == Ids{});
  CHECK(under("fully_sharded_model_space") == Ids{});
}

TEST_CASE("optimizer state that is not loaded cannot be in the way") {
  CHECK(violated_on_load({{"tensor_model_parallel_size", "2"},
                          {"use_distributed_optimizer", "true"},
                          {"load", "x"},
                          {"no_load_optim", "true"}},
                         {{"tensor_model_parallel_size", std::int64_t{1}},
                          {"optimizer_sharding", std::string("dp_reshardable")}}) == Ids{});
}

TEST_CASE("a checkpoint of unknown sizes is not judged") {
  CHECK(violated_on_load({{"tensor_parallel_num_weight_shards", "2"}, {"load", "x"}},
                         {{"optimizer_sharding", std::string("dp_reshardable")}}) == Ids{});
}

TEST_CASE("a changed remat size is told apart from a changed tensor-parallel size") {
  const auto under = [](std::int64_t tp, std::int64_t shards) {
    return violated_on_load(
        {{"tensor_model_parallel_size", "2"}, {"tensor_parallel_num_weight_shards", "4"}, {"load", "x"}},
        {{"tensor_model_parallel_size", tp},
         {"pipeline_model_parallel_size", std::int64_t{1}},
         {"tensor_parallel_num_weight_shards", shards}});
  };
  CHECK(under(2, 4) == Ids{});
  CHECK(under(2, 8) == Ids{"gtp-degree-change-not-detected"});
  CHECK(under(4, 8) == Ids{});  // remat size 2 on both sides
}

TEST_CASE("an overridden iteration counts the global batch size") {
  Diagnostics diagnostics;
  const Config config = make_config({{"world_size", "8"},
                                     {"tensor_model_parallel_size", "1"},
                                     {"micro_batch_size", "1"},
                                     {"global_batch_size", "16"},
                                     {"override_ckpt_iteration", "50"}},
                                    diagnostics);
  CHECK(derive(config).facts.integer(*find_option("consumed_train_samples")) == 800);
}

TEST_CASE("the legacy format under GTP is a warning until optimizer state is to be saved") {
  CHECK(violated({{"tensor_parallel_num_weight_shards", "2"}, {"ckpt_format", "torch"}}) ==
        Ids{"gtp-legacy-torch-loses-shards"});
  CHECK(violated({{"tensor_parallel_num_weight_shards", "2"},
                  {"use_distributed_optimizer", "true"},
                  {"ckpt_format", "torch"},
                  {"save", "x"},
                  {"save_interval", "10"}}) == Ids{"gtp-legacy-torch-distopt"});
}
