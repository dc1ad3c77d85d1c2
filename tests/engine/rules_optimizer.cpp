// Order and boundaries of the rules about sharded optimizers that no golden case shows.
#include <doctest/doctest.h>

#include <gtp/rules/optimizer.hpp>

#include "../support/config.hpp"

using namespace gtp::test;
using Ids = std::vector<std::string>;

TEST_CASE("checks before the rewrite of the optimizer see what the input gave, those after it do not") {
  // The layer-wise optimizer has taken the distributed one's place when Gloo is looked at, not when gathers are.
  CHECK(violated({{"optimizer", "muon"},
                  {"use_distributed_optimizer", "true"},
                  {"overlap_grad_reduce", "true"},
                  {"overlap_param_gather", "true"},
                  {"use_gloo_process_groups", "false"},
                  {"ckpt_format", "torch"}}) == Ids{});
  CHECK(violated({{"optimizer", "adam"},
                  {"use_distributed_optimizer", "true"},
                  {"use_gloo_process_groups", "false"},
                  {"ckpt_format", "torch"}}) == Ids{"gloo-off-distopt-needs-dist-ckpt"});
}

TEST_CASE("dist_muon shards parameters without the distributed optimizer") {
  CHECK(violated({{"optimizer", "dist_muon"}, {"overlap_grad_reduce", "true"}, {"overlap_param_gather", "true"}}) ==
        Ids{});
  CHECK(violated({{"optimizer", "muon"}, {"overlap_grad_reduce", "true"}, {"overlap_param_gather", "true"}}) ==
        Ids{"overlap-param-gather-prereq"});
}

TEST_CASE("an unset checkpoint format is a mistake beside Megatron-FSDP, an unknown one is not") {
  CHECK(violated({{"use_megatron_fsdp", "true"}}) == Ids{"mfsdp-requirements"});
  gtp::Config config;
  config.set(*gtp::find_option("use_megatron_fsdp"), true);
  config.set_unknown(*gtp::find_option("ckpt_format"));
  CHECK(gtp::check(config).diagnostics.empty());
}

TEST_CASE("expert gradients are averaged exactly for some odd sizes only") {
  CHECK(gtp::rules::detail::average_rounds(3, 39));
  CHECK_FALSE(gtp::rules::detail::average_rounds(4, 16));
  CHECK_FALSE(gtp::rules::detail::average_rounds(3, 3));
}

TEST_CASE("version 2 of Megatron-FSDP does not exist before 2026-08-22") {
  CHECK(violated({{"use_megatron_fsdp", "true"},
                  {"use_distributed_optimizer", "true"},
                  {"megatron_fsdp_version", "2"},
                  {"ckpt_format", "fsdp_dtensor"}}) == Ids{"mfsdp-v2-no-distopt"});
  CHECK(
      violated({{"use_megatron_fsdp", "true"}, {"use_distributed_optimizer", "true"}, {"ckpt_format", "fsdp_dtensor"}},
               gtp::kTargets[0]) == Ids{});
}
