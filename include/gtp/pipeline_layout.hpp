// The `pipeline_model_parallel_layout` mini-language, `Et*3|(tt|)*6mL`: text to the layers of every pipeline stage, and
// what is wrong with either. It does not look at other options; layer_split.hpp does.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gtp {

enum class LayerKind : std::uint8_t { Embedding, Loss, Encoder, Decoder, Mtp };

enum class LayoutProblem : std::uint8_t {
  ValidCharacters,
  StagesDivisibleByPp,
  EmbeddingFirstLossLast,
  DecoderCount,
  MtpCount,
  MtpAfterDecoder,
  MtpLastVppChunk,
  MtpSingleStage,
  MtpNotFirstRank,  ///< Upstream has the test, but MtpLastVppChunk always comes first: never reported.
  EncoderUnsupported,
  ExpansionLimit,        ///< More than kMaxLayoutLength characters; upstream runs out of memory or refuses the number.
  PipelineSizePositive,  ///< Upstream divides by zero.
};

struct LayoutRule {
  LayoutProblem problem;
  std::string_view id;
};

/// The upstream rule of every problem; the last two ids are our own.
inline constexpr std::array<LayoutRule, 12> kLayoutRules{{
    {LayoutProblem::ValidCharacters, "layout-valid-characters"},
    {LayoutProblem::StagesDivisibleByPp, "layout-stages-divisible-by-pp"},
    {LayoutProblem::EmbeddingFirstLossLast, "layout-embedding-first-loss-last"},
    {LayoutProblem::DecoderCount, "layout-decoder-count"},
    {LayoutProblem::MtpCount, "layout-mtp-count"},
    {LayoutProblem::MtpAfterDecoder, "layout-mtp-after-decoder"},
    {LayoutProblem::MtpLastVppChunk, "layout-mtp-last-vpp-chunk"},
    {LayoutProblem::MtpSingleStage, "layout-mtp-single-stage"},
    {LayoutProblem::MtpNotFirstRank, "layout-mtp-not-first-rank"},
    {LayoutProblem::EncoderUnsupported, "layout-encoder-unsupported"},
    {LayoutProblem::ExpansionLimit, "layout-expansion-limit"},
    {LayoutProblem::PipelineSizePositive, "layout-pipeline-size-positive"},
}};

[[nodiscard]] constexpr std::string_view rule_id(LayoutProblem problem) {
  return kLayoutRules[static_cast<std::size_t>(problem)].id;
}

/// `offset` is a byte of the layout text, absent for the list form and for what has no place. `found` and `wanted` are
/// counts where the problem is about a count: stages and the pipeline size they must be a multiple of, layers, or how
/// often the embedding or loss occurs.
struct LayoutFinding {
  LayoutProblem problem;
  std::optional<std::size_t> offset{};
  std::optional<std::int64_t> found{};
  std::optional<std::int64_t> wanted{};
};

/// Cap on the text and on every step of its expansion, in characters.
inline constexpr std::size_t kMaxLayoutLength = 1'000'000;
/// No more than this many bad characters are reported of one text.
inline constexpr std::size_t kMaxCharacterFindings = 16;

inline constexpr std::uint32_t kNoOffset = UINT32_MAX;

struct LayoutLayer {
  LayerKind kind;
  std::uint32_t offset = kNoOffset;  ///< Byte of the text that stands for it; repeats share one.
};

/// Stages in text order. Stage i sits on pipeline rank i % PP as chunk i / PP.
struct PipelineLayout {
  std::vector<LayoutLayer> layers;
  std::vector<std::size_t> stage_ends;  ///< One a stage: the index in `layers` past its last layer.

  [[nodiscard]] std::size_t num_stages() const { return stage_ends.size(); }

  [[nodiscard]] std::span<const LayoutLayer> stage(std::size_t index) const {
    const std::size_t begin = index == 0 ? 0 : stage_ends[index - 1];
    return std::span(layers).subspan(begin, stage_ends[index] - begin);
  }
};

struct LayoutParse {
  std::optional<PipelineLayout> layout;  ///< Present exactly if there are no findings.
  std::vector<LayoutFinding> findings;
};

[[nodiscard]] inline std::int64_t count_layers(std::span<const LayoutLayer> layers, LayerKind kind) {
  return std::count_if(layers.begin(), layers.end(), [kind](const LayoutLayer& layer) { return layer.kind == kind; });
}

/// The letters of a stage, `Ettt`; an encoder, which has none, is `e`.
[[nodiscard]] inline std::string stage_text(std::span<const LayoutLayer> layers) {
  constexpr std::string_view kLetters = "ELetm";
  std::string text;
  text.reserve(layers.size());
  for (const LayoutLayer& layer : layers) text += kLetters[static_cast<std::size_t>(layer.kind)];
  return text;
}

