// What upstream fills in for activation recompute.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <gtp/rule.hpp>
#include <gtp/word_lists.hpp>

namespace gtp::rules {

using namespace literals;

inline constexpr OptionId kGranularity = "recompute_granularity"_opt, kRecomputeModules = "recompute_modules"_opt;

namespace detail {

/// The granularity that upstream's first checks see: a deprecated `moe_layer_recompute` sets it only after them.
inline std::string_view early_granularity(const Facts& f) {
  if (f.on("recompute_activations"_opt)) return "selective";
  const Value* given = f.original(kGranularity);
  const auto* text = given == nullptr ? nullptr : std::get_if<std::string>(given);
  return text == nullptr ? std::string_view{} : std::string_view(*text);
}

inline bool selective(const Facts& f) { return f.text(kGranularity) == "selective"; }

/// The modules to recompute; upstream's list is core attention while none is given (transformer_config.py:1940).
inline std::span<const std::string> recompute_modules(const Facts& f) {
  static const StringList kDefault{"core_attn"};
  return f.has(kRecomputeModules) ? words(f, kRecomputeModules) : std::span<const std::string>(kDefault);
}

}  // namespace detail

inline constexpr Rule kRecomputeChanges[] = {
    changes("GTP701", "recompute-activations-alias", {"recompute_activations"_opt},
            "recompute_activations means selective recompute",
            "The switch is a shorthand; it wins over a granularity given beside it.",
            "set recompute_granularity to selective", "megatron/training/arguments.py:607",
            [](const Facts& f) -> Changes {
              if (!f.on("recompute_activations"_opt)) return {};
              return {{kGranularity, std::string("selective"), "recompute_activations is on"}};
            }),
    changes("GTP702", "recompute-moe-layer-deprecated", {"moe_layer_recompute"_opt, kGranularity, kRecomputeModules},
            "moe_layer_recompute means selective recompute of the MoE layer",
            "The switch is deprecated; upstream turns it into a granularity and one more module.",
            "set recompute_granularity to selective and add moe to recompute_modules",
            "megatron/core/transformer/transformer_config.py:2014",
            [](const Facts& f) -> Changes {
              if (!f.on("moe_layer_recompute"_opt) || f.text(kGranularity) == "full") return {};
              const auto before = detail::recompute_modules(f);
              StringList modules(before.begin(), before.end());
              if (!contains(before, "moe")) modules.emplace_back("moe");
              return {{kGranularity, std::string("selective"), "moe_layer_recompute is on"},
                      {kRecomputeModules, std::move(modules), "moe_layer_recompute is on"}};
            }),
};

}  // namespace gtp::rules
