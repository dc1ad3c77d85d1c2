// The sizes of the model that is trained. Plain values.
#pragma once

#include <cstddef>

namespace gtp::train {

/// A decoder of pre-norm layers: learned positions, attention, then an MLP or a mixture of experts; untied head.
struct ModelShape {
  std::size_t layers = 2;
  std::size_t hidden = 16;
  std::size_t heads = 4;
  std::size_t ffn = 32;
  std::size_t vocab = 32;
  std::size_t seq = 8;
  std::size_t experts = 0;  ///< 0: a dense model.
  std::size_t topk = 2;

  bool is_moe() const noexcept { return experts > 0; }
  std::size_t head_width() const noexcept { return hidden / heads; }
};

}  // namespace gtp::train