namespace detail {

constexpr bool layout_rules_in_order() {
  for (std::size_t i = 0; i < kLayoutRules.size(); ++i)
    if (static_cast<std::size_t>(kLayoutRules[i].problem) != i) return false;
  return true;
}
static_assert(layout_rules_in_order());

/// One character of the text: whatever is not ASCII is one glyph however many bytes it has, as `.` matches it whole.
struct LayoutGlyph {
  char character;
  std::uint32_t offset;
};
using LayoutGlyphs = std::vector<LayoutGlyph>;

inline constexpr char kNotAscii = '\x7f';

inline LayoutGlyphs layout_glyphs(std::string_view text) {
  LayoutGlyphs glyphs;
  glyphs.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == ',' || (byte & 0xC0U) == 0x80U) continue;
    glyphs.push_back({byte < 0x80U ? text[i] : kNotAscii, static_cast<std::uint32_t>(i)});
  }
  return glyphs;
}

struct LayoutRepeat {
  std::size_t times;  ///< Clamped just above kMaxLayoutLength.
  std::size_t end;    ///< The glyph past the number.
};

/// Reads `*12` at `at`.
inline std::optional<LayoutRepeat> layout_repeat(const LayoutGlyphs& glyphs, std::size_t at) {
  const auto is_digit = [&](std::size_t i) {
    return i < glyphs.size() && glyphs[i].character >= '0' && glyphs[i].character <= '9';
  };
  if (at >= glyphs.size() || glyphs[at].character != '*' || !is_digit(at + 1)) return std::nullopt;
  LayoutRepeat repeat{0, at + 1};
  for (; is_digit(repeat.end); ++repeat.end) {
    const auto digit = static_cast<std::size_t>(glyphs[repeat.end].character - '0');
    repeat.times = std::min(repeat.times * 10 + digit, kMaxLayoutLength + 1);
  }
  return repeat;
}

/// Appends `piece` so often; false, and nothing appended, if that passes the cap.
inline bool append_repeated(LayoutGlyphs& out, std::span<const LayoutGlyph> piece, std::size_t times) {
  if (piece.size() * times + out.size() > kMaxLayoutLength) return false;
  for (std::size_t i = 0; i < times; ++i) out.insert(out.end(), piece.begin(), piece.end());
  return true;
}

struct LayoutExpansion {
  LayoutGlyphs glyphs;
  std::optional<std::uint32_t> over_limit;  ///< Where the repeat that passed the cap starts.
};

/// `(..)*n`, the first of upstream's two passes (pipeline_parallel_layer_layout.py:292): a group reaches from the first
/// `(` that works to the next `)`, so groups do not nest, and `(` without a repeat stays.
inline LayoutExpansion expand_groups(const LayoutGlyphs& in) {
  LayoutExpansion result;
  std::size_t close = 0;
  for (std::size_t i = 0; i < in.size();) {
    std::optional<LayoutRepeat> repeat;
    if (in[i].character == '(') {
      if (close <= i) close = i + 1;
      while (close < in.size() && in[close].character != ')') ++close;
      if (close > i + 1) repeat = layout_repeat(in, close + 1);
    }
    const bool fits = repeat
                          ? append_repeated(result.glyphs, std::span(in).subspan(i + 1, close - i - 1), repeat->times)
                          : append_repeated(result.glyphs, std::span(in).subspan(i, 1), 1);
    if (!fits) return {{}, in[i].offset};
    i = repeat ? repeat->end : i + 1;
  }
  return result;
}

/// `x*n`, the second pass: any character but a line feed repeats, a `*` too.
inline LayoutExpansion expand_characters(const LayoutGlyphs& in) {
  LayoutExpansion result;
  for (std::size_t i = 0; i < in.size();) {
    const auto repeat = in[i].character == '\n' ? std::nullopt : layout_repeat(in, i + 1);
    if (!append_repeated(result.glyphs, std::span(in).subspan(i, 1), repeat ? repeat->times : 1))
      return {{}, in[i].offset};
    i = repeat ? repeat->end : i + 1;
  }
  return result;
}

constexpr std::optional<LayerKind> layer_of_letter(char letter) {
  if (letter == 'E') return LayerKind::Embedding;
  if (letter == 'L') return LayerKind::Loss;
  if (letter == 't') return LayerKind::Decoder;
  if (letter == 'm') return LayerKind::Mtp;
  return std::nullopt;
}

