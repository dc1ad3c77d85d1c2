// The `hybrid_layer_pattern` mini-language, `M-M-|M-M*-/MM/MM`: text to layer kinds, pipeline segments and MTP depths.
// Which options may stand beside a pattern is decided in layer_split.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gtp {

enum class HybridLayer : std::uint8_t { Mamba, Gdn, Attention, DsAttention, Mla, Mlp, Moe };

/// The symbol of each HybridLayer.
inline constexpr std::string_view kHybridSymbols = "MG*D+-E";

[[nodiscard]] constexpr std::optional<HybridLayer> hybrid_layer(char symbol) {
  const std::size_t index = kHybridSymbols.find(symbol);
  if (index == std::string_view::npos) return std::nullopt;
  return static_cast<HybridLayer>(index);
}

enum class HybridProblem : std::uint8_t {
  UnknownSymbol,
  MixedAttention,     ///< `*` beside `D` or `+`, in the main part or in an MTP part.
  MtpPatternsDiffer,  ///< MTP parts must be equal, character by character.
  SegmentsDivisibleByPp,
  NoPipeEvenSplit,
  NoPipeNoVpp,
  LengthLimit,           ///< More than kMaxHybridPatternLength characters.
  PipelineSizePositive,  ///< Upstream divides by zero.
};

struct HybridRule {
  HybridProblem problem;
  std::string_view id;
};

/// The upstream rule of every problem; the last two ids are our own.
inline constexpr std::array<HybridRule, 8> kHybridRules{{
    {HybridProblem::UnknownSymbol, "hybrid-pattern-symbols"},
    {HybridProblem::MixedAttention, "hybrid-pattern-symbols"},
    {HybridProblem::MtpPatternsDiffer, "hybrid-pattern-symbols"},
    {HybridProblem::SegmentsDivisibleByPp, "hybrid-segments-divisible-by-pp"},
    {HybridProblem::NoPipeEvenSplit, "hybrid-no-pipe-even-split"},
    {HybridProblem::NoPipeNoVpp, "hybrid-no-pipe-no-vpp"},
    {HybridProblem::LengthLimit, "hybrid-length-limit"},
    {HybridProblem::PipelineSizePositive, "hybrid-pipeline-size-positive"},
}};

[[nodiscard]] constexpr std::string_view rule_id(HybridProblem problem) {
  return kHybridRules[static_cast<std::size_t>(problem)].id;
}

/// `offset` is a byte of the pattern; `found` and `wanted` are what does not divide: segments or layers, and the
/// pipeline size.
struct HybridFinding {
  HybridProblem problem;
  std::optional<std::size_t> offset{};
  std::optional<std::int64_t> found{};
  std::optional<std::int64_t> wanted{};
};

inline constexpr std::size_t kMaxHybridPatternLength = 1'000'000;
/// No more than this many unknown symbols are reported of one pattern.
inline constexpr std::size_t kMaxSymbolFindings = 16;

/// Layers of each kind, indexed by HybridLayer.
using HybridCounts = std::array<std::int64_t, kHybridSymbols.size()>;

struct HybridPattern {
  std::string main_pattern;                  ///< Up to the first `/`, pipes included.
  std::string mtp_pattern;                   ///< One depth; empty without MTP.
  std::int64_t mtp_num_depths = 0;           ///< Overrides `mtp_num_layers` when positive.
  HybridCounts main_counts{};                ///< Of the main part.
  HybridCounts mtp_counts{};                 ///< Of one MTP depth.
  std::vector<std::int64_t> segment_layers;  ///< Layers of every segment; a single one without pipes.

  /// Layers of the main part; overrides `num_layers`.
  [[nodiscard]] std::int64_t num_layers() const {
    return std::accumulate(main_counts.begin(), main_counts.end(), std::int64_t{0});
  }
  [[nodiscard]] std::int64_t num_segments() const { return static_cast<std::int64_t>(segment_layers.size()); }
  [[nodiscard]] bool has_pipes() const { return segment_layers.size() > 1; }

  /// Main layers and those of all MTP depths (get_hybrid_layer_counts, hybrid_layer_allocation.py:157).
  [[nodiscard]] std::int64_t count(HybridLayer layer) const {
    const auto i = static_cast<std::size_t>(layer);
    return main_counts[i] + mtp_counts[i] * mtp_num_depths;
  }

  /// Upstream then switches `multi_latent_attention` on (arguments.py:919).
  [[nodiscard]] bool implies_multi_latent_attention() const {
    return count(HybridLayer::Mla) + count(HybridLayer::DsAttention) > 0;
  }
};

struct HybridParse {
  std::optional<HybridPattern> pattern;  ///< Present exactly if there are no findings.
  std::vector<HybridFinding> findings;
};

