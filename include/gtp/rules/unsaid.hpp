// For rules of the form "X needs Y": an input that asks for X must ask for Y too, so where it does not speak of Y's
// section at all, Y has its default and the mistake is certain. Also what upstream makes of the optimizer options.
#pragma once

#include <string_view>

#include <gtp/facts.hpp>
#include <gtp/rules/names.hpp>

namespace gtp::rules {

inline constexpr OptionId kDistOpt = "use_distributed_optimizer"_opt, kUsesMegatronFsdp = "use_megatron_fsdp"_opt,
                          kUsesFsdp2 = "use_torch_fsdp2"_opt, kOptimizer = "optimizer"_opt,
                          kSaveFormat = "ckpt_format"_opt, kParamGather = "overlap_param_gather"_opt,
                          kGradReduce = "overlap_grad_reduce"_opt,
                          kStepOverlap = "overlap_param_gather_with_optimizer_step"_opt, kSave = "save"_opt,
                          kLoad = "load"_opt, kSkipTrain = "skip_train"_opt;

namespace detail {

/// The value, or the default where the input says nothing of the option's section. Null when an input gave a value that
/// cannot be known, or when a checkpoint may give it.
inline const Value* said_or_default(const Facts& f, OptionId option) {
  if (const Value* value = f.find(option)) return value;
  const auto& fallback = gtp::detail::defaults_of(f.config().target())[option.index];
  const bool from_checkpoint = fallback.section == Section::Model && f.config().described(Section::Model);
  if (!fallback.stands || f.config().given_unknown(option) || from_checkpoint) return nullptr;
  return &fallback.value;
}

/// Certainly off: off, or by default off where the input does not say.
inline bool off_or_unsaid(const Facts& f, OptionId option) {
  const Value* value = said_or_default(f, option);
  return value != nullptr && (is_none(*value) || *value == Value(false));
}

/// The text, or the default where the input does not say; empty when it cannot be known.
inline std::string_view text_or_default(const Facts& f, OptionId option) {
  const Value* value = said_or_default(f, option);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return text == nullptr ? std::string_view{} : *text;
}

/// The value before upstream changes any, as a number.
inline std::optional<std::int64_t> original_integer(const Facts& f, OptionId option) {
  const Value* value = f.original(option);
  if (value == nullptr || !std::holds_alternative<std::int64_t>(*value)) return std::nullopt;
  return std::get<std::int64_t>(*value);
}

inline bool originally_on(const Facts& f, OptionId option) {
  const Value* value = f.original(option);
  return value != nullptr && *value == Value(true);
}

inline std::string_view text_before_changes(const Facts& f, OptionId option) {
  const Value* value = f.original(option);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return text == nullptr ? std::string_view{} : *text;
}

/// Muon, lion, soap: known and neither adam nor sgd (arguments.py:1725).
inline bool emerging_optimizer(const Facts& f) {
  const std::string_view name = text_before_changes(f, kOptimizer);
  return !name.empty() && name != "adam" && name != "sgd";
}

/// The layer-wise distributed optimizer takes the place of the distributed one (arguments.py:1724-1737).
inline bool layer_wise(const Facts& f) {
  return emerging_optimizer(f) && (originally_on(f, kDistOpt) || text_before_changes(f, kOptimizer) == "dist_muon");
}

/// The distributed optimizer as checks after arguments.py:1737 see it; frozen layers turn it off later still.
inline bool distributed_optimizer(const Facts& f) {
  const bool fsdp_v1 = f.on(kUsesMegatronFsdp) && f.integer("megatron_fsdp_version"_opt).value_or(1) != 2;
  return (originally_on(f, kDistOpt) || fsdp_v1) && !emerging_optimizer(f);
}

/// "off by default" reads better than "off" where the input says nothing.
inline std::string_view off_text(const Facts& f, OptionId option) {
  return f.config().given(option) == nullptr ? "off by default" : "off";
}

}  // namespace detail

}  // namespace gtp::rules
