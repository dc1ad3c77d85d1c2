// The layer split of a run: gathers what layer_split.hpp needs from the facts and applies what it derives.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <gtp/facts.hpp>
#include <gtp/layer_split.hpp>

namespace gtp {

/// Decoder layers, [pipeline rank][virtual stage].
using LayersPerStage = std::vector<std::vector<std::int64_t>>;

namespace detail {

/// Megatron-Bridge hands the virtual pipeline size to Megatron Core as it is.
inline LayerSplitOptions gather_split_options(const Facts& f) {
  using namespace literals;
  const auto vpp = f.integer("num_virtual_stages_per_pipeline_rank"_opt);
  return {.num_layers = f.integer("num_layers"_opt),
          .pipeline_model_parallel_size = f["pipeline_model_parallel_size"_opt],
          .virtual_pipeline_model_parallel_size = f.on_bridge() ? vpp : std::nullopt,
          .num_layers_per_virtual_pipeline_stage = f.integer("num_layers_per_virtual_pipeline_stage"_opt),
          .num_virtual_stages_per_pipeline_rank = f.on_bridge() ? std::nullopt : vpp,
          .decoder_first_pipeline_num_layers = f.integer("decoder_first_pipeline_num_layers"_opt),
          .decoder_last_pipeline_num_layers = f.integer("decoder_last_pipeline_num_layers"_opt),
          .account_for_embedding_in_pipeline_split = f.on("account_for_embedding_in_pipeline_split"_opt),
          .account_for_loss_in_pipeline_split = f.on("account_for_loss_in_pipeline_split"_opt),
          .overlap_p2p_comm = f.on_bridge() || !f.known("overlap_p2p_comm"_opt) || f.on("overlap_p2p_comm"_opt),
          .mtp_num_layers = f.integer("mtp_num_layers"_opt),
          .pipeline_model_parallel_layout = f.text("pipeline_model_parallel_layout"_opt),
          .hybrid_layer_pattern = f.text("hybrid_layer_pattern"_opt)};
}

/// Whether an option that decides the split was given without a value that could be known.
inline bool split_is_unknown(const Facts& f) {
  using namespace literals;
  for (const OptionId option : {"num_layers_per_virtual_pipeline_stage"_opt, "num_virtual_stages_per_pipeline_rank"_opt,
                                "decoder_first_pipeline_num_layers"_opt, "decoder_last_pipeline_num_layers"_opt,
                                "account_for_embedding_in_pipeline_split"_opt, "account_for_loss_in_pipeline_split"_opt,
                                "pipeline_model_parallel_layout"_opt, "hybrid_layer_pattern"_opt})
    if (f.config().given_unknown(option)) return true;
  return !f.has("pipeline_model_parallel_size"_opt);
}

}  // namespace detail

/// Nothing when the pipeline size, or an option that decides the split, is unknown. Otherwise sets `num_layers` (a
/// hybrid pattern overrides it) and the virtual pipeline size.
[[nodiscard]] inline std::optional<LayerSplitResult> derive_layers(Facts& f) {
  using namespace literals;
  if (detail::split_is_unknown(f)) return std::nullopt;
  LayerSplitResult result = split_layers(detail::gather_split_options(f));
  // A layout's MTP layers can be counted only against a model that is known.
  if (!f.known("mtp_num_layers"_opt))
    std::erase_if(result.layout_findings, [](const LayoutFinding& x) { return x.problem == LayoutProblem::MtpCount; });
  if (result.num_layers) f.set("num_layers"_opt, *result.num_layers);
  if (result.virtual_pipeline_model_parallel_size)
    f.set("virtual_pipeline_model_parallel_size"_opt, *result.virtual_pipeline_model_parallel_size);
  else if (!result.refused())
    f.set("virtual_pipeline_model_parallel_size"_opt, Value{});
  return result;
}

}  // namespace gtp
