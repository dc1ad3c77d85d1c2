// A rule of one's own: a row like those of include/gtp/rules/, run on the same facts.
#include <fmt/core.h>

#include <gtp/check.hpp>

using namespace gtp::literals;

constexpr gtp::Rule kHouseRule{"OUR001",
                               "batch-is-power-of-two",
                               gtp::Severity::Warning,
                               gtp::Phase::Silent,
                               {"global_batch_size"_opt},
                               "our global batch sizes are powers of two",
                               "Our schedules double the batch.",
                               "use the next power of two",
                               "",
                               [](const gtp::Derivation& d) -> gtp::Findings {
                                 const std::int64_t batch = d.facts["global_batch_size"_opt];
                                 if ((batch & (batch - 1)) == 0) return {};
                                 return gtp::at("global_batch_size"_opt, fmt::format("{} is no power of two", batch));
                               }};

int main() {
  gtp::Config config;
  config.set("micro_batch_size"_opt, std::int64_t{1});
  config.set("global_batch_size"_opt, std::int64_t{96});
  const gtp::Derivation derivation = gtp::derive(config);
  for (gtp::Finding& finding : kHouseRule.violation(derivation).list) {
    const gtp::Diagnostic d = gtp::report(kHouseRule, std::move(finding), config);
    fmt::print("{}[{}]: {}: {}\n", to_text(d.severity), d.code, d.message, d.primary.text);
  }
}
