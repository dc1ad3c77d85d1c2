// How many layers each pipeline rank holds in each of its virtual stages, from the options that decide it, and every
// reason why upstream would refuse them. It does not know which kind a layer is (hybrid_pattern.hpp, layer_freq.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <gtp/hybrid_pattern.hpp>
#include <gtp/layer_split_problem.hpp>
#include <gtp/pipeline_layout.hpp>

namespace gtp {

/// Megatron's options. `virtual_pipeline_model_parallel_size` has no flag upstream; Bridge and direct users set it.
/// `num_layers` may be unknown: what needs it is then not checked and there is no split.
struct LayerSplitOptions {
  std::optional<std::int64_t> num_layers{};
  std::int64_t pipeline_model_parallel_size = 1;
  std::optional<std::int64_t> virtual_pipeline_model_parallel_size{};
  std::optional<std::int64_t> num_layers_per_virtual_pipeline_stage{};
  std::optional<std::int64_t> num_virtual_stages_per_pipeline_rank{};
  std::optional<std::int64_t> decoder_first_pipeline_num_layers{};
  std::optional<std::int64_t> decoder_last_pipeline_num_layers{};
  bool account_for_embedding_in_pipeline_split = false;
  bool account_for_loss_in_pipeline_split = false;
  bool overlap_p2p_comm = true;
  std::optional<std::int64_t> mtp_num_layers{};
  std::optional<std::string_view> pipeline_model_parallel_layout{};
  std::optional<std::string_view> hybrid_layer_pattern{};
};

/// A valid split in constant space. Stages are numbered chunk by chunk: stage i is chunk i / PP of rank i % PP, and
/// layers follow the stages.
struct RegularSplit {
  std::int64_t pipeline_model_parallel_size = 1;
  std::int64_t chunks = 1;      ///< Virtual stages of every rank.
  std::int64_t first = 0;       ///< Layers of each chunk of the first rank, pseudo-layers included,
  std::int64_t middle = 0;      ///< of every other rank,
  std::int64_t last = 0;        ///< and of the last rank; it wins over `first` if there is but one.
  bool embedding_slot = false;  ///< The first stage gives one layer up for the embedding,
  bool loss_slot = false;       ///< the last stage for the loss.

  [[nodiscard]] constexpr std::int64_t layers(std::int64_t pp_rank, std::int64_t vpp_stage) const {
    const bool is_last = pp_rank == pipeline_model_parallel_size - 1;
    const bool gives_embedding = embedding_slot && pp_rank == 0 && vpp_stage == 0;
    const bool gives_loss = loss_slot && is_last && vpp_stage == chunks - 1;
    const std::int64_t slots = is_last ? last : pp_rank == 0 ? first : middle;
    return slots - (gives_embedding ? 1 : 0) - (gives_loss ? 1 : 0);
  }

  [[nodiscard]] constexpr std::int64_t layers_before(std::int64_t pp_rank, std::int64_t vpp_stage) const {
    const std::int64_t pp = pipeline_model_parallel_size;
    const std::int64_t a_chunk = pp == 1 ? last : first + middle * (pp - 2) + last;
    const std::int64_t in_chunk = pp_rank == 0 ? 0 : first + middle * (pp_rank - 1);
    const bool past_embedding = embedding_slot && (pp_rank > 0 || vpp_stage > 0);
    return a_chunk * vpp_stage + in_chunk - (past_embedding ? 1 : 0);
  }
};

/// Decoder layers of every stage. Ask only for ranks below PP and stages below `chunks()`.
class LayerSplit {
 public:
  explicit LayerSplit(const RegularSplit& regular) : regular_(regular) {}
  /// `stage_layers` of all stages, chunk by chunk.
  LayerSplit(std::int64_t pipeline_model_parallel_size, const std::vector<std::int64_t>& stage_layers)
      : regular_{.pipeline_model_parallel_size = pipeline_model_parallel_size,
                 .chunks = static_cast<std::int64_t>(stage_layers.size()) / pipeline_model_parallel_size} {
    before_.reserve(stage_layers.size() + 1);
    before_.push_back(0);
    for (const std::int64_t layers : stage_layers) before_.push_back(before_.back() + layers);
  }

