#include "model.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gtp::train {

Model::Model(const BlockContext& context, std::uint64_t seed)
    : rank_(context.rank),
      shape_(context.shape),
      batch_(context.batch),
      seed_(seed),
      embedding_(context.parameters.find("embedding")),
      position_(context.parameters.find("position")),
      final_norm_(context, "final_norm"),
      head_(context, "head"),
      tokens_(rank_.memory<std::int32_t>(batch_.tokens())),
      targets_(rank_.memory<std::int32_t>(batch_.tokens())),
      logits_(rank_.floats(batch_.tokens() * head_.out())),
      gathered_logits_(logits_),
      dlogits_(rank_.floats(logits_.size())),
      d_normed_(rank_.floats(batch_.tokens() * shape_.hidden)),
      d_(rank_.floats(d_normed_.size())),
      losses_(rank_.memory<double>(1)) {
  if (rank_.topology().tp > 1) gathered_logits_ = rank_.floats(batch_.tokens() * shape_.vocab);
  for (std::size_t i = 0; i < shape_.layers; ++i) {
    const std::string layer = fmt::format("layers.{}", i);
    blocks_.push_back(std::make_unique<AttentionBlock>(context, layer));
    if (shape_.is_moe()) {
      blocks_.push_back(make_moe_block(context, layer));
    } else {
      blocks_.push_back(std::make_unique<MlpBlock>(context, layer));
    }
  }
  for (std::size_t i = 0; i <= blocks_.size(); ++i) activations_.push_back(rank_.floats(d_.size()));
}

void Model::reset_loss() {
  rank_.run({"loss", "reset"}, {writes(losses_)}, [losses = losses_] { losses[0] = 0.0; });
}

void Model::load(DataSplit split, std::int64_t first_sample) {
  rank_.run({"data", "load"}, {writes(tokens_), writes(targets_)},
            [=, tokens = tokens_, targets = targets_, seq = batch_.seq, vocab = shape_.vocab, seed = seed_] {
              std::vector<std::int32_t> sample(seq + 1);
              for (std::size_t at = 0; at < tokens.size(); at += seq) {
                make_sample(sample, seed, split, first_sample + static_cast<std::int64_t>(at / seq), vocab);
                std::copy_n(sample.begin(), seq, tokens.begin() + static_cast<std::ptrdiff_t>(at));
                std::copy_n(sample.begin() + 1, seq, targets.begin() + static_cast<std::ptrdiff_t>(at));
              }
            });
}

void Model::embed() {
  const Weights table = values_of(rank_.gtp().materialize(*embedding_.weight, Use::kForward, rank_.compute())[0]);
  const Floats x = activations_.front();
  rank_.run({"embedding", "forward"}, {writes(x), reads(tokens_), reads(table)},
            [=, tokens = tokens_, first = embedding_.row_begin] { embedding_forward(x, tokens, table, first); });
  rank_.all_reduce(rank_.groups().tp, x, {"embedding", "forward"}, rank_.calls().tensor_parallel);
  const Weights position = position_.values;
  rank_.run({"position", "forward"}, {writes(x), reads(position)}, [=] { position_forward(x, position); });
}

void Model::forward(DataSplit split, std::int64_t first_sample) {
  load(split, first_sample);
  embed();
  for (std::size_t i = 0; i < blocks_.size(); ++i) blocks_[i]->forward(activations_[i + 1], activations_[i]);
  final_norm_.forward(activations_.back());
  head_.forward(logits_, final_norm_.output());
  const Group& tp = rank_.groups().tp;
  if (tp.size() == 1) return;
  rank_.all_gather(tp, std::as_writable_bytes(gathered_logits_), std::as_bytes(logits_), {"head", "forward"},
                   rank_.calls().tensor_parallel);
}

void Model::loss(Floats dlogits, float scale) {
  const Group& tp = rank_.groups().tp;
  rank_.run({"loss", "cross entropy"}, {writes(losses_), writes(dlogits), reads(gathered_logits_), reads(targets_)},
            [=, losses = losses_, logits = gathered_logits_, targets = targets_,
             slices = static_cast<std::size_t>(tp.size()), own = static_cast<std::size_t>(tp.position())] {
              losses[0] += cross_entropy(dlogits, logits, targets, slices, own, scale);
            });
}

void Model::evaluate() { loss({}, 0.0F); }

void Model::backward(float scale) {
  loss(dlogits_, scale);
  head_.backward(d_normed_, dlogits_, final_norm_.output());
  rank_.all_reduce(rank_.groups().tp, d_normed_, {"head", "backward"}, rank_.calls().tensor_parallel);
  rank_.run({"residual", "start"}, {writes(d_)}, [d = d_] { std::ranges::fill(d, 0.0F); });
  final_norm_.backward(d_, d_normed_, activations_.back());
  for (std::size_t i = blocks_.size(); i-- > 0;) blocks_[i]->backward(d_, activations_[i]);
  embed_backward();
}

void Model::embed_backward() {
  rank_.run({"position", "backward"}, {writes(position_.grad), reads(d_)},
            [d = d_, grad = position_.grad] { position_backward(grad, d); });
  Runtime& gtp = rank_.gtp();
  const WgradView view = gtp.grad_buffer(*embedding_.weight, rank_.compute())[0];
  rank_.run({"embedding", "wgrad"}, {touched(view), reads(d_), reads(tokens_)},
            [=, d = d_, tokens = tokens_, first = embedding_.row_begin, rows = embedding_.rows] {
              embedding_wgrad(target_of(view), d, tokens, first, rows);
            });
  gtp.reduce_grad(*embedding_.weight, rank_.compute());
}

}  // namespace gtp::train