namespace detail {

constexpr bool hybrid_rules_in_order() {
  for (std::size_t i = 0; i < kHybridRules.size(); ++i)
    if (static_cast<std::size_t>(kHybridRules[i].problem) != i) return false;
  return true;
}
static_assert(hybrid_rules_in_order());

/// One part of the pattern, `text` beginning at byte `offset`, is checked and counted on its own, as upstream does: `*`
/// in the main part and `+` in the MTP part may meet (_validate_pattern, hybrid_layer_allocation.py:273).
inline HybridCounts read_hybrid_part(std::string_view text, std::size_t offset, bool allow_pipe,
                                     std::vector<HybridFinding>& findings) {
  HybridCounts counts{};
  std::size_t unknown = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool continuation = (static_cast<unsigned char>(text[i]) & 0xC0U) == 0x80U;
    if (continuation || (allow_pipe && text[i] == '|')) continue;
    if (const auto layer = hybrid_layer(text[i]))
      ++counts[static_cast<std::size_t>(*layer)];
    else if (++unknown <= kMaxSymbolFindings)
      findings.push_back({HybridProblem::UnknownSymbol, offset + i});
  }
  const std::size_t plain = text.find('*');
  const std::size_t latent = text.find_first_of("D+");
  if (plain != std::string_view::npos && latent != std::string_view::npos)
    findings.push_back({HybridProblem::MixedAttention, offset + std::max(plain, latent)});
  return counts;
}

inline std::vector<std::int64_t> segment_lengths(std::string_view main_pattern) {
  std::vector<std::int64_t> lengths{0};
  for (const char symbol : main_pattern) {
    if (symbol == '|')
      lengths.push_back(0);
    else
      ++lengths.back();
  }
  return lengths;
}

/// `mtp` is all that follows the first `/`, at byte `offset`.
inline void read_hybrid_mtp(std::string_view mtp, std::size_t offset, HybridPattern& pattern,
                            std::vector<HybridFinding>& findings) {
  if (mtp.find_first_not_of('/') == std::string_view::npos) return;  // nothing but separators: no MTP
  const std::string_view first = mtp.substr(0, mtp.find('/'));
  std::int64_t depths = 0;
  for (std::size_t at = 0; at <= mtp.size(); ++depths) {
    const std::size_t end = std::min(mtp.find('/', at), mtp.size());
    if (mtp.substr(at, end - at) != first) {
      findings.push_back({HybridProblem::MtpPatternsDiffer, offset + at});
      break;
    }
    at = end + 1;
  }
  pattern.mtp_pattern = first;
  pattern.mtp_num_depths = depths;
  pattern.mtp_counts = read_hybrid_part(first, offset, false, findings);
}

}  // namespace detail

/// Upstream: parse_hybrid_pattern and get_hybrid_total_layer_count (hybrid_layer_allocation.py:195 and :125). A pattern
/// may be empty, and so may every segment.
[[nodiscard]] inline HybridParse parse_hybrid_pattern(std::string_view text) {
  HybridParse parse;
  if (text.size() > kMaxHybridPatternLength) {
    parse.findings.push_back({HybridProblem::LengthLimit});
    return parse;
  }
  HybridPattern pattern;
  const std::size_t main_end = std::min(text.find('/'), text.size());
  pattern.main_pattern = text.substr(0, main_end);
  pattern.main_counts = detail::read_hybrid_part(pattern.main_pattern, 0, true, parse.findings);
  if (main_end < text.size()) detail::read_hybrid_mtp(text.substr(main_end + 1), main_end + 1, pattern, parse.findings);
  if (!parse.findings.empty()) return parse;
  pattern.segment_layers = detail::segment_lengths(pattern.main_pattern);
  parse.pattern = std::move(pattern);
  return parse;
}

/// What upstream makes of `virtual_pipeline_model_parallel_size`: absent for one chunk a rank, and for a pattern
/// without pipes however large PP is (arguments.py:840). Asks for segments that check_hybrid_segments accepts.
[[nodiscard]] constexpr std::optional<std::int64_t> hybrid_virtual_pipeline_size(
    std::int64_t segments, std::int64_t pipeline_model_parallel_size) {
  if (pipeline_model_parallel_size <= 0 || segments <= pipeline_model_parallel_size) return std::nullopt;
  return segments / pipeline_model_parallel_size;
}

/// Whether the segments can be dealt to the pipeline ranks, segment i to rank i % PP as chunk i / PP. Without pipes the
/// layers are cut evenly instead (select_pipeline_segment, hybrid_layer_allocation.py:434), unless `uneven` says that
/// the first or last stage has a size of its own, which layer_split.hpp checks.
[[nodiscard]] inline std::vector<HybridFinding> check_hybrid_segments(const HybridPattern& pattern,
                                                                      std::int64_t pipeline_model_parallel_size,
                                                                      bool uneven) {
  const std::int64_t pp = pipeline_model_parallel_size;
  if (pp <= 0) return {{HybridProblem::PipelineSizePositive, {}, pp, 1}};
  if (pattern.has_pipes() && pattern.num_segments() % pp != 0)
    return {{HybridProblem::SegmentsDivisibleByPp, {}, pattern.num_segments(), pp}};
  if (!pattern.has_pipes() && !uneven && pattern.num_layers() % pp != 0)
    return {{HybridProblem::NoPipeEvenSplit, {}, pattern.num_layers(), pp}};
  return {};
}

}  // namespace gtp