  [[nodiscard]] std::int64_t pipeline_model_parallel_size() const { return regular_.pipeline_model_parallel_size; }
  [[nodiscard]] std::int64_t chunks() const { return regular_.chunks; }

  /// get_num_layers_to_build, transformer_block.py:76.
  [[nodiscard]] std::int64_t layers(std::int64_t pp_rank, std::int64_t vpp_stage) const {
    if (before_.empty()) return regular_.layers(pp_rank, vpp_stage);
    const std::size_t i = stage(pp_rank, vpp_stage);
    return before_[i + 1] - before_[i];
  }

  /// The index of the stage's first layer in the model.
  [[nodiscard]] std::int64_t layers_before(std::int64_t pp_rank, std::int64_t vpp_stage) const {
    return before_.empty() ? regular_.layers_before(pp_rank, vpp_stage) : before_[stage(pp_rank, vpp_stage)];
  }

  /// [pp_rank][vpp_stage], at most kMaxPipelineStages numbers.
  [[nodiscard]] std::vector<std::vector<std::int64_t>> table() const {
    std::vector<std::vector<std::int64_t>> rows(static_cast<std::size_t>(pipeline_model_parallel_size()));
    for (std::int64_t rank = 0; rank < pipeline_model_parallel_size(); ++rank)
      for (std::int64_t chunk = 0; chunk < chunks(); ++chunk)
        rows[static_cast<std::size_t>(rank)].push_back(layers(rank, chunk));
    return rows;
  }

 private:
  [[nodiscard]] std::size_t stage(std::int64_t pp_rank, std::int64_t vpp_stage) const {
    return static_cast<std::size_t>(vpp_stage * pipeline_model_parallel_size() + pp_rank);
  }

  RegularSplit regular_;
  std::vector<std::int64_t> before_;  ///< Prefix sums of an irregular split, else empty.
};

struct LayerSplitResult {
  SplitFindings findings;
  std::vector<LayoutFinding> layout_findings;
  std::vector<HybridFinding> hybrid_findings;
  std::optional<PipelineLayout> layout;    ///< Read without problems, though it may not fit the other options.
  std::optional<HybridPattern> hybrid;     ///< Likewise.
  std::optional<std::int64_t> num_layers;  ///< As upstream takes it: a pattern overrides.
  std::optional<std::int64_t> virtual_pipeline_model_parallel_size;  ///< Derived; absent for 1 and when unknown.
  std::optional<LayerSplit> split;                                   ///< Absent when refused, or `num_layers` unknown.

