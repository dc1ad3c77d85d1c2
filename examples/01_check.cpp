// The engine as a library: set options, check them, read diagnostics and derived values.
#include <fmt/core.h>

#include <gtp/check.hpp>

using namespace gtp::literals;

int main() {
  gtp::Config config;
  config.set("world_size"_opt, std::int64_t{16});
  config.set("tensor_model_parallel_size"_opt, std::int64_t{4});
  config.set("tensor_parallel_num_weight_shards"_opt, std::int64_t{6});
  for (const gtp::Diagnostic& d : gtp::check(config).diagnostics)
    fmt::print("{}[{}]: {}: {}\n", to_text(d.severity), d.code, d.message, d.primary.text);

  config.set("tensor_parallel_num_weight_shards"_opt, std::int64_t{8});
  const gtp::Report report = gtp::check(config);
  if (!report.derivation.topology) return 1;
  fmt::print("GTP_remat {}, replicate DP {}, data distribution {}\n", report.derivation.topology->gtp_remat,
             report.derivation.topology->dp, report.derivation.topology->data_distribution_size());
}
