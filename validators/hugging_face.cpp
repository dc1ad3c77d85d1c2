#include "validators/hugging_face.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include <gtp/checked.hpp>

#include "validators/hugging_face_fields.hpp"
#include "validators/hugging_face_layers.hpp"

namespace gtp::readers {

namespace {

using namespace gtp::literals;

/// Text models inside larger ones sit under one of these keys.
const Node& text_model(const Node& root) {
  for (const std::string_view key : {"text_config", "llm_config", "language_config"})
    if (const Node* nested = find(root, key); nested != nullptr && nested->kind == Kind::Map) return *nested;
  return root;
}

/// `5000000.0` as the integer that it is; everything else as written.
std::string without_fraction(std::string_view text) {
  const Parsed<double> parsed = parse_float(text);
  constexpr double kExact = 9007199254740992.0;
  if (!parsed.value || std::trunc(*parsed.value) != *parsed.value || std::fabs(*parsed.value) > kExact)
    return std::string(text);
  return fmt::format("{}", static_cast<std::int64_t>(*parsed.value));
}

class ModelReader {
 public:
  ModelReader(const Node& root, const Target& target, Place whole, Diagnostics& out)
      : root_(root), text_(text_model(root)), target_(target), whole_(whole), out_(out) {}

  std::vector<Setting> read() {
    latent_ = value("kv_lora_rank") != nullptr;
    layers_ = find_layers(text_);
    for (const Field& field : kFields) copy(field);
    set_layers();
    set_attention();
    set_mlp();
    set_experts();
    set_expert_widths();
    report_missing();
    return std::move(settings_);
  }

 private:
  /// The value of the first of the keys that is given and not null, in the text model or outside of it.
  [[nodiscard]] const Node* value(std::string_view keys) const {
    for (std::size_t at = 0; at < keys.size();) {
      const std::size_t end = std::min(keys.find(' ', at), keys.size());
      for (const Node* map : {&text_, &root_, rope_parameters()})
        if (const Node* found = map == nullptr ? nullptr : find(*map, keys.substr(at, end - at)))
          if (found->kind != Kind::Null) return found;
      at = end + 1;
    }
    return nullptr;
  }

  [[nodiscard]] const Node* rope_parameters() const {
    const Node* rope = find(text_, "rope_parameters");
    if (rope == nullptr || rope->kind != Kind::Map) return nullptr;
    const Node* full = find(*rope, "full_attention");  // Gemma has one set for each kind of layer
    return full != nullptr && full->kind == Kind::Map ? full : rope;
  }

  [[nodiscard]] std::string_view word(std::string_view keys) const {
    const Node* found = value(keys);
    return found == nullptr ? std::string_view{} : std::string_view(found->text);
  }
  [[nodiscard]] bool is_true(std::string_view keys) const { return word(keys) == "true"; }
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view keys) const { return parse_int(word(keys)).value; }
  [[nodiscard]] bool positive(std::string_view keys) const { return integer(keys).value_or(0) > 0; }

  [[nodiscard]] bool family(std::string_view prefix) const {
    const Node* inner = find(text_, "model_type");
    const Node* outer = find(root_, "model_type");
    return (inner != nullptr && inner->text.starts_with(prefix)) ||
           (outer != nullptr && outer->text.starts_with(prefix));
  }

  [[nodiscard]] Place place_of(std::string_view keys) const {
    const Node* found = value(keys);
    return found == nullptr ? whole_ : found->place;
  }

  [[nodiscard]] const Setting* setting(OptionId option) const {
    const auto at =
        std::find_if(settings_.begin(), settings_.end(), [&](const Setting& s) { return s.option == option; });
    return at == settings_.end() ? nullptr : &*at;
  }

  /// Options and words that the target does not have are left out: the shape is told as far as it can be.
  void set(OptionId option, std::string text, Place place, bool quoted = false) {
    const Option& row = row_of(option, target_.version);
    if (!exists(option, target_) || full(out_)) return;
    if (!row.choices.empty()) {
      const StringList choices = gtp::detail::split_words(row.choices);
      if (std::find(choices.begin(), choices.end(), text) == choices.end()) return;
    }
    const Word word{row.type == Type::Int ? without_fraction(text) : std::move(text), place, quoted};
    if (std::optional<Value> parsed = parse_value(row, std::span(&word, 1), place, out_))
      settings_.push_back({option, *std::move(parsed), place});
  }

  void copy(const Field& field) {
    const Node* found = value(field.keys);
    if (found == nullptr || found->kind != Kind::Scalar || !applies(field.when, *found)) return;
    set(*find_option(field.option), found->text, found->place, found->quoted);
  }

