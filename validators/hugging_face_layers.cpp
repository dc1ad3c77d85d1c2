#include "validators/hugging_face_layers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include <gtp/assign.hpp>

namespace gtp::readers {

namespace {

constexpr std::int64_t kMostLayers = 10'000, kMostDepths = 64;

std::optional<std::int64_t> integer(const Node* value) {
  if (value == nullptr || value->kind != Kind::Scalar) return std::nullopt;
  return parse_int(value->text).value;
}

std::optional<std::int64_t> integer(const Node& model, std::string_view key) { return integer(find(model, key)); }

/// `layers_block_type: [mamba, moe, ...]` in the letters of a pattern.
std::optional<std::string> letters(const Node* blocks) {
  constexpr std::array<std::pair<std::string_view, char>, 4> kLetters{
      {{"mamba", 'M'}, {"moe", 'E'}, {"attention", '*'}, {"mlp", '-'}}};
  if (blocks == nullptr) return std::nullopt;
  if (blocks->kind == Kind::Scalar) return blocks->text;
  std::string pattern;
  for (const Node& block : blocks->items) {
    const auto known =
        std::find_if(kLetters.begin(), kLetters.end(), [&](auto row) { return row.first == block.text; });
    if (known == kLetters.end()) return std::nullopt;
    pattern += known->second;
  }
  return pattern.empty() ? std::nullopt : std::optional(pattern);
}

const Node* either(const Node& model, std::string_view first, std::string_view second) {
  const Node* found = find(model, first);
  return found != nullptr && found->kind != Kind::Null ? found : find(model, second);
}

void find_pattern(const Node& model, Layers& layers) {
  const Node* written = either(model, "hybrid_override_pattern", "layers_block_type");
  const std::optional<std::string> pattern = letters(written);
  if (!pattern || pattern->empty()) return;
  layers.hybrid_pattern = pattern;
  layers.pattern_place = written->place;
  if (!layers.count) {
    layers.count = fmt::format("{}", pattern->size());
    layers.place = written->place;
  }
  const std::optional<std::string> mtp = letters(either(model, "mtp_hybrid_override_pattern", "mtp_layers_block_type"));
  const std::int64_t depths = integer(model, "num_nextn_predict_layers").value_or(0);
  if (!mtp || mtp->empty() || depths > kMostDepths) return;
  for (std::int64_t depth = 0; depth < depths; ++depth) *layers.hybrid_pattern += '/' + *mtp;
}

/// Which layers are MoE, from whichever of the families' ways the file uses; nothing: all alike.
std::optional<std::vector<bool>> moe_layers(const Node& model, std::int64_t count, Place& place) {
  const auto take = [&](const Node* value) { return value != nullptr ? (place = value->place, true) : false; };
  std::vector<bool> moe(static_cast<std::size_t>(count), true);
  const Node* list = either(model, "moe_layer_freq", "mlp_layer_types");
  if (list != nullptr && list->kind == Kind::List && list->items.size() == moe.size()) {
    take(list);
    for (std::size_t i = 0; i < moe.size(); ++i) moe[i] = list->items[i].text == "1" || list->items[i].text == "sparse";
    return moe;
  }
  const std::int64_t dense_first = integer(model, "first_k_dense_replace").value_or(0);
  const std::int64_t frequency = std::max<std::int64_t>(1, integer(model, "moe_layer_freq").value_or(1));
  const std::int64_t step =
      std::max<std::int64_t>(1, integer(either(model, "decoder_sparse_step", "interleave_moe_layer_step")).value_or(1));
  for (std::int64_t i = 0; i < count; ++i)
    moe[static_cast<std::size_t>(i)] = i >= dense_first && i % frequency == 0 && (i + 1) % step == 0;
  if (const Node* dense = find(model, "mlp_only_layers"); dense != nullptr)
    for (const Node& item : dense->items)
      if (const auto layer = integer(&item); layer && *layer >= 0 && *layer < count)
        moe[static_cast<std::size_t>(*layer)] = false;
  if (std::find(moe.begin(), moe.end(), false) == moe.end()) return std::nullopt;
  if (!take(find(model, "first_k_dense_replace")) && !take(find(model, "decoder_sparse_step")))
    take(find(model, "interleave_moe_layer_step"));
  return moe;
}

/// `([0]*3+[1]*58)` where that is short, else the list itself.
std::string frequency_text(const std::vector<bool>& moe) {
  constexpr std::size_t kFewRuns = 4;
  std::vector<std::string> runs;
  std::vector<int> flags;
  for (std::size_t begin = 0; begin < moe.size();) {
    std::size_t end = begin;
    while (end < moe.size() && moe[end] == moe[begin]) ++end;
    runs.push_back(fmt::format("[{}]*{}", moe[begin] ? 1 : 0, end - begin));
    begin = end;
  }
  for (const bool flag : moe) flags.push_back(flag ? 1 : 0);
  return runs.size() <= kFewRuns ? fmt::format("({})", fmt::join(runs, "+"))
                                 : fmt::format("[{}]", fmt::join(flags, ","));
}

bool has_experts(const Node& model) {
  for (const std::string_view key : {"num_experts", "num_local_experts", "n_routed_experts"})
    if (integer(model, key).value_or(0) > 0) return true;
  return false;
}

}  // namespace

Layers find_layers(const Node& model) {
  Layers layers;
  for (const std::string_view key : {"num_hidden_layers", "n_layer", "num_layers"})
    if (const Node* value = find(model, key); value != nullptr && value->kind == Kind::Scalar && !layers.count) {
      layers.count = value->text;
      layers.count_quoted = value->quoted;
      layers.place = value->place;
    }
  find_pattern(model, layers);
  if (!layers.count || layers.hybrid_pattern || !has_experts(model)) return layers;
  const std::int64_t count = parse_int(*layers.count).value.value_or(0);
  layers.too_many = count > kMostLayers;
  if (count <= 0 || layers.too_many) return layers;
  layers.frequency_place = layers.place;
  if (const auto moe = moe_layers(model, count, layers.frequency_place)) layers.moe_frequency = frequency_text(*moe);
  return layers;
}

std::optional<Block> widest_block(const Node& model) {
  const Node* blocks = find(model, "block_configs");
  const auto hidden = integer(model, "hidden_size");
  if (blocks == nullptr || blocks->kind != Kind::List || !hidden) return std::nullopt;
  Block widest;
  widest.place = blocks->place;
  double multiple = 0;
  for (const Node& block : blocks->items) {
    const Node* ffn = find(block, "ffn");
    const Node* attention = find(block, "attention");
    const Node* ffn_multiple = ffn == nullptr ? nullptr : find(*ffn, "ffn_mult");
    if (ffn_multiple != nullptr) multiple = std::max(multiple, parse_float(ffn_multiple->text).value.value_or(0));
    const std::int64_t heads = attention == nullptr ? 0 : integer(*attention, "n_heads_in_group").value_or(0);
    if (heads > 0) widest.heads_in_group = widest.heads_in_group == 0 ? heads : std::min(widest.heads_in_group, heads);
  }
  // Two thirds of the multiple, as for a gated MLP, rounded up to 256.
  const double width = 2 * multiple * static_cast<double>(*hidden) / 3;
  constexpr double kLargest = 1e15, kRound = 256;
  if (width > 0 && width < kLargest)
    widest.ffn_hidden_size = static_cast<std::int64_t>(std::ceil(std::trunc(width) / kRound) * kRound);
  return widest;
}

}  // namespace gtp::readers
