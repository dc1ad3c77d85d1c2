// Which key of a Hugging Face `config.json` holds the value of which option. Only plain copies; what needs
// a decision is in hugging_face.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace gtp::readers {

enum class CopyWhen : std::uint8_t {
  Always,
  Positive,    ///< zero means that the model has no such part
  Latent,      ///< only with multi-latent attention
  Ordinary,    ///< only without multi-latent attention
  Hybrid,      ///< only with Mamba layers
  GatedDelta,  ///< only with gated delta net layers
};

struct Field {
  std::string_view option;
  std::string_view keys;  ///< separated by spaces; the first that the file has wins
  CopyWhen when = CopyWhen::Always;
  bool needed = false;  ///< every model has it
};

inline constexpr std::array kFields{
    Field{"hidden_size", "hidden_size n_embd d_model", CopyWhen::Always, true},
    Field{"num_attention_heads", "num_attention_heads n_head num_heads", CopyWhen::Always, true},
    Field{"vocab_size", "vocab_size", CopyWhen::Always, true},
    Field{"ffn_hidden_size", "dense_intermediate_size intermediate_size_mlp intermediate_size n_inner ffn_dim"},
    Field{"max_position_embeddings", "max_position_embeddings n_positions max_sequence_length"},
    Field{"layernorm_epsilon",
          "rms_norm_eps layer_norm_epsilon layernorm_epsilon layer_norm_eps norm_eps norm_epsilon"},
    Field{"kv_channels", "head_dim attention_head_dim", CopyWhen::Ordinary},
    Field{"kv_lora_rank", "kv_lora_rank", CopyWhen::Latent},
    Field{"q_lora_rank", "q_lora_rank", CopyWhen::Latent},
    Field{"qk_head_dim", "qk_nope_head_dim", CopyWhen::Latent},
    Field{"qk_pos_emb_head_dim", "qk_rope_head_dim", CopyWhen::Latent},
    Field{"v_head_dim", "v_head_dim", CopyWhen::Latent},
    Field{"dsa_indexer_n_heads", "index_n_heads", CopyWhen::Latent},
    Field{"dsa_indexer_head_dim", "index_head_dim", CopyWhen::Latent},
    Field{"dsa_indexer_topk", "index_topk", CopyWhen::Latent},
    Field{"num_experts", "num_experts num_local_experts n_routed_experts", CopyWhen::Positive},
    Field{"moe_router_topk", "num_experts_per_tok num_experts_per_token experts_per_token top_k_experts",
          CopyWhen::Positive},
    Field{"moe_latent_size", "moe_latent_size routed_expert_hidden_size", CopyWhen::Positive},
    Field{"moe_router_topk_scaling_factor", "routed_scaling_factor moe_router_scaling_factor"},
    Field{"mtp_num_layers", "num_nextn_predict_layers mtp_num_hidden_layers num_mtp_modules", CopyWhen::Positive},
    Field{"rotary_base", "rope_theta", CopyWhen::Positive},
    Field{"rotary_percent", "partial_rotary_factor"},
    Field{"mamba_num_heads", "mamba_num_heads", CopyWhen::Hybrid},
    Field{"mamba_head_dim", "mamba_head_dim", CopyWhen::Hybrid},
    Field{"mamba_num_groups", "n_groups", CopyWhen::Hybrid},
    Field{"mamba_state_dim", "ssm_state_size", CopyWhen::Hybrid},
    Field{"linear_conv_kernel_dim", "linear_conv_kernel_dim", CopyWhen::GatedDelta},
    Field{"linear_key_head_dim", "linear_key_head_dim", CopyWhen::GatedDelta},
    Field{"linear_num_key_heads", "linear_num_key_heads", CopyWhen::GatedDelta},
    Field{"linear_num_value_heads", "linear_num_value_heads", CopyWhen::GatedDelta},
    Field{"linear_value_head_dim", "linear_value_head_dim", CopyWhen::GatedDelta},
    Field{"linear_attention_freq", "full_attention_interval", CopyWhen::GatedDelta},
};

}  // namespace gtp::readers
