// Number formats, TransformerEngine versions and GPU generations: edges that one golden case a rule cannot show.
#include <gtp/check.hpp>

#include <doctest/doctest.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../support/config.hpp"

using namespace gtp;
using namespace gtp::literals;
using Ids = std::vector<std::string>;
using Settings = std::initializer_list<std::pair<std::string_view, std::string_view>>;

namespace {

/// The value that upstream would use.
Value derived(Settings settings, OptionId option, Target target = kDefaultTarget) {
  Diagnostics none;
  const Config config = test::make_config(settings, none, target);
  const Derivation d = derive(config);
  const Value* value = d.facts.find(option);
  return value == nullptr ? Value{} : *value;
}

bool not_checked(Settings settings, std::string_view code) {
  Diagnostics none;
  const Config config = test::make_config(settings, none);
  for (const NotChecked& rule : check(config).not_checked)
    if (rule.rule->code == code) return true;
  return false;
}

}  // namespace

TEST_CASE("a version gate takes development builds of its release and refuses the release before") {
  const auto ids = [](std::string_view version) {
    return test::violated({{"bf16", "true"}, {"fp4", "e2m1"}, {"te_version", version}});
  };
  CHECK(ids("2.7.0.dev0").empty());
  CHECK(ids("2.7.0").empty());
  CHECK(ids("2.10.0").empty());
  CHECK(ids("2.6.9") == Ids{"te-fp4"});
  const auto logits = [](std::string_view version) {
    return test::violated({{"log_max_attention_logit", "true"}, {"te_version", version}});
  };
  CHECK(logits("2.9.0.dev0") == Ids{"te-log-max-logit"});  // this gate names the release
  CHECK(logits("2.9.0").empty());
}

TEST_CASE("without a TransformerEngine version its gates are not checked rather than passed") {
  CHECK(not_checked({{"bf16", "true"}, {"fp4", "e2m1"}}, "GTP151"));
  CHECK(!not_checked({{"bf16", "true"}, {"fp4", "e2m1"}, {"te_version", "2.19.0"}}, "GTP151"));
}

TEST_CASE("one development build of TransformerEngine has symmetric all-reduces before their release") {
  const auto ids = [](std::string_view version) {
    return test::violated({{"symmetric_ar_type", "two_shot"}, {"te_version", version}});
  };
  CHECK(ids("2.3.0.dev0+39c0e70").empty());
  CHECK(ids("2.3.0.dev0") == Ids{"te-symmetric-ar"});
}

TEST_CASE("as many layers as one pipeline stage holds may stay in bf16, and no more") {
  const auto ids = [](std::string_view start) {
    return test::violated({{"world_size", "4"},
                           {"pipeline_model_parallel_size", "4"},
                           {"num_layers", "12"},
                           {"fp8", "e4m3"},
                           {"fp8_recipe", "tensorwise"},
                           {"first_last_layers_bf16", "true"},
                           {"num_layers_at_start_in_bf16", start}});
  };
  CHECK(ids("0").empty());
  CHECK(ids("3").empty());
  CHECK(ids("4") == Ids{"bf16-layer-counts"});
  CHECK(ids("-1") == Ids{"bf16-layer-counts"});
}

TEST_CASE("the precision-aware optimizer asks for the distributed one in the older target only") {
  const auto ids = [](Target target) {
    return test::violated(
        {{"optimizer", "adam"}, {"use_precision_aware_optimizer", "true"}, {"use_distributed_optimizer", "false"}},
        target);
  };
  CHECK(ids(kTargets[0]) == Ids{"precision-aware-optimizer"});
  CHECK(ids(kTargets[1]).empty());
}

TEST_CASE("fp32 reduce-scatters of fp32 gradients are turned off in the newer target only") {
  const Settings settings{{"bf16", "true"}, {"ddp_reduce_scatter_with_fp32_accumulation", "true"}};
  const auto option = "ddp_reduce_scatter_with_fp32_accumulation"_opt;
  CHECK(derived(settings, option, kTargets[0]) == Value(true));
  CHECK(derived(settings, option, kTargets[1]) == Value(false));
  CHECK(derived(
            {{"bf16", "true"}, {"ddp_reduce_scatter_with_fp32_accumulation", "true"}, {"grad_reduce_in_bf16", "true"}},
            option) == Value(true));
}

TEST_CASE("main gradients below fp32 keep bf16 from accumulating in fp32") {
  const auto option = "accumulate_allreduce_grads_in_fp32"_opt;
  CHECK(derived({{"bf16", "true"}}, option) == Value(true));
  CHECK(derived({{"bf16", "true"}, {"main_grads_dtype", "bf16"}}, option) == Value(false));
  CHECK(derived({{"bf16", "true"}, {"grad_reduce_in_bf16", "true"}}, option) == Value(false));
  CHECK(derived({{"fp16", "true"}}, option) == Value(false));
}

TEST_CASE("a loss scale of zero is dynamic") {
  const auto option = "check_for_nan_in_loss_and_grad"_opt;
  CHECK(derived({{"fp16", "true"}, {"loss_scale", "0"}}, option) == Value(false));
  CHECK(derived({{"fp16", "true"}}, option) == Value(false));
  CHECK(derived({{"fp16", "true"}, {"loss_scale", "1024"}, {"log_interval", "1"}}, option) == Value(true));
}

TEST_CASE("torch FSDP2 turns FP8 gathers off unless TransformerEngine is known to be older than 2.0") {
  CHECK(derived({{"fp8", "e4m3"}, {"fp8_param_gather", "true"}, {"use_torch_fsdp2", "true"}}, "fp8_param_gather"_opt) ==
        Value(false));
  CHECK(derived({{"fp8", "e4m3"}, {"fp8_param_gather", "true"}, {"use_torch_fsdp2", "true"}, {"te_version", "1.13.0"}},
                "fp8_param_gather"_opt) == Value(true));
}

TEST_CASE("an MXFP8 gather is offered as a fix only where it breaks nothing else") {
  const auto fixes = [](std::string_view distributed) {
    Diagnostics none;
    const Config config = test::make_config({{"world_size", "8"},
                                             {"tensor_parallel_num_weight_shards", "2"},
                                             {"fp8", "e4m3"},
                                             {"fp8_recipe", "mxfp8"},
                                             {"use_distributed_optimizer", distributed}},
                                            none);
    std::size_t count = 0;
    for (const Diagnostic& d : check(config).diagnostics) count += d.fix.size();
    return count;
  };
  CHECK(fixes("true") == 2);
  CHECK(fixes("false") == 0);
}

TEST_CASE("each FP8 recipe asks for the GPU generation that has it") {
  const auto ids = [](std::string_view recipe, std::string_view arch) {
    Ids kept;
    for (std::string& id : test::violated({{"fp8", "e4m3"}, {"fp8_recipe", recipe}, {"gpu_arch", arch}}))
      if (id.ends_with("-arch")) kept.push_back(std::move(id));
    return kept;
  };
  CHECK(ids("delayed", "ampere") == Ids{"fp8-arch"});
  CHECK(ids("delayed", "hopper").empty());
  CHECK(ids("blockwise", "ampere") == Ids{"blockwise-arch"});
  CHECK(ids("blockwise", "hopper").empty());
  CHECK(ids("mxfp8", "hopper") == Ids{"mxfp8-arch"});
  CHECK(ids("mxfp8", "blackwell").empty());
}
