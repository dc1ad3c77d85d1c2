// What upstream reads out of a hybrid pattern, and what it turns off for too few MTP layers.
#pragma once

#include <gtp/hybrid_pattern.hpp>
#include <gtp/rule.hpp>

namespace gtp::rules {

using namespace literals;

namespace detail {

/// The pattern, if one is given and can be read.
inline std::optional<HybridPattern> readable_pattern(const Facts& f) {
  const auto text = f.text("hybrid_layer_pattern"_opt);
  return text ? parse_hybrid_pattern(*text).pattern : std::nullopt;
}

}  // namespace detail

inline constexpr Rule kPipelineChanges[] = {
    changes("GTP246", "hybrid-mtp-inferred", {"hybrid_layer_pattern"_opt, "mtp_num_layers"_opt},
            "the depths of a hybrid pattern say how many MTP layers there are",
            "Each part after a slash is one MTP depth; upstream warns and takes their number.",
            "leave mtp_num_layers out", "megatron/training/arguments.py:870",
            [](const Facts& f) -> Changes {
              const auto pattern = detail::readable_pattern(f);
              if (!pattern || pattern->mtp_pattern.empty() || pattern->mtp_num_depths < 1) return {};
              return {{"mtp_num_layers"_opt, pattern->mtp_num_depths, "the pattern has that many depths"}};
            }),
    changes("GTP247", "hybrid-mla-inferred", {"hybrid_layer_pattern"_opt, "multi_latent_attention"_opt},
            "a pattern with + or D means multi-latent attention", "Both kinds of attention are built on it.",
            "set multi_latent_attention, or leave it out", "megatron/training/arguments.py:923",
            [](const Facts& f) -> Changes {
              const auto text = f.text("hybrid_layer_pattern"_opt);
              if (!text || text->find_first_of("+D") == std::string_view::npos) return {};
              return {{"multi_latent_attention"_opt, true, "the pattern has such layers"}};
            }),
    changes(
        "GTP248", "mtp-hsm-needs-two-layers", {"mtp_hsm"_opt, "mtp_num_layers"_opt},
        "hidden-state mixing is turned off with fewer than two MTP layers", "There is nothing to mix.",
        "use 2 MTP layers or more, or leave mtp_hsm out", "megatron/training/arguments.py:888",
        [](const Facts& f) -> Changes {
          if (!f.on("mtp_hsm"_opt) || f.integer("mtp_num_layers"_opt).value_or(0) >= 2) return {};
          return {{"mtp_hsm"_opt, false, "fewer than two MTP layers"}};
        },
        Version::kd98e8a64),
};

}  // namespace gtp::rules
