// What can be wrong with the options that decide the layer split: problems, their upstream rules, and the list of those
// found. layer_split.hpp finds them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <gtp/diagnostic.hpp>

namespace gtp {

/// No size may pass this; sums of three stay far from overflow.
inline constexpr std::int64_t kMaxSplitSize = 1'000'000'000'000'000;
/// No split has more stages than this (PP x VPP).
inline constexpr std::int64_t kMaxPipelineStages = 1'000'000;

enum class SplitProblem : std::uint8_t {
  HybridPipesVsFirstLast,
  HybridPatternForbiddenOptions,
  VppOptionExclusivity,
  LayersPerVstageNoUneven,
  LayersPerVstagePpDivisible,
  LayersPerVstageDividesStage,
  DefaultLayersDivisibleByPp,
  VppOverlapNeedsPpGt1,
  VppNoOverlapNeedsPpGt2,
  UnevenVsAccountFor,
  LayoutVsOtherSplitOptions,
  LayoutVppConflict,
  FirstStagePositive,
  FirstStageVppDivisible,
  LastStagePositive,
  LastStageVppDivisible,
  MiddleStageMismatch,
  MiddleStageDivisible,
  MiddleStageVppDivisible,
  AccountForDivisibleByPp,
  AccountForVppDivisible,
  AccountForEmptyChunk,
  BuildLayersDivisible,
  HybridVppConflict,     ///< A directly given VPP is not segments / PP; upstream runs out of segments or drops some.
  PipelineSizePositive,  ///< Upstream divides by it.
  VppSizePositive,       ///< A VPP option that is not positive; upstream divides by it.
  NumLayersPositive,     ///< No layers; upstream divides by them for the initial weights.
  SizeLimit,             ///< A size beyond kMaxSplitSize, or more than kMaxPipelineStages stages.
  UnevenDropsLayers,     ///< First and last on a single rank: upstream builds only the last stage's layers.
  UnevenNegativeMiddle,  ///< First and last exceed the model: upstream builds nothing in between.
};

struct SplitRule {
  SplitProblem problem;
  std::string_view id;
  Phase phase = Phase::Startup;
};

/// The upstream rule of every problem, in the order in which upstream looks; the last seven ids are our own.
inline constexpr std::array<SplitRule, 30> kSplitRules{{
    {SplitProblem::HybridPipesVsFirstLast, "hybrid-pipes-vs-first-last"},
    {SplitProblem::HybridPatternForbiddenOptions, "hybrid-pattern-forbidden-options"},
    {SplitProblem::VppOptionExclusivity, "vpp-option-exclusivity"},
    {SplitProblem::LayersPerVstageNoUneven, "layers-per-vstage-no-uneven"},
    {SplitProblem::LayersPerVstagePpDivisible, "layers-per-vstage-pp-divisible"},
    {SplitProblem::LayersPerVstageDividesStage, "layers-per-vstage-divides-stage"},
    {SplitProblem::DefaultLayersDivisibleByPp, "default-layers-divisible-by-pp"},
    {SplitProblem::VppOverlapNeedsPpGt1, "vpp-overlap-needs-pp-gt-1"},
    {SplitProblem::VppNoOverlapNeedsPpGt2, "vpp-no-overlap-needs-pp-gt-2"},
    {SplitProblem::UnevenVsAccountFor, "uneven-vs-account-for"},
    {SplitProblem::LayoutVsOtherSplitOptions, "layout-vs-other-split-options"},
    {SplitProblem::LayoutVppConflict, "layout-vpp-conflict"},
    {SplitProblem::FirstStagePositive, "first-stage-positive"},
    {SplitProblem::FirstStageVppDivisible, "first-stage-vpp-divisible"},
    {SplitProblem::LastStagePositive, "last-stage-positive"},
    {SplitProblem::LastStageVppDivisible, "last-stage-vpp-divisible"},
    {SplitProblem::MiddleStageMismatch, "middle-stage-mismatch"},
    {SplitProblem::MiddleStageDivisible, "middle-stage-divisible"},
    {SplitProblem::MiddleStageVppDivisible, "middle-stage-vpp-divisible"},
    {SplitProblem::AccountForDivisibleByPp, "account-for-divisible-by-pp"},
    {SplitProblem::AccountForVppDivisible, "account-for-vpp-divisible"},
    {SplitProblem::AccountForEmptyChunk, "account-for-empty-chunk"},
    {SplitProblem::BuildLayersDivisible, "build-layers-divisible"},
    {SplitProblem::HybridVppConflict, "hybrid-vpp-conflict"},
    {SplitProblem::PipelineSizePositive, "split-pipeline-size-positive"},
    {SplitProblem::VppSizePositive, "split-vpp-size-positive"},
    {SplitProblem::NumLayersPositive, "split-num-layers-positive"},
    {SplitProblem::SizeLimit, "split-size-limit"},
    {SplitProblem::UnevenDropsLayers, "uneven-split-drops-layers", Phase::Silent},
    {SplitProblem::UnevenNegativeMiddle, "uneven-split-negative-middle", Phase::Silent},
}};

[[nodiscard]] constexpr std::string_view rule_id(SplitProblem problem) {
  return kSplitRules[static_cast<std::size_t>(problem)].id;
}

/// Silent: upstream starts, with another model than was asked for.
[[nodiscard]] constexpr Phase phase_of(SplitProblem problem) {
  return kSplitRules[static_cast<std::size_t>(problem)].phase;
}

/// `found` should be a multiple of, equal to or at least `wanted`, as the rule says; both 0 where it is about options
/// that exclude each other.
struct SplitFinding {
  SplitProblem problem{};
  std::int64_t found = 0;
  std::int64_t wanted = 0;
};

/// A fixed list without allocation, in the order of the table: every problem occurs at most once.
class SplitFindings {
 public:
  constexpr void add(SplitProblem problem, std::int64_t found = 0, std::int64_t wanted = 0) {
    if (has(problem)) return;
    std::size_t at = size_++;
    for (; at > 0 && items_[at - 1].problem > problem; --at) items_[at] = items_[at - 1];
    items_[at] = {problem, found, wanted};
  }
  [[nodiscard]] constexpr bool has(SplitProblem problem) const {
    return std::any_of(begin(), end(), [problem](const SplitFinding& finding) { return finding.problem == problem; });
  }
  /// True if upstream refuses to start for any of them.
  [[nodiscard]] constexpr bool any_refused() const {
    return std::any_of(begin(), end(), [](const SplitFinding& f) { return phase_of(f.problem) != Phase::Silent; });
  }
  [[nodiscard]] constexpr const SplitFinding* begin() const { return items_.data(); }
  [[nodiscard]] constexpr const SplitFinding* end() const { return items_.data() + size_; }
  [[nodiscard]] constexpr std::size_t size() const { return size_; }
  [[nodiscard]] constexpr bool empty() const { return size_ == 0; }

 private:
  std::array<SplitFinding, kSplitRules.size()> items_{};
  std::size_t size_ = 0;
};

namespace detail {

constexpr bool split_rules_in_order() {
  for (std::size_t i = 0; i < kSplitRules.size(); ++i)
    if (static_cast<std::size_t>(kSplitRules[i].problem) != i) return false;
  return true;
}
static_assert(split_rules_in_order());

}  // namespace detail

}  // namespace gtp
