// 00x: weight shards, and what GTP_remat and EGTP_remat cannot be combined with.
#pragma once

#include <algorithm>
#include <array>

#include <gtp/derive.hpp>
#include <gtp/package_version.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/names.hpp>

namespace gtp::rules {

namespace detail {

/// The two multiples of `parallel` around `shards`, as advice. A multiple beyond 64 bits is left out.
inline std::string nearest_multiples(std::int64_t shards, std::int64_t parallel) {
  const std::int64_t below = shards / parallel * parallel;
  const auto above = checked_add(below, parallel);
  const auto name = [&](std::int64_t count) {
    return count == parallel ? fmt::format("{} (remat off)", count)
                             : fmt::format("{} (remat size {})", count, count / parallel);
  };
  return above ? fmt::format("use {} or {}", name(below), name(*above)) : fmt::format("use {}", name(below));
}

inline Findings shards_below_parallel(const Facts& f, OptionId shards, OptionId parallel, std::string_view what) {
  if (!shards_below(f.integer(shards), f[parallel])) return {};
  return at(shards, fmt::format("{} is below {}", f[shards], f[parallel]))
      .also(parallel, fmt::format("{} size", what))
      .mend(fmt::format("use {0} (remat off) or a larger multiple of {0}, or lower the {1} size", f[parallel], what));
}

inline Findings shards_no_multiple(const Facts& f, OptionId shards, OptionId parallel, std::string_view what) {
  if (!shards_not_multiple(f.integer(shards), f[parallel])) return {};
  return at(shards, fmt::format("{} is not a multiple of {}", f[shards], f[parallel]))
      .also(parallel, fmt::format("{} size", what))
      .mend(nearest_multiples(f[shards], f[parallel]));
}

/// What is special about expert shards: ETP comes from TP when it is unset, dense models are checked too, and
/// upstream's message names the dense options.
inline Findings explain_expert_shards(const Facts& f, Findings findings) {
  for (Finding& finding : findings.list) {
    const bool inherited = f.config().given(kEtp) == nullptr;
    if (inherited) {
      finding.related = {{std::string(name_of(kTp)), {}, "expert_tensor_parallel_size is unset and takes this value"}};
      finding.help = fmt::format(
          "set `expert_tensor_parallel_size` to a divisor of {} as well, or use a multiple of {} expert shards",
          f[kExpertShards], f[kEtp]);
      if (f[kExpertShards] == 1) {
        finding.help = "set `expert_tensor_parallel_size` to 1: one expert shard means whole experts";
        finding.fixes.push_back({std::string(name_of(kEtp)), std::int64_t{1}});
      }
    }
    if (f.known(kNumExperts) && !f.has(kNumExperts))
      finding.notes.push_back("the model has no experts; upstream checks expert shards all the same");
    finding.notes.push_back("upstream's own message names the dense options although the expert ones are at fault");
  }
  return findings;
}

inline bool gtp_on(const Facts& f) { return f[kGtpRemat] > 1; }
inline bool egtp_on(const Facts& f) { return f[kEgtpRemat] > 1; }
inline bool any_gtp_on(const Facts& f) { return gtp_on(f) || egtp_on(f); }

/// The shard option that turned GTP on, to point at.
inline OptionId shards_that_are_on(const Facts& f) { return gtp_on(f) ? kShards : kExpertShards; }

/// Whether some layer has a dense MLP: no experts, or a frequency that leaves layers without them.
inline bool has_dense_mlp(const Facts& f) {
  if (!f.has(kNumExperts)) return true;
  const Value* frequency = f.find("moe_layer_freq"_opt);
  if (frequency == nullptr) return false;
  if (const auto* every = std::get_if<std::int64_t>(frequency)) return *every != 1;
  const auto* layers = std::get_if<IntList>(frequency);
  return layers != nullptr && std::find(layers->begin(), layers->end(), 0) != layers->end();
}

}  // namespace detail

inline constexpr Rule kWeightShards[] = {
    {"GTP001",
     "sizes-must-be-positive",
     Severity::Error,
     Phase::Startup,
     {},
     "a size must be at least 1",
     "Sizes and counts divide the ranks, the layers or the samples; upstream divides by them without a check of its "
     "own, so a zero ends in a division by zero and a negative number in a wrong remainder.",
     "use 1 or more, or leave the option out for its default",
     "megatron/training/arguments.py:432",
     [](const Derivation& d) {
       Findings findings;
       for (const OptionId size : gtp::detail::kSizes) {
         if (size == kMbs || size == kGbs) continue;  // GTP401, GTP402
         const Setting* setting = d.facts.config().given(size);
         const auto* value = setting == nullptr ? nullptr : std::get_if<std::int64_t>(&setting->value);
         if (value != nullptr && *value < 1) findings.list.push_back(at(size, fmt::format("{} is below 1", *value)));
       }
       return findings;
     }},
    {"GTP002",
     "dense-shards-below-tp",
     Severity::Error,
     Phase::Startup,
     {kShards, kTp},
     "weight shards must not be below the tensor-parallel size",
     "`tensor_parallel_num_weight_shards` counts all shards of a weight, the TP split included.",
     "raise the weight shards to the tensor-parallel size or more",
     "megatron/core/model_parallel_config.py:31",
     [](const Derivation& d) { return detail::shards_below_parallel(d.facts, kShards, kTp, "tensor-parallel"); }},
    {"GTP003",
     "dense-shards-multiple-of-tp",
     Severity::Error,
     Phase::Startup,
     {kShards, kTp},
     "weight shards must be a multiple of the tensor-parallel size",
     "GTP_remat = weight shards / tensor-parallel size, and must be a whole number.",
     "use a multiple of the tensor-parallel size",
     "megatron/core/model_parallel_config.py:36",
     [](const Derivation& d) { return detail::shards_no_multiple(d.facts, kShards, kTp, "tensor-parallel"); }},
    {"GTP004",
     "expert-shards-below-etp",
     Severity::Error,
     Phase::Startup,
     {kExpertShards, kEtp},
     "expert weight shards must not be below the expert-tensor-parallel size",
     "`expert_tensor_parallel_num_weight_shards` counts all shards of an expert weight, the ETP split included. An "
     "unset `expert_tensor_parallel_size` takes the tensor-parallel size first, so the published minimal GTP command "
     "(TP 2, one expert shard, ETP unset) is refused.",
     "raise the expert weight shards, or set expert_tensor_parallel_size",
     "megatron/training/arguments.py:1507",
     [](const Derivation& d) {
       return detail::explain_expert_shards(
           d.facts, detail::shards_below_parallel(d.facts, kExpertShards, kEtp, "expert-tensor-parallel"));
     }},
    {"GTP005",
     "expert-shards-multiple-of-etp",
     Severity::Error,
     Phase::Startup,
     {kExpertShards, kEtp},
     "expert weight shards must be a multiple of the expert-tensor-parallel size",
     "EGTP_remat = expert weight shards / expert-tensor-parallel size, and must be a whole number.",
     "use a multiple of the expert-tensor-parallel size",
     "megatron/training/arguments.py:1507",
     [](const Derivation& d) {
       return detail::explain_expert_shards(
           d.facts, detail::shards_no_multiple(d.facts, kExpertShards, kEtp, "expert-tensor-parallel"));
     }},
    {"GTP006",
     "gtp-opt-in-modules-allowed",
     Severity::Error,
     Phase::Startup,
     {"gtp_remat_opt_in_modules"_opt},
     "only moe_latent_proj can be opted in to GTP",
     "Modules outside the default set are sharded over GTP_remat only when they are opted in, and upstream knows one.",
     "use only moe_latent_proj, or leave the option out",
     "megatron/core/transformer/transformer_config.py:2202",
     [](const Derivation& d) -> Findings {
       const auto option = "gtp_remat_opt_in_modules"_opt;
       const auto* modules = std::get_if<StringList>(d.facts.find(option));
       if (modules == nullptr) return {};
       for (const std::string& module : *modules)
         if (module != "moe_latent_proj") return at(option, fmt::format("`{}` is not moe_latent_proj", module));
       return {};
     },
     Version::kd98e8a64},
    {"GTP007",
     "gtp-column-output-divisible-by-tp",
     Severity::Error,
     Phase::Startup,
     {kGtpRemat, kTp, "ffn_hidden_size"_opt},
     "the MLP width must be a multiple of the tensor-parallel size under GTP",
     "GTP cuts the rows of each TP slice of a column-parallel weight, padded to whole shards, so the TP split must be "
     "exact first.",
     "use a multiple of the tensor-parallel size",
     "megatron/core/extensions/transformer_engine.py:442",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto ffn = "ffn_hidden_size"_opt;
       if (!detail::gtp_on(f) || !f.has(ffn) || divides(f[kTp], f[ffn])) return {};
       return at(ffn, fmt::format("{} is not a multiple of {}", f[ffn], f[kTp])).also(kTp, "tensor-parallel size");
     }},
    {"GTP008",
     "gtp-op-fused-dense-mlp",
     Severity::Error,
     Phase::Startup,
     {kGtpRemat, "use_transformer_engine_op_fuser"_opt, kNumExperts},
     "the op-fused dense MLP does not know GTP",
     "The TransformerEngine op-fused MLP is built from full weights and ignores remat shards.",
     "turn the op fuser off, or GTP for dense weights",
     "megatron/core/transformer/mlp.py:409",
     [](const Derivation& d) -> Findings {
       const auto fuser = "use_transformer_engine_op_fuser"_opt;
       if (!detail::gtp_on(d.facts) || !d.facts.on(fuser) || !detail::has_dense_mlp(d.facts)) return {};
       return at(fuser, "builds the MLP without remat shards").also(kShards, "GTP is on");
     }},
    {"GTP010",
     "egtp-single-grouped-weight",
     Severity::Error,
     Phase::Startup,
     {kEgtpRemat, "moe_single_grouped_weight"_opt},
     "expert GTP cannot shard one coalesced expert weight",
     "Expert shards are attached to the weight of each expert; a single grouped tensor has no such weights.",
     "turn moe_single_grouped_weight off",
     "megatron/core/tensor_parallel/generalized_tensor_parallelism.py:683",
     [](const Derivation& d) -> Findings {
       const auto single = "moe_single_grouped_weight"_opt;
       if (!detail::egtp_on(d.facts) || !d.facts.on(single)) return {};
       return at(single, "keeps all experts in one tensor").also(kExpertShards, "expert GTP is on").fix(single, false);
     }},
    {"GTP011",
     "gtp-with-linear-bias-broken",
     Severity::Warning,
     Phase::Silent,
     {kGtpRemat, "add_bias_linear"_opt, "add_qkv_bias"_opt},
     "linear biases are broken under GTP in this version",
     "The linear modules are built with the rows of one shard, so their bias has the size of a shard while only the "
     "weight is gathered. Nothing checks it; later versions mend it (PR 6986).",
     "turn the biases off (--disable-bias-linear, no --add-qkv-bias)",
     "megatron/core/extensions/transformer_engine.py:1291",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::gtp_on(f)) return {};
       const auto linear = "add_bias_linear"_opt, qkv = "add_qkv_bias"_opt;
       if (f.on(linear))
         return at(linear, f.config().given(linear) == nullptr ? "on by default" : "on")
             .also(kShards, "GTP is on")
             .fix(linear, false);
       if (f.on(qkv)) return at(qkv, "on").also(kShards, "GTP is on").fix(qkv, false);
       return {};
     },
     kOldestVersion,
     Version::kd98e8a64},
    {"GTP012",
     "gtp-with-tied-embeddings-broken",
     Severity::Error,
     Phase::FirstStep,
     {kGtpRemat, "untie_embeddings_and_output_weights"_opt},
     "tied embeddings do not work under GTP in this version",
     "The output layer compares the shard it is given with the full shape of its TP slice and raises in the first "
     "forward pass. Argument checks let it through; later versions mend it (PR 6940).",
     "set untie_embeddings_and_output_weights",
     "megatron/core/tensor_parallel/layers.py:1209",
     [](const Derivation& d) -> Findings {
       const auto untie = "untie_embeddings_and_output_weights"_opt;
       if (!detail::gtp_on(d.facts) || d.facts.on(untie)) return {};
       return at(untie, d.facts.config().given(untie) == nullptr ? "off by default" : "off")
           .also(kShards, "GTP is on")
           .fix(untie, true);
     },
     kOldestVersion,
     Version::kd98e8a64},
    {"GTP013",
     "gtp-te-min-version",
     Severity::Error,
     Phase::Startup,
     {kGtpRemat, kEgtpRemat, "te_version"_opt},
     "GTP needs TransformerEngine 2.19 or newer",
     "GTP uses interfaces that TransformerEngine has since 2.19.0.dev0.",
     "install TransformerEngine 2.19 or newer",
     "megatron/training/initialize.py:372",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto version = PackageVersion::parse(f.text("te_version"_opt).value_or(""));
       if (!detail::any_gtp_on(f) || !version || *version >= *PackageVersion::parse("2.19.0.dev0")) return {};
       return at("te_version"_opt, fmt::format("{} is older", *f.text("te_version"_opt)))
           .also(detail::shards_that_are_on(f), "GTP is on");
     }},
    {"GTP014",
     "gtp-megatron-fsdp-exclusive",
     Severity::Error,
     Phase::Startup,
     {kGtpRemat, kEgtpRemat, "use_megatron_fsdp"_opt},
     "GTP and Megatron-FSDP exclude each other",
     "Both shard weights over the data ranks: GTP takes only the torch and torch_dist checkpoint formats, and "
     "Megatron-FSDP insists on fsdp_dtensor.",
     "use one of the two",
     "megatron/training/arguments.py:1558",
     [](const Derivation& d) -> Findings {
       const auto fsdp = "use_megatron_fsdp"_opt;
       if (!detail::any_gtp_on(d.facts) || !d.facts.on(fsdp)) return {};
       return at(fsdp, "on").also(detail::shards_that_are_on(d.facts), "GTP is on");
     }},
    {"GTP015",
     "theoretical-memory-ignores-gtp",
     Severity::Note,
     Phase::Silent,
     {kGtpRemat, kEgtpRemat},
     "upstream's memory report does not know GTP",
     "The theoretical footprint that upstream prints after the first steps divides dense weights by TP only and uses "
     "the replicate DP size; its expert part leaves EGTP_remat out. The printed figure is too high.",
     "do not size the job by that figure",
     "megatron/training/theoretical_memory_usage.py:252",
     [](const Derivation& d) -> Findings {
       if (!detail::any_gtp_on(d.facts)) return {};
       return at(detail::shards_that_are_on(d.facts), "GTP is on");
     }},
};

}  // namespace gtp::rules
