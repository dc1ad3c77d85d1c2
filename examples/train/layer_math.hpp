// The arithmetic of a decoder layer other than its matrix products: norm, attention, activation, embedding, loss.
// Pure functions on host memory; each writes only its first arguments.
#pragma once

#include "linear.hpp"

namespace gtp::train {

/// Rows are normalized; `mean` and `rstd` hold one value a row for backward.
void layer_norm_forward(Floats y, Floats mean, Floats rstd, ConstFloats x, Weights gain, Weights bias);
/// dx += the gradient through the norm. dgain and dbias += their sums over all rows.
void layer_norm_backward(Floats dx, Floats dgain, Floats dbias, ConstFloats dy, ConstFloats x, ConstFloats mean,
                         ConstFloats rstd, Weights gain);

struct AttentionShape {
  std::size_t samples = 0;
  std::size_t seq = 0;
  std::size_t heads = 0;  ///< Of this rank.
  std::size_t width = 0;  ///< Of one head.

  std::size_t columns() const noexcept { return heads * width; }
  std::size_t probabilities() const noexcept { return samples * heads * seq * seq; }
};

/// Causal. `qkv` is [tokens, heads, {q, k, v}, width], so that a slice of rows of its weight is a slice of heads.
void attention_forward(Floats context, Floats probs, ConstFloats qkv, const AttentionShape& shape);
void attention_backward(Floats dqkv, ConstFloats dcontext, ConstFloats probs, ConstFloats qkv,
                        const AttentionShape& shape);

void gelu_forward(Floats y, ConstFloats x);
/// d *= gelu'(x)
void gelu_backward(Floats d, ConstFloats x);

/// Rows of a slice of the table; tokens outside of [first, first + rows of the table) give 0.
void embedding_forward(Floats y, Tokens tokens, Weights table, std::size_t first);
void embedding_wgrad(GradTarget dtable, ConstFloats dy, Tokens tokens, std::size_t first, std::size_t rows);
/// x += position, by place in the sample.
void position_forward(Floats x, Weights position);
/// dposition += the sum over samples.
void position_backward(Floats dposition, ConstFloats dx);

/// Softmax cross entropy. `logits` is [slices, tokens, vocab / slices]; `dlogits`, of slice `own`, is scaled by
/// `scale`, and may be empty. The sum of losses is returned.
double cross_entropy(Floats dlogits, ConstFloats logits, Tokens targets, std::size_t slices, std::size_t own,
                     float scale);

}  // namespace gtp::train
