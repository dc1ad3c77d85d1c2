// 2xx: how layers are split over pipeline stages and virtual stages. layer_split.hpp, pipeline_layout.hpp and
// hybrid_pattern.hpp decide; the rows here say it.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/names.hpp>

namespace gtp::rules {

inline constexpr OptionId kNumLayers = "num_layers"_opt, kFirst = "decoder_first_pipeline_num_layers"_opt,
                          kLast = "decoder_last_pipeline_num_layers"_opt,
                          kLayout = "pipeline_model_parallel_layout"_opt, kHybrid = "hybrid_layer_pattern"_opt,
                          kLayersPerVstage = "num_layers_per_virtual_pipeline_stage"_opt,
                          kVirtualStages = "num_virtual_stages_per_pipeline_rank"_opt,
                          kAccountEmbedding = "account_for_embedding_in_pipeline_split"_opt,
                          kAccountLoss = "account_for_loss_in_pipeline_split"_opt,
                          kBurst = "microbatch_group_size_per_vp_stage"_opt;

namespace detail {

inline constexpr std::array kVppOptions{kVirtualStages, kLayersPerVstage, kLayout, kHybrid};
inline constexpr std::array kUnevenOptions{kFirst, kLast};
inline constexpr std::array kAccountOptions{kAccountEmbedding, kAccountLoss};
inline constexpr std::array kSplitOptions{kLayersPerVstage,  kVirtualStages, kFirst, kLast,
                                          kAccountEmbedding, kAccountLoss,   kLayout};

/// The first of the options that the input gave; the first of all when it gave none.
inline OptionId given_of(const Derivation& d, std::span<const OptionId> options) {
  for (const OptionId option : options)
    if (d.facts.config().given(option) != nullptr) return option;
  return options.front();
}

/// `text` takes what was found and what was wanted.
inline Findings split(const Derivation& d, SplitProblem problem, OptionId option, std::string_view text,
                      std::optional<OptionId> also = {}, std::string_view also_text = {}) {
  if (!d.layers) return {};
  for (const SplitFinding& found : d.layers->findings) {
    if (found.problem != problem) continue;
    Finding finding = at(option, fmt::format(fmt::runtime(text), found.found, found.wanted));
    if (also && !(*also == option)) return std::move(finding).also(*also, std::string(also_text));
    return finding;
  }
  return {};
}

/// A label at the option, or at one character of its value when the input spells the value without escapes.
inline Label label_inside(const Derivation& d, OptionId option, std::optional<std::size_t> offset, std::string text) {
  Label label{std::string(name_of(option)), {}, std::move(text)};
  const Setting* setting = d.facts.config().given(option);
  const auto* value = setting == nullptr ? nullptr : std::get_if<std::string>(&setting->value);
  if (value != nullptr && offset && *offset < value->size() && setting->place.known() &&
      setting->place.end - setting->place.begin == value->size()) {
    label.place = setting->place;
    label.place.begin += static_cast<std::uint32_t>(*offset);
    label.place.end = label.place.begin + 1;
  }
  return label;
}

template <class Found, class Problem>
Findings inside(const Derivation& d, const std::vector<Found>& all, Problem problem, OptionId option,
                std::string_view text) {
  Findings findings;
  for (const Found& found : all)
    if (found.problem == problem)
      findings.list.push_back(
          {label_inside(d, option, found.offset,
                        fmt::format(fmt::runtime(text), found.found.value_or(0), found.wanted.value_or(0)))});
  return findings;
}

inline Findings layout(const Derivation& d, LayoutProblem problem, std::string_view text) {
  return d.layers ? inside(d, d.layers->layout_findings, problem, kLayout, text) : Findings{};
}

inline Findings hybrid(const Derivation& d, HybridProblem problem, std::string_view text) {
  return d.layers ? inside(d, d.layers->hybrid_findings, problem, kHybrid, text) : Findings{};
}

/// Microbatches that one burst of the interleaved schedule takes; the pipeline size when unset.
inline std::int64_t burst(const Facts& f) { return f.integer(kBurst).value_or(f[kPp]); }

inline bool burst_out_of_range(const Facts& f) { return burst(f) < f[kPp] || burst(f) > f[kNumMicrobatches]; }

}  // namespace detail

inline constexpr Rule kPipeline[] = {
    {"GTP201",
     "default-layers-divisible-by-pp",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "the layers must divide evenly over the pipeline stages",
     "Without another split every stage holds equally many layers; account_for_embedding/loss_in_pipeline_split count "
     "one layer more each.",
     "use a pipeline size that divides the layers, or decoder_first/last_pipeline_num_layers, or a layout",
     "megatron/training/arguments.py:997",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::DefaultLayersDivisibleByPp, kNumLayers,
                            "{} layers are not a multiple of {}", kPp, "pipeline size");
     }},
    {"GTP202",
     "layers-per-vstage-pp-divisible",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "the layers must divide evenly over the pipeline stages",
     "Virtual stages are cut from equal pipeline stages.",
     "use a pipeline size that divides the layers",
     "megatron/training/arguments.py:968",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::LayersPerVstagePpDivisible, kNumLayers,
                            "{} layers are not a multiple of {}", kPp, "pipeline size");
     }},
    {"GTP203",
     "layers-per-vstage-divides-stage",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "layers of a virtual stage must divide the layers of a stage",
     "Each pipeline stage is cut into equal model chunks.",
     "use a divisor of the layers of a stage",
     "megatron/training/arguments.py:972",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::LayersPerVstageDividesStage, kLayersPerVstage,
                            "a stage of {} layers is not a multiple of {}", kPp, "pipeline size");
     }},
    {"GTP204",
     "first-stage-vpp-divisible",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "the layers of the first stage must be a multiple of the virtual stages",
     "The first stage is cut into equal chunks.",
     "use a multiple of the virtual pipeline size",
     "megatron/core/transformer/transformer_config.py:2306",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::FirstStageVppDivisible, kFirst, "{} is not a multiple of {}");
     }},
    {"GTP205",
     "last-stage-vpp-divisible",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "the layers of the last stage must be a multiple of the virtual stages",
     "The last stage is cut into equal chunks.",
     "use a multiple of the virtual pipeline size",
     "megatron/core/transformer/transformer_config.py:2325",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::LastStageVppDivisible, kLast, "{} is not a multiple of {}");
     }},
    {"GTP206",
     "middle-stage-divisible",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "the middle layers must divide evenly over the middle stages",
     "What the first and last stage leave is spread evenly.",
     "change the layers of the first or last stage",
     "megatron/core/transformer/transformer_config.py:2349",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::MiddleStageDivisible, kNumLayers,
                            "{} middle layers are not a multiple of {} middle stages", kPp, "pipeline size");
     }},
    {"GTP207",
     "middle-stage-vpp-divisible",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "the layers of a middle stage must be a multiple of the virtual stages",
     "Each middle stage is cut into equal chunks.",
     "change the layers of the first or last stage, or the virtual stages",
     "megatron/core/transformer/transformer_config.py:2357",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::MiddleStageVppDivisible, kNumLayers,
                            "{} layers of a middle stage are not a multiple of {}", kPp, "pipeline size");
     }},
    {"GTP208",
     "account-for-divisible-by-pp",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "the layers with embedding and loss slots must divide evenly over the pipeline stages",
     "The embedding and the loss count as one layer each.",
     "change the layers, the pipeline size, or what is accounted for",
     "megatron/core/transformer/transformer_config.py:2382",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::AccountForDivisibleByPp, kNumLayers,
                            "{} layers and slots are not a multiple of {}", kPp, "pipeline size");
     }},
    {"GTP209",
     "account-for-vpp-divisible",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "the slots of a stage must be a multiple of the virtual stages",
     "Chunks of a stage are equal, the slots of embedding and loss included.",
     "change the virtual stages",
     "megatron/core/transformer/transformer_config.py:2405",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::AccountForVppDivisible, kNumLayers,
                            "{} slots of a stage are not a multiple of {}", kPp, "pipeline size");
     }},
    {"GTP210",
     "build-layers-divisible",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "the model cannot be built with this split",
     "The model is divided once more when it is built, which catches what argument checks let pass.",
     "use sizes that divide the layers",
     "megatron/core/transformer/transformer_block.py:156",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::BuildLayersDivisible, kNumLayers, "{} is not a multiple of {}", kPp,
                            "pipeline size");
     }},
    {"GTP211",
     "vpp-option-exclusivity",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "only one option may decide the virtual stages",
     "num_layers_per_virtual_pipeline_stage, num_virtual_stages_per_pipeline_rank and pipeline_model_parallel_layout "
     "each decide them.",
     "keep one of the three",
     "megatron/training/arguments.py:928",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::VppOptionExclusivity, detail::given_of(d, detail::kVppOptions),
                            "one of several");
     }},
    {"GTP212",
     "layers-per-vstage-no-uneven",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "num_layers_per_virtual_pipeline_stage needs an even split",
     "With a first or last stage of its own size, layers of a virtual stage are not one number.",
     "use num_virtual_stages_per_pipeline_rank",
     "megatron/training/arguments.py:955",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::LayersPerVstageNoUneven, kLayersPerVstage, "beside an uneven split",
                            detail::given_of(d, detail::kUnevenOptions), "uneven");
     }},
    {"GTP213",
     "vpp-overlap-needs-pp-gt-1",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "virtual stages need a pipeline",
     "Interleaving needs more than one pipeline stage.",
     "raise pipeline_model_parallel_size, or drop the virtual stages",
     "megatron/training/arguments.py:1002",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::VppOverlapNeedsPpGt1, kPp, "1 stage",
                            detail::given_of(d, detail::kVppOptions), "virtual stages");
     }},
    {"GTP214",
     "vpp-no-overlap-needs-pp-gt-2",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "virtual stages without point-to-point overlap need at least 3 pipeline stages",
     "With two stages and no overlap, the sends of the interleaved schedule would pair up wrongly.",
     "turn overlap_p2p_comm on, or use 3 stages or more",
     "megatron/training/arguments.py:1006",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::VppNoOverlapNeedsPpGt2, kPp, "{0} stages",
                            detail::given_of(d, detail::kVppOptions), "virtual stages");
     }},
    {"GTP215",
     "uneven-vs-account-for",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "an uneven split and accounting for embedding or loss exclude each other",
     "Both say how many layers the first and last stage hold.",
     "keep one of the two",
     "megatron/core/transformer/transformer_config.py:2229",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::UnevenVsAccountFor, detail::given_of(d, detail::kUnevenOptions),
                            "uneven split", detail::given_of(d, detail::kAccountOptions), "accounted for");
     }},
    {"GTP216",
     "layout-vs-other-split-options",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "a pipeline layout excludes every other split option",
     "The layout places every layer, the embedding and the loss.",
     "drop the other option",
     "megatron/core/transformer/transformer_config.py:2245",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::LayoutVsOtherSplitOptions, detail::given_of(d, detail::kSplitOptions),
                            "beside a layout", kLayout, "layout");
     }},
    {"GTP218",
     "first-stage-positive",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "the first pipeline stage must hold a layer",
     "A stage without layers is not built from a count.",
     "use 1 or more, or a layout",
     "megatron/core/transformer/transformer_config.py:2303",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::FirstStagePositive, kFirst, "{} is not positive");
     }},
    {"GTP219",
     "last-stage-positive",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "the last pipeline stage must hold a layer",
     "A stage without layers is not built from a count.",
     "use 1 or more, or a layout",
     "megatron/core/transformer/transformer_config.py:2322",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::LastStagePositive, kLast, "{} is not positive");
     }},
    {"GTP220",
     "middle-stage-mismatch",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "middle layers and middle stages must both exist or both be missing",
     "What the first and last stage leave must have stages to go to, and stages must have layers.",
     "change the layers of the first or last stage, or the pipeline size",
     "megatron/core/transformer/transformer_config.py:2341",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::MiddleStageMismatch, detail::given_of(d, detail::kUnevenOptions),
                            "{} middle layers for {} middle stages", kPp, "pipeline size");
     }},
    {"GTP222",
     "hybrid-pipes-vs-first-last",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "a pattern with pipes excludes first and last stage counts",
     "The pipes of the pattern are the stages.",
     "drop decoder_first/last_pipeline_num_layers",
     "megatron/training/arguments.py:803",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::HybridPipesVsFirstLast, detail::given_of(d, detail::kUnevenOptions),
                            "beside a pattern with pipes", kHybrid, "pattern");
     }},
    {"GTP223",
     "hybrid-pattern-forbidden-options",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "a hybrid pattern excludes this split option",
     "A pattern is divided at its pipes, or evenly.",
     "divide the pattern with pipes instead",
     "megatron/training/arguments.py:814",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::HybridPatternForbiddenOptions, detail::given_of(d, detail::kSplitOptions),
                            "beside a hybrid pattern", kHybrid, "pattern");
     }},
    {"GTP225",
     "split-vpp-size-positive",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "the virtual stages must be positive",
     "Upstream divides by the number.",
     "use 1 or more, or drop the option",
     "megatron/training/arguments.py:974",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::VppSizePositive, detail::given_of(d, detail::kVppOptions),
                            "{} is below 1");
     }},
    {"GTP226",
     "split-size-limit",
     Severity::Error,
     Phase::Startup,
     {kPp},
     "the pipeline split is beyond every real one",
     "No more than a million stages, and no size beyond 10^15, are split.",
     "use smaller sizes",
     "megatron/training/arguments.py:997",
     [](const Derivation& d) { return detail::split(d, SplitProblem::SizeLimit, kPp, "too large to split"); }},
    {"GTP227",
     "uneven-split-drops-layers",
     Severity::Error,
     Phase::Silent,
     {kPp},
     "first and last stage counts lose layers on a single stage",
     "With one pipeline stage the count of the last stage wins and the model is built with that many layers; nothing "
     "says so.",
     "drop decoder_first/last_pipeline_num_layers",
     "megatron/core/transformer/transformer_block.py:76",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::UnevenDropsLayers, detail::given_of(d, detail::kUnevenOptions),
                            "{} of {} layers are built", kPp, "pipeline size");
     }},
    {"GTP228",
     "uneven-split-negative-middle",
     Severity::Error,
     Phase::Silent,
     {kPp},
     "the first and last stage hold more layers than the model has",
     "The middle stages get a negative number of layers and are built empty; nothing says so.",
     "lower the layers of the first or last stage",
     "megatron/core/transformer/transformer_block.py:76",
     [](const Derivation& d) {
       return detail::split(d, SplitProblem::UnevenNegativeMiddle, detail::given_of(d, detail::kUnevenOptions),
                            "{} layers are left for the middle stages", kNumLayers, "layers");
     }},
    {"GTP231",
     "layout-valid-characters",
     Severity::Error,
     Phase::Startup,
     {kPp, kLayout},
     "a pipeline layout is made of E, t, m, L, |, *, parentheses and commas",
     "E is the embedding, t a decoder layer, m an MTP layer, L the loss; | ends a stage, x*n and (...)*n repeat.",
     "correct the layout",
     "megatron/core/transformer/pipeline_parallel_layer_layout.py:68",
     [](const Derivation& d) { return detail::layout(d, LayoutProblem::ValidCharacters, "not a layer"); }},
    {"GTP232",
     "layout-stages-divisible-by-pp",
     Severity::Error,
     Phase::Startup,
     {kPp, kLayout},
     "the stages of the layout must be a multiple of the pipeline size",
     "Stages are dealt round-robin over the pipeline ranks.",
     "change the stages of the layout, or pipeline_model_parallel_size",
     "megatron/training/arguments.py:945",
     [](const Derivation& d) {
       return detail::layout(d, LayoutProblem::StagesDivisibleByPp, "{} stages are not a multiple of {}");
     }},
    {"GTP233",
     "layout-embedding-first-loss-last",
     Severity::Error,
     Phase::Startup,
     {kPp, kLayout},
     "a layout starts with one embedding and ends with one loss",
     "The embedding feeds the first layer and the loss takes the last.",
     "begin with E, end with L, and use each once",
     "megatron/core/transformer/pipeline_parallel_layer_layout.py:95",
     [](const Derivation& d) {
       return detail::layout(d, LayoutProblem::EmbeddingFirstLossLast, "embedding or loss out of place");
     }},
    {"GTP234",
     "layout-decoder-count",
     Severity::Error,
     Phase::Startup,
     {kPp, kLayout},
     "the layout must hold as many decoder layers as the model",
     "Every layer of num_layers has its place in the layout.",
     "change the layout or num_layers",
     "megatron/core/transformer/pipeline_parallel_layer_layout.py:107",
     [](const Derivation& d) {
       return detail::layout(d, LayoutProblem::DecoderCount, "{} decoder layers, the model has {}");
     }},
    {"GTP235",
     "layout-mtp-count",
     Severity::Error,
     Phase::Startup,
     {kPp, kLayout},
     "the layout must hold as many MTP layers as the model",
     "Every layer of mtp_num_layers has its place in the layout.",
     "change the layout or mtp_num_layers",
     "megatron/core/transformer/pipeline_parallel_layer_layout.py:112",
     [](const Derivation& d) { return detail::layout(d, LayoutProblem::MtpCount, "{} MTP layers, the model has {}"); }},
    {"GTP236",
     "layout-mtp-after-decoder",
     Severity::Error,
     Phase::Startup,
     {kPp, kLayout},
     "MTP layers come after every decoder layer",
     "They predict from what the last decoder layer gives.",
     "move the MTP layers behind the decoder layers",
     "megatron/core/transformer/pipeline_parallel_layer_layout.py:117",
     [](const Derivation& d) {
       return detail::layout(d, LayoutProblem::MtpAfterDecoder, "a decoder layer after an MTP layer");
     }},
    {"GTP237",
     "layout-mtp-last-vpp-chunk",
     Severity::Error,
     Phase::Startup,
     {kPp, kLayout},
     "MTP layers belong into the last chunk of their rank",
     "The schedule runs them after all other chunks.",
     "move the MTP layers into the last virtual stage",
     "megatron/core/transformer/pipeline_parallel_layer_layout.py:123",
     [](const Derivation& d) { return detail::layout(d, LayoutProblem::MtpLastVppChunk, "MTP in an earlier chunk"); }},
    {"GTP238",
     "layout-mtp-single-stage",
     Severity::Error,
     Phase::Startup,
     {kPp, kLayout},
     "all MTP layers belong into one stage",
     "They share the hidden state of one place.",
     "put the MTP layers together",
     "megatron/core/transformer/pipeline_parallel_layer_layout.py:129",
     [](const Derivation& d) { return detail::layout(d, LayoutProblem::MtpSingleStage, "MTP in several stages"); }},
    {"GTP240",
     "layout-expansion-limit",
     Severity::Error,
     Phase::Startup,
     {kPp, kLayout},
     "the layout expands to more than a million characters",
     "Repeats are written out; no model has that many layers.",
     "use smaller repeats",
     "megatron/core/transformer/pipeline_parallel_layer_layout.py:68",
     [](const Derivation& d) { return detail::layout(d, LayoutProblem::ExpansionLimit, "too long when written out"); }},
    {"GTP241",
     "hybrid-pattern-symbols",
     Severity::Error,
     Phase::Startup,
     {kPp, kHybrid},
     "a hybrid pattern is made of M, G, *, D, +, -, E, | and /",
     "M is Mamba, G gated delta net, * attention, D sparse attention, + MLA, - a dense MLP, E a mixture of experts; | "
     "cuts the pipeline, / begins an MTP pattern. Plain attention does not mix with MLA or sparse attention, and all "
     "MTP patterns are equal.",
     "correct the pattern",
     "megatron/core/models/hybrid/hybrid_layer_allocation.py:291",
     [](const Derivation& d) {
       Findings all;
       for (const auto& [problem, text] :
            {std::pair{HybridProblem::UnknownSymbol, "not a layer"},
             {HybridProblem::MixedAttention, "plain attention beside MLA or sparse attention"},
             {HybridProblem::MtpPatternsDiffer, "differs from the first MTP pattern"},
             {HybridProblem::LengthLimit, "longer than a million characters"}})
         for (Finding& finding : detail::hybrid(d, problem, text).list) all.list.push_back(std::move(finding));
       return all;
     }},
    {"GTP242",
     "hybrid-segments-divisible-by-pp",
     Severity::Error,
     Phase::Startup,
     {kPp, kHybrid},
     "the segments of a hybrid pattern must be a multiple of the pipeline size",
     "Segments between pipes are dealt over the pipeline ranks.",
     "change the pipes of the pattern, or pipeline_model_parallel_size",
     "megatron/training/arguments.py:849",
     [](const Derivation& d) {
       return detail::hybrid(d, HybridProblem::SegmentsDivisibleByPp, "{} segments are not a multiple of {}");
     }},
    {"GTP243",
     "hybrid-no-pipe-even-split",
     Severity::Error,
     Phase::Startup,
     {kPp, kHybrid},
     "a pattern without pipes must divide evenly over the pipeline stages",
     "Without pipes the layers are spread evenly.",
     "put pipes into the pattern",
     "megatron/core/models/hybrid/hybrid_layer_allocation.py:436",
     [](const Derivation& d) {
       return detail::hybrid(d, HybridProblem::NoPipeEvenSplit, "{} layers are not a multiple of {}");
     }},
    {"GTP251",
     "mb-group-range",
     Severity::Error,
     Phase::FirstStep,
     {kVpp, kPp, kBurst, kNumMicrobatches},
     "with virtual stages, a burst takes at least PP and at most all microbatches",
     "The interleaved schedule runs microbatches in bursts of microbatch_group_size_per_vp_stage, the pipeline size "
     "when "
     "unset.",
     "raise the global batch size, or lower the pipeline size or the group size",
     "megatron/core/pipeline_parallel/schedules.py:1160",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.has(kVpp) || !detail::burst_out_of_range(f)) return {};
       return at(f.has(kBurst) ? kBurst : kPp, fmt::format("bursts of {} with {} microbatches and {} stages",
                                                           detail::burst(f), f[kNumMicrobatches], f[kPp]))
           .also(kGbs, "global batch size");
     }},
    {"GTP252",
     "mb-group-remainder",
     Severity::Error,
     Phase::FirstStep,
     {kVpp, kPp, kBurst, kNumMicrobatches},
     "with virtual stages, the last burst must hold at least PP microbatches",
     "A short last burst would make stages of the interleaved schedule wait for each other.",
     "use a number of microbatches that is a multiple of the group size",
     "megatron/core/pipeline_parallel/schedules.py:1173",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.has(kVpp) || detail::burst_out_of_range(f)) return {};
       const std::int64_t rest = f[kNumMicrobatches] % detail::burst(f);
       if (rest == 0 || rest >= f[kPp]) return {};
       return at(kGbs, fmt::format("{} microbatches leave a burst of {}", f[kNumMicrobatches], rest))
           .also(kPp, "pipeline size")
           .note(fmt::format("bursts take {} microbatches", detail::burst(f)));
     }},
};

}  // namespace gtp::rules
