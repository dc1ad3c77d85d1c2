#include "tools/launch/bridge.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <string_view>
#include <utility>
#include <variant>

#include "tools/launch/quote.hpp"

namespace gtp::cli {

namespace {

using namespace literals;

/// Options whose place in Bridge says the opposite.
constexpr std::array<std::pair<OptionId, std::string_view>, 7> kOpposites{{
    {"grad_reduce_in_bf16"_opt, "mixed_precision.grad_reduce_in_fp32"},
    {"no_load_optim"_opt, "checkpoint.load_optim"},
    {"no_load_rng"_opt, "checkpoint.load_rng"},
    {"no_persist_layer_norm"_opt, "model.persist_layer_norm"},
    {"no_save_optim"_opt, "checkpoint.save_optim"},
    {"no_save_rng"_opt, "checkpoint.save_rng"},
    {"untie_embeddings_and_output_weights"_opt, "model.share_embeddings_and_output_weights"},
}};

struct HydraWriter {
  std::string operator()(std::monostate) const { return "null"; }
  std::string operator()(bool flag) const { return flag ? "true" : "false"; }
  std::string operator()(std::int64_t number) const { return fmt::format("{}", number); }
  /// With a point or an exponent, so that it stays a number of this type.
  std::string operator()(double number) const {
    std::string text = fmt::format("{}", number);
    if (std::isfinite(number) && text.find_first_of(".e") == std::string::npos) text += ".0";
    return text;
  }
  std::string operator()(const std::string& text) const { return hydra_quoted(text); }
  template <class T>
  std::string operator()(const std::vector<T>& items) const {
    std::vector<std::string> texts;
    for (const T& item : items) texts.push_back((*this)(item));
    return fmt::format("[{}]", fmt::join(texts, ","));
  }
};

std::vector<std::string> converted(const Setting& setting, const Facts& facts) {
  const bool on = setting.value == Value(true);
  for (const auto& [option, path] : kOpposites)
    if (option == setting.option) return {fmt::format("{}={}", path, !on)};
  if (setting.option == "swiglu"_opt && on) return {"model.gated_linear_unit=true", "model.activation_func=silu"};
  if (setting.option == "squared_relu"_opt && on) return {"model.activation_func=squared_relu"};
  const auto stages = facts.integer("virtual_pipeline_model_parallel_size"_opt);
  const bool interleaves = setting.option == "num_layers_per_virtual_pipeline_stage"_opt ||
                           setting.option == "num_virtual_stages_per_pipeline_rank"_opt;
  if (interleaves && stages) return {fmt::format("model.virtual_pipeline_model_parallel_size={}", *stages)};
  return {};
}

}  // namespace

std::vector<std::string> bridge_overrides(const Setting& setting, const Facts& facts) {
  const Option& row = row_of(setting.option, facts.version());
  if (row.bridge.empty()) return converted(setting, facts);
  const std::string value = std::visit(HydraWriter{}, setting.value);
  std::vector<std::string> overrides{fmt::format("{}={}", row.bridge, value)};
  // The dataset owns the length of a sequence, and the model's must be equal.
  if (setting.option == "seq_length"_opt) overrides.push_back(fmt::format("dataset.seq_length={}", value));
  if (setting.option == "padded_vocab_size"_opt) overrides.emplace_back("model.should_pad_vocab=false");
  return overrides;
}

std::string hydra_list(const StringList& texts) { return HydraWriter{}(texts); }

}  // namespace gtp::cli