  [[nodiscard]] bool applies(CopyWhen when, const Node& found) const {
    switch (when) {
      case CopyWhen::Always:
        return true;
      case CopyWhen::Positive:
        return parse_float(found.text).value.value_or(1) > 0;
      case CopyWhen::Latent:
        return latent_;
      case CopyWhen::Ordinary:
        return !latent_;
      case CopyWhen::Hybrid:
        return layers_.hybrid_pattern.has_value();
      case CopyWhen::GatedDelta:
        return is_gated_delta();
    }
    return false;
  }

  [[nodiscard]] bool is_gated_delta() const { return value("linear_num_value_heads") != nullptr; }

  void set_layers() {
    if (layers_.count)
      set("num_layers"_opt, *layers_.count, layers_.place, layers_.count_quoted && !layers_.hybrid_pattern);
    if (layers_.hybrid_pattern) set("hybrid_layer_pattern"_opt, *layers_.hybrid_pattern, layers_.pattern_place, true);
    if (layers_.moe_frequency) set("moe_layer_freq"_opt, *layers_.moe_frequency, layers_.frequency_place);
    if (layers_.too_many)
      out_.push_back(rules::at_place(rules::kModelFamily, "", layers_.place, "too many layers to say which are MoE"));
  }

  void set_attention() {
    if (latent_) set("multi_latent_attention"_opt, "true", place_of("kv_lora_rank"));
    if (!latent_) set_query_groups();
    if (latent_ && value("index_topk") != nullptr)
      set("experimental_attention_variant"_opt, "dsa", place_of("index_topk"));
    if (is_gated_delta()) set("experimental_attention_variant"_opt, "gdn", place_of("linear_num_value_heads"));
    if (is_true("attn_output_gate attention_output_gate"))
      set("attention_output_gate"_opt, "true", place_of("attn_output_gate attention_output_gate"));
    if (latent_ || family("qwen3") || family("gemma") || is_true("use_qk_norm"))
      set("qk_layernorm"_opt, "true", place_of("use_qk_norm kv_lora_rank model_type"));
    if (family("qwen2") || is_true("attention_bias qkv_bias"))
      set("add_qkv_bias"_opt, "true", place_of("attention_bias qkv_bias model_type"));
    set_positions();
  }

  void set_query_groups() {
    constexpr std::string_view kGroups = "num_key_value_heads num_kv_heads n_head_kv";
    const auto heads = integer("num_attention_heads n_head num_heads");
    auto groups = integer(kGroups);
    Place place = place_of(kGroups);
    if (!groups && is_true("multi_query")) groups = 1;
    if (!groups && heads)
      if (const auto blocks = widest_block(text_); blocks && blocks->heads_in_group > 0) {
        groups = *heads / blocks->heads_in_group;
        place = blocks->place;
      }
    if (!groups || groups == heads) return;
    set("group_query_attention"_opt, "true", place);
    set("num_query_groups"_opt, fmt::format("{}", *groups), place);
  }

  void set_positions() {
    if (layers_.hybrid_pattern)
      set("position_embedding_type"_opt, "none", layers_.pattern_place);
    else if (value("n_positions") == nullptr)
      set("position_embedding_type"_opt, "rope", place_of("rope_theta model_type"));
  }

  void set_mlp() {
    constexpr std::string_view kActivation = "mlp_hidden_act hidden_act hidden_activation activation_function";
    const std::string_view activation = word(kActivation);
    const bool plain = !family("gemma") && (activation.starts_with("relu") || activation.starts_with("gelu"));
    if (activation == "relu2") set("squared_relu"_opt, "true", place_of(kActivation));
    if (!plain) set("swiglu"_opt, "true", place_of(kActivation));
    const bool bias = is_true("mlp_bias") || family("gpt_oss") || value("n_embd") != nullptr;
    set("add_bias_linear"_opt, bias ? "true" : "false", place_of("mlp_bias model_type"));
    const bool root_mean_square = value("layer_norm_epsilon layer_norm_eps") == nullptr || layers_.hybrid_pattern ||
                                  value("rms_norm_eps") != nullptr;
    set("normalization"_opt, root_mean_square ? "RMSNorm" : "LayerNorm",
        place_of("rms_norm_eps layer_norm_epsilon layer_norm_eps model_type"), true);
    const Node* tied = value("tie_word_embeddings");
    const bool is_tied = tied == nullptr ? family("gemma") || family("gpt2") : tied->text == "true";
    set("untie_embeddings_and_output_weights"_opt, is_tied ? "false" : "true",
        place_of("tie_word_embeddings model_type"));
    if (setting("ffn_hidden_size"_opt) != nullptr) return;
    if (const auto blocks = widest_block(text_); blocks && blocks->ffn_hidden_size > 0)
      set("ffn_hidden_size"_opt, fmt::format("{}", blocks->ffn_hidden_size), blocks->place);
  }