  [[nodiscard]] bool refused() const {
    return findings.any_refused() || !layout_findings.empty() || !hybrid_findings.empty();
  }
};

namespace detail {

constexpr bool uneven(const LayerSplitOptions& options) {
  return options.decoder_first_pipeline_num_layers || options.decoder_last_pipeline_num_layers;
}

constexpr bool accounts(const LayerSplitOptions& options) {
  return options.account_for_embedding_in_pipeline_split || options.account_for_loss_in_pipeline_split;
}

/// Layers and the slots that embedding and loss take.
constexpr std::int64_t layer_slots(const LayerSplitOptions& options, std::int64_t num_layers) {
  return num_layers + (options.account_for_embedding_in_pipeline_split ? 1 : 0) +
         (options.account_for_loss_in_pipeline_split ? 1 : 0);
}

/// False if arithmetic on the sizes would make no sense or could overflow.
constexpr bool check_sizes(const LayerSplitOptions& options, SplitFindings& findings) {
  const std::array<std::optional<std::int64_t>, 7> sizes{options.num_layers,
                                                         options.pipeline_model_parallel_size,
                                                         options.virtual_pipeline_model_parallel_size,
                                                         options.num_layers_per_virtual_pipeline_stage,
                                                         options.num_virtual_stages_per_pipeline_rank,
                                                         options.decoder_first_pipeline_num_layers,
                                                         options.decoder_last_pipeline_num_layers};
  for (const auto& size : sizes)
    if (size && (*size > kMaxSplitSize || *size < -kMaxSplitSize))
      findings.add(SplitProblem::SizeLimit, *size, kMaxSplitSize);
  if (options.pipeline_model_parallel_size <= 0)
    findings.add(SplitProblem::PipelineSizePositive, options.pipeline_model_parallel_size, 1);
  return findings.empty();
}

/// A model without layers is reported, and its depth is then unknown.
constexpr LayerSplitOptions without_empty_model(LayerSplitOptions options, SplitFindings& findings) {
  if (!options.num_layers || *options.num_layers > 0) return options;
  const bool below_slots = *options.num_layers < 0 && accounts(options);
  findings.add(below_slots ? SplitProblem::AccountForEmptyChunk : SplitProblem::NumLayersPositive, *options.num_layers,
               below_slots ? 0 : 1);
  options.num_layers.reset();
  return options;
}

/// VPP as derived so far. Unknown when what decides it is wrong, so that nothing is said of consequences.
struct DerivedVpp {
  bool known = true;
  std::optional<std::int64_t> size{};
};

constexpr DerivedVpp vpp_unless_one(std::int64_t size) {
  if (size == 1) return {};
  return {true, size};
}

/// arguments.py:953-974.
constexpr DerivedVpp vpp_from_layers_per_stage(const LayerSplitOptions& options, SplitFindings& findings) {
  constexpr DerivedVpp kUnknown{false, std::nullopt};
  if (uneven(options)) {
    findings.add(SplitProblem::LayersPerVstageNoUneven);
    return kUnknown;
  }
  if (!options.num_layers) return kUnknown;
  const std::int64_t pp = options.pipeline_model_parallel_size;
  const std::int64_t slots = layer_slots(options, *options.num_layers);
  const std::int64_t per_chunk = *options.num_layers_per_virtual_pipeline_stage;
  if (slots % pp != 0) {
    findings.add(SplitProblem::LayersPerVstagePpDivisible, slots, pp);
    return kUnknown;
  }
  if (slots / pp % per_chunk != 0) {
    findings.add(SplitProblem::LayersPerVstageDividesStage, slots / pp, per_chunk);
    return kUnknown;
  }
  return vpp_unless_one(slots / pp / per_chunk);
}

/// VPP of a model without layout and pattern. Given directly it counts like num_virtual_stages_per_pipeline_rank.
constexpr DerivedVpp vpp_from_numbers(const LayerSplitOptions& options, SplitFindings& findings) {
  const std::array<std::optional<std::int64_t>, 3> by_priority{options.num_virtual_stages_per_pipeline_rank,
                                                               options.num_layers_per_virtual_pipeline_stage,
                                                               options.virtual_pipeline_model_parallel_size};
  for (const auto& value : by_priority) {
    if (!value) continue;
    if (*value <= 0) {
      findings.add(SplitProblem::VppSizePositive, *value, 1);
      return {false, std::nullopt};
    }
    return &value == &by_priority[1] ? vpp_from_layers_per_stage(options, findings) : vpp_unless_one(*value);
  }
  return {};
}

/// arguments.py:999-1009.
constexpr void check_interleaving(const LayerSplitOptions& options, const DerivedVpp& vpp, SplitFindings& findings) {
  if (!vpp.known || !vpp.size) return;
  const std::int64_t pp = options.pipeline_model_parallel_size;
  if (options.overlap_p2p_comm && pp <= 1) findings.add(SplitProblem::VppOverlapNeedsPpGt1, pp, 2);
  if (!options.overlap_p2p_comm && pp <= 2) findings.add(SplitProblem::VppNoOverlapNeedsPpGt2, pp, 3);
}

/// One of the stages with a size of its own; what to report of it is passed in.
constexpr bool check_end_stage(std::optional<std::int64_t> layers, const DerivedVpp& vpp, SplitProblem not_positive,
                               SplitProblem not_divisible, SplitFindings& findings) {
  if (!layers) return true;
  if (*layers <= 0) {
    findings.add(not_positive, *layers, 1);
    return false;
  }
  if (vpp.known && vpp.size && *layers % *vpp.size != 0) findings.add(not_divisible, *layers, *vpp.size);
  return true;
}

/// What is left between a first and a last stage of their own size.
struct MiddleStages {
  std::int64_t layers;
  std::int64_t stages;
};

constexpr MiddleStages middle_stages(const LayerSplitOptions& options, std::int64_t num_layers) {
  const auto& first = options.decoder_first_pipeline_num_layers;
  const auto& last = options.decoder_last_pipeline_num_layers;
  return {num_layers - first.value_or(0) - last.value_or(0),
          options.pipeline_model_parallel_size - (first ? 1 : 0) - (last ? 1 : 0)};
}

/// transformer_config.py:2297-2369. Silent: with two sizes on one rank, or more layers in them than there are,
/// upstream's own test passes.
constexpr void check_uneven(const LayerSplitOptions& options, const DerivedVpp& vpp, SplitFindings& findings) {
  const bool first_fits =
      check_end_stage(options.decoder_first_pipeline_num_layers, vpp, SplitProblem::FirstStagePositive,
                      SplitProblem::FirstStageVppDivisible, findings);
  const bool last_fits = check_end_stage(options.decoder_last_pipeline_num_layers, vpp, SplitProblem::LastStagePositive,
                                         SplitProblem::LastStageVppDivisible, findings);
  if (!first_fits || !last_fits || !options.num_layers) return;
  const MiddleStages middle = middle_stages(options, *options.num_layers);
  if ((middle.layers != 0) != (middle.stages != 0)) {
    findings.add(SplitProblem::MiddleStageMismatch, middle.layers, middle.stages);
  } else if (middle.stages < 0) {
    const std::int64_t built = *options.decoder_last_pipeline_num_layers;
    const bool whole = options.hybrid_layer_pattern || built == *options.num_layers;
    if (!whole) findings.add(SplitProblem::UnevenDropsLayers, built, *options.num_layers);
  } else if (middle.stages > 0 && middle.layers % middle.stages != 0) {
    findings.add(SplitProblem::MiddleStageDivisible, middle.layers, middle.stages);
  } else if (middle.stages > 0) {
    if (vpp.known && vpp.size && middle.layers / middle.stages % *vpp.size != 0)
      findings.add(SplitProblem::MiddleStageVppDivisible, middle.layers / middle.stages, *vpp.size);
    else if (middle.layers < 0)
      findings.add(SplitProblem::UnevenNegativeMiddle, middle.layers, 0);
  }
}

/// The even split, pseudo-layers included: arguments.py:985, transformer_config.py:2371, transformer_block.py:156. The
/// same remainder has another rule depending on who finds it first.
constexpr void check_even(const LayerSplitOptions& options, const DerivedVpp& vpp, SplitFindings& findings) {
  if (!options.num_layers || !vpp.known) return;
  const std::int64_t pp = options.pipeline_model_parallel_size;
  const std::int64_t slots = layer_slots(options, *options.num_layers);
  const bool vpp_option = options.num_layers_per_virtual_pipeline_stage ||
                          options.num_virtual_stages_per_pipeline_rank || options.virtual_pipeline_model_parallel_size;
  if (slots % pp != 0) {
    findings.add(!vpp_option         ? SplitProblem::DefaultLayersDivisibleByPp
                 : accounts(options) ? SplitProblem::AccountForDivisibleByPp
                                     : SplitProblem::BuildLayersDivisible,
                 slots, pp);
  } else if (vpp.size && pp > 1 && slots / pp % *vpp.size != 0) {
    findings.add(accounts(options) ? SplitProblem::AccountForVppDivisible : SplitProblem::BuildLayersDivisible,
                 slots / pp, *vpp.size);
  }
}

/// Asks for options without a refused finding.
constexpr RegularSplit regular_split(const LayerSplitOptions& options, std::int64_t num_layers, std::int64_t chunks) {
  const std::int64_t pp = options.pipeline_model_parallel_size;
  RegularSplit split{.pipeline_model_parallel_size = pp, .chunks = chunks};
  if (uneven(options)) {
    const MiddleStages middle = middle_stages(options, num_layers);
    split.middle = middle.stages > 0 && middle.layers > 0 ? middle.layers / middle.stages / chunks : 0;
    const auto chunk_of = [&](std::optional<std::int64_t> layers) { return layers ? *layers / chunks : split.middle; };
    split.first = chunk_of(options.decoder_first_pipeline_num_layers);
    split.last = chunk_of(options.decoder_last_pipeline_num_layers);
    if (pp == 1 && !options.decoder_last_pipeline_num_layers) split.last = split.first;
    return split;
  }
  split.first = split.middle = split.last = layer_slots(options, num_layers) / pp / chunks;
  split.embedding_slot = options.account_for_embedding_in_pipeline_split;
  split.loss_slot = options.account_for_loss_in_pipeline_split;
  return split;
}

/// More than one option that gives VPP (arguments.py:928); with a pattern they are all forbidden anyway.
constexpr bool vpp_options_exclude(const LayerSplitOptions& options) {
  return (options.num_layers_per_virtual_pipeline_stage ? 1 : 0) +
             (options.num_virtual_stages_per_pipeline_rank ? 1 : 0) + (options.pipeline_model_parallel_layout ? 1 : 0) >
         1;
}

inline DerivedVpp vpp_from_layout(const PipelineLayout& layout, const LayerSplitOptions& options,
                                  SplitFindings& findings) {
  const auto stages = static_cast<std::int64_t>(layout.num_stages());
  if (stages % options.pipeline_model_parallel_size != 0) return {false, std::nullopt};
  const std::int64_t size = stages / options.pipeline_model_parallel_size;
  const auto& direct = options.virtual_pipeline_model_parallel_size;
  if (direct && *direct != size) findings.add(SplitProblem::LayoutVppConflict, *direct, size);
  return vpp_unless_one(size);
}

inline void split_by_layout(const LayerSplitOptions& options, LayerSplitResult& result) {
  if (uneven(options) || accounts(options)) result.findings.add(SplitProblem::LayoutVsOtherSplitOptions);
  LayoutParse parse = parse_pipeline_layout(*options.pipeline_model_parallel_layout);
  result.layout_findings = std::move(parse.findings);
  if (!parse.layout) return;
  const std::int64_t pp = options.pipeline_model_parallel_size;
  result.layout = std::move(parse.layout);
  result.layout_findings = check_pipeline_layout(*result.layout, pp, options.num_layers, options.mtp_num_layers);
  if (result.layout_findings.empty()) without_empty_model(options, result.findings);
  DerivedVpp vpp = vpp_from_layout(*result.layout, options, result.findings);
  if (result.findings.has(SplitProblem::VppOptionExclusivity)) vpp = {false, std::nullopt};
  check_interleaving(options, vpp, result.findings);
  result.virtual_pipeline_model_parallel_size = vpp.size;
  if (result.refused() || !options.num_layers) return;
  std::vector<std::int64_t> decoders;
  for (std::size_t i = 0; i < result.layout->num_stages(); ++i)
    decoders.push_back(count_layers(result.layout->stage(i), LayerKind::Decoder));
  result.split.emplace(pp, decoders);
}

inline void split_by_numbers(const LayerSplitOptions& options, const DerivedVpp& vpp, LayerSplitResult& result) {
  check_interleaving(options, vpp, result.findings);
  if (uneven(options) && !accounts(options)) check_uneven(options, vpp, result.findings);
  if (!uneven(options) && !options.hybrid_layer_pattern) check_even(options, vpp, result.findings);
  result.virtual_pipeline_model_parallel_size = vpp.size;
  const std::int64_t pp = options.pipeline_model_parallel_size;
  const std::int64_t chunks = vpp.size.value_or(1);
  if (!result.refused() && pp > kMaxPipelineStages / chunks)
    result.findings.add(SplitProblem::SizeLimit, pp, kMaxPipelineStages / chunks);
  if (!result.refused() && options.num_layers)
    result.split.emplace(regular_split(options, *options.num_layers, chunks));
}

/// The options that count beside a pattern: those it forbids are reported and then left out (arguments.py:803-838).
inline LayerSplitOptions options_beside_pattern(const LayerSplitOptions& options, const HybridPattern& pattern,
                                                SplitFindings& findings) {
  if (pattern.has_pipes() && uneven(options)) findings.add(SplitProblem::HybridPipesVsFirstLast);
  if (options.num_layers_per_virtual_pipeline_stage || options.num_virtual_stages_per_pipeline_rank ||
      options.pipeline_model_parallel_layout || accounts(options))
    findings.add(SplitProblem::HybridPatternForbiddenOptions);
  LayerSplitOptions beside{.num_layers = pattern.num_layers(),
                           .pipeline_model_parallel_size = options.pipeline_model_parallel_size,
                           .overlap_p2p_comm = options.overlap_p2p_comm,
                           .hybrid_layer_pattern = options.hybrid_layer_pattern};
  if (!pattern.has_pipes()) {
    beside.decoder_first_pipeline_num_layers = options.decoder_first_pipeline_num_layers;
    beside.decoder_last_pipeline_num_layers = options.decoder_last_pipeline_num_layers;
  }
  return beside;
}

/// VPP was given directly beside a pattern: it must be what the pattern says (hybrid_layer_allocation.py:384 and :474).
inline void check_direct_vpp(const LayerSplitOptions& options, const DerivedVpp& vpp, LayerSplitResult& result) {
  const std::int64_t direct = options.virtual_pipeline_model_parallel_size.value_or(1);
  if (direct == vpp.size.value_or(1) || !options.virtual_pipeline_model_parallel_size) return;
  if (!result.hybrid->has_pipes() && options.pipeline_model_parallel_size > 1)
    result.hybrid_findings.push_back({HybridProblem::NoPipeNoVpp, {}, direct, 1});
  else
    result.findings.add(SplitProblem::HybridVppConflict, direct, vpp.size.value_or(1));
}

inline void split_by_pattern(const LayerSplitOptions& options, LayerSplitResult& result) {
  HybridParse parse = parse_hybrid_pattern(*options.hybrid_layer_pattern);
  result.num_layers.reset();
  result.hybrid_findings = std::move(parse.findings);
  if (!parse.pattern) return;
  result.hybrid = std::move(parse.pattern);
  result.num_layers = result.hybrid->num_layers();
  const LayerSplitOptions beside =
      without_empty_model(options_beside_pattern(options, *result.hybrid, result.findings), result.findings);
  const std::int64_t pp = options.pipeline_model_parallel_size;
  result.hybrid_findings = check_hybrid_segments(*result.hybrid, pp, uneven(beside));
  const bool dealt = result.hybrid_findings.empty();
  DerivedVpp vpp{dealt, hybrid_virtual_pipeline_size(result.hybrid->num_segments(), pp)};
  if (!dealt) vpp.size.reset();
  if (dealt) check_direct_vpp(options, vpp, result);
  split_by_numbers(beside, vpp, result);
  if (result.split && result.hybrid->has_pipes()) result.split.emplace(pp, result.hybrid->segment_layers);
  // Upstream deals a pattern without pipes to one rank whole, whatever the first and last stage were to have.
  if (result.split && pp == 1 && !result.hybrid->has_pipes()) result.split.emplace(1, result.hybrid->segment_layers);
}

}  // namespace detail

/// Derives VPP and the split as validate_args (arguments.py:790-1015), TransformerConfig (transformer_config.py:2229)
/// and get_num_layers_to_build do, and reports every independent problem in the order of upstream's tests. One cause is
/// reported once: what depends on a wrong option is left alone.
[[nodiscard]] inline LayerSplitResult split_layers(const LayerSplitOptions& options) {
  LayerSplitResult result;
  result.num_layers = options.num_layers;
  if (!detail::check_sizes(options, result.findings)) return result;
  if (options.hybrid_layer_pattern) {
    detail::split_by_pattern(options, result);
    return result;
  }
  const bool exclude = detail::vpp_options_exclude(options);
  if (exclude) result.findings.add(SplitProblem::VppOptionExclusivity);
  if (detail::uneven(options) && detail::accounts(options)) result.findings.add(SplitProblem::UnevenVsAccountFor);
  if (options.pipeline_model_parallel_layout) {
    detail::split_by_layout(options, result);
    return result;
  }
  const LayerSplitOptions sound = detail::without_empty_model(options, result.findings);
  const detail::DerivedVpp vpp =
      exclude ? detail::DerivedVpp{false, std::nullopt} : detail::vpp_from_numbers(sound, result.findings);
  detail::split_by_numbers(sound, vpp, result);
  return result;
}

}  // namespace gtp
