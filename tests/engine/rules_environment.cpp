#include <gtp/check.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

using namespace gtp;
using namespace gtp::literals;

namespace {

/// A job on Hopper GPUs whose environment is known.
Config job(std::initializer_list<std::pair<OptionId, Value>> options, std::vector<Variable> env = {}) {
  Config config;
  config.set("gpu_arch"_opt, std::string("hopper"));
  for (const auto& [option, value] : options) config.set(option, value);
  config.env = std::move(env);
  config.env_known = true;
  return config;
}

bool reports(const Config& config, std::string_view rule) {
  const Report report = check(config);
  return std::any_of(report.diagnostics.begin(), report.diagnostics.end(),
                     [&](const Diagnostic& d) { return d.rule == rule; });
}

bool left_out(const Config& config, std::string_view code) {
  const Report report = check(config);
  return std::any_of(report.not_checked.begin(), report.not_checked.end(),
                     [&](const NotChecked& rule) { return rule.rule->code == code; });
}

const std::pair<OptionId, Value> kOverlapSection{"overlap_grad_reduce"_opt, false};

}  // namespace

TEST_CASE("the rule of one hardware queue ends with Blackwell and with a size of one") {
  const std::pair<OptionId, Value> tp{"tensor_model_parallel_size"_opt, std::int64_t{2}};
  CHECK(reports(job({tp, kOverlapSection}), "cdmc-one-required"));
  CHECK_FALSE(reports(job({tp, kOverlapSection}, {{"CUDA_DEVICE_MAX_CONNECTIONS", "1", {}}}), "cdmc-one-required"));
  CHECK_FALSE(
      reports(job({{"tensor_model_parallel_size"_opt, std::int64_t{1}}, kOverlapSection}), "cdmc-one-required"));
  Config blackwell = job({tp, kOverlapSection});
  blackwell.set("gpu_arch"_opt, std::string("blackwell"));
  CHECK_FALSE(reports(blackwell, "cdmc-one-required"));
}

TEST_CASE("rules of the environment are left out while it is not known") {
  Config unknown = job({{"use_megatron_fsdp"_opt, true}}, {{"CUDA_DEVICE_MAX_CONNECTIONS", "1", {}}});
  CHECK(reports(unknown, "cdmc-not-one-mfsdp"));
  unknown.env_known = false;
  CHECK_FALSE(reports(unknown, "cdmc-not-one-mfsdp"));
  CHECK(left_out(unknown, "GTP605"));
}

TEST_CASE("a variable that the launcher fills in is neither right nor wrong") {
  const std::pair<OptionId, Value> tp{"tensor_model_parallel_size"_opt, std::int64_t{2}};
  CHECK_FALSE(
      reports(job({tp, kOverlapSection}, {{"CUDA_DEVICE_MAX_CONNECTIONS", "${QUEUES}", {}}}), "cdmc-one-required"));
}

TEST_CASE("deterministic mode reads a list of algorithms as upstream does") {
  const std::pair<OptionId, Value> mode{"deterministic_mode"_opt, true};
  const auto refused = [&](const char* list) {
    return reports(job({mode}, {{"NCCL_ALGO", list, {}}}), "determinism-nccl-algo");
  };
  for (const char* list : {"Ring", " Ring , ^NVLS", "Ring,,", "CollnetChain,CollnetDirect"}) CHECK_FALSE(refused(list));
  for (const char* list : {"", " ", ",", "Tree", "Ring,Tree", "ring"}) CHECK_MESSAGE(refused(list), list);
}

TEST_CASE("offloading needs its variable from TransformerEngine 2.10 on, and when the version is not known") {
  const std::pair<OptionId, Value> offload{"fine_grained_activation_offloading"_opt, true};
  CHECK(reports(job({offload}), "cpu-offload-v1-env"));
  CHECK(reports(job({offload, {"te_version"_opt, std::string("2.10.0")}}), "cpu-offload-v1-env"));
  CHECK_FALSE(reports(job({offload, {"te_version"_opt, std::string("2.9.1")}}), "cpu-offload-v1-env"));
}

TEST_CASE("modules that only the newer target recomputes are refused by the older") {
  for (const Target& target : kTargets) {
    Config config(target);
    config.set("recompute_granularity"_opt, std::string("selective"));
    config.set("recompute_modules"_opt, StringList{"gdp_qkv"});
    CHECK(reports(config, "recompute-modules-allowed") == (target.version < Version::kd98e8a64));
  }
}

TEST_CASE("grids of their own are refused, not taken for Megatron's") {
  CHECK(reports(job({{"use_decentralized_pg"_opt, true}}), "decentralized-process-groups"));
  CHECK_FALSE(reports(job({{"use_decentralized_pg"_opt, false}}), "decentralized-process-groups"));
}