  void set_experts() {
    if (setting("num_experts"_opt) == nullptr) return;
    const std::string_view score = word("scoring_func moe_router_activation_func");
    if (!score.empty())
      set("moe_router_score_function"_opt, std::string(score), place_of("scoring_func moe_router_activation_func"),
          true);
    if (integer("n_group").value_or(0) > 1) {
      set("moe_router_num_groups"_opt, std::string(word("n_group")), place_of("n_group"));
      if (positive("topk_group"))
        set("moe_router_group_topk"_opt, std::string(word("topk_group")), place_of("topk_group"));
    }
  }

  /// Where no key of its own gives the width of the experts, `intermediate_size` is that width.
  void set_expert_widths() {
    if (setting("num_experts"_opt) == nullptr) return;
    constexpr std::string_view kWidth = "moe_intermediate_size intermediate_size";
    if (value(kWidth) == nullptr) return;
    set("moe_ffn_hidden_size"_opt, std::string(word(kWidth)), place_of(kWidth));
    constexpr std::string_view kShared =
        "moe_shared_expert_intermediate_size shared_expert_intermediate_size share_expert_dim shared_intermediate_size";
    constexpr std::string_view kCount = "n_shared_experts num_shared_experts";
    const auto width = integer(kWidth), count = integer(kCount);
    if (positive(kShared)) {
      set("moe_shared_expert_intermediate_size"_opt, std::string(word(kShared)), place_of(kShared));
      if (family("qwen")) set("moe_shared_expert_gate"_opt, "true", place_of(kShared));
    } else if (count && *count > 0 && width) {
      if (const auto total = checked_multiply(*width, *count))
        set("moe_shared_expert_intermediate_size"_opt, fmt::format("{}", *total), place_of(kCount));
    } else if (family("llama4") || is_true("enable_moe_block")) {  // one dense MLP runs beside the experts
      set("moe_shared_expert_intermediate_size"_opt, std::string(word("intermediate_size")),
          place_of("intermediate_size"));
    }
  }

  void report(std::string_view option, std::string_view keys) {
    if (full(out_)) return;
    std::string looked(keys);
    for (std::size_t at = looked.find(' '); at != std::string::npos; at = looked.find(' ', at + 2))
      looked.replace(at, 1, ", ");
    out_.push_back(rules::at_place(rules::kModelFamily, option, whole_,
                                   fmt::format("no key gives `{}`; looked for {}", option, looked)));
  }

  /// Whether no key gives a number, or text in its place, which is reported where it stands.
  [[nodiscard]] bool missing(std::string_view keys) const {
    const Node* found = value(keys);
    return found == nullptr || found->kind != Kind::Scalar;
  }

  void report_missing() {
    if (!layers_.count) report("num_layers", kLayerKeys);
    for (const Field& field : kFields)
      if (field.needed && missing(field.keys)) report(field.option, field.keys);
    const bool ffn = setting("ffn_hidden_size"_opt) != nullptr || setting("moe_ffn_hidden_size"_opt) != nullptr;
    constexpr std::string_view kFfnKeys = "intermediate_size moe_intermediate_size";
    if (!ffn && missing(kFfnKeys)) report("ffn_hidden_size", kFfnKeys);
    constexpr std::string_view kTopkKeys = "num_experts_per_tok";
    if (setting("num_experts"_opt) != nullptr && setting("moe_router_topk"_opt) == nullptr && missing(kTopkKeys))
      report("moe_router_topk", kTopkKeys);
  }

  const Node& root_;
  const Node& text_;
  const Target& target_;
  Place whole_;
  Diagnostics& out_;
  std::vector<Setting> settings_{};
  Layers layers_{};
  bool latent_ = false;
};

}  // namespace

bool is_hugging_face(const Node& root) {
  return find(root, "model_type") != nullptr || find(root, "architectures") != nullptr;
}

std::vector<Setting> read_hugging_face(const Node& root, const Target& target, Place whole, Diagnostics& out) {
  return ModelReader(root, target, whole, out).read();
}

}  // namespace gtp::readers
