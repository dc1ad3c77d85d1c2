// What upstream makes of the CUDA-graph options: deprecated spellings become new ones, defaults follow from the
// implementation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <gtp/rule.hpp>
#include <gtp/rules/names.hpp>
#include <gtp/word_lists.hpp>

namespace gtp::rules {

using namespace literals;

inline constexpr OptionId kGraphImpl = "cuda_graph_impl"_opt, kGraphModules = "cuda_graph_modules"_opt,
                          kOldGraphScope = "cuda_graph_scope_deprecated"_opt,
                          kInferenceScope = "inference_cuda_graph_scope"_opt, kEnableGraph = "enable_cuda_graph"_opt,
                          kExternalGraph = "external_cuda_graph"_opt, kGraphWarmup = "cuda_graph_warmup_steps"_opt;

namespace detail {

inline std::string_view original_text(const Facts& f, OptionId option) {
  const Value* value = f.original(option);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return text == nullptr ? std::string_view{} : std::string_view(*text);
}

/// A deprecated switch beside the other one, or beside a named implementation.
inline bool graph_switches_clash(const Facts& f) {
  const bool enable = f.on(kEnableGraph), external = f.on(kExternalGraph);
  return (enable || external) && (original_text(f, kGraphImpl) != "none" || (enable && external));
}

/// The implementation that the input names, by a deprecated switch or not.
inline std::string_view named_graph_impl(const Facts& f) {
  if (!graph_switches_clash(f) && f.on(kEnableGraph)) return "local";
  if (!graph_switches_clash(f) && f.on(kExternalGraph)) return "transformer_engine";
  return original_text(f, kGraphImpl);
}

/// The modules that the input names, under the old name of the option or the new one.
inline std::span<const std::string> named_graph_modules(const Facts& f) {
  const auto modules = original_words(f, kGraphModules);
  return modules.empty() ? original_words(f, kOldGraphScope) : modules;
}

/// Why upstream refuses a deprecated word among the modules; empty when it takes it, or there is none.
inline std::string_view deprecated_module_problem(const Facts& f) {
  const auto modules = named_graph_modules(f);
  const bool step = contains(modules, "full_iteration"), inference = contains(modules, "full_iteration_inference");
  if ((!step && !inference) || contains(modules, "full")) return {};
  if (step && inference) return "two deprecated words at once";
  const std::string_view impl = named_graph_impl(f), scope = original_text(f, kInferenceScope);
  if (impl == "transformer_engine" || (inference && impl == "full_iteration"))
    return "a deprecated word for another implementation";
  if (!scope.empty() && scope != (step ? "none" : "block")) return "a deprecated word for another inference scope";
  return {};
}

/// Whether graphs are captured layer by layer.
inline bool graphs_per_layer(const Facts& f) {
  return f.text(kGraphImpl) == "local" || f.text(kGraphImpl) == "transformer_engine";
}

/// The unit of an inference graph; unset, it follows from the implementation (cuda_graph_config.py:67).
inline std::string_view inference_scope(const Facts& f) {
  const auto scope = f.text(kInferenceScope);
  return scope ? *scope : f.text(kGraphImpl) == "local" ? "layer" : "none";
}

/// Deprecated words leave the modules and choose an implementation or an inference scope instead.
inline Changes migrate_deprecated_modules(const Facts& f) {
  const auto modules = words(f, kGraphModules);
  const bool step = contains(modules, "full_iteration"), inference = contains(modules, "full_iteration_inference");
  if ((!step && !inference) || contains(modules, "full") || !deprecated_module_problem(f).empty()) return {};
  StringList kept;
  for (const std::string& module : modules)
    if (!module.starts_with("full_iteration")) kept.push_back(module);
  Changes migrated{{kGraphModules, std::move(kept), "it holds a deprecated word that is no module"}};
  if (step) migrated.push_back({kGraphImpl, std::string("full_iteration"), "cuda_graph_modules says full_iteration"});
  if (inference && f.text(kGraphImpl) == "local")
    migrated.push_back({kInferenceScope, std::string("block"), "cuda_graph_modules says full_iteration_inference"});
  return migrated;
}

/// Per-layer graphs by Megatron capture the router and its preprocessing together.
inline Changes pair_router_modules(const Facts& f) {
  const auto before = words(f, kGraphModules);
  const bool router = contains(before, "moe_router"), preprocess = contains(before, "moe_preprocess");
  if (f.text(kGraphImpl) != "local" || router == preprocess) return {};
  StringList modules(before.begin(), before.end());
  modules.emplace_back(router ? "moe_preprocess" : "moe_router");
  return {{kGraphModules, std::move(modules), "local graphs capture moe_router and moe_preprocess together"}};
}

}  // namespace detail

inline constexpr Rule kGraphChanges[] = {
    changes("GTP681", "graph-legacy-migration", {kGraphImpl, kEnableGraph, kExternalGraph},
            "a deprecated switch chooses the CUDA-graph implementation",
            "enable_cuda_graph means local and external_cuda_graph means transformer_engine.", "set cuda_graph_impl",
            "megatron/training/arguments.py:623",
            [](const Facts& f) -> Changes {
              const std::string_view impl = detail::named_graph_impl(f);
              if (impl == detail::original_text(f, kGraphImpl)) return {};
              return {{kGraphImpl, std::string(impl),
                       fmt::format("{} is on", f.on(kEnableGraph) ? "enable_cuda_graph" : "external_cuda_graph")}};
            }),
    changes("GTP682", "graph-scope-migration", {kGraphModules, kOldGraphScope},
            "the old spelling of cuda_graph_modules is copied there",
            "cuda_graph_scope is the deprecated name of cuda_graph_modules.", "use cuda_graph_modules",
            "megatron/training/arguments.py:640",
            [](const Facts& f) -> Changes {
              if (!f.has(kOldGraphScope) || !words(f, kGraphModules).empty()) return {};
              const auto modules = words(f, kOldGraphScope);
              return {{kGraphModules, StringList(modules.begin(), modules.end()), "cuda_graph_scope is given"}};
            }),
    changes("GTP683", "graph-modules-full-iteration-migration", {kGraphImpl, kGraphModules, kInferenceScope},
            "a deprecated word among the graph modules chooses an implementation",
            "full_iteration was once a module; it is an implementation now, and full_iteration_inference an inference "
            "scope.",
            "set cuda_graph_impl to full_iteration, or inference_cuda_graph_scope to block",
            "megatron/core/transformer/cuda_graph_config.py:108", detail::migrate_deprecated_modules),
    changes("GTP684", "graph-modules-full-deprecated", {kGraphModules},
            "the graph module full means whole layers, like no module at all", "The word full is deprecated.",
            "leave cuda_graph_modules empty", "megatron/core/transformer/cuda_graph_config.py:39",
            [](const Facts& f) -> Changes {
              const auto modules = words(f, kGraphModules);
              if (modules.size() != 1 || modules.front() != "full") return {};
              return {{kGraphModules, StringList{}, "full means whole layers"}};
            }),
    changes("GTP685", "graph-te-rng", {kGraphImpl, "transformer_impl"_opt},
            "CUDA graphs turn TransformerEngine's random state tracker on",
            "Random states must be tracked in a way that can be captured.", "set te_rng_tracker",
            "megatron/training/arguments.py:1954",
            [](const Facts& f) -> Changes {
              const bool te = f.text("transformer_impl"_opt) == "transformer_engine";
              if (f.text(kGraphImpl) == "none" || (!te && f.text(kGraphImpl) != "transformer_engine")) return {};
              return {{"te_rng_tracker"_opt, true, "CUDA graphs are on"}};
            }),
    changes("GTP686", "graph-local-router-preprocess-pair", {kGraphImpl, kGraphModules},
            "local graphs capture the MoE router and its preprocessing together",
            "The local implementation does not tell the two apart, so naming one adds the other without a message.",
            "name both, or neither", "megatron/core/transformer/transformer_config.py:2805",
            detail::pair_router_modules),
    changes("GTP687", "graph-gtp-warmup", {kGraphImpl, kGtpRemat, kGraphWarmup},
            "local graphs warm up at least twice under GTP",
            "The first pass learns the order of the weights, the second exercises the prefetch.",
            "set cuda_graph_warmup_steps to 2 or more", "megatron/core/transformer/cuda_graphs.py:1033",
            [](const Facts& f) -> Changes {
              const auto steps = f.integer(kGraphWarmup);
              if (f.text(kGraphImpl) != "local" || f[kGtpRemat] <= 1 || !steps || *steps >= 2) return {};
              return {{kGraphWarmup, std::int64_t{2}, "GTP needs two passes before a capture"}};
            }),
};

}  // namespace gtp::rules