/// Appends each bad character of the text once, however often it was repeated.
inline void report_bad_characters(std::vector<std::uint32_t> offsets, std::vector<LayoutFinding>& findings) {
  std::sort(offsets.begin(), offsets.end());
  offsets.erase(std::unique(offsets.begin(), offsets.end()), offsets.end());
  if (offsets.size() > kMaxCharacterFindings) offsets.resize(kMaxCharacterFindings);
  for (const std::uint32_t offset : offsets) findings.push_back({LayoutProblem::ValidCharacters, offset});
}

inline std::optional<std::size_t> layer_offset_in_text(const LayoutLayer& layer) {
  if (layer.offset == kNoOffset) return std::nullopt;
  return layer.offset;
}

/// The embedding must be the first layer, and the loss the last, and each the only one of its kind.
inline void check_layout_end(const PipelineLayout& layout, LayerKind kind, bool first,
                             std::vector<LayoutFinding>& findings) {
  const std::int64_t count = count_layers(layout.layers, kind);
  if (layout.layers.empty()) {
    findings.push_back({LayoutProblem::EmbeddingFirstLossLast, {}, count, 1});
    return;
  }
  const LayoutLayer& end = first ? layout.layers.front() : layout.layers.back();
  if (end.kind == kind && count == 1) return;
  const LayoutLayer* place = &end;
  if (end.kind == kind)  // it is in its place, so another one is too many
    for (const LayoutLayer& layer : layout.layers)
      if (layer.kind == kind && &layer != &end) place = &layer;
  findings.push_back({LayoutProblem::EmbeddingFirstLossLast, layer_offset_in_text(*place), count, 1});
}

inline void check_mtp_order(const PipelineLayout& layout, std::vector<LayoutFinding>& findings) {
  const auto is = [](LayerKind kind) { return [kind](const LayoutLayer& layer) { return layer.kind == kind; }; };
  const auto mtp = std::find_if(layout.layers.begin(), layout.layers.end(), is(LayerKind::Mtp));
  const auto decoder = std::find_if(mtp, layout.layers.end(), is(LayerKind::Decoder));
  if (decoder != layout.layers.end())
    findings.push_back({LayoutProblem::MtpAfterDecoder, layer_offset_in_text(*decoder)});
}

/// All MTP layers must be in one stage, the last chunk of its rank.
inline void check_mtp_placement(const PipelineLayout& layout, std::size_t first_of_last_chunk,
                                std::vector<LayoutFinding>& findings) {
  const LayoutLayer* other_stage = nullptr;
  std::int64_t stages_with_mtp = 0;
  for (std::size_t i = 0; i < layout.num_stages(); ++i) {
    for (const LayoutLayer& layer : layout.stage(i)) {
      if (layer.kind != LayerKind::Mtp) continue;
      if (i < first_of_last_chunk) {
        findings.push_back({LayoutProblem::MtpLastVppChunk, layer_offset_in_text(layer)});
        return;
      }
      if (++stages_with_mtp == 2) other_stage = &layer;
      break;
    }
  }
  if (other_stage != nullptr)
    findings.push_back({LayoutProblem::MtpSingleStage, layer_offset_in_text(*other_stage), stages_with_mtp, 1});
}

inline std::optional<LayerKind> layer_of_name(std::string_view name) {
  constexpr std::string_view kSpace = " \t\n\v\f\r\x1c\x1d\x1e\x1f";
  constexpr std::array<std::string_view, 5> kNames{"embedding", "loss", "encoder", "decoder", "mtp"};
  name.remove_prefix(std::min(name.find_first_not_of(kSpace), name.size()));
  name = name.substr(0, name.find_last_not_of(kSpace) + 1);
  const auto same = [](char left, char right) {
    return (left >= 'A' && left <= 'Z' ? static_cast<char>(left - 'A' + 'a') : left) == right;
  };
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (std::equal(name.begin(), name.end(), kNames[i].begin(), kNames[i].end(), same))
      return static_cast<LayerKind>(i);
  return std::nullopt;
}

}  // namespace detail

/// Reads the text as upstream does (pipeline_parallel_layer_layout.py:276): commas go, then `(..)*n`, then `x*n`, then
/// `|` cuts. Unlike upstream it takes only ASCII digits for a repeat.
[[nodiscard]] inline LayoutParse parse_pipeline_layout(std::string_view text) {
  LayoutParse parse;
  if (text.size() > kMaxLayoutLength) {
    parse.findings.push_back({LayoutProblem::ExpansionLimit});
    return parse;
  }
  detail::LayoutExpansion expansion = detail::expand_groups(detail::layout_glyphs(text));
  if (!expansion.over_limit) expansion = detail::expand_characters(expansion.glyphs);
  if (expansion.over_limit) {
    parse.findings.push_back({LayoutProblem::ExpansionLimit, *expansion.over_limit});
    return parse;
  }
  PipelineLayout layout;
  std::vector<std::uint32_t> bad;
  for (const detail::LayoutGlyph& glyph : expansion.glyphs) {
    if (glyph.character == '|') {
      layout.stage_ends.push_back(layout.layers.size());
    } else if (const auto kind = detail::layer_of_letter(glyph.character)) {
      layout.layers.push_back({*kind, glyph.offset});
    } else {
      bad.push_back(glyph.offset);
    }
  }
  layout.stage_ends.push_back(layout.layers.size());
  detail::report_bad_characters(std::move(bad), parse.findings);
  if (parse.findings.empty()) parse.layout = std::move(layout);
  return parse;
}

