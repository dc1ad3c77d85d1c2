#include <gtp/target.hpp>

#include <doctest/doctest.h>

#include <string>

#include <gtp/check.hpp>

namespace {

using namespace gtp::literals;

/// GTP with biases and tied embeddings, and unequal remat sizes of experts: what later versions mend.
gtp::Config job(std::string_view target) {
  gtp::Config config(*gtp::find_target(target));
  const auto set = [&](gtp::OptionId option, gtp::Value value) { config.set(option, std::move(value)); };
  set("world_size"_opt, std::int64_t{16});
  set("num_layers"_opt, std::int64_t{4});
  set("hidden_size"_opt, std::int64_t{64});
  set("num_experts"_opt, std::int64_t{8});
  set("context_parallel_size"_opt, std::int64_t{2});
  set("tensor_parallel_num_weight_shards"_opt, std::int64_t{4});
  return config;
}

bool reports(const gtp::Report& report, std::string_view code) {
  for (const gtp::Diagnostic& d : report.diagnostics)
    if (d.code == code) return true;
  return false;
}

}  // namespace

TEST_CASE("what pull requests have mended since is no problem for the later target") {
  const gtp::Config now = job("megatron-core@d98e8a64"), later = job("megatron-core@2026-09");
  const gtp::Report before = gtp::check(now), after = gtp::check(later);
  for (const char* code : {"GTP011", "GTP012", "GTP302"}) {
    CAPTURE(code);
    CHECK(reports(before, code));
    CHECK_FALSE(reports(after, code));
  }
}

TEST_CASE("the later target puts CP nearer than GTP_remat on the dense grid") {
  const gtp::Config now = job("megatron-core@d98e8a64"), later = job("megatron-core@2026-09");
  const gtp::Derivation before = gtp::derive(now), after = gtp::derive(later);
  CHECK(before.facts.text("dense_order"_opt) == "tp-gtp_remat-cp-ep-dp-pp");
  CHECK(after.facts.text("dense_order"_opt) == "tp-cp-gtp_remat-ep-dp-pp");
  REQUIRE(after.topology.has_value());
  CHECK(gtp::dense_grid(*before.topology).rank({0, 1, 0, 0, 0, 0}) == 1);
  CHECK(gtp::dense_grid(*after.topology).rank({0, 1, 0, 0, 0, 0}) == 2);
}

TEST_CASE("Bridge builds GTP groups for the later target only") {
  const gtp::Config now = job("megatron-bridge@067f987d"), later = job("megatron-bridge@2026-09");
  CHECK(reports(gtp::check(now), "GTP950"));
  CHECK_FALSE(reports(gtp::check(later), "GTP950"));
  CHECK(gtp::derive(later).facts.integer("gtp_weight_remat_size"_opt) == 4);
}