/// The list form, a list of layer names a stage, which upstream takes from Python and YAML but not on its command line.
/// Names are embedding, loss, encoder, decoder and mtp, in any case and with blanks around.
[[nodiscard]] inline LayoutParse pipeline_layout_from_names(std::span<const std::vector<std::string>> stages) {
  LayoutParse parse;
  PipelineLayout layout;
  for (const std::vector<std::string>& stage : stages) {
    if (layout.stage_ends.size() + layout.layers.size() + stage.size() >= kMaxLayoutLength) {
      parse.findings.clear();
      parse.findings.push_back({LayoutProblem::ExpansionLimit});
      return parse;
    }
    for (const std::string& name : stage) {
      const auto kind = detail::layer_of_name(name);
      if (kind) layout.layers.push_back({*kind});
      if (!kind && parse.findings.size() < kMaxCharacterFindings)
        parse.findings.push_back({LayoutProblem::ValidCharacters});
    }
    layout.stage_ends.push_back(layout.layers.size());
  }
  if (parse.findings.empty()) parse.layout = std::move(layout);
  return parse;
}

/// Every independent problem of a layout, in upstream's order (validate_layer_layout,
/// pipeline_parallel_layer_layout.py:85). Unknown `num_layers` skips the decoder count; absent `mtp_num_layers` means
/// there must be no MTP layer, as upstream takes it.
[[nodiscard]] inline std::vector<LayoutFinding> check_pipeline_layout(const PipelineLayout& layout,
                                                                      std::int64_t pipeline_model_parallel_size,
                                                                      std::optional<std::int64_t> num_layers,
                                                                      std::optional<std::int64_t> mtp_num_layers) {
  std::vector<LayoutFinding> findings;
  const auto stages = static_cast<std::int64_t>(layout.num_stages());
  const bool positive = pipeline_model_parallel_size > 0;
  const bool dealt = positive && stages % pipeline_model_parallel_size == 0;
  if (!positive)
    findings.push_back({LayoutProblem::PipelineSizePositive, {}, pipeline_model_parallel_size, 1});
  else if (!dealt)
    findings.push_back({LayoutProblem::StagesDivisibleByPp, {}, stages, pipeline_model_parallel_size});
  detail::check_layout_end(layout, LayerKind::Embedding, true, findings);
  detail::check_layout_end(layout, LayerKind::Loss, false, findings);
  const std::int64_t decoders = count_layers(layout.layers, LayerKind::Decoder);
  if (num_layers && decoders != *num_layers)
    findings.push_back({LayoutProblem::DecoderCount, {}, decoders, *num_layers});
  const std::int64_t mtp = count_layers(layout.layers, LayerKind::Mtp);
  if (mtp != mtp_num_layers.value_or(0))
    findings.push_back({LayoutProblem::MtpCount, {}, mtp, mtp_num_layers.value_or(0)});
  detail::check_mtp_order(layout, findings);
  if (dealt) {
    const auto first_of_last_chunk = static_cast<std::size_t>(stages - pipeline_model_parallel_size);
    detail::check_mtp_placement(layout, first_of_last_chunk, findings);
  }
  const auto encoder = std::find_if(layout.layers.begin(), layout.layers.end(),
                                    [](const LayoutLayer& layer) { return layer.kind == LayerKind::Encoder; });
  if (encoder != layout.layers.end())
    findings.push_back({LayoutProblem::EncoderUnsupported, detail::layer_offset_in_text(*encoder)});
  return findings;
}

/// Upstream's `mtp_standalone` of a valid layout: the MTP layers are on another pipeline rank than the loss
/// (pipeline_parallel_layer_layout.py:138).
[[nodiscard]] inline bool has_standalone_mtp(const PipelineLayout& layout) {
  for (std::size_t i = 0; i + 1 < layout.num_stages(); ++i)
    if (count_layers(layout.stage(i), LayerKind::Mtp) > 0) return true;
  return false;
}

}  // namespace gtp
